"""llama.cpp reads off the likeliest next tokens of prompts, on one thread: processor seconds.

    python llama_cpp.py GGUF PROMPTS

Needs an environment with xllamacpp and the package that contains the file GGUF. PROMPTS is a JSON file:
{"prompts": [text, ...]}. They are sorted, since a prefix shared with the previous prompt is not recomputed; no other
tuning was tried.
"""

import importlib.resources
import json
import sys
import time
from pathlib import Path

import xllamacpp


def main() -> None:
    """Measure, and print the result."""
    asked = json.loads(Path(sys.argv[2]).read_text())
    params = xllamacpp.CommonParams()
    package, _, name = sys.argv[1].partition("/")
    file = importlib.resources.files(package) / name
    params.model.path, params.n_ctx, params.n_parallel = str(file), 2048, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    options = {"n_predict": 1, "n_probs": 20, "temperature": 0.0, "cache_prompt": True}
    server.handle_completions({"prompt": asked["prompts"][0], **options})
    began = time.process_time()
    for text in sorted(asked["prompts"]):
        server.handle_completions({"prompt": text, **options})
    seconds = time.process_time() - began
    sys.stdout.write(json.dumps({"seconds": seconds, "version": xllamacpp.__version__}))


if __name__ == "__main__":
    main()

"""vLLM answers chat requests in one process, without a server: seconds, first requests left out.

    python vllm_offline.py QUESTIONS FOUND

For an environment that has vLLM. QUESTIONS is a JSON file: {"model", "gpus", "max_model_len", "questions": {kind:
[body of a request to /chat/completions, ...]}}. FOUND is written: {"version", "rates": {kind: questions a second}}.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import vllm
from vllm.sampling_params import StructuredOutputsParams

FIRST = 64
"""Requests asked beforehand, since the first ones take longer."""


def main() -> None:
    """Measure, and write the result."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    model = vllm.LLM(asked["model"], tensor_parallel_size=asked["gpus"], max_model_len=asked["max_model_len"], seed=0)
    rates = {}
    for kind, bodies in asked["questions"].items():
        messages, params = [body["messages"] for body in bodies], [sampling(body) for body in bodies]
        model.chat(messages[:FIRST], params[:FIRST], use_tqdm=False)
        began = time.perf_counter()
        answers = model.chat(messages, params, use_tqdm=False)
        rates[kind] = len(answers) / (time.perf_counter() - began)
    Path(sys.argv[2]).write_text(json.dumps({"version": vllm.__version__, "rates": rates}))


def sampling(body: dict[str, Any]) -> vllm.SamplingParams:
    """Return what a request asks for in vLLM's own terms."""
    form = body.get("response_format")
    return vllm.SamplingParams(
        temperature=body["temperature"],
        max_tokens=body["max_tokens"],
        logprobs=body.get("top_logprobs"),
        structured_outputs=StructuredOutputsParams(json=form["json_schema"]["schema"]) if form else None,
    )


if __name__ == "__main__":
    main()

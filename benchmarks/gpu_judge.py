"""Questions a second that Laurel gets answered by a 7B judge on a GPU, compared with the rate of vLLM offline.

    python benchmarks/gpu_judge.py                            # Qwen2.5-7B-Instruct, fetched by vLLM
    python benchmarks/gpu_judge.py --model /models/a-judge    # a directory with weights

The judge is asked as `laurel annotate` asks with `annotate.openai.serve`: Laurel starts `vllm serve`, and stores every
answer. The limit is the same questions given to vLLM's own `LLM.chat` at once, in one process without a server. Both
are asked for one token, and for written answers. Starting and loading do not count. It needs a GPU and the command
`vllm` (or LAUREL_VLLM); without them it says so, and ends with exit code 2.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from record import about, command_line, load_average, write

from laurel.envs import adapter_for
from laurel.envs.captioner import Captioner
from laurel.feedback.annotator import Pair
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.questions.pair import PairQuestion, load_prompt
from laurel.llm import served
from laurel.llm.chat import ChatRequest, Sampling
from laurel.llm.chat_wire import Dialect
from laurel.params import EnvParams, Params, parse_params

MODEL = "Qwen/Qwen2.5-7B-Instruct"
SHARE = 0.5
PAIRS, WRITTEN_PAIRS, STEPS = 4000, 500, 8
"""Pairs asked about for one token and for a written answer, and captions of each text."""
IN_FLIGHT, MAX_MODEL_LEN, MAX_TOKENS = 256, 4096, 512
ENV = EnvParams(id="MiniGrid-DoorKey-8x8-v0")
PROMPTS = {"one token": "answer_only", "written": "motif"}
"""What is asked for -> the prompt."""
OFFLINE = Path(__file__).resolve().parent / "peers" / "vllm_offline.py"
Rates = dict[str, float]
"""What is asked for -> questions a second."""


def main() -> None:
    """Measure both, print the result and write it; exit with 2 where there is no GPU or no vLLM."""
    parser = command_line(__doc__)
    parser.add_argument("--model", default=MODEL, help=f"a name on the hub, or a directory (default: {MODEL})")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"asked about for one token (default: {PAIRS})")
    parser.add_argument(
        "--written-pairs", type=int, default=WRITTEN_PAIRS, help=f"for a written answer (default: {WRITTEN_PAIRS})"
    )
    options = parser.parse_args()
    gpu, program = _gpu(), _program()
    load = f"{load_average()} before the run"
    asked = {kind: pairs_of(n) for kind, n in zip(PROMPTS, (options.pairs, options.written_pairs), strict=True)}
    with tempfile.TemporaryDirectory() as directory, chdir(directory):
        peer = offline(python_of(program), options.model, asked)  # first, since each takes most of the GPU's memory
        rates, answered, cpu = online(options.model, asked)
    limits: Rates = peer["rates"]
    shares = {kind: rates[kind] / limits[kind] for kind in PROMPTS}
    write(
        "gpu_judge",
        {
            "value": [round(rate, 1) for rate in rates.values()],
            "unit": f"questions/s that {Path(options.model).name} answers on {gpu}, asked as laurel annotate asks, "
            f"{IN_FLIGHT} in flight: for one token, and for a written answer",
            "target": f">= {SHARE:g} of vLLM's offline rate, each",
            "met": min(shares.values()) >= SHARE,
            "peer": "the limit: questions/s of vLLM's LLM.chat with the same questions at once, without a server; and "
            "the shares of it",
            "peer_value": [[round(limits[kind], 1) for kind in PROMPTS], [round(shares[kind], 2) for kind in PROMPTS]],
            "answered": {kind: round(share, 3) for kind, share in answered.items()},
            "why": "Between the limit and Laurel are HTTP and vLLM's server. Laurel's own process takes "
            + " and ".join(f"{cpu[kind] * 1e6:.0f} microseconds of a core per question for {kind}" for kind in cpu)
            + f"; {IN_FLIGHT} questions in flight may be too few to fill the GPU's batches.",
        },
        about("openai", "aiohttp", "laurel-rl", remarks=(gpu, load), vllm=str(peer["version"])),
    )


def _gpu() -> str:
    """Return the name of the GPU."""
    import torch

    if not torch.cuda.is_available():
        _stop("needs a GPU, and PyTorch finds none on this machine; nothing was measured.")
    return str(torch.cuda.get_device_name())


def _program() -> Path:
    """Return vLLM's command."""
    place = shutil.which(os.environ.get(served.PROGRAM, "vllm"))
    if place is None:
        _stop(f"needs the command vllm: put it on the PATH, or name it in {served.PROGRAM}; nothing was measured.")
    return Path(place)


def _stop(message: str) -> NoReturn:
    sys.stderr.write(f"gpu_judge {message}\n")
    raise SystemExit(2)


def python_of(program: Path) -> str:
    """Return the interpreter of a command that is a Python script: vLLM's environment is its own."""
    first = program.read_bytes().partition(b"\n")[0].decode(errors="replace")
    if not first.startswith("#!"):
        _stop(f"cannot tell which Python {program} runs with: its first line is no #!; nothing was measured.")
    return first.removeprefix("#!").strip()


def pairs_of(n: int) -> list[Pair]:
    """Draw distinct texts of some captions of DoorKey each, in pairs."""
    captions = Captioner(adapter_for(ENV), enumerate_events=True).texts
    rng = np.random.default_rng(n)
    texts = [" ".join(rng.choice(captions, STEPS)) for _ in range(2 * n)]
    return [Pair(first, second) for first, second in zip(texts[::2], texts[1::2], strict=True)]


# -- vLLM alone ---------------------------------------------------------------------------------------------------
def offline(python: str, model: str, asked: dict[str, list[Pair]]) -> dict[str, Any]:
    """Return vLLM's version, and its rate without a server."""
    bodies = {kind: bodies_of(model, PROMPTS[kind], pairs) for kind, pairs in asked.items()}
    questions, found = Path("questions.json").resolve(), Path("found.json").resolve()
    request = {"model": model, "gpus": served.gpus_here(), "max_model_len": MAX_MODEL_LEN, "questions": bodies}
    questions.write_text(json.dumps(request))
    command = [python, str(OFFLINE), str(questions), str(found)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise SystemExit(done.stdout)
    rates: dict[str, Any] = json.loads(found.read_text())
    return rates


def bodies_of(model: str, prompt: str, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return the requests about pairs, each in both orders, as Laurel sends them."""
    question, dialect = PairQuestion(load_prompt(prompt), adapter_for(ENV)), Dialect(model)
    sampling = Sampling(max_tokens=MAX_TOKENS)
    return [
        dialect.body(ChatRequest(question.messages(pair, order), sampling, question.choices, question.prompt.schema))
        for pair in pairs
        for order in (0, 1)
    ]


# -- as Laurel asks -----------------------------------------------------------------------------------------------
def online(model: str, asked: dict[str, list[Pair]]) -> tuple[Rates, Rates, Rates]:
    """Start a server and ask it; return questions a second, the share of verdicts, and CPU seconds per question."""
    rates, answered, cpu = Rates(), Rates(), Rates()
    address = f"http://127.0.0.1:{_free_port()}/v1"
    try:
        for kind, pairs in asked.items():
            params = params_of(model, address, PROMPTS[kind], Path(f"{kind}.db"))
            annotator = kind_of(params.annotate).make(adapter_for(ENV), 0)
            list(annotator.annotate([Pair("You turn.", "You move forward.")]))  # starts the server
            began, worked = time.perf_counter(), time.process_time()
            statuses = [judgement.status for judgement in annotator.annotate(pairs)]
            rates[kind] = 2 * len(pairs) / (time.perf_counter() - began)
            cpu[kind] = (time.process_time() - worked) / (2 * len(pairs))
            answered[kind] = sum(status in ("ok", "tie") for status in statuses) / len(pairs)
    finally:
        served.stop(address)
    return rates, answered, cpu


def params_of(model: str, address: str, prompt: str, answers: Path) -> Params:
    """Return the params of a run whose judge is served here."""
    server = {"serve": {"max_model_len": MAX_MODEL_LEN}, "max_in_flight": IN_FLIGHT, "max_tokens": MAX_TOKENS}
    content = {
        "env": {"id": ENV.id},
        "collect": {"steps": 1},
        "arms": ["extrinsic"],
        "agent": {"seeds": [0], "steps": 1},
        "annotate": {
            "annotator": "openai",
            "openai": {"model": model, "base_url": address, **server},
            "language_model": {"prompt": prompt, "responses": str(answers)},
        },
        "tracking": {"enabled": False},
    }
    return parse_params(content, "benchmark")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()

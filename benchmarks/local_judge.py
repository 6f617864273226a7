"""How fast a small chat model judges, and how well it does once tuned, on environments that it never saw.

    python benchmarks/local_judge.py               # speed: questions a second, and labels as in float32
    python benchmarks/local_judge.py --left-out    # tune it anew for each family of environments, without that family

SmolLM2-135M-Instruct, put on this machine by `laurel language-model`. The second takes minutes for each family; a run
that was stopped goes on after the last family that was done. Labels are environments' hand-written progress.
"""

import json
import tempfile
import time
from argparse import Namespace
from math import exp
from pathlib import Path
from typing import Any

import torch
from record import about, command_line, load_average, write

from laurel.envs import adapter_for
from laurel.feedback.known_answers import by_progress
from laurel.feedback.questions.pair import PairQuestion, load_prompt
from laurel.llm import smollm2
from laurel.llm.chat import ChatRequest, Reply
from laurel.llm.local_chat import LocalChat
from laurel.llm.local_model import QUALITY, load_model
from laurel.llm.local_tuning import Tuning
from laurel.params import EnvParams, parse_params
from laurel.params.judges import HuggingFaceParams
from laurel.stages import tune_judge

SPEED_TARGET = 100.0
ENV, PAIRS = "FrozenLake-v1", 120
FAMILIES = {
    "minigrid": (
        "MiniGrid-DoorKey-8x8-v0", "MiniGrid-UnlockPickup-v0", "MiniGrid-KeyCorridorS3R3-v0", "MiniGrid-LavaGapS7-v0",
        "MiniGrid-MultiRoom-N2-S4-v0", "MiniGrid-RedBlueDoors-8x8-v0",
    ),
    "grids": ("FrozenLake-v1", "CliffWalking-v1"),
    "taxi": ("Taxi-v3",),
    "blackjack": ("Blackjack-v1",),
    "mountain_car": ("MountainCar-v0",),
    "cartpole": ("CartPole-v1",),
    "acrobot": ("Acrobot-v1",),
    "lunar_lander": ("LunarLander-v3",),
}  # fmt: skip
"""Environments whose captions are worded alike: none of a family is learned from where one of it is the test."""
AT_MOST, MINUTES = 500, 6.0


def main() -> None:
    """Measure, print the result and write it."""
    parser = command_line(__doc__)
    parser.add_argument("--left-out", action="store_true", help="tune, and test with what was left out")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "laurel-left-out"), metavar="DIR")
    options = parser.parse_args()
    if not smollm2.installed():
        smollm2.install()
    (left_out if options.left_out else speed)(options)


def speed(options: Namespace) -> None:
    """Time questions in the CPU's best type and in float32, where each prompt is computed whole."""
    load = f"{load_average()} before the run"
    question = PairQuestion(load_prompt("concise"), adapter_for(EnvParams(id=ENV)))
    requests = [
        ChatRequest(question.messages(pair, order), choices=question.choices)
        for pair, _ in by_progress(question.adapter, PAIRS, seed=0).pairs
        for order in (0, 1)
    ]
    asked: dict[str, tuple[float, list[float]]] = {}
    for dtype in ("bfloat16", "float32"):
        chat = LocalChat(load_model(HuggingFaceParams(model=smollm2.NAME, device="cpu", dtype=dtype)), 8192)
        list(chat.ask(requests[:16]))  # what is done for the first time counts for nothing
        asked[dtype] = _asked(chat, requests)
    fast, exact = asked["bfloat16"], asked["float32"]
    same = sum((a > 0) == (b > 0) for a, b in zip(_leans(fast[1]), _leans(exact[1]), strict=True)) / PAIRS
    found: dict[str, Any] = {
        "value": round(fast[0], 1),
        "unit": "questions a second, bfloat16",
        "target": f">= {SPEED_TARGET:g} on two cores",
        "met": fast[0] >= SPEED_TARGET,
        "peer": "the same in float32",
        "peer_value": round(exact[0], 1),
        "agreement": f"{same:.1%} of labels are those of float32",
    }
    if not found["met"]:
        found["why"] = "matrix products take nine tenths of the time; cores were shared with other work (load average)."
    remarks = f"{torch.get_num_threads()} threads", load
    write("local_judge", found, about("torch", "transformers", "laurel-rl", remarks=remarks))


def _asked(chat: LocalChat, requests: list[ChatRequest]) -> tuple[float, list[float]]:
    """Return questions a second, and the probability of the text shown first in each."""
    started = time.perf_counter()
    replies = dict(chat.ask(requests))
    seconds = time.perf_counter() - started
    p = []
    for number in range(len(requests)):
        reply = replies[number]
        assert isinstance(reply, Reply)
        assert reply.logprobs is not None
        p.append(exp(reply.logprobs["1"]))
    return len(requests) / seconds, p


def _leans(p: list[float]) -> list[float]:
    """Return how far each pair's first text is preferred, both orders together."""
    return [a - b for a, b in zip(p[::2], p[1::2], strict=True)]


def left_out(options: Namespace) -> None:
    """Tune a judge for each family, on all others, and ask it about that family."""
    found: dict[str, Any] = {}
    minutes = []
    for family, tested in FAMILIES.items():
        learned = [env for other, envs in FAMILIES.items() if other != family for env in envs]
        place = options.work / family
        if not (place / QUALITY).exists():
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
            labels = tune_judge.Labels(tuple(learned), tested, pairs=AT_MOST // len(learned))
            tune_judge.run(params, labels, place, prompt="concise", tuning=Tuning())
        quality = json.loads((place / QUALITY).read_text())
        minutes.append(json.loads((place / ".run.json").read_text())["seconds"] / 60)
        found |= quality["held_out"]
    mean = sum(one["accuracy"]["value"] for one in found.values()) / len(found)
    low = min(found, key=lambda env: found[env]["accuracy"]["ci95"][0])
    bias = max(abs(one["position_bias"]["value"] - 0.5) for one in found.values())
    low_end = found[low]["accuracy"]["ci95"][0]
    met = mean >= 0.9 and low_end > 0.75 and bias < 0.1 and max(minutes) <= MINUTES
    record: dict[str, Any] = {
        "value": round(100 * mean, 1),
        "unit": "% of pairs right on environments of families that were left out, both orders together",
        "target": f">= 90 on average, each interval above 75, position within 10 of a half, <= {MINUTES:g} minutes",
        "met": met,
        "peer": "chance",
        "peer_value": 50,
        "minutes": [round(each, 1) for each in minutes],
        "position": f"at most {bias:.0%} from a half",
        "environments": found,
    }
    if not met:
        record["why"] = f"the interval of {low} begins at {low_end:.0%}; tuning took up to {max(minutes):.0f} minutes."
    remarks = f"{torch.get_num_threads()} threads", load_average()
    write("judge_left_out", record, about("torch", "transformers", "peft", "laurel-rl", remarks=remarks))


if __name__ == "__main__":
    main()

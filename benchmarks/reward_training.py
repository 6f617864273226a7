"""Speed of training a reward model on pairs of long segments, compared with imitation on the same pairs.

A pair-epoch is one comparison that one model learns from once. One model of Laurel's is compared with one of
imitation's, with the same network, batch size and epochs, on one thread each; both take turns. An ensemble of K
models, which the pipeline trains, gives K member-pair-epochs for each comparison. Run it with: python
benchmarks/reward_training.py
"""

import json
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laurel.params.rewards import PreferenceParams
from laurel.rewards.bradley_terry import Comparisons, Trainer
from laurel.rewards.model import raw_rewards

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
from environment import peer_python  # noqa: E402
from record import about, command_line, load_average, write  # noqa: E402
from reward_task import BATCH, EPOCHS, HIDDEN, LENGTH, LONG, PAIRS, SEEDS, WIDTH, Rewards, measure  # noqa: E402

TARGET = 40_000
TOLERANCE = 0.01
"""Tolerance of accuracies, which vary by this much between data sets."""
ROUNDS = 3
TORCH, PEER = f"torch=={version('torch').split('+')[0]}", "imitation==1.0.1"


def main() -> None:
    """Measure both, print the results and write them."""
    command_line(__doc__).parse_args()
    torch.set_num_threads(1)
    load = f"{load_average()} before the run"
    python = peer_python("imitation", (TORCH,), (PEER,))  # torch first, as here: imitation would take any
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(measure("speed", train, prepare))
        theirs.append(_imitation(python, "speed"))
    speed, peer = (_pair_epochs(rounds, "seconds") for rounds in (ours, theirs))
    good, good_peer = measure("quality", train, prepare), _imitation(python, "quality")
    short, long = (statistics.mean(good["accuracies"][str(epochs)]) for epochs in (EPOCHS, LONG))
    short_peer, long_peer = (statistics.mean(good_peer["accuracies"][str(epochs)]) for epochs in (EPOCHS, LONG))
    peers = _versions(python, "imitation", "stable-baselines3", "gymnasium", "torch", "numpy")
    common = about("torch", "numpy", "laurel-rl", remarks=("one thread each", load), **peers)
    task = f"{PAIRS} pairs of {LENGTH} steps of {WIDTH} numbers, {HIDDEN[0]}-{HIDDEN[1]} ReLU, batch {BATCH}"
    write(
        "reward_training",
        {
            "value": round(speed),
            "unit": f"pair-epochs/s of one model ({task}, {EPOCHS} epochs)",
            "target": f">= {TARGET:,}",
            "met": speed >= TARGET,
            "peer": "pair-epochs/s of imitation's one model, same network, batch and pairs",
            "peer_value": round(peer),
            "per_cpu_second": [round(_pair_epochs(rounds, "cpu_seconds")) for rounds in (ours, theirs)],
            "others": _others(),
        },
        common,
    )
    write(
        "reward_training_accuracy",
        {
            "value": [round(short, 3), round(long, 3)],
            "unit": f"held-out accuracy of one model after {EPOCHS} and {LONG} epochs, mean of {len(SEEDS)} data sets "
            "with a planted reward",
            "target": f">= imitation's after as many (- {TOLERANCE})",
            "met": short >= short_peer - TOLERANCE and long >= long_peer - TOLERANCE,
            "peer": "imitation's one model, same network, batch and pairs",
            "peer_value": [round(short_peer, 3), round(long_peer, 3)],
            "learning_rates": {"Laurel": good["learning_rate"], "imitation": good_peer["learning_rate"]},
        },
        common,
    )


def prepare(segments: np.ndarray, first_better: np.ndarray) -> tuple[np.ndarray, Comparisons]:
    """Return the pairs as items and comparisons of them."""
    n = len(segments)
    items = np.arange(n * LENGTH).reshape(n, LENGTH)
    first, second = np.arange(n // 2), np.arange(n // 2, n)
    comparisons = Comparisons(items, np.arange(n), first, second, first_better.astype(np.float64))
    return segments.reshape(-1, WIDTH), comparisons


def train(steps: np.ndarray, comparisons: Comparisons, rate: float, epochs: int, seed: int) -> Rewards:
    """Train one model on each comparison, as imitation does: without the resampling that makes members differ."""
    params = _params(1, BATCH, "relu", learning_rate=rate)
    ensemble = _train(steps, comparisons, params, epochs, seed)
    return lambda new: raw_rewards(ensemble, new)[0]


def _train(steps: np.ndarray, comparisons: Comparisons, params: PreferenceParams, epochs: int, seed: int) -> Any:
    weights = np.ones((params.ensemble, len(comparisons)), dtype=np.float32)
    trainer = Trainer(steps, comparisons, params, weights, seed)
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        trainer.epoch(rng)
    return trainer.ensemble


def _params(members: int, batch: int, activation: str, **others: Any) -> PreferenceParams:
    changes = {"ensemble": members, "batch_size": batch, "activation": activation, "hidden": HIDDEN, **others}
    return PreferenceParams(kind="preference").model_copy(
        update=changes
    )  # unchecked: params.yaml asks for two members at least


def _others() -> dict[str, str]:
    """Measure other settings of ours: the ensemble that the pipeline trains, larger batches, tanh."""
    rng = np.random.default_rng(0)
    segments = rng.standard_normal((2 * PAIRS, LENGTH, WIDTH)).astype(np.float32)
    steps, comparisons = prepare(segments, rng.random(PAIRS) < 0.5)
    figures = {}
    for members, batch, activation in ((1, 256, "relu"), (5, BATCH, "relu"), (5, 256, "relu"), (1, BATCH, "tanh")):
        params = _params(members, batch, activation)
        seconds = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            _train(steps, comparisons, params, EPOCHS, 0)
            seconds.append(time.perf_counter() - started)
        speed = EPOCHS * PAIRS / statistics.median(seconds)
        name = f"{members} member{'s' * (members > 1)}, batch {batch}, {activation}"
        figures[name] = f"{speed:,.0f} pair-epochs/s, {members * speed:,.0f} member-pair-epochs/s"
    return figures


def _imitation(python: Path, figure: str) -> dict[str, Any]:
    command = [str(python), str(HERE / "peers" / "imitation_reward.py"), figure]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603


def _versions(python: Path, *packages: str) -> dict[str, str]:
    code = f"import importlib.metadata as m, json; print(json.dumps({{p: m.version(p) for p in {packages}}}))"
    printed = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout  # noqa: S603
    return {f"peer's {name}": number for name, number in json.loads(printed).items()}


def _pair_epochs(rounds: list[dict[str, Any]], clock: str) -> float:
    return EPOCHS * PAIRS / statistics.median(seconds for figures in rounds for seconds in figures[clock])


if __name__ == "__main__":
    main()

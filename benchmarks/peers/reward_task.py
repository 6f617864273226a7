"""The task on which reward models are compared: pairs of 50-step segments, labelled by a known reward.

As in imitation's own use: 4 numbers a step, one network of two hidden layers of 32 units (ReLU), batches of 32.
Both sides get the same pairs, choose their learning rate from the same list on the same held-out pairs, and are tested
on others. Independent of both libraries: `Train` is either side.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

LENGTH, WIDTH = 50, 4
HIDDEN = (32, 32)
BATCH = 32
PAIRS, HELD_OUT = 1000, 5000
EPOCHS, LONG = 3, 30
"""Epochs of the speed measurement, and of fully trained models."""
RATES = (0.001, 0.003, 0.01, 0.03)
SEEDS = tuple(range(1, 9))
REPEATS = 3

Rewards = Callable[[np.ndarray], np.ndarray]
"""Steps (N, 4) -> rewards (N,)."""
Prepare = Callable[[np.ndarray, np.ndarray], tuple[Any, ...]]
"""Segments (2P, 50, 4), of which the i-th and the (P + i)-th are a pair, and whether the first is better (P,) -> what
`train` takes. Not part of either side's time."""
Train = Callable[..., Rewards]
"""What `prepare` gave, learning rate, epochs, seed -> a trained model."""


def measure(figure: str, train: Train, prepare: Prepare) -> dict[str, Any]:
    """Return the `speed` of training or the `quality` of its models, in one process."""
    return _speed(train, prepare) if figure == "speed" else _quality(train, prepare)


def _speed(train: Train, prepare: Prepare) -> dict[str, Any]:
    pairs = prepare(*_pairs(PAIRS, SEEDS[0]))
    train(*pairs, RATES[0], EPOCHS, 0)  # warm-up, not timed
    wall, cpu = [], []
    for _ in range(REPEATS):
        started, worked = time.perf_counter(), time.process_time()
        train(*pairs, RATES[0], EPOCHS, 0)
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - worked)
    return {"seconds": wall, "cpu_seconds": cpu}


def _quality(train: Train, prepare: Prepare) -> dict[str, Any]:
    rate = max(RATES, key=lambda rate: _accuracy(train, prepare, rate, EPOCHS, SEEDS[0], held_out=100))
    accuracies = {
        str(epochs): [_accuracy(train, prepare, rate, epochs, seed, held_out=200) for seed in SEEDS]
        for epochs in (EPOCHS, LONG)
    }
    return {"learning_rate": rate, "accuracies": accuracies}


def _accuracy(train: Train, prepare: Prepare, rate: float, epochs: int, seed: int, held_out: int) -> float:
    """Train on the pairs of a seed; return the model's accuracy on other pairs."""
    rewards = train(*prepare(*_pairs(PAIRS, seed)), rate, epochs, seed)
    segments, first_better = _pairs(HELD_OUT, held_out)
    returns = rewards(segments.reshape(-1, WIDTH)).reshape(-1, LENGTH).sum(axis=1)
    return float(((returns[:HELD_OUT] > returns[HELD_OUT:]) == first_better).mean())


def _pairs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    segments = rng.standard_normal((2 * n, LENGTH, WIDTH)).astype(np.float32)
    returns = _planted(segments).sum(axis=1)
    return segments, returns[:n] > returns[n:]


def _planted(steps: np.ndarray) -> np.ndarray:
    """A reward that no linear model can represent: it saturates, and two of its terms are not monotonic."""
    slope = np.tanh(steps @ np.array([1.0, -0.5, 0.25, 0.8]))
    return slope + 0.5 * np.sin(2 * steps[..., 0]) - 0.3 * np.square(steps[..., 3])

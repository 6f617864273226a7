"""imitation's side of benchmarks/reward_training.py: run in an environment of its own, prints its figures as JSON.

Uses `PreferenceModel` and `BasicRewardTrainer` as its documentation does, without input normalisation, which costs
time and which the task does not need.
"""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from imitation.algorithms.preference_comparisons import (
    BasicRewardTrainer,
    CrossEntropyRewardLoss,
    PreferenceDataset,
    PreferenceModel,
)
from imitation.data.types import TrajectoryWithRew
from imitation.rewards.reward_nets import BasicRewardNet
from imitation.util import logger

sys.path.insert(0, str(Path(__file__).resolve().parent))
from reward_task import BATCH, HIDDEN, LENGTH, WIDTH, Rewards, measure


def main() -> None:
    """Measure, and print."""
    torch.set_num_threads(1)
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar for every training
        figures = measure(sys.argv[1], train, prepare)
    sys.stdout.write(json.dumps(figures))


def prepare(segments: np.ndarray, first_better: np.ndarray) -> tuple[PreferenceDataset]:
    """Return the pairs as imitation's data set."""
    fragments = [_fragment(segment) for segment in segments]
    pairs = PreferenceDataset()
    half = len(fragments) // 2
    pairs.push(list(zip(fragments[:half], fragments[half:], strict=True)), first_better.astype(np.float32))
    return (pairs,)


def train(pairs: PreferenceDataset, rate: float, epochs: int, seed: int) -> Rewards:
    """Train a reward network as imitation does."""
    torch.manual_seed(seed)
    observations = gym.spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32)
    network = BasicRewardNet(observations, gym.spaces.Discrete(2), use_action=False, hid_sizes=HIDDEN)
    with tempfile.TemporaryDirectory() as folder:
        trainer = BasicRewardTrainer(
            PreferenceModel(network),
            CrossEntropyRewardLoss(),
            rng=np.random.default_rng(seed),
            batch_size=BATCH,
            epochs=epochs,
            lr=rate,
            custom_logger=logger.configure(folder, []),
        )
        trainer.train(pairs)

    def rewards(steps: np.ndarray) -> np.ndarray:
        zeros = np.zeros(len(steps), dtype=np.int64)
        return network.predict(steps, zeros, steps, zeros.astype(bool))

    return rewards


def _fragment(segment: np.ndarray) -> TrajectoryWithRew:
    zeros = np.zeros(LENGTH)
    observations = np.concatenate([segment, segment[-1:]])  # the one after the last step is not used
    return TrajectoryWithRew(observations, zeros.astype(np.int64), None, False, zeros)


if __name__ == "__main__":
    main()

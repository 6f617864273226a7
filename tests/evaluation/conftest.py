"""Results and curves of a made-up experiment with known answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import pytest

Tables = tuple[pd.DataFrame, pd.DataFrame]


def make_tables(
    rates: Mapping[str, float], *, seeds: int = 5, episodes: int = 20, success: bool = True, reward_sign: float = 1.0
) -> Tables:
    """Arms with these success rates: each run's rate rises to it in the middle of 50 updates of 1000 steps.

    Ten episodes end in each update, and the curves are over the last hundred of them.
    """
    rng = np.random.default_rng(0)
    results, curves = [], []
    for arm, rate in rates.items():
        for seed in range(seeds):
            for episode in range(episodes):
                solved = rng.random() < rate
                learned = reward_sign * (float(solved) + 0.1 * rng.random())
                results.append(
                    (arm, seed, episode, float(solved), 10, solved if success else None, solved, 0.1, learned)
                )
            for update in range(1, 51 if arm != "random_policy" else 1):
                reached = rate * float(np.clip((update - 24) / 10, 0, 1)) if update >= 5 else np.nan
                measured = reached if success else np.nan
                curves.append((arm, seed, 1000 * update, 10, min(10 * update, 100), reached, measured, 10.0))
    return (
        pd.DataFrame(
            results,
            columns=[
                "arm", "seed", "episode", "return", "length", "success", "terminated", "raw_reward", "shaped_reward",
            ],
        ).astype({"success": object}),
        pd.DataFrame(
            curves,
            columns=[
                "arm", "seed", "env_steps", "episodes", "window", "return_mean", "success_rate",
                "length_mean",
            ],
        ),
    )  # fmt: skip


@pytest.fixture(scope="session")
def tables() -> Callable[..., Tables]:
    return make_tables


@pytest.fixture(scope="session")
def vocabulary() -> pd.DataFrame:
    texts = [f"You meet thing {i}." for i in range(24)]
    texts[3] = 'You pay $5 & $6 for <script>alert("x")</script> --> {{ 7 * 7 }}'
    texts[5] = r"\frac{ $ \alpha_{ $"
    return pd.DataFrame(
        {
            "id": range(24),
            "text": texts,
            "reward": np.linspace(2.0, -2.0, 24),
            "spread": 0.1,
            "count": [0 if i == 1 else i + 1 for i in range(24)],
        }
    )

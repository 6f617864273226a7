"""Results and curves of a made-up experiment with known answers, and the content of its report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from known_arms import KNOWN
from laurel.evaluation import plots
from laurel.evaluation.report import ReportContent
from laurel.evaluation.statistics import rank_agreement, summarise
from report_page import INJECTED, SAMPLE

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


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("figures")


@pytest.fixture(scope="session")
def content(tables, vocabulary, folder, tmp_path_factory):
    results, curves = tables({"extrinsic": 0.1, "preference": 0.9, "random_policy": 0.0})
    metrics = summarise(
        results, curves, tuple(KNOWN.values()), success_threshold=0.9, reward_threshold=None, draws=50, seed=0
    )
    bins = [{"p": 0.1, "observed": 0.2, "pairs": 10}]
    drawn = plots.draw(results, curves, metrics, calibration=bins, draws=50)
    figures = {name: plots.save(figure, folder, name) for name, figure in drawn.items()}
    animation = tmp_path_factory.mktemp("report") / "episode.webp"
    Image.new("RGB", (8, 8)).save(animation)
    return ReportContent(
        title="MiniGrid-DoorKey-8x8-v0",
        description="A door & a key.",
        provenance=["Laurel 1.2", "commit abc of 2026-01-02", "A <CPU>, AVX2"],
        metrics=metrics,
        figures=figures,
        notes=["EnvPool <was> left out."],
        animation=animation,
        vocabulary=vocabulary,
        rank=rank_agreement(results),
        annotation={
            "annotator": "embedding:minilm",
            "pairs": 1276,
            "ok": 900,
            "tie": 376,
            "tokens": {"input": 12},
            "kappa": 0.5,
            "some_new_key": True,
            "position_bias": {"value": 0.625, "ci95": [0.5, 0.75], "of": 64},
            "oracle": {
                "agreement": {"value": 0.9, "ci95": [0.8, 0.95], "of": 40},
                "brier": 0.08,
                "calibration_error": 0.02,
            },
            "missing": [
                {"annotator": "judge <0>", "verdict": "failed", "reason": f"status 400: {INJECTED}", "answers": 1200},
                {"annotator": "judge <1>", "verdict": "unread", "reason": "it is empty", "answers": 3},
            ],
            "by": [
                {"annotator": f"judge <{i}>", "parse_rate": {"value": 1.0, "ci95": [0.9, 1.0], "of": 9}}
                for i in range(2)
            ],
        },
        sample=SAMPLE,
        reward={
            "heldout_agreement": 0.75,
            "baselines": {"similarity": 0.8125, "unknown": None},
            "heldout_loss": 0.5,
            "clear_pairs": 1040,
            "clear_pairs_followed": 1039,
            "kendall_tau_vs_return": 0.25,
            "calibration": bins,
        },
        params={"seed": 3, "evaluate": {"success_threshold": 0.9}},
        versions={"laurel": "0.1.0"},
    )


@pytest.fixture(scope="session")
def words_only(content):
    return dataclasses.replace(content, figures={})

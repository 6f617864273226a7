"""Data and settings of a judge's tuning; imports nothing heavy, so that the command line can show the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Labels:
    """Training and test data of a judge."""

    environments: tuple[str, ...]
    """Environments whose hand-written progress gives the answers; none if a file does."""
    held_out: tuple[str, ...]
    """Held-out environments for the test."""
    pairs: int = 40
    """Training pairs per environment."""
    test_pairs: int = 60
    """Test pairs per environment."""
    gold: Path | None = None
    """Gold labels for the environment of the params."""
    preferences: Path | None = None
    """Another judge's labels for the environment of the params."""
    captions: Path | None = None
    """Captions of `preferences`, needed with these."""
    ranked: Path | None = None
    """Tasks in words whose texts are ranked by hand (`laurel.feedback.ranked_texts`)."""
    ranked_pairs: int = 3
    """Training pairs per task of `ranked`."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings of training."""

    rank: int = 16
    """Rank of the matrices that are added to each projection of attention."""
    learning_rate: float = 1e-3
    """Adam's rate: it rises in the first WARM_UP steps, and falls to 0 linearly in the second half of all steps."""
    passes: int = 3
    """Epochs over all questions."""
    batch: int = 4
    """Items per batch, all of one group."""
    batches: int = 2
    """Batches per step, if there are several groups: a step of one would follow the peculiarities of its texts."""

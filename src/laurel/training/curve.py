"""The learning curve of an agent: its columns, and its file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from laurel.agents.figures import METRICS
from laurel.data.parquet import read_table

CURVE = "curve.parquet"
CURVE_SCHEMA = pa.schema(
    [
        ("env_steps", pa.int64()),
        ("episodes", pa.int64()),  # ended since the previous row
        (
            "window",
            pa.int64(),
        ),  # episodes that the next three columns average, see laurel.agents.episodes
        ("return_mean", pa.float64()),  # null if there are too few
        ("success_rate", pa.float64()),
        ("length_mean", pa.float64()),
        ("raw_reward", pa.float64()),  # mean normalised learned reward a step
        ("shaped_reward", pa.float64()),  # mean learned reward paid a step, before its weight
        ("share_paid", pa.float64()),  # share of steps that were paid anything
        *[(name, pa.float64()) for name in METRICS],  # null if the algorithm does not report it
    ]
)
KL = "reference_kl"
LANGUAGE = {
    KL: "nats a completion",
    "examples": "answers, pairs or groups that a round was tuned on",
    "alone": "answers to prompts that occurred once",
    "alike": "groups of answers in which none is better, or which are too small",
    "subgoals": "share of steps that reach a subgoal",
    "parse_rate": "share of answers that can be read",
    "tokens": "of a proposal, on average: of one answer, or with a strategy of two",
    "critic_error": "mean absolute difference from values by dynamic programming",
    "critic_rank": "Kendall's tau with those values",
}
"""Columns of the curves of language models, each where an agent has it."""
OF_EPISODES = {"env_steps", "episodes", "window", "return_mean", "success_rate", "length_mean"}
"""Columns that are no means over an update."""


def curve_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the schema of a curve that has some of LANGUAGE."""
    return pa.schema([*CURVE_SCHEMA, *[pa.field(name, pa.float64()) for name in LANGUAGE if name in columns]])


def joined(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge rows of a learning curve into one.

    Episodes are summed, and means over an update are averaged over those that have them: an update without a step or an
    episode to learn from has none, or NaN. Means over the last episodes are those of the last row, as are the
    environment steps.
    """
    last = dict(rows[-1])
    if len(rows) > 1:
        last["episodes"] = sum(row["episodes"] for row in rows)
        for name in set[str]().union(*rows) - OF_EPISODES:
            values = [row[name] for row in rows if row.get(name) is not None]
            known = [value for value in values if not math.isnan(value)] or values
            last[name] = sum(known) / len(known) if known else None
    return last


def read_rows(directory: Path) -> list[dict[str, Any]]:
    """Read the learning curve of a checkpoint."""
    rows: list[dict[str, Any]] = pq.read_table(directory / CURVE, schema=curve_schema(LANGUAGE)).to_pylist()
    return rows


def read_curve(directory: Path) -> pa.Table:
    """Read the learning curve of an agent, with those of LANGUAGE that it has.

    Raises:
        DataError: it is missing or damaged.
    """
    read_table(directory / CURVE, CURVE_SCHEMA, "train-agents")
    return read_table(directory / CURVE, curve_schema(pq.read_schema(directory / CURVE).names), "train-agents")

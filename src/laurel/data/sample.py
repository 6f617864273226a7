"""A sample of labelled pairs for human inspection: some of each kind, uncertain ones first, with raw answers.

The file has a row per answer, or a row per pair if no answers are stored. Whether a pair is drawn depends only on its
segments, the seed and its kind, so that the sample of all pairs can be made from samples of its shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laurel.arrays import BoolArray, IntArray
from laurel.data.asked import cut
from laurel.data.parquet import opened, read_table, readable, write_table
from laurel.data.preferences import ANSWERS, STAGE, Pairs, Preferences

SAMPLE = "sample.parquet"

SAMPLE_SCHEMA = pa.schema(
    [
        pa.field("pair", pa.int32(), nullable=False),
        pa.field("first", pa.string(), nullable=False),
        pa.field("second", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("p_first", pa.float64()),
        pa.field("swap_consistent", pa.bool_()),
        pa.field("swapped", pa.bool_()),
        pa.field("vote", pa.int32()),
        pa.field("verdict", pa.string()),
        pa.field("answer_p_first", pa.float64()),
        pa.field("annotator", pa.string()),
        pa.field("answer", pa.string()),
    ]
)
"""The columns `swapped` to `answer` describe a single answer; `answer` is the model's text, null if there was none and
empty if possible answers were scored."""


def answers_of(path: Path, pairs: IntArray) -> dict[int, list[dict[str, Any]]]:
    """Read the single answers to some pairs, also of a directory that is still being written.

    Returns:
        Pair -> its answers, with the key of the raw answer as `response`.
    """
    file = path / ANSWERS
    if not file.exists():
        return {}
    by_pair: dict[int, list[dict[str, Any]]] = {}
    wanted = pa.array(pairs.astype(np.int32))
    with opened(file, None, STAGE) as parquet, readable(file, STAGE):
        for batch in parquet.iter_batches():
            for row in batch.filter(pc.is_in(batch["pair"], value_set=wanted)).to_pylist():
                by_pair.setdefault(row["pair"], []).append(row)
    return by_pair


def write_sample(
    path: Path,
    chosen: IntArray,
    pairs: Pairs,
    preferences: Preferences,
    texts: Sequence[str],
    answers: Mapping[int, Sequence[Mapping[str, Any]]],
    replies: Mapping[str, str],
) -> None:
    """Write a sample into a directory.

    Args:
        chosen: numbers of the pairs, in the order to be shown.
        pairs: all pairs, as `preferences`.
        preferences: their labels.
        texts: (S,) of segments.
        answers: pair -> its single answers.
        replies: key of a raw answer -> its text.
    """
    rows = []
    for number in chosen.tolist():
        p, swap = preferences.p_first[number], int(preferences.swap_consistent[number])
        row: dict[str, Any] = {
            "pair": number,
            "first": cut(texts[pairs.first[number]]),
            "second": cut(texts[pairs.second[number]]),
            "status": str(preferences.status[number]),
            "p_first": None if np.isnan(p) else float(p),
            "swap_consistent": None if swap < 0 else bool(swap),
        }
        single = [
            {
                "swapped": answer["swapped"],
                "vote": answer["vote"],
                "verdict": answer["verdict"],
                "answer_p_first": answer["p_first"],
                "annotator": answer["annotator"],
                "answer": cut(replies[answer["response"]]) if answer["response"] in replies else None,
            }
            for answer in answers.get(number, ())
        ]
        rows += [{**row, **answer} for answer in single] or [row]
    write_table(path / SAMPLE, pa.Table.from_pylist(rows, SAMPLE_SCHEMA))


def join_samples(parts: Sequence[tuple[Path, int]], chosen: IntArray, path: Path) -> None:
    """Write the sample of all pairs from the samples of their shares, which contain more than is needed.

    Args:
        parts: directory and number of pairs of each share, in order.
        chosen: numbers of the pairs, in the order to be shown.
    """
    rows: dict[int, list[dict[str, Any]]] = {}
    before = 0
    for place, count in parts:
        for row in read_table(place / SAMPLE, SAMPLE_SCHEMA, STAGE).to_pylist():
            rows.setdefault(before + row["pair"], []).append({**row, "pair": before + row["pair"]})
        before += count
    joined = [row for number in chosen.tolist() for row in rows[number]]
    write_table(path / SAMPLE, pa.Table.from_pylist(joined, SAMPLE_SCHEMA))


def read_sample(path: Path) -> list[dict[str, Any]]:
    """Read a sample; errors as `laurel.data.parquet.read_table`.

    Returns:
        For each pair first, second, status, p_first, swap_consistent and `answers`, each with swapped, vote, verdict,
        answer_p_first, annotator and answer.
    """
    single = ("swapped", "vote", "verdict", "answer_p_first", "annotator", "answer")
    pairs = []
    for _, group in groupby(read_table(path / SAMPLE, SAMPLE_SCHEMA, STAGE).to_pylist(), key=lambda row: row["pair"]):
        rows = list(group)
        pair = {key: value for key, value in rows[0].items() if key not in single}
        answers = [{key: row[key] for key in single} for row in rows if row["verdict"] is not None]
        pairs.append({**pair, "answers": answers})
    return pairs


SIZE = 50
"""Pairs of a sample."""


def kinds(preferences: Preferences) -> list[BoolArray]:
    """Return for each kind which pairs (P,) belong to it, in the order of drawing; each pair has exactly one kind."""
    status = preferences.status
    labelled, inconsistent = preferences.usable, preferences.swap_consistent == 0
    return [
        labelled & inconsistent,
        (status == "incomplete"),
        (status == "parse_failed"),
        (status == "abstain"),
        (status == "tie") & ~inconsistent,
        (status == "ok") & ~inconsistent,
        (status == "api_failed"),
    ]


def candidates(pairs: Pairs, preferences: Preferences, seed: int, size: int = SIZE) -> list[IntArray]:
    """Return for each kind the pairs of this share that may be in the sample of all pairs."""
    order = _shuffled(pairs, seed)
    return [order[kind[order]][:size] for kind in kinds(preferences)]


def draw(pairs: Pairs, preferences: Preferences, seed: int, size: int = SIZE) -> IntArray:
    """Return the numbers of the sampled pairs, drawn round-robin over the kinds until there are enough."""
    by_kind = [found.tolist() for found in candidates(pairs, preferences, seed, size)]
    turns = [(kind, pair) for turn in zip_longest(*by_kind) for kind, pair in enumerate(turn) if pair is not None]
    return np.array([pair for _, pair in sorted(turns[:size], key=lambda turn: turn[0])], dtype=np.int64)


def _shuffled(pairs: Pairs, seed: int) -> IntArray:
    """Return the pairs' numbers in an order that depends only on each pair's segments (SplitMix64's mixing)."""
    x = np.uint64(seed) + (pairs.first.astype(np.uint64) << np.uint64(32) | pairs.second.astype(np.uint64))
    x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.argsort(x ^ (x >> np.uint64(31)), kind="stable")

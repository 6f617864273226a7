"""Inter-annotator agreement beyond chance: Cohen's kappa for two annotators, Fleiss' for more, with intervals.

Annotators may lack labels for some pairs. Only the counts of label patterns are kept (the combination of the
annotators' labels), so memory does not grow with the number of pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from laurel.arrays import DoubleArray

Pattern = tuple[str | None, ...]
"""The labels of a pair: a category per annotator, None if it gave none."""
Kappa = dict[str, Any]
"""value, ci95 (both None where undefined) and of: the number of pairs that at least two judges labelled."""
LEAST_DEFINED = 0.95
"""Least share of resamples in which kappa is defined, for an interval."""


def cohen(table: DoubleArray) -> DoubleArray:
    """Return Cohen's (1960) kappa of tables (..., C, C) of the two judges' verdicts; NaN where undefined.

    kappa = (p_o - p_e) / (1 - p_e), p_e the agreement by chance of two judges with these label frequencies.
    """
    total = table.sum(axis=(-2, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = np.trace(table, axis1=-2, axis2=-1) / total
        expected = (table.sum(axis=-1) * table.sum(axis=-2)).sum(axis=-1) / total**2
        return _beyond(observed, expected)


def fleiss(votes: DoubleArray, weights: DoubleArray) -> DoubleArray:
    """Return Fleiss' (1971) kappa; NaN where undefined.

    The number of judges may differ from pair to pair, as in Gwet (2014, Handbook of Inter-Rater Reliability, ch. 2):
    agreement is measured on pairs with two or more, label frequencies on all.

    Args:
        votes: (K, C) how many judges chose each category in a pair of kind k.
        weights: (..., K) how many pairs of each kind there are.
    """
    judges = votes.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        agreeing = np.where(judges >= 2, (votes * (votes - 1)).sum(axis=1) / (judges * (judges - 1)), 0.0)
        shares = np.where(judges[:, None] >= 1, votes / judges[:, None], 0.0)
        observed = weights @ agreeing / (weights @ (judges >= 2))
        habits = weights @ shares / (weights @ (judges >= 1))[..., None]
        return _beyond(observed, (habits**2).sum(axis=-1))


def _beyond(observed: DoubleArray, expected: DoubleArray) -> DoubleArray:
    return np.where(expected < 1 - 1e-12, (observed - expected) / (1 - expected), np.nan)


def agreement(patterns: Mapping[Pattern, int], seed: int, resamples: int = 2000) -> dict[str, Any]:
    """Return the agreement of judges: kappa of all, and of each two of them.

    Intervals are 95% percentiles of the bootstrap over pairs.

    Args:
        patterns: verdicts of all M judges -> number of pairs; at least one.

    Returns:
        kind ("cohen" or "fleiss"), kappa, and pairwise: for each two judges their numbers, kappa and the share of
        pairs in which they agreed.
    """
    rows = sorted(patterns, key=str)
    categories = sorted({verdict for row in rows for verdict in row if verdict is not None}) or [""]
    place = {category: i for i, category in enumerate(categories)}
    codes = np.array([[-1 if verdict is None else place[verdict] for verdict in row] for row in rows])
    counts = np.array([patterns[row] for row in rows], dtype=np.float64)
    rng = np.random.default_rng(seed)
    total = int(counts.sum())
    weights = np.vstack([counts, rng.multinomial(total, counts / total, size=resamples)])  # (1 + B, K)
    size, judges = len(categories), codes.shape[1]
    pairwise = []
    for i, j in combinations(range(judges), 2):
        answered = (codes[:, i] >= 0) & (codes[:, j] >= 0)
        cells = np.zeros((len(rows), size * size))
        cells[answered, codes[answered, i] * size + codes[answered, j]] = 1.0
        table = (weights @ cells).reshape(-1, size, size)
        n_both = int(counts[answered].sum())
        agreed = float(np.trace(table[0]) / n_both) if n_both else None
        pairwise.append({"judges": [i, j], **_kappa(cohen(table), n_both), "same": agreed})
    if judges == 2:
        kappa = {key: pairwise[0][key] for key in ("value", "ci95", "of")}
    else:
        votes = (codes[:, :, None] == np.arange(size)).sum(axis=1).astype(np.float64)
        kappa = _kappa(fleiss(votes, weights), int(counts[votes.sum(axis=1) >= 2].sum()))
    return {"kind": "cohen" if judges == 2 else "fleiss", "kappa": kappa, "pairwise": pairwise}


def _kappa(values: DoubleArray, n: int) -> Kappa:
    """Return the first value with the 95% interval of the others, which are its bootstrap resamples.

    There is no interval if too many resamples are undefined, or if all are equal, as where judges always agree: these
    resamples do not show how much kappa would vary in other pairs.
    """
    value, resampled = values[0], values[1:][~np.isnan(values[1:])]
    if np.isnan(value):
        return {"value": None, "ci95": None, "of": n}
    known = len(resampled) >= LEAST_DEFINED * (len(values) - 1) and np.ptp(resampled) > 0
    interval = [float(edge) for edge in np.percentile(resampled, [2.5, 97.5])] if known else None
    return {"value": float(value), "ci95": interval, "of": n}


def table(names: Sequence[str], measured: Mapping[str, Any]) -> str:
    """Return agreement as lines of text."""
    title = "Cohen's kappa" if measured["kind"] == "cohen" else "Fleiss' kappa"
    lines = [f"{title}: {_text(measured['kappa'])}"]
    for pair in measured["pairwise"]:
        first, second = (names[number] for number in pair["judges"])
        agreed = "" if pair["same"] is None else f", the same in {pair['same']:.0%}"
        lines.append(f"  {first} and {second}: kappa {_text(pair)}{agreed}")
    return "\n".join(lines)


def _text(kappa: Mapping[str, Any]) -> str:
    if kappa["value"] is None:
        return f"undefined ({kappa['of']:,} pairs)"
    edges = kappa["ci95"]
    interval = (
        " (no interval: labels vary too little)"
        if edges is None
        else f" (95% interval {edges[0]:z.2f} to {edges[1]:z.2f})"
    )
    return f"{kappa['value']:z.2f}{interval} on {kappa['of']:,} pairs"

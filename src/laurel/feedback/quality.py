"""Label quality: statistics of the answers, their consistency, and their agreement with references.

Every share has a 95% interval. Figures that do not apply are left out rather than 0: an annotator that is asked in one
order has no swap consistency, one without a reference has no agreement.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from laurel.arrays import BoolArray, DoubleArray
from laurel.data.preferences import Pairs, Preferences
from laurel.data.verdicts import ABSTAIN, FAILED, FIRST, SECOND, TIE, UNREAD, Verdicts
from laurel.feedback.rates import grouped_rate, rate
from laurel.feedback.triads import intransitivity

BINS = 10
"""Bins of equal width for the confidence of a label, from 1/2 to 1."""

NO_MEMBERS: Mapping[str, Preferences] = MappingProxyType({})

References = Mapping[str, DoubleArray]
"""Reference -> (P,) 1 if the first is better, 0 if the second is, 1/2 if neither, NaN if unknown."""


def measure(
    pairs: Pairs,
    preferences: Preferences,
    verdicts: Verdicts | None,
    references: References,
    seed: int,
    members: Mapping[str, Preferences] = NO_MEMBERS,
) -> dict[str, Any]:
    """Measure the labels of all pairs.

    Args:
        verdicts: the single answers behind the labels, for annotators that keep them.
        seed: for the triads that are sampled if there are too many.
        members: annotator -> its judgements, if several annotators voted.

    Returns:
        `tie_rate` and `abstain_rate` among pairs; `swap_consistency` among pairs with a label in both orders, and
        `intransitivity` among judged triads; the figures of `_answers`; for each reference those of `compare`; and if
        several annotators voted, `by`: the same for each of them.
    """
    overall = _measured(pairs, preferences, verdicts, references, seed)
    by_annotator = [
        {
            "annotator": name,
            **_measured(
                pairs, member, verdicts.of(name) if verdicts and name in verdicts.names else None, references, seed
            ),
        }
        for name, member in members.items()
    ]
    return {**overall, "by": by_annotator} if by_annotator else overall


def _measured(
    pairs: Pairs, preferences: Preferences, verdicts: Verdicts | None, references: References, seed: int
) -> dict[str, Any]:
    n = len(preferences)
    ties, abstained = (preferences.status == "tie"), (preferences.status == "abstain")
    in_both = preferences.swap_consistent >= 0
    return _applying(
        {
            "tie_rate": rate(int(ties.sum()), n),
            "abstain_rate": rate(int(abstained.sum()), n) if verdicts or abstained.any() else None,
            **(_answers(verdicts) if verdicts else {}),
            "swap_consistency": rate(int((preferences.swap_consistent == 1).sum()), int(in_both.sum())),
            "intransitivity": intransitivity(pairs.first, pairs.second, preferences.p_first, seed),
            **{name: compare(preferences.p_first, known) for name, known in references.items()},
        }
    )


def _answers(verdicts: Verdicts) -> dict[str, Any]:
    """Measure the single answers.

    Returns:
        `answers`, how many were requested; `failure_rate`, the share that is missing; `unusable_rate`, the share that
        is missing or could not be read; `parse_rate`, the share of answers that could be read;
        `answer_tie_rate` and `answer_abstain_rate` among those; `position_bias`, the share of answers with a side that
        named the text shown first: 1/2 if the order does not matter. Answers about one pair, in either order, depend on
        each other, and the intervals allow for that.
    """
    verdict, pair = verdicts.verdict, verdicts.pair
    came = verdict != FAILED
    read = came & (verdict != UNREAD)
    sided = (verdict == FIRST) | (verdict == SECOND)
    shown_first = (verdict == FIRST) != verdicts.swapped
    return {
        "answers": len(verdicts),
        "failure_rate": grouped_rate(~came, pair),
        "unusable_rate": grouped_rate(~read, pair),
        "parse_rate": grouped_rate(read[came], pair[came]),
        "answer_tie_rate": grouped_rate((verdict == TIE)[read], pair[read]),
        "answer_abstain_rate": grouped_rate((verdict == ABSTAIN)[read], pair[read]),
        "position_bias": grouped_rate(shown_first[sided], pair[sided]),
    }


def compare(labels: DoubleArray, known: DoubleArray) -> dict[str, Any] | None:
    """Compare labels (P,) with known ones (P,); None if none are known.

    Returns:
        `pairs`, those with a known side; `agreement`, among those of them whose label has a side too; `undecided`,
        the rest of them; `equal`, pairs known to be equal, and `equal_agreed`, those of them that are ties. Where
        labels are probabilities, also `brier` (Brier 1950; always saying 1/2 gives 1/4), `calibration_error`
        (expected, Guo et al. 2017, arXiv 1706.04599) and `calibration`: for each bin of confidence the mean `p`, the
        share `observed` that is right, its `ci95` and `pairs`.
    """
    sided, equal = (known == 0) | (known == 1), known == 0.5
    if not (sided | equal).any():
        return None
    decided = sided & ~np.isnan(labels) & (labels != 0.5)
    right = (labels > 0.5) == (known > 0.5)
    figures: dict[str, Any] = {
        "pairs": int(sided.sum()),
        "agreement": rate(int(right[decided].sum()), int(decided.sum())),
        "undecided": int((sided & ~decided).sum()),
        "equal": int(equal.sum()),
        "equal_agreed": int((labels[equal] == 0.5).sum()),
    }
    soft = labels[decided]
    if ((soft > 0) & (soft < 1)).any():
        bins = _bins(np.maximum(soft, 1 - soft), right[decided])
        figures["brier"] = float(np.square(soft - known[decided]).mean())
        figures["calibration_error"] = float(sum(b["pairs"] * abs(b["p"] - b["observed"]) for b in bins) / len(soft))
        figures["calibration"] = bins
    return _applying(figures)


def _bins(sure: DoubleArray, right: BoolArray) -> list[dict[str, Any]]:
    """Return how often labels are right, in bins of similar confidence."""
    place = np.minimum(((sure - 0.5) * 2 * BINS).astype(np.int64), BINS - 1)
    bins = []
    for rows in (place == i for i in range(BINS)):
        if (share := rate(int(right[rows].sum()), int(rows.sum()))) is not None:
            bounds = {"observed": share["value"], "ci95": share["ci95"], "pairs": share["of"]}
            bins.append({"p": float(sure[rows].mean()), **bounds})
    return bins


def _applying(figures: dict[str, Any]) -> dict[str, Any]:
    """Drop figures that do not apply."""
    return {name: value for name, value in figures.items() if value is not None}

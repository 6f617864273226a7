"""How the votes of several judges become one label."""

from __future__ import annotations

from collections.abc import Sequence

from laurel.data.preferences import FAILURES
from laurel.feedback.annotator import Status

_WITHOUT_A_LABEL: tuple[Status, ...] = ("incomplete", "abstain", "parse_failed", "api_failed")
"""By precedence: without any label, the first of these among the votes is the status of all."""


def voted(
    weights: Sequence[float], votes: Sequence[tuple[Status, float | None]], tie_band: float
) -> tuple[Status, float | None]:
    """Combine votes. A vote without a label is left out, not counted as 1/2.

    There is a label only if the votes with a label outweigh the failed ones, so that one judge's label does not stand
    for several judges that failed. Abstentions are answers, and do not count as failed.

    Args:
        weights: of each vote.
        votes: status and label, the probability that the first is better, or of yes.
        tie_band: mean probabilities within this of 1/2 are ties.

    Returns:
        Status and label; None without one.

    >>> voted([1, 1], [("ok", 1.0), ("ok", 0.5)], 0.0), voted([1, 1], [("ok", 1.0), ("api_failed", None)], 0.0)
    (('ok', 0.75), ('incomplete', None))
    """
    statuses = [status for status, _ in votes]
    if "unasked" in statuses:  # the budget does not suffice for all votes
        return "unasked", None
    labels = [(weight, label) for weight, (_, label) in zip(weights, votes, strict=True) if label is not None]
    if not labels:
        return next(status for status in _WITHOUT_A_LABEL if status in statuses), None
    weight_of_labels = sum(weight for weight, _ in labels)
    if weight_of_labels <= sum(weight for weight, status in zip(weights, statuses, strict=True) if status in FAILURES):
        return "incomplete", None
    p = sum(weight * label for weight, label in labels) / weight_of_labels
    tie = abs(p - 0.5) <= max(tie_band, 1e-12)
    return ("tie", 0.5) if tie else ("ok", min(max(p, 0.0), 1.0))

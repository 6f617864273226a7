"""Keys and values of nested figures, and what the ranks of a reward mean, in words for a reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from laurel.evaluation.formats import NONE, number
from laurel.evaluation.statistics import LOW_TAU

NAMES = {
    "brier": "mean squared difference from held-out labels (Brier score, if all labels are certain)",
    "clear_pairs": "distinct pairs with a clear label (p up to 25% or from 75% on)",
    "clear_pairs_followed": "of these, pairs that the trained reward orders as labelled",
    "contradicted": "pairs that are also labelled in the opposite order",
    "heldout_epochs": "epochs after which held-out figures were measured",
    "judged_share": "share of the pairs of judged texts that have a label",
    "trained_epochs": "epochs for which the reward itself was trained",
    "heldout_agreement_both_new": "agreement on pairs of two new captions",
    "heldout_pairs_both_new": "held-out judgements of pairs of two new captions, without ties",
    "heldout_pairs": "held-out judgements without ties, over all members (calibration: with ties)",
    "heldout_loss": "held-out loss (cross-entropy)",
    "kendall_tau_vs_return": "Kendall's tau with the return",
}
"""Keys that need other words than their own."""


def key_in_words(key: str) -> str:
    """Return a key in words.

    >>> key_in_words("calibration_error")
    'calibration error'
    """
    return NAMES.get(key) or str(key).replace("_", " ").replace("heldout", "held-out")


def in_words(value: Any) -> str:
    """Format a value: a number with few decimals, a list with commas, `-` for nothing."""
    match value:
        case None:
            return NONE
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.3g}" if abs(value) < 1 else number(value)
        case list() | tuple():
            return ", ".join(in_words(item) for item in value) or NONE
        case _:
            return str(value)


def flat(mapping: Mapping[str, Any] | None, leave_out: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield keys in words and values of a nested mapping."""
    for key, value in (mapping or {}).items():
        if key in leave_out:
            continue
        if isinstance(value, Mapping):
            yield from ((f"{key_in_words(key)}: {name}", inner) for name, inner in flat(value))
        else:
            yield key_in_words(key), value


def instead_of_captions(rank: Mapping[str, Any] | None) -> str:
    """Say why there is no table of the captions' rewards."""
    if rank is None:
        return "There is no learned reward in this run."
    head = "The reward that scores episodes has no table of captions"
    return (
        f"{head}." if rank["tau"] is not None else f"{head}; its sums, or the returns, are the same in every episode."
    )


def rank_warning(rank: Mapping[str, Any] | None) -> str:
    """Warn if the learned reward does not rank episodes as the environment does."""
    if rank is None:
        return ""
    tau = rank["tau"]
    if tau is None:
        return "The learned reward or the true return is the same in every episode, so their ranks cannot be compared."
    if tau >= LOW_TAU:
        return ""
    low, high = rank.get("ci95") or (None, None)
    interval = "" if low is None else f" [{number(low)}, {number(high)}]"
    lower = tau < 0 if high is None else high < 0
    claim = "return less" if lower else "hardly return more"
    return (
        f"Episodes with more of the learned reward {claim} (Kendall's tau {number(tau)}{interval}). The reward is "
        "summed over an episode, so a long failure may earn more than a quick success. The comparisons of the arms "
        "show whether agents trained on it do better."
    )

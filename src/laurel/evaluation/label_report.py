"""Label quality for the report: figures, and a sample of pairs.

Reads quality.json and the sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laurel.data.quality import MEASURES, REFERENCES, label_in_words
from laurel.data.usage import bounded
from laurel.llm.prices import in_words

USED = {
    "calls": "calls",
    "cached": "answers from the store",
    "failures": "calls without an answer",
    "input_tokens": "tokens of questions",
    "output_tokens": "tokens of answers",
    "cost_usd": "cost",
    "seconds": "seconds of latency, summed over answers",
}
"""Figure of the usage -> its name in words."""
KAPPA = ("kappa", "kappa_low", "kappa_high")
KEYS = (*MEASURES, *REFERENCES, *KAPPA, "by", "label_sets_by", "gates", "missing", "annotator")
"""Figures of an annotation that this module lays out."""


_STATUSES = {
    "ok": "one is better",
    "tie": "neither is better",
    "abstain": "no opinion",
    "incomplete": "too few answers",
    "parse_failed": "answer not readable",
    "api_failed": "no answer",
}


def status_in_words(status: str) -> str:
    """Return a pair's status in words.

    >>> status_in_words("parse_failed"), status_in_words("some_other")
    ('answer not readable', 'some other')
    """
    return _STATUSES.get(status, status.replace("_", " "))


@dataclass(frozen=True, slots=True)
class Answer:
    """A single answer, formatted for readers."""

    how: str
    """Which text was shown first, and the annotator if there are several."""
    verdict: str
    """The verdict, and how sure the model was if it was asked for that."""
    raw: str | None
    """The model's text; None if no answer came, or if choices were scored."""


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled pair, formatted for readers."""

    first: str
    second: str
    status: str
    label: str
    """In words."""
    inconsistent: bool
    """Whether asking in the other order gave another label."""
    reference: str
    """The known answer about the pair, in words; empty if there is none."""
    disagrees: bool
    """Whether the label names the text that is known to be the worse."""
    answers: tuple[Answer, ...]


def usage_by_annotator(
    usage: Mapping[str, float | None], annotators: Sequence[str]
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the cost of asking: the total, named "", then each member of an ensemble; empty if nothing was asked.

    Args:
        usage: of all; keys such as `members.0.calls` are of a member.
    """
    by_annotator = [("", used(usage))]
    for number, name in enumerate(annotators):
        start = f"members.{number}."
        amounts_of_one = {key.removeprefix(start): amount for key, amount in usage.items() if key.startswith(start)}
        by_annotator.append((name, used(amounts_of_one)))
    return [(name, amounts) for name, amounts in by_annotator if amounts]


def used(usage: Mapping[str, float | None]) -> list[tuple[str, str]]:
    """Return what asking cost, in words; without a known price the cost is unknown, not zero."""
    return [(words, bounded(key, usage, _amount(key, usage[key]))) for key, words in USED.items() if key in usage]


def _amount(key: str, amount: float | None) -> str:
    if key == "cost_usd":
        return in_words(amount)
    return "unknown" if amount is None else f"{amount:,.1f}" if key == "seconds" else f"{amount:,.0f}"


def kappa(annotation: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Describe the agreement of an ensemble's members, with the interval; empty if unknown."""
    value, low, high = (annotation.get(key) for key in KAPPA)
    if value is None:
        return []
    interval = "" if low is None or high is None else f" [{low:z.2f} to {high:z.2f}]"
    return [("agreement of its members (kappa)", f"{value:z.2f}{interval}")]


def examples(sample: Sequence[Mapping[str, Any]]) -> list[Example]:
    """Lay out a sample of pairs, as `laurel.data.sample.read_sample` gives it."""
    several = len({answer["annotator"] for pair in sample for answer in pair["answers"]}) > 1
    return [
        Example(
            first=pair["first"],
            second=pair["second"],
            status=pair["status"],
            label=label_in_words(pair["status"], pair["p_first"]),
            inconsistent=pair["swap_consistent"] is False,
            reference=_reference(pair.get("references", {})),
            disagrees=_disagrees(pair["p_first"], pair.get("references", {})),
            answers=tuple(_answer(answer, several) for answer in pair["answers"]),
        )
        for pair in sample
    ]


def _reference(known: Mapping[str, float]) -> str:
    sides = {1.0: "1 is better", 0.0: "2 is better", 0.5: "neither is better"}
    return "; ".join(f"{REFERENCES[name]}: {sides[side]}" for name, side in known.items())


def _disagrees(p_first: float | None, known: Mapping[str, float]) -> bool:
    return p_first is not None and any((p_first - 0.5) * (side - 0.5) < 0 for side in known.values())


def _answer(answer: Mapping[str, Any], several: bool) -> Answer:
    order = "2 shown first" if answer["swapped"] else "1 shown first"
    author = f"{answer['annotator']}, " if several else ""
    vote = f", vote {answer['vote'] + 1}" if answer["vote"] else ""
    verdict = {"first": "1", "second": "2", "tie": "neither"}.get(answer["verdict"], answer["verdict"])
    p, raw = answer["answer_p_first"], answer["answer"]
    if p is not None and verdict in ("1", "2") and 0 < p < 1:
        verdict += f", {100 * max(p, 1 - p):.0f}% sure"
    scored = raw == "" and answer["verdict"] != "unread"
    return Answer(f"{author}{order}{vote}", verdict, None if scored else raw)


def calibrations(annotation: Mapping[str, Any]) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return reference -> calibration bins, accuracy by confidence, for labels that have a confidence.

    Pairs that were chosen because their labels were uncertain are left out: they are not representative.
    """
    known = {name: annotation[name] for name in ("gold", "oracle") if name in annotation}
    return {name: agreement["calibration"] for name, agreement in known.items() if "calibration" in agreement}

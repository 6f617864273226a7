"""Human labelling: the order of the pairs, and the session that writes gold labels.

Input and output are functions: keys in, lines out. Every answer is on disk before the next question.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from laurel.arrays import IntArray
from laurel.console import printable
from laurel.data.gold import Gold, GoldFile, Selection, Side
from laurel.data.preferences import Pairs, Preferences

WIDTH = 96
HELP = "1, 2: that one is better   =: neither   s: skip   u: undo   q: quit"
SIDES: dict[str, Side] = {"1": "first", "2": "second", "=": "tie"}
Labels = Literal["before", "after", "never"]


@dataclass(frozen=True, slots=True)
class Offer:
    """A pair to ask about."""

    first: str
    second: str
    label: str | None
    """The annotator's label as text; None without one."""


def order(pairs: Pairs, preferences: Preferences | None, chosen: Selection, rng: np.random.Generator) -> IntArray:
    """Return the numbers of all pairs in the order to ask about them.

    Args:
        preferences: their labels; needed for `uncertain`.
        chosen: uniform: random order; uncertain: first pairs whose label depends on the order of the texts, then by
            increasing confidence; those without a label last.
    """
    shuffled = rng.permutation(len(pairs))
    if chosen == "uniform" or preferences is None:
        return shuffled
    inconsistent = (preferences.swap_consistent == 0)[shuffled]
    sure = np.abs(preferences.p_first - 0.5)[shuffled]  # NaN is sorted last
    return shuffled[np.lexsort((sure, ~inconsistent | np.isnan(sure)))]


def review(
    offers: Iterable[Offer],
    gold: GoldFile,
    chosen: Selection,
    labels: Labels,
    keys: Callable[[], str],
    write: Callable[[str], object],
    limit: int,
) -> int:
    """Ask about pairs until all, or `limit` of them, are labelled or skipped, or the person quits.

    Args:
        offers: the pairs, in order; pairs with a gold label are skipped. In random order, a label of a pair that was
            chosen as uncertain counts as one of a random pair from then on: without these, the random pairs would be
            easier than all pairs.
        gold: file for the answers, written before the next question.
        chosen: how the pairs were chosen, which goes into the gold file.
        keys: waits for a key; empty at the end of input.

    Returns:
        The number of added labels.
    """
    asked, passed = _asked_and_passed(offers, gold, chosen, limit)
    answered: list[int] = []
    place = 0
    while place < len(asked):
        offer = asked[place]
        write(_question(offer, place + 1, len(asked), labels))
        match keys():
            case "" | "q":
                break
            case "s":
                place += 1
            case "u" if answered:
                place = answered.pop()
                gold.add(asked[place].first, asked[place].second, None, chosen)
            case "u":
                write("  There is nothing to undo.\n")
            case key if key in SIDES:
                _count_as(chosen, passed.pop(place, ()), gold)
                gold.add(offer.first, offer.second, SIDES[key], chosen)
                answered.append(place)
                place += 1
                if labels == "after" and offer.label:
                    write(f"  The annotator: {printable(offer.label)}.\n")
            case _:
                write(f"  {HELP}\n")
    if place == len(asked) < limit:
        _count_as(chosen, passed.pop(place, ()), gold)
    return len(answered)


def _asked_and_passed(
    offers: Iterable[Offer], gold: GoldFile, chosen: Selection, limit: int
) -> tuple[list[Offer], dict[int, list[Gold]]]:
    """Return the pairs to ask about, and place -> labels of uncertain pairs that come before it in random order."""
    asked: list[Offer] = []
    passed: dict[int, list[Gold]] = {}
    for offer in offers:
        if (known := gold.labels.get(frozenset((offer.first, offer.second)))) is None:
            asked.append(offer)
        elif chosen == "uniform" and known.chosen != "uniform":
            passed.setdefault(len(asked), []).append(known)
        if len(asked) == limit:
            break
    return asked, passed


def _count_as(chosen: Selection, labels: Iterable[Gold], gold: GoldFile) -> None:
    for label in labels:
        gold.add(label.first, label.second, label.answer, chosen)


def _question(offer: Offer, number: int, total: int, labels: Labels) -> str:
    lines = ["", f"pair {number} of {total}", *_wrapped("  1  ", offer.first), *_wrapped("  2  ", offer.second)]
    if labels == "before" and offer.label:
        lines.append(f"  The annotator: {printable(offer.label)}.")
    return "\n".join([*lines, "> "])


def _wrapped(start: str, text: str) -> list[str]:
    return textwrap.wrap(printable(text), WIDTH, initial_indent=start, subsequent_indent=" " * len(start))

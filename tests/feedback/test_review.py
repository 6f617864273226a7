from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laurel.data.gold import GoldFile, Task
from laurel.data.preferences import Pairs, Preferences
from laurel.feedback.review import Offer, order, review

TASK = Task("Env-v0", "Win.")
OFFERS = [Offer(f"first {i}", f"second {i}", "1 is better, 80% sure") for i in range(5)]


def session(path: Path, keys: str, **more: Any) -> tuple[int, dict[str, str | None], str]:
    """Return how many labels were added, the answer to each first text, and what was shown."""
    gold, shown, pressed = GoldFile(path, TASK), [], iter(keys)
    options = {"chosen": "uniform", "labels": "after", "limit": 50, **more}
    added = review(more.pop("offers", OFFERS), gold, keys=lambda: next(pressed, ""), write=shown.append, **{
        name: value for name, value in options.items() if name != "offers"
    })  # fmt: skip
    again = GoldFile(path, TASK)
    assert again.labels == gold.labels, "what is said is on disk"
    return added, {label.first: label.answer for label in again.labels.values()}, "".join(shown)


def test_keys(tmp_path: Path) -> None:
    added, answers, shown = session(tmp_path / "g", "12=s1")
    assert added == 4
    assert answers == {"first 0": "first", "first 1": "second", "first 2": "tie", "first 4": "first"}
    assert "pair 5 of 5" in shown


def test_every_answer_is_kept_when_the_session_ends(tmp_path: Path) -> None:
    for end in ("q", ""):
        added, answers, _ = session(tmp_path / f"g{end}", f"1{end}")
        assert (added, answers) == (1, {"first 0": "first"})


def test_undo(tmp_path: Path) -> None:
    added, answers, shown = session(tmp_path / "g", "u12u1suu=q")
    assert "There is nothing to undo." in shown
    assert added == 1
    assert answers == {"first 0": "tie"}


def test_a_session_continues_where_the_last_one_ended(tmp_path: Path) -> None:
    session(tmp_path / "g", "1sq")
    turned = [Offer(offer.second, offer.first, None) for offer in OFFERS]
    added, answers, shown = session(tmp_path / "g", "2222", offers=turned)
    assert added == 4
    assert "of 4" in shown
    assert answers == {"first 0": "first", **{f"second {i}": "second" for i in range(1, 5)}}


def test_uncertain_pairs_that_are_drawn_count_as_random_ones(tmp_path: Path) -> None:
    """Else the random pairs would be those of which the annotator is sure."""

    def chosen() -> dict[str, str]:
        return {label.first[-1]: label.chosen for label in GoldFile(tmp_path / "g", TASK).labels.values()}

    session(tmp_path / "g", "12", offers=[OFFERS[3], OFFERS[0]], chosen="uncertain")
    assert session(tmp_path / "g", "1q")[:2] == (1, {"first 0": "second", "first 1": "first", "first 3": "first"})
    assert chosen() == {"0": "uniform", "1": "uniform", "3": "uncertain"}, "the fourth was not reached yet"
    session(tmp_path / "g", "12", offers=OFFERS[:4])
    assert chosen() == dict.fromkeys("0123", "uniform"), "the last is reached after all questions"


def test_no_more_than_was_asked_for(tmp_path: Path) -> None:
    assert session(tmp_path / "g", "11111", limit=2)[0] == 2


@pytest.mark.parametrize(("labels", "before", "after"), [("before", 1, 1), ("after", 0, 1), ("never", 0, 0)])
def test_when_the_annotators_label_is_shown(tmp_path: Path, labels: str, before: int, after: int) -> None:
    assert session(tmp_path / "a", "q", labels=labels)[2].count("The annotator: 1 is better, 80% sure.") == before
    assert session(tmp_path / "b", "1", labels=labels, limit=1)[2].count("The annotator:") == after


def test_another_key_is_explained(tmp_path: Path) -> None:
    added, _, shown = session(tmp_path / "g", "x1q")
    assert added == 1
    assert "u: undo" in shown


def test_texts_cannot_command_the_terminal(tmp_path: Path) -> None:
    offers = [Offer("\x1b[2J\x07 gone", "b\r\nfake", None)]
    shown = session(tmp_path / "g", "q", offers=offers)[2]
    assert "\x1b" not in shown
    assert "\\x1b[2J\\x07 gone" in shown
    assert "b\\r\\nfake" in shown


@dataclass
class Judgement:
    status: str
    p_first: float | None
    swap_consistent: bool | None
    votes: int = 1


def preferences() -> Iterator[Judgement]:
    for p in (0.9, 0.6, 0.55, 1.0):
        yield Judgement("ok", p, True)
    yield Judgement("ok", 0.75, False)
    yield Judgement("parse_failed", None, None)


def test_uncertain_pairs_come_first() -> None:
    pairs, said = Pairs(np.arange(6), np.arange(6) + 9, "uniform", 0), Preferences.of(preferences(), "x")
    rng = np.random.default_rng
    assert order(pairs, said, "uncertain", rng(0)).tolist() == [4, 2, 1, 0, 3, 5]
    uniform = {tuple(order(pairs, said, "uniform", rng(seed)).tolist()) for seed in range(20)}
    assert len(uniform) > 15
    assert {tuple(sorted(numbers)) for numbers in uniform} == {tuple(range(6))}

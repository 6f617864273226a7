from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.data.preferences import Pairs, Preferences
from laurel.data.sample import candidates, draw, kinds


@dataclass
class Judgement:
    status: str
    p_first: float | None
    swap_consistent: bool | None
    votes: int = 1


SAID = [
    Judgement("ok", 1.0, True),
    Judgement("ok", 1.0, None),
    Judgement("ok", 0.75, False),
    Judgement("tie", 0.5, False),
    Judgement("tie", 0.5, True),
    Judgement("incomplete", None, None),
    Judgement("abstain", None, None),
    Judgement("parse_failed", None, None),
    Judgement("api_failed", None, None),
]


def share(pairs: Pairs, preferences: Preferences, part: slice) -> tuple[Pairs, Preferences]:
    columns = ("p_first", "status", "votes", "swap_consistent")
    return (
        Pairs(pairs.first[part], pairs.second[part], pairs.sampler, pairs.seed),
        Preferences(**{name: getattr(preferences, name)[part] for name in columns}, annotator="x"),
    )


@settings(max_examples=60, deadline=None)
@given(
    said=st.lists(st.sampled_from(SAID), min_size=1, max_size=60),
    size=st.integers(1, 20),
    seed=st.integers(0, 2**31 - 1),
    cut=st.floats(0, 1),
)
def test_shares_hold_what_is_drawn_from_all(said: list[Judgement], size: int, seed: int, cut: float) -> None:
    n = len(said)
    pairs, preferences = Pairs(np.arange(n), np.arange(n) + 7, "uniform", 0), Preferences.of(said, "x")
    drawn = draw(pairs, preferences, seed, size)
    assert len(set(drawn.tolist())) == len(drawn) == min(n, size)
    edge = int(cut * n)
    held = {
        number + begin
        for begin, part in ((0, slice(0, edge)), (edge, slice(edge, n)))
        for numbers in candidates(*share(pairs, preferences, part), seed, size)
        for number in numbers.tolist()
    }
    assert set(drawn.tolist()) <= held


def test_a_sample_alternates_kinds_of_answers_and_begins_with_inconsistent_ones() -> None:
    said = [SAID[i % len(SAID)] for i in range(400)]
    pairs, preferences = Pairs(np.arange(400), np.arange(400) + 7, "uniform", 0), Preferences.of(said, "x")
    assert (np.sum(kinds(preferences), axis=0) == 1).all()
    drawn = draw(pairs, preferences, seed=3)
    assert len(drawn) == 50
    shown = [(preferences.status[i], int(preferences.swap_consistent[i])) for i in drawn]
    assert shown[0][1] == 0
    assert [status for status, _ in shown][-1] == "api_failed"
    for kind in kinds(preferences):
        assert 7 <= kind[drawn].sum() <= 9
    assert draw(pairs, preferences, seed=4).tolist() != drawn.tolist()


def test_without_failures_the_sample_is_filled_with_other_answers() -> None:
    preferences = Preferences.of([SAID[0]] * 80, "x")
    assert len(draw(Pairs(np.arange(80), np.arange(80) + 7, "uniform", 0), preferences, seed=0)) == 50

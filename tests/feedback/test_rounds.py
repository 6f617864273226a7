"""Rounds with their stopping rules, on planted teachers."""

import re

import numpy as np
import pytest

from laurel.feedback.pairs import sample_pairs
from laurel.feedback.posterior import Labels
from laurel.feedback.rounds import OneRound, Rounds, make_rounds
from laurel.feedback.stopping import StoppingRule
from laurel.params.annotation import AnnotateParams, StopParams

SIZE = 80
COUNTS = np.arange(SIZE, dtype=np.int64)
EMBEDDINGS = np.random.default_rng(3).normal(size=(SIZE, 4)).astype(np.float32)
PLANTED = EMBEDDINGS @ np.array([2.0, -1.0, 1.0, 0.5])


def params(**values: object) -> AnnotateParams:
    return AnnotateParams.model_validate({"n_pairs": 2000, "round_pairs": 100, **values})


def judged(rounds: OneRound | Rounds, error_rate: float = 0.0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Go through all rounds with a teacher that errs."""
    rng, parts = np.random.default_rng(0), []
    for first, second in rounds:
        parts.append((first, second))
        better = (PLANTED[first] > PLANTED[second]) != (rng.random(len(first)) < error_rate)
        p_first = better.astype(np.float64)
        p_first[::13] = np.nan
        rounds.observe(first, second, p_first)
    return parts


def make(**values: object) -> OneRound | Rounds:
    return make_rounds(COUNTS, lambda: EMBEDDINGS, params(**values), 5)


def pairs(parts: list[tuple[np.ndarray, np.ndarray]]) -> list[frozenset[int]]:
    return [frozenset(pair) for first, second in parts for pair in zip(first.tolist(), second.tolist(), strict=True)]


@pytest.mark.parametrize("sampler", ["uniform", "frequency"])
def test_random_samplers_ask_in_one_round_without_labels(sampler: str) -> None:
    def never() -> np.ndarray:
        raise AssertionError("no embedding is needed")

    rounds = make_rounds(COUNTS, never, params(sampler=sampler), 5)
    (only,) = judged(rounds)
    assert np.array_equal(np.stack(only), np.stack(sample_pairs(COUNTS, 2000, sampler, np.random.default_rng(5))))
    assert (rounds.at_most, rounds.counts, list(rounds.notes)) == (2000, {}, [])


@pytest.mark.parametrize("sampler", ["uniform", "frequency", "information", "disagreement", "ranking", "nearby"])
def test_rounds_hold_out_pairs_and_repeat_none(sampler: str) -> None:
    rounds = make(sampler=sampler, n_pairs=950, stop={"rule": "accuracy", "patience": 99, "held_out": 0.2})
    parts = judged(rounds)
    asked = pairs(parts)
    assert [len(first) for first, _ in parts] == [100] * 9 + [50]
    assert len(set(asked)) == 950 == rounds.at_most
    assert rounds.counts == {"rounds": 10}
    said = r"Annotation ended after 950 of at most 950 pairs, as annotate\.n_pairs was reached; agreement "
    assert re.fullmatch(said + r"with the labels (0\.9\d|1\.00) on 1[78]\d held-out pairs\.", rounds.notes[-1]), (
        rounds.notes
    )
    again = make(sampler=sampler, n_pairs=950, stop={"rule": "accuracy", "patience": 99, "held_out": 0.2})
    assert pairs(judged(again)) == asked


def test_held_out_pairs_are_random_and_not_learned_from() -> None:
    rounds = make(sampler="nearby", stop={"rule": "accuracy", "held_out": 0.5})
    assert isinstance(rounds, Rounds)
    place = np.argsort(np.argsort(PLANTED))
    apart = []
    for number, (first, second) in enumerate(rounds):
        if number == 3:
            apart = np.abs(place[first] - place[second]).tolist()
            break
        rounds.observe(first, second, (PLANTED[first] > PLANTED[second]).astype(float))
    assert np.median(apart[:50]) < 8 < 15 < np.median(apart[50:]), "neighbours, and then pairs drawn at random"
    assert len(rounds._labels) == len(rounds._held_out) == 150


def test_a_sampler_stops_when_all_pairs_were_asked() -> None:
    rounds = make_rounds(COUNTS[:8], lambda: EMBEDDINGS[:8], params(sampler="ranking"), 5)
    assert len(set(pairs(judged(rounds)))) == 28 == rounds.at_most


@pytest.mark.parametrize("size", [0, 1])
def test_nothing_to_compare(size: int) -> None:
    rounds = make_rounds(COUNTS[:size], lambda: EMBEDDINGS[:size], params(sampler="information"), 5)
    assert rounds.at_most == 0
    assert judged(rounds) == []


def test_two_captions_are_one_pair() -> None:
    for sampler in ("information", "disagreement", "ranking", "nearby"):
        assert len(pairs(judged(make_rounds(COUNTS[:2], lambda: EMBEDDINGS[:2], params(sampler=sampler), 5)))) == 1


@pytest.mark.parametrize("sampler", ["uniform", "information"])
@pytest.mark.parametrize("rule", ["accuracy", "rank"])
def test_a_plateau_ends_the_asking(sampler: str, rule: str) -> None:
    rounds = make(sampler=sampler, stop={"rule": rule, "tolerance": 0.02, "held_out": 0.3})
    asked = len(pairs(judged(rounds)))
    assert 400 <= asked <= 1500
    said = f"Annotation ended after {asked:,} of at most 2,000 pairs, as annotate.stop.rule ({rule}) was met"
    assert re.match(
        re.escape(said) + r"; (agreement with the labels|rank correlation) (0\.9|1\.0)", rounds.notes[-1]
    ), rounds.notes


def test_a_student_of_a_random_teacher_learns_nothing() -> None:
    rounds = make(stop={"rule": "accuracy", "tolerance": 0.05, "held_out": 0.3})
    assert len(pairs(judged(rounds, error_rate=0.5))) <= 1500
    assert "labels 0.4" in rounds.notes[-1] or "labels 0.5" in rounds.notes[-1]


def test_random_labels_never_converge() -> None:
    assert len(pairs(judged(make(n_pairs=1000, stop={"rule": "rank"}), error_rate=0.5))) == 1000


def test_asking_continues_while_accuracy_rises() -> None:
    """Estimates that become better from round to round, whatever the labels."""
    rule = StoppingRule(EMBEDDINGS, StopParams(rule="accuracy", patience=2, tolerance=0.01))
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, SIZE, (2, 400))
    differ = PLANTED[first] != PLANTED[second]
    truth = Labels(first[differ], second[differ], (PLANTED[first] > PLANTED[second]).astype(float)[differ])
    noise = rng.normal(size=SIZE)
    scales = (4.0, 2.0, 1.0, 0.5, 0.25, 0.12, 0.06, 0.0, 0.0, 0.0)
    settled = []
    for scale in scales:
        rule._posterior = _Fixed(PLANTED + scale * noise)  # type: ignore[assignment]
        settled.append(rule.after_round(truth, truth))
    assert not any(settled[:6])
    assert settled[-1]


def test_asking_ends_once_no_later_round_is_more_accurate() -> None:
    rule = StoppingRule(EMBEDDINGS, StopParams(rule="accuracy", patience=2, tolerance=0.01))
    first = np.tile(np.arange(40), 3)
    held_out = Labels(first, first + 40, np.repeat([1.0, 1.0, 0.5], 40))
    settled = []
    for right in (20, 30, 20, 10):  # of 40 pairs; the others have equal utilities
        rule._posterior = _Fixed((np.arange(SIZE) < right).astype(np.float64))  # type: ignore[assignment]
        settled.append(rule.after_round(held_out, held_out))
    assert settled == [False, False, False, True], "the third is less accurate than the second, not than the first"
    assert rule.state == "agreement with the labels 0.62 on 80 held-out pairs, -0.125 at best in 2 rounds"


def test_asking_ends_once_the_order_has_stayed_for_as_many_rounds_as_patience() -> None:
    rule = StoppingRule(EMBEDDINGS, StopParams(rule="rank", patience=2))
    settled = []
    for sign in (1, 1, -1, -1, -1):
        rule._posterior = _Fixed(sign * PLANTED)  # type: ignore[assignment]
        settled.append(rule.after_round(Labels.empty(), Labels.empty()))
    assert settled == [False, False, False, False, True], "consecutive rounds"


def test_a_round_is_never_all_held_out() -> None:
    rounds = make(
        sampler="nearby", n_pairs=10, round_pairs=4, stop={"rule": "accuracy", "patience": 99, "held_out": 0.95}
    )
    assert [len(first) for first, _ in judged(rounds)] == [4, 4, 2]


def test_few_held_out_pairs_do_not_stop_asking() -> None:
    rule = StoppingRule(EMBEDDINGS, StopParams(rule="accuracy", patience=1))
    few = Labels(np.arange(40), np.arange(40, 80), np.ones(40))
    assert not any(rule.after_round(few, few) for _ in range(5))
    ties = Labels(np.arange(40).repeat(5), np.arange(40, 80).repeat(5), np.full(200, 0.5))
    assert not any(rule.after_round(few, ties) for _ in range(5))


class _Fixed:
    """Utilities that no label changes."""

    def __init__(self, utilities: np.ndarray) -> None:
        self.utilities = utilities

    def fit(self, labels: Labels) -> None:
        """Learn nothing."""


def test_interrupted_rounds_give_no_reason_for_stopping() -> None:
    rounds = make(stop={"rule": "rank"}, n_pairs=200)
    assert isinstance(rounds, Rounds)
    for first, second in rounds:
        if rounds.counts["rounds"] == 2:
            break  # a budget was reached in the last round
        rounds.observe(first, second, np.ones(len(first)))
    assert list(rounds.notes) == []

"""The figures of a cross-validation against cases that can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from laurel.data.captions import Segments
from laurel.rewards.bradley_terry import Comparisons, CrossValidation
from laurel.rewards.quality import quality

TEXTS = ["good thing", "bad thing", "bad", "good"]


def segments(texts: list[str] = TEXTS, members: Any = None) -> Segments:
    n = len(texts)
    return Segments(texts, np.ones(n, np.int64), np.arange(n)[:, None] if members is None else np.array(members))


def compare(pairs: list[tuple[int, int, float]], n: int = len(TEXTS)) -> Comparisons:
    first, second, p_first = (np.array(column) for column in zip(*pairs, strict=True))
    return Comparisons(np.arange(n)[:, None], np.arange(n), first, second, p_first.astype(np.float64))


def judged(rows: list[tuple[int, int, float, bool]], loss: float = 0.5, n: int = len(TEXTS)) -> CrossValidation:
    """Rows of (pair, member, predicted p(first), whether both captions are new)."""
    pair, member, predicted, both = (np.array(column) for column in zip(*rows, strict=True))
    taught = np.ones(len(rows), np.bool_)
    return CrossValidation(3, pair, member, predicted.astype(np.float32), both, loss, np.zeros(n, np.int64), taught)


UNKNOWN = np.full(len(TEXTS), np.nan)

PAIRS = compare([(0, 1, 1.0), (1, 2, 0.5), (2, 3, 0.0), (3, 1, 0.8), (0, 2, 0.7)])
HELD_OUT = judged(
    [
        (0, 0, 0.95, True),  # right
        (0, 1, 0.85, False),  # right
        (1, 0, 0.99, True),  # a tie: no right or wrong
        (2, 0, 0.55, True),  # wrong
        (3, 2, 0.15, False),  # wrong
        (4, 1, 0.75, False),  # right
    ]
)


def test_figures_by_hand() -> None:
    result = quality(HELD_OUT, PAIRS, segments(), UNKNOWN)
    assert result["pairs"] == 5
    assert result["heldout_pairs"] == 5, "judgements of pairs that are no ties"
    assert result["heldout_agreement"] == pytest.approx(3 / 5)
    assert result["heldout_agreement_both_new"] == pytest.approx(1 / 2)
    assert result["heldout_pairs_both_new"] == 2
    assert result["heldout_loss"] == 0.5
    errors = [0.05, 0.15, 0.49, 0.55, 0.65, 0.05]
    assert result["brier"] == pytest.approx(np.mean(np.square(errors)), abs=1e-6)


def test_a_prediction_of_one_half_is_half_right_whichever_side_is_better() -> None:
    """As of observations that two captions share, which differ by the action that they name."""
    for label in (0.0, 1.0):
        result = quality(judged([(0, 0, 0.5, True)]), compare([(0, 1, label)]), segments(), UNKNOWN)
        assert result["heldout_agreement"] == result["heldout_agreement_both_new"] == 0.5


def test_calibration_by_hand() -> None:
    result = quality(HELD_OUT, PAIRS, segments(), UNKNOWN)
    expected = [
        {"p": 0.15, "observed": 0.8, "pairs": 1},
        {"p": 0.55, "observed": 0.0, "pairs": 1},
        {"p": 0.75, "observed": 0.7, "pairs": 1},
        {"p": 0.85, "observed": 1.0, "pairs": 1},
        {"p": 0.97, "observed": 0.75, "pairs": 2},
    ]
    assert [entry["pairs"] for entry in result["calibration"]] == [entry["pairs"] for entry in expected]
    for entry, wanted in zip(result["calibration"], expected, strict=True):
        assert entry == pytest.approx(wanted, abs=1e-6)
    error = (0.65 + 0.55 + 0.05 + 0.15 + 2 * 0.22) / 6
    assert result["calibration_error"] == pytest.approx(error, abs=1e-6)


def test_predictions_at_the_ends_are_in_the_first_and_last_tenth() -> None:
    held_out = judged([(0, 0, 0.0, True), (1, 0, 1.0, True), (2, 0, 0.999, True)])
    result = quality(held_out, compare([(0, 1, 0.0), (1, 2, 1.0), (2, 3, 1.0)]), segments(), UNKNOWN)
    assert [entry["pairs"] for entry in result["calibration"]] == [1, 2]
    assert result["calibration_error"] == pytest.approx(0.001 / 3, abs=1e-6)


@pytest.mark.parametrize(("labels", "share"), [([1, 1, 1, 0], 0.75), ([0, 0, 0.2, 1], 0.75), ([1, 0, 0.5, 0.5], 0.5)])
def test_majority_names_the_side_that_is_better_more_often(labels: list[float], share: float) -> None:
    pairs = compare([(0, 1, p) for p in labels])
    held_out = judged([(i, 0, 0.6, True) for i in range(4)])
    assert quality(held_out, pairs, segments(), UNKNOWN)["baselines"]["majority"] == share


def test_the_environments_reward_as_a_guess() -> None:
    environment = np.array([1.0, -1.0, np.nan, -1.0])
    pairs = compare([(0, 1, 1.0), (1, 0, 1.0), (0, 2, 1.0), (1, 3, 0.0)])
    held_out = judged([(i, 0, 0.5, True) for i in range(4)])
    baselines = quality(held_out, pairs, segments(), environment)["baselines"]
    # right, wrong, unknown (a half), alike (a half)
    assert baselines["environment_reward"] == pytest.approx((1 + 0 + 0.5 + 0.5) / 4)


def test_the_environments_reward_of_segments_is_the_mean_of_their_captions() -> None:
    environment = np.array([0.0, 3.0, 2.0, np.nan])
    of_two = segments(["a", "b", "c"], [[0, 1], [2, -1], [0, 3]])  # means 1.5, 2 and unknown
    pairs = compare([(0, 1, 0.0), (0, 2, 1.0)], n=3)
    held_out = judged([(0, 0, 0.5, True), (1, 0, 0.5, True)], n=3)
    baselines = quality(held_out, pairs, of_two, environment)["baselines"]
    assert baselines["environment_reward"] == pytest.approx((1 + 0.5) / 2)


def test_a_bag_of_words_predicts_from_words_that_it_was_fitted_on() -> None:
    """Word 'good' wins in what is known, so the pairs that are held out are guessed right."""
    texts = ["GOOD one", "Bad one", "Good, two!", "BAD two", "good three", "bad three"]
    pairs = compare([(0, 1, 1.0), (3, 2, 0.0), (4, 5, 1.0), (5, 4, 0.0), (0, 2, 0.5)], n=6)
    held_out = judged([(2, 0, 0.5, True), (3, 0, 0.5, True)], n=6)
    baselines = quality(held_out, pairs, segments(texts), np.full(6, np.nan))["baselines"]
    assert baselines["bag_of_words"] == 1.0


def test_a_bag_of_many_words_is_fitted_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where captions name places or numbers, so that a matrix of all words would not fit into memory."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([f"w{i}" for i in range(30)], 4)) for _ in range(40)]
    worth = [text.count("w7") - text.count("w8") + 0.1 * i for i, text in enumerate(texts)]
    ids = [(i, j) for i in range(0, 40, 2) for j in range(1, 40, 6)]
    pairs = compare([(i, j, float(worth[i] > worth[j])) for i, j in ids], n=40)
    held_out = judged([(row, row % 3, 0.5, True) for row in range(len(ids))], n=40)

    def agreement() -> float:
        baselines = quality(held_out, pairs, segments(texts), np.full(40, np.nan))["baselines"]
        return float(baselines["bag_of_words"])

    exact = agreement()
    monkeypatch.setattr("laurel.rewards.quality.MOST_WORDS", 1)
    assert agreement() == exact
    assert 0.5 < exact < 1.0


def test_a_bag_of_words_is_not_fitted_on_what_it_predicts() -> None:
    """'novel' is only in the held-out pair: its label cannot be known, and a fit on it would always be right."""
    texts = ["novel", "strange", "same", "other"]
    for label in (0.0, 1.0):
        pairs = compare([(0, 1, label), (2, 3, 1.0)])
        held_out = judged([(0, 0, 0.5, True), (1, 1, 0.5, True)])
        baselines = quality(held_out, pairs, segments(texts), UNKNOWN)["baselines"]
        assert baselines["bag_of_words"] == 0.5
    # a pair that this member does know, though another does not, is fitted on
    pairs = compare([(0, 1, 1.0), (0, 1, 1.0)])
    held_out = judged([(0, 0, 0.5, True), (1, 1, 0.5, True)])
    assert quality(held_out, pairs, segments(texts), UNKNOWN)["baselines"]["bag_of_words"] == 1.0


def test_a_bag_of_words_counts_repeats() -> None:
    texts = ["go go go stop", "go stop stop stop", "go go", "stop stop"]
    pairs = compare([(0, 1, 1.0), (2, 3, 1.0)])
    held_out = judged([(1, 0, 0.5, True)])
    assert quality(held_out, pairs, segments(texts), UNKNOWN)["baselines"]["bag_of_words"] == 1.0


def test_groups_name_the_segment_of_an_item() -> None:
    """With observations, a comparison is of examples, and its group is the caption: words are looked up by that."""
    texts = ["good", "bad"]
    group = np.array([0, 0, 0, 1, 1])  # five examples of two captions
    comparisons = Comparisons(
        np.arange(5)[:, None], group, np.array([0, 4, 2]), np.array([3, 1, 4]), np.array([1.0, 0.0, 1.0])
    )
    held_out = judged([(2, 0, 0.9, True)], n=5)
    result = quality(held_out, comparisons, segments(texts), np.array([1.0, 0.0]))
    assert result["pairs"] == 1, "neither how often examples of a pair were drawn nor in which order counts"
    assert result["heldout_agreement"] == 1.0
    assert result["baselines"] == {"majority": 1.0, "bag_of_words": 1.0, "environment_reward": 1.0}


def test_only_ties() -> None:
    held_out = judged([(0, 0, 0.7, True)])
    result = quality(held_out, compare([(0, 1, 0.5)]), segments(), UNKNOWN)
    assert result["heldout_pairs"] == 0
    assert result["heldout_agreement"] is None
    assert result["heldout_agreement_both_new"] is None
    assert result["baselines"] == {"majority": 0.5, "bag_of_words": None, "environment_reward": None}
    assert result["brier"] == pytest.approx(0.04, abs=1e-6)


def test_texts_without_words() -> None:
    held_out = judged([(0, 0, 0.7, True)], n=2)
    result = quality(held_out, compare([(0, 1, 1.0)], n=2), segments(["!", "?"]), np.full(2, np.nan))
    assert result["baselines"]["bag_of_words"] == 0.5

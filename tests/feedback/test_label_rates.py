"""Planted faults are found again, and what does not apply is left out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from laurel.data.preferences import Pairs, Preferences
from laurel.data.verdicts import ABSTAIN, FAILED, FIRST, SECOND, TIE, UNREAD, Verdicts
from laurel.feedback.quality import measure


@dataclass
class Judgement:
    status: str
    p_first: float | None
    votes: int = 1
    swap_consistent: bool | None = None


def labelled(p: np.ndarray, consistent: np.ndarray | None = None) -> Preferences:
    same = [None] * len(p) if consistent is None else consistent.tolist()
    statuses = ["abstain" if np.isnan(x) else "tie" if x == 0.5 else "ok" for x in p]
    said = zip(statuses, p.tolist(), same, strict=True)
    return Preferences.of([Judgement(s, None if s == "abstain" else x, 1, c) for s, x, c in said], "test")


def all_pairs(segments: int) -> Pairs:
    rng = np.random.default_rng(0)
    a, b = np.triu_indices(segments, 1)
    turned = rng.random(len(a)) < 0.5
    return Pairs(np.where(turned, a, b), np.where(turned, b, a), "uniform", 0)


def answers(pairs: Pairs, verdict: np.ndarray, swapped: np.ndarray, by: np.ndarray | None = None) -> Verdicts:
    """Answers: every pair has one per column."""
    n, k = verdict.shape
    p = np.select([verdict == FIRST, verdict == SECOND, verdict == TIE], [1.0, 0.0, 0.5], np.nan)
    who = np.zeros((n, k), dtype=np.int64) if by is None else by
    names = ("",) if by is None else ("good", "bad")
    return Verdicts(
        np.repeat(np.arange(n), k), swapped.ravel(), verdict.ravel(), p.ravel(), who.ravel().astype(np.int64), names
    )


def biased(pairs: Pairs, bias: float, seed: int) -> Verdicts:
    """Names the text shown first with probability `bias`, the better one (the higher number) otherwise."""
    rng = np.random.default_rng(seed)
    swapped = np.tile([False, True], (len(pairs), 1))
    truth = np.where(pairs.first > pairs.second, FIRST, SECOND)[:, None]
    shown = np.where(swapped, SECOND, FIRST)
    return answers(pairs, np.where(rng.random(swapped.shape) < bias, shown, truth), swapped)


@pytest.mark.parametrize("bias", [0.0, 0.3, 1.0])
def test_position_bias_is_found_again(bias: float) -> None:
    pairs = all_pairs(40)
    found = measure(pairs, labelled(np.ones(len(pairs))), biased(pairs, bias, 1), {}, 0)["position_bias"]
    expected = bias + (1 - bias) / 2
    assert found["of"] == 2 * len(pairs)
    assert found["ci95"][0] <= expected <= found["ci95"][1]
    assert found["ci95"][1] - found["ci95"][0] < 0.08
    if bias:
        assert found["ci95"][0] > 0.5


def test_the_interval_of_the_bias_covers_the_truth() -> None:
    """Also where a pair is answered by place in both orders, so that two answers are worth little more than one."""
    pairs = all_pairs(20)
    swapped = np.tile([False, True], (len(pairs), 1))
    rng = np.random.default_rng(0)
    independent = dependent = 0
    for seed in range(300):
        said = biased(pairs, 0.3, seed)
        by_place = np.where(rng.random((len(pairs), 1)) < 0.65, swapped, ~swapped)  # SECOND is 1
        told = answers(pairs, by_place.astype(np.int64), swapped)
        low, high = measure(pairs, labelled(np.ones(len(pairs))), said, {}, 0)["position_bias"]["ci95"]
        independent += low <= 0.65 <= high
        low, high = measure(pairs, labelled(np.ones(len(pairs))), told, {}, 0)["position_bias"]["ci95"]
        dependent += low <= 0.65 <= high
    assert independent / 300 > 0.92, "at least: both orders of a pair balance each other"
    assert 0.91 <= dependent / 300 <= 0.985


def test_counts_of_answers() -> None:
    pairs = all_pairs(4)  # six pairs
    verdict = np.array(
        [[FIRST, TIE], [SECOND, ABSTAIN], [UNREAD, FIRST], [FAILED, FAILED], [TIE, TIE], [FIRST, UNREAD]]
    )
    swapped = np.tile([False, True], (6, 1))
    found = measure(pairs, labelled(np.full(6, np.nan)), answers(pairs, verdict, swapped), {}, 0)
    shares = {name: (value["value"], value["of"]) for name, value in found.items() if isinstance(value, dict)}
    assert shares == {
        "tie_rate": (0, 6),
        "abstain_rate": (1, 6),
        "failure_rate": (pytest.approx(2 / 12), 12),
        "unusable_rate": (pytest.approx(4 / 12), 12),
        "parse_rate": (pytest.approx(8 / 10), 10),
        "answer_tie_rate": (pytest.approx(3 / 8), 8),
        "answer_abstain_rate": (pytest.approx(1 / 8), 8),
        "position_bias": (pytest.approx(2 / 4), 4),
    }
    assert found["answers"] == 12


def test_undefined_rates_are_left_out() -> None:
    pairs = Pairs(np.array([0, 1]), np.array([1, 2]), "uniform", 0)
    assert set(measure(pairs, labelled(np.array([1.0, 0.5])), None, {}, 0)) == {"tie_rate"}


def test_swap_consistency_and_intransitivity() -> None:
    pairs = all_pairs(5)
    consistent = np.arange(10) < 7
    found = measure(pairs, labelled(np.ones(10), consistent), None, {}, 0)
    assert (found["swap_consistency"]["value"], found["swap_consistency"]["of"]) == (0.7, 10)
    p = (pairs.first > pairs.second).astype(float)
    assert measure(pairs, labelled(p), None, {}, 0)["intransitivity"]["value"] == 0
    assert measure(pairs, labelled(p), None, {}, 0)["intransitivity"]["of"] == 10


def test_agreement_with_references() -> None:
    pairs = all_pairs(7)
    known = np.array([1.0] * 10 + [0.0] * 5 + [0.5] * 4 + [np.nan] * 2)
    p = np.array([1.0] * 8 + [0.5, np.nan] + [1.0] * 5 + [0.5, 0.5, 1.0, 0.0] + [1.0, 0.0])
    found = measure(pairs, labelled(p), None, {"gold": known}, 0)["gold"]
    assert (found["agreement"]["value"], found["agreement"]["of"]) == (pytest.approx(8 / 13), 13)
    assert {key: found[key] for key in ("pairs", "undecided", "equal", "equal_agreed")} == {
        "pairs": 15, "undecided": 2, "equal": 4, "equal_agreed": 2,
    }  # fmt: skip
    assert "brier" not in found, "labels that are all 0 or 1 say nothing about how sure they are"
    assert "gold" not in measure(pairs, labelled(p), None, {"gold": np.full(21, np.nan)}, 0)


def compared(sure: np.ndarray, right_rate: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """A labeller that is as sure as it says of either side, and right at the given rate."""
    rng = np.random.default_rng(seed)
    known = (rng.random(len(sure)) < 0.5).astype(float)
    right = rng.random(len(sure)) < right_rate
    p = np.where(right == (known == 1), sure, 1 - sure)
    n = len(sure)
    pairs = Pairs(np.arange(n), np.arange(n) + n, "uniform", 0)
    found: dict[str, Any] = measure(pairs, labelled(p), None, {"oracle": known}, 0)["oracle"]
    return found


def test_a_calibrated_labeller_has_no_calibration_error() -> None:
    sure = np.random.default_rng(1).uniform(0.5, 1, 40_000)
    found = compared(sure, sure)
    assert found["calibration_error"] < 0.015
    assert found["brier"] == pytest.approx((sure * (1 - sure)).mean(), abs=0.005)
    assert sum(entry["pairs"] for entry in found["calibration"]) == 40_000
    assert len(found["calibration"]) == 10
    for entry in found["calibration"]:
        assert abs(entry["p"] - entry["observed"]) < 0.03
        assert entry["ci95"][0] <= entry["observed"] <= entry["ci95"][1]


@pytest.mark.parametrize(("said", "right_rate", "error"), [(0.95, 0.7, 0.25), (0.62, 0.9, 0.28)])
def test_a_labeller_of_another_confidence_has_a_calibration_error(said: float, right_rate: float, error: float) -> None:
    found = compared(np.full(5_000, said), np.full(5_000, right_rate))
    assert found["calibration_error"] == pytest.approx(error, abs=0.02)
    (entry,) = found["calibration"]
    assert entry["p"] == pytest.approx(said)
    assert found["agreement"]["value"] == pytest.approx(right_rate, abs=0.02)


def test_each_annotator_alone() -> None:
    pairs = all_pairs(30)
    n = len(pairs)
    truth = np.where(pairs.first > pairs.second, FIRST, SECOND)
    known = (truth == FIRST).astype(float)
    first_shown = np.where([False, True], SECOND, FIRST)
    verdict = np.stack([truth, truth, *(np.full(n, side) for side in first_shown)], axis=1)
    swapped = np.tile([False, True, False, True], (n, 1))
    said = answers(pairs, verdict, swapped, by=np.tile([0, 0, 1, 1], (n, 1)))
    every, none = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
    members = {
        "good": labelled(known, every),
        "bad": labelled(np.full(n, 0.5), none),
        "silent": labelled(1 - known),
    }
    found = measure(pairs, labelled(known), said, {"oracle": known}, 0, members)
    good, bad, silent = found["by"]
    assert [figures["annotator"] for figures in found["by"]] == ["good", "bad", "silent"]
    assert good["position_bias"]["value"] == 0.5
    assert bad["position_bias"]["value"] == 1.0
    assert (good["swap_consistency"]["value"], bad["swap_consistency"]["value"]) == (1.0, 0.0)
    assert good["oracle"]["agreement"]["value"] == 1.0
    assert "agreement" not in bad["oracle"], "it always ends in a tie"
    assert bad["tie_rate"]["value"] == 1.0
    assert set(silent) == {"annotator", "tie_rate", "intransitivity", "oracle"}, "it keeps no answers"
    assert silent["oracle"]["agreement"]["value"] == 0.0
    assert found["position_bias"]["value"] == 0.75
    assert good["intransitivity"]["value"] == 0


def test_the_same_each_time() -> None:
    pairs = all_pairs(30)
    said = biased(pairs, 0.3, 1)
    assert measure(pairs, labelled(np.ones(len(pairs))), said, {}, 5) == measure(
        pairs, labelled(np.ones(len(pairs))), said, {}, 5
    )

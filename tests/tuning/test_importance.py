"""Importance with planted truth: one parameter decides, or none does."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import JsonValue

from laurel.params import Params
from laurel.params.search import Space, read_space
from laurel.tuning.candidates import candidates
from laurel.tuning.importance import MIN_TRIALS, importances
from laurel.tuning.trials import Trial

WEIGHT, BETA = "shaping.intrinsic", "shaping.beta"


@pytest.fixture
def space(params: Params) -> Space:
    return read_space([f"{WEIGHT}=log:0.01:1", f"{BETA}=0:4"], params, "preference")


@pytest.fixture
def drawn(space: Space, params: Params) -> list[dict[str, JsonValue]]:
    return candidates(space, params, 40, "sobol", 0)


@pytest.fixture
def decided(drawn: list[dict[str, JsonValue]]) -> list[Trial]:
    """Trials whose score is the weight's distance from 0.3."""
    return [Trial(n, each, "complete", -abs(float(str(each[WEIGHT])) - 0.3)) for n, each in enumerate(drawn)]


def test_importance_finds_the_relevant_parameter(space: Space, decided: list[Trial]) -> None:
    found = importances(space, decided, resamples=20)
    assert list(found) == [WEIGHT, BETA]
    assert found[WEIGHT].share > 0.8
    assert sum(each.share for each in found.values()) == pytest.approx(1.0)
    assert found[WEIGHT].low > found[BETA].high, "the two are told apart"


def test_intervals_include_zero_if_no_parameter_matters(space: Space, drawn: list[dict[str, JsonValue]]) -> None:
    scores = np.random.default_rng(0).normal(size=len(drawn))
    found = importances(space, [Trial(n, each, "complete", scores[n]) for n, each in enumerate(drawn)], resamples=40)
    assert found[WEIGHT].low < found[BETA].high
    assert found[BETA].low < found[WEIGHT].high


def test_the_same_trials_give_the_same_intervals(space: Space, decided: list[Trial]) -> None:
    assert importances(space, decided, resamples=5) == importances(space, decided, resamples=5)


def test_few_trials_show_no_importance(space: Space, decided: list[Trial]) -> None:
    pruned = [Trial(n, trial.values, "pruned", None) for n, trial in enumerate(decided)]
    assert importances(space, decided[: MIN_TRIALS - 1]) == {}
    assert importances(space, pruned) == {}

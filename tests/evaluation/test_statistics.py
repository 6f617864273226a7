import json

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from rliable import metrics as rliable_metrics

from laurel.errors import DataError
from laurel.evaluation import statistics
from laurel.evaluation.statistics import (
    estimate,
    improvement,
    interquartile_mean,
    probability_of_improvement,
    rank_agreement,
    seed_scores,
    steps_to_threshold,
    summarise,
)

scores = st.lists(st.floats(-100, 100) | st.integers(-2, 2).map(float), min_size=1, max_size=9).map(np.array)


def summarised(results, curves, **changes):
    options = {"success_threshold": 0.9, "reward_threshold": None, "resamples": 300, "seed": 0, **changes}
    return summarise(results, curves, **options)


# -- against slow references --------------------------------------------------------------------
@given(scores)
@settings(deadline=None, max_examples=50)
def test_iqm_is_the_mean_without_the_outer_quarters(values):
    expected = pytest.approx(scipy.stats.trim_mean(values, 0.25), abs=1e-9)
    assert estimate(values[:1].repeat(1), resamples=10, seed=0)["iqm"] == values[0]
    assert interquartile_mean(values, axis=0) == expected
    assert interquartile_mean(np.stack([values, values]), axis=1) == pytest.approx([expected.expected] * 2, abs=1e-9)


def test_iqm_is_nan_where_a_seed_has_no_value():
    values = np.array([[1.0, np.nan], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    assert np.isnan(interquartile_mean(values, axis=0)).tolist() == [False, True]


@given(scores, scores)
@settings(deadline=None, max_examples=50)
def test_probability_of_improvement_counts_pairs(x, y):
    wins = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in x for b in y) / (len(x) * len(y))
    assert probability_of_improvement(x, y) == pytest.approx(wins)
    assert rliable_metrics.probability_of_improvement(x[:, None], y[:, None]) == pytest.approx(wins)


# -- planted truth --------------------------------------------------------------------------------
def test_episodes_are_averaged_within_their_seed_first():
    results = pd.DataFrame(
        {
            "arm": "a",
            "seed": [0, 0, 0, 1],
            "episode": [0, 1, 2, 0],
            "return": [0.0, 0.0, 0.0, 1.0],
            "success": [False, False, False, True],
        }
    )
    assert seed_scores(results)["return"].tolist() == [0.0, 1.0]
    assert seed_scores(results)["success"].tolist() == [0.0, 1.0]


def test_intervals_cover_the_truth():
    rng = np.random.default_rng(0)
    covered = 0
    for i in range(60):
        low, high = estimate(rng.normal(3.0, 1.0, 12), resamples=200, seed=i)["ci95"]
        covered += low <= 3.0 <= high
    assert 48 <= covered < 60


def test_intervals_narrow_with_more_seeds():
    values = np.arange(8.0)
    few, many = (estimate(np.tile(values, n), resamples=300, seed=0)["ci95"] for n in (1, 10))
    assert many[1] - many[0] < 0.5 * (few[1] - few[0])


def test_improvement_of_like_arms_is_a_half_and_of_a_better_one_is_one():
    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 1, 20), rng.normal(0, 1, 20)
    alike = improvement(x, y, resamples=300, seed=0)
    assert alike["ci95"][0] < 0.5 < alike["ci95"][1]
    assert improvement(x + 10, y, resamples=50, seed=0) == {"value": 1.0, "ci95": [1.0, 1.0]}
    assert improvement(x - 10, y, resamples=50, seed=0) == {"value": 0.0, "ci95": [0.0, 0.0]}


def test_kendall_tau_finds_the_planted_ranking(tables):
    rates = {"extrinsic": 0.5, "preference": 0.5}
    agree, _ = tables(rates)
    oppose, _ = tables(rates, reward_sign=-1.0)
    assert rank_agreement(agree)["tau"] > 0.6
    assert rank_agreement(oppose)["tau"] < -0.6
    assert list(rank_agreement(agree)["arms"]) == ["extrinsic", "preference"]


def test_kendall_tau_is_none_where_it_is_undefined(tables):
    results, _ = tables({"extrinsic": 0.5})
    assert rank_agreement(results.assign(shaped_reward=1.0))["tau"] is None
    assert rank_agreement(results.assign(shaped_reward=np.nan)) is None


# -- steps to the threshold -----------------------------------------------------------------------
def runs(*rates, episodes=20):
    """A seed for each list of success rates over the last hundred episodes, an update each 1000 steps."""
    rows = [
        {"seed": seed, "env_steps": 1000 * (i + 1), "window": min(episodes * (i + 1), 100), "success_rate": rate}
        for seed, seed_rates in enumerate(rates)
        for i, rate in enumerate(seed_rates)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)  # order in the table must not matter


def test_threshold_is_reached_when_the_last_hundred_episodes_hold_it():
    found = steps_to_threshold(runs([np.nan] * 2 + [0.0] * 5 + [0.8] * 2), "success_rate", 0.8)
    assert found == {"median": 8000.0, "reached": 1, "of": 1, "per_seed": [8000]}


def test_a_lucky_start_is_not_the_threshold():
    found = steps_to_threshold(runs([1.0, 1.0, 1.0, 1.0, 0.8, 0.8]), "success_rate", 0.9)
    assert found == {"median": None, "reached": 0, "of": 1, "per_seed": [None]}


def test_median_counts_seeds_that_never_got_there_as_last():
    solved, never = [1.0] * 6, [0.0] * 6
    assert steps_to_threshold(runs(solved, never, solved), "success_rate", 0.9) == {
        "median": 5000.0,
        "reached": 2,
        "of": 3,
        "per_seed": [5000, None, 5000],
    }
    assert steps_to_threshold(runs(solved, never), "success_rate", 0.9)["median"] is None


# -- the section as a whole -------------------------------------------------------------------------
def test_summary_has_the_promised_form(tables):
    summary = summarised(*tables({"random_policy": 0.0, "preference": 0.95, "extrinsic": 0.0}))
    assert list(summary) == ["extrinsic", "preference", "random_policy"]
    preference = summary["preference"]
    assert set(preference) == {
        "return", "success", "steps_to_threshold", "probability_of_improvement", "env_steps", "episodes", "seeds",
    }  # fmt: skip
    low, high = preference["success"]["ci95"]
    assert low <= preference["success"]["iqm"] <= high
    assert preference["steps_to_threshold"]["per_seed"] == [34_000] * 5
    assert preference["probability_of_improvement"] == {"over": "extrinsic", "value": 1.0, "ci95": [1.0, 1.0]}
    assert (preference["env_steps"], preference["episodes"], preference["seeds"]) == (50_000, 100, [0, 1, 2, 3, 4])
    assert summary["extrinsic"]["probability_of_improvement"] is None
    assert summary["extrinsic"]["steps_to_threshold"]["reached"] == 0
    assert summary["random_policy"]["steps_to_threshold"] is None
    assert summary["random_policy"]["env_steps"] == 0


def test_without_success_the_return_threshold_counts(tables):
    made = tables({"extrinsic": 0.6}, success=False)
    assert summarised(*made)["extrinsic"]["success"] is None
    assert summarised(*made)["extrinsic"]["steps_to_threshold"] is None
    assert summarised(*made, reward_threshold=0.5)["extrinsic"]["steps_to_threshold"]["reached"] == 5


def test_one_seed_has_no_interval(tables):
    entry = summarised(*tables({"extrinsic": 0.1, "preference": 0.9}, seeds=1))["preference"]
    assert entry["return"]["ci95"] is None
    assert entry["success"]["ci95"] is None
    assert entry["probability_of_improvement"]["ci95"] is None


def test_summary_is_clean_json(tables):
    results, curves = tables({"extrinsic": 0.0, "preference": 0.5})
    results.loc[results["arm"] == "extrinsic", "return"] = np.nan
    text = json.dumps(summarised(results, curves), allow_nan=False)
    assert json.loads(text)["extrinsic"]["return"] == {"iqm": None, "ci95": None}


def test_same_seed_same_numbers_whatever_else_there_is(tables):
    results, curves = tables({"extrinsic": 0.3, "preference": 0.6, "oracle": 0.9})
    np.random.seed(1)
    first = summarised(results, curves)
    np.random.seed(2)
    state = np.random.get_state()[1].tolist()
    shuffled = results[results["arm"] != "oracle"].sample(frac=1, random_state=0)
    second = summarised(shuffled, curves)
    assert np.random.get_state()[1].tolist() == state
    assert second == {arm: first[arm] for arm in ("extrinsic", "preference")}
    assert summarised(results, curves, seed=7) != first


def test_curve_band_holds_the_planted_curve(tables):
    _, curves = tables({"preference": 0.8})
    noise = np.random.default_rng(0).normal(0, 0.05, len(curves))
    band = statistics.curve_band(curves.assign(success_rate=0.5 + noise), "success_rate", resamples=200, seed=0)
    shown = ~np.isnan(band["iqm"])
    assert shown[-1]
    assert (band["low"] <= band["iqm"])[shown].all()
    assert (band["iqm"] <= band["high"])[shown].all()
    assert band["iqm"][-1] == pytest.approx(0.5, abs=0.03)
    assert band["env_steps"][-1] == 50_000
    constant = curves.assign(success_rate=curves["seed"].astype(float))
    wide = statistics.curve_band(constant, "success_rate", resamples=2000, seed=0)
    by_rliable = estimate(np.arange(5.0), resamples=2000, seed=0)
    assert wide["iqm"][-1] == by_rliable["iqm"] == 2.0
    assert [wide["low"][-1], wide["high"][-1]] == pytest.approx(by_rliable["ci95"], abs=0.35)
    single = statistics.curve_band(curves[curves["seed"] == 0], "success_rate", resamples=200, seed=0)
    assert np.isnan(single["low"]).all()


def test_a_curve_begins_where_that_of_every_seed_does():
    rates = {0: [np.nan, 1.0, 1.0], 1: [np.nan, np.nan, 0.0]}
    run = pd.DataFrame(
        [(seed, i + 1, rate) for seed, of_seed in rates.items() for i, rate in enumerate(of_seed)],
        columns=["seed", "env_steps", "success_rate"],
    )
    band = statistics.curve_band(run, "success_rate", resamples=10, seed=0)["iqm"]
    np.testing.assert_array_equal(band, [np.nan, np.nan, 0.5])


def test_long_curves_are_thinned_to_their_ends():
    long = pd.DataFrame({"seed": 0, "env_steps": range(1, 5001), "episodes": 1, "success_rate": 0.5})
    steps = statistics.curve_band(long, "success_rate", resamples=10, seed=0)["env_steps"]
    assert len(steps) == 200
    assert (steps[0], steps[-1]) == (1, 5000)


def test_missing_column_and_no_episodes_are_said(tables):
    results, curves = tables({"extrinsic": 0.5})
    with pytest.raises(DataError, match="no column return, success"):
        summarised(results.drop(columns=["return", "success"]), curves)
    with pytest.raises(DataError, match="no episodes"):
        summarised(results.head(0), curves)

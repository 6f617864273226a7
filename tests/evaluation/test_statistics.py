import json

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from rliable import metrics as rliable_metrics

from known_arms import KNOWN
from laurel.errors import DataError
from laurel.evaluation import statistics
from laurel.evaluation.comparison import probability_of_improvement
from laurel.evaluation.statistics import (
    areas,
    estimate,
    further_measures,
    rank_agreement,
    return_range,
    seed_scores,
    solved,
    steps_to_threshold,
    summarise,
)
from laurel.evaluation.summary import FURTHER, legend

scores = st.lists(st.floats(-100, 100) | st.integers(-2, 2).map(float), min_size=1, max_size=9).map(np.array)


def summarised(results, curves, **changes):
    options = {"success_threshold": 0.9, "reward_threshold": None, "draws": 300, "seed": 0, **changes}
    return summarise(results, curves, tuple(KNOWN.values()), **options)["arms"]


# -- against slow references --------------------------------------------------------------------
@given(scores)
@settings(deadline=None, max_examples=50)
def test_mean_and_iqm_are_those_of_the_seeds(values):
    found = estimate(values, -100.0, 100.0, draws=10, seed=0)
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["iqm"] == pytest.approx(scipy.stats.trim_mean(values, 0.25), abs=1e-9)


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


def test_intervals_narrow_with_more_seeds():
    values = np.arange(8.0)
    few, many = (estimate(np.tile(values, n), 0.0, 7.0, draws=300, seed=0)["ci95"] for n in (1, 10))
    assert many[1] - many[0] < 0.5 * (few[1] - few[0])


def test_a_failed_seed_shows_in_mean_interval_and_solved_seeds():
    """In the mean, its interval and the seeds that solved the task, if not in the interquartile mean."""
    seeds = np.array([0.97, 0.96, 0.0, 0.97, 0.96])
    found = estimate(seeds, 0.0, 1.0, draws=2000, seed=0)
    assert found["iqm"] > 0.9
    assert found["mean"] < 0.8
    assert found["ci95"][0] < 0.4
    assert solved(seeds, 0.9)["seeds"] == 4
    assert solved(seeds, 0.9)["ci95"] == pytest.approx([0.299, 0.989], abs=1e-3)
    assert solved(seeds[:1], 0.9) == {"seeds": 1, "of": 1, "ci95": None}
    assert solved(seeds, 0.97)["seeds"] == 2, "at the threshold"


def test_the_range_of_returns_is_that_of_all_seeds_at_all_times(tables):
    results, curves = tables({"extrinsic": 0.2, "preference": 0.9})
    worse = curves.assign(return_mean=curves["return_mean"].where(curves["env_steps"] > 20_000, -3.0))
    assert return_range(worse) == pytest.approx((-3.0, 0.9))
    better = results.assign(**{"return": 4.0 * (results["episode"] % 2)})  # a mean of 2 for each seed
    assert return_range(worse, better) == pytest.approx((-3.0, 2.0))
    assert return_range(curves.head(0)) == (0.0, 0.0)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_cover_where_nothing_was_trained(seeds):
    """The seeds' own lowest and highest mean are no range of returns: an interval between them covers half as often."""
    rng, covered = np.random.default_rng(0), 0
    nothing = pd.DataFrame(columns=["arm", "seed", "return_mean"]).astype({"return_mean": "float64"})
    for _ in range(200):
        episodes = (rng.random((seeds, 10)) < 0.3).astype(np.float64)
        played = pd.DataFrame({"arm": "a", "seed": np.repeat(np.arange(seeds), 10), "return": episodes.reshape(-1)})
        interval = estimate(episodes.mean(axis=1), *return_range(nothing, played), draws=400, seed=0)["ci95"]
        covered += interval is not None and interval[0] <= 0.3 <= interval[1]
    assert covered / 200 >= 0.95


def test_the_area_is_the_mean_of_the_curve(tables):
    _, curves = tables({"extrinsic": 0.2, "preference": 0.9})
    found = areas(curves.sample(frac=1, random_state=0))
    assert list(found["arm"].unique()) == ["extrinsic", "preference"]
    run = curves[(curves["arm"] == "preference") & (curves["seed"] == 0)]
    assert found.query("arm == 'preference'")["area"].iloc[0] == pytest.approx(run["return_mean"].mean())
    later = curves.assign(return_mean=curves["return_mean"].where(curves["env_steps"] > 35_000, 0.0))
    assert (areas(later)["area"] < found["area"]).all()


def test_kendall_tau_finds_the_planted_ranking(tables):
    rates = {"extrinsic": 0.5, "preference": 0.5}
    agree, _ = tables(rates)
    oppose, _ = tables(rates, reward_sign=-1.0)
    assert rank_agreement(agree)["tau"] > 0.6
    assert rank_agreement(oppose)["tau"] < -0.6
    low, high = rank_agreement(agree, 1.0)["ci95"]
    assert 0.3 < low <= rank_agreement(agree)["tau"] <= high
    assert rank_agreement(agree)["ci95"] is None, "without a warning, none is shown"
    assert rank_agreement(agree[(agree["arm"] == "preference") & (agree["seed"] == 0)])["ci95"] is None
    assert list(rank_agreement(agree)["arms"]) == ["extrinsic", "preference"]


def test_the_interval_of_tau_is_of_agents_and_not_of_arms(tables):
    agree, _ = tables({"preference": 0.5})
    low, high = rank_agreement(agree, 1.0)["ci95"]
    assert low < rank_agreement(agree)["tau"] < high
    one_seed = pd.DataFrame(
        [(arm, 0, value, value + (arm == "b")) for arm in "ab" for value in (1.0, 2.0, 3.0)],
        columns=["arm", "seed", "return", "shaped_reward"],
    )
    assert rank_agreement(one_seed, 1.0)["ci95"] is not None, "two arms' agents of the same seed are two agents"


def test_the_interval_of_tau_leaves_out_a_fortieth_at_each_end():
    """One of three agents ranks the other way: all three drawn are that one in a draw of 27."""
    rows = [
        ("a", seed, float(episode), (-1.0 if seed == 0 else 1.0) * episode) for seed in range(3) for episode in range(5)
    ]
    results = pd.DataFrame(rows, columns=["arm", "seed", "return", "shaped_reward"])
    assert rank_agreement(results, 1.0)["ci95"] == pytest.approx([-1.0, 1.0])


def test_a_further_measure_goes_to_1_or_to_the_highest_mean_of_an_agent():
    def measured(*means):
        rows = [("a", seed, mean) for seed, mean in enumerate(means)]
        results = pd.DataFrame(rows, columns=["arm", "seed", f"{FURTHER}height"])
        return further_measures(results, draws=300, seed=0)["height"]["a"]

    assert measured(0.25, 0.25, 0.25) == estimate(np.full(3, 0.25), 0.0, 1.0, draws=300, seed=0)
    assert measured(5.0, 1.0, 3.0, np.nan) == estimate(np.array([5.0, 1.0, 3.0]), 0.0, 5.0, draws=300, seed=0)


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
    assert found == {"median": 8000.0, "ci95": None, "reached": 1, "of": 1, "per_seed": [8000]}


def test_a_lucky_start_is_not_the_threshold():
    found = steps_to_threshold(runs([1.0, 1.0, 1.0, 1.0, 0.8, 0.8]), "success_rate", 0.9)
    assert found == {"median": None, "ci95": None, "reached": 0, "of": 1, "per_seed": [None]}


def test_the_median_counts_seeds_that_never_reached_it_as_last():
    solved, never = [1.0] * 6, [0.0] * 6
    assert steps_to_threshold(runs(solved, never, solved), "success_rate", 0.9) == {
        "median": 5000.0,
        "ci95": None,
        "reached": 2,
        "of": 3,
        "per_seed": [5000, None, 5000],
    }
    assert steps_to_threshold(runs(solved, never), "success_rate", 0.9)["median"] is None
    found = steps_to_threshold(runs(solved, never, solved, solved, solved), "success_rate", 0.9)
    assert (found["median"], found["ci95"]) == (5000.0, [5000.0, None])


# -- the section as a whole -------------------------------------------------------------------------
def test_a_summary_has_all_documented_fields(tables):
    summary = summarised(*tables({"random_policy": 0.0, "preference": 0.95, "extrinsic": 0.0}))
    assert list(summary) == ["extrinsic", "preference", "random_policy"]
    preference = summary["preference"]
    assert set(preference) == {
        "role", "label", "rewards", "return", "success", "area", "solved", "steps_to_threshold", "env_steps",
        "episodes", "seeds",
    }  # fmt: skip
    low, high = preference["success"]["ci95"]
    assert low <= preference["success"]["mean"] <= high
    assert preference["solved"]["of"] == 5
    assert preference["steps_to_threshold"]["per_seed"] == [34_000] * 5
    assert (preference["env_steps"], preference["episodes"], preference["seeds"]) == (50_000, 100, [0, 1, 2, 3, 4])
    assert summary["extrinsic"]["steps_to_threshold"]["reached"] == 0
    assert summary["random_policy"]["steps_to_threshold"] is None
    assert summary["random_policy"]["area"] is None
    assert summary["random_policy"]["env_steps"] == 0


def test_without_success_the_return_threshold_counts(tables):
    made = tables({"extrinsic": 0.6}, success=False)
    assert summarised(*made)["extrinsic"]["success"] is None
    assert summarised(*made)["extrinsic"]["steps_to_threshold"] is None
    assert summarised(*made, reward_threshold=0.5)["extrinsic"]["steps_to_threshold"]["reached"] == 5
    assert summarised(*made, reward_threshold=0.1)["extrinsic"]["solved"]["seeds"] == 5


def test_a_threshold_that_no_agent_had_time_to_reach_is_unknown(tables):
    """It is over 100 episodes: an arm of which fewer end has not failed to reach it, unless another had the time."""
    results, curves = tables({"extrinsic": 0.0, "preference": 0.95})
    short = curves["arm"] == "preference"
    assert summarised(results, curves.assign(window=99))["preference"]["steps_to_threshold"] is None
    some = summarised(results, curves.assign(window=curves["window"].where(~short, 99)))
    assert [some[arm]["steps_to_threshold"]["reached"] for arm in ("extrinsic", "preference")] == [0, 0]


def test_one_seed_has_no_interval(tables):
    entry = summarised(*tables({"extrinsic": 0.1, "preference": 0.9}, seeds=1))["preference"]
    assert entry["return"]["ci95"] is None
    assert entry["success"]["ci95"] is None
    assert entry["area"]["ci95"] is None
    assert entry["solved"]["ci95"] is None


def test_returns_that_are_all_the_same_have_no_interval_and_the_legend_says_so(tables):
    """An interval of width zero would claim that no agent can ever return anything else."""
    results, curves = tables({"extrinsic": 0.1, "preference": 0.9})
    same = results.assign(**{"return": -0.1}), curves.assign(return_mean=np.float64(np.float32(-0.1)))
    found = summarised(*same)
    assert found["preference"]["return"] == {"mean": pytest.approx(-0.1), "ci95": None, "iqm": pytest.approx(-0.1)}
    assert found["preference"]["area"]["ci95"] is None
    assert found["preference"]["success"]["ci95"] is not None
    says = "Returns have no interval, since they are all the same"
    for arms, said in ((found, True), (summarised(results, curves), False)):
        metrics = {"order": list(arms), "arms": arms, "comparisons": {}}
        assert (says in legend(metrics)) is said
    alone = summarised(*tables({"extrinsic": 0.1}, seeds=1))
    assert says not in legend({"order": list(alone), "arms": alone, "comparisons": {}})


def test_summary_is_clean_json(tables):
    results, curves = tables({"extrinsic": 0.0, "preference": 0.5})
    results.loc[results["arm"] == "extrinsic", "return"] = np.nan
    text = json.dumps(summarised(results, curves), allow_nan=False)
    assert json.loads(text)["extrinsic"]["return"] == {"mean": None, "ci95": None, "iqm": None}


def test_same_seed_same_numbers(tables):
    results, curves = tables({"extrinsic": 0.3, "preference": 0.6, "oracle": 0.9})
    state = np.random.get_state()[1].tolist()
    first = summarised(results, curves)
    assert summarised(results.sample(frac=1, random_state=0), curves) == first
    assert np.random.get_state()[1].tolist() == state
    assert summarised(results, curves, seed=7) != first


def test_learned_arms_are_compared_in_the_end_and_while_training(tables):
    options = {"success_threshold": 0.9, "reward_threshold": None, "draws": 50, "seed": 0}
    made = tables({"extrinsic": 0.1, "preference": 0.9, "random_policy": 0.0, "oracle": 1.0}, seeds=6)
    found = summarise(*made, tuple(KNOWN.values()), **options)["comparisons"]
    assert {arm: {over: list(measures) for over, measures in overs.items()} for arm, overs in found.items()} == {
        "preference": {"extrinsic": ["return", "area"], "random_policy": ["return"]}
    }
    entry = found["preference"]["extrinsic"]["return"]
    assert entry["probability"] == 1.0
    assert entry["p"] == pytest.approx(2 / 924)
    assert entry["p_holm"] == pytest.approx(6 / 924)
    assert 0.5 < entry["ci95"][0] < 0.7, "never a point"


def test_curve_band_holds_the_planted_curve(tables):
    _, curves = tables({"preference": 0.8})
    noise = np.random.default_rng(0).normal(0, 0.05, len(curves))
    band = statistics.curve_band(curves.assign(success_rate=0.5 + noise), "success_rate", 0.0, 4.0, draws=200, seed=0)
    shown = ~np.isnan(band["mean"])
    assert shown[-1]
    assert (band["low"] <= band["mean"])[shown].all()
    assert (band["mean"] <= band["high"])[shown].all()
    assert band["mean"][-1] == pytest.approx(0.5, abs=0.03)
    assert band["env_steps"][-1] == 50_000
    constant = curves.assign(success_rate=curves["seed"].astype(float))
    wide = statistics.curve_band(constant, "success_rate", 0.0, 4.0, draws=1000, seed=0)
    same = estimate(np.arange(5.0), 0.0, 4.0, draws=1000, seed=0)
    assert wide["mean"][-1] == same["mean"] == 2.0
    assert [wide["low"][-1], wide["high"][-1]] == same["ci95"]
    single = statistics.curve_band(curves[curves["seed"] == 0], "success_rate", 0.0, 4.0, draws=200, seed=0)
    assert np.isnan(single["low"]).all()


def test_the_mean_curve_begins_when_all_seeds_have_values():
    rates = {0: [np.nan, 1.0, 1.0], 1: [np.nan, np.nan, 0.0]}
    run = pd.DataFrame(
        [(seed, i + 1, rate) for seed, of_seed in rates.items() for i, rate in enumerate(of_seed)],
        columns=["seed", "env_steps", "success_rate"],
    )
    band = statistics.curve_band(run, "success_rate", 0.0, 1.0, draws=10, seed=0)["mean"]
    np.testing.assert_array_equal(band, [np.nan, np.nan, 0.5])


def test_seeds_with_values_at_other_steps_are_averaged_at_the_same_steps():
    lines = {0: [0, 10, 20, 30, 40], 1: [4, 11, 25, 38], 2: [0, 40, 80]}
    run = pd.DataFrame(
        [(seed, step, seed + step / 100) for seed, steps in lines.items() for step in steps],
        columns=["seed", "env_steps", "return_mean"],
    )
    band = statistics.curve_band(run, "return_mean", 0.0, 3.0, draws=10, seed=0)
    assert band["env_steps"].tolist() == [4, 10, 11, 20, 25, 30, 38], "where all of them have trained"
    np.testing.assert_allclose(band["mean"], 1 + band["env_steps"] / 100)


def test_seeds_without_a_common_step_have_a_point():
    run = pd.DataFrame([(0, 500, 1.0), (1, 520, 3.0)], columns=["seed", "env_steps", "return_mean"])
    band = statistics.curve_band(run, "return_mean", 0.0, 3.0, draws=10, seed=0)
    assert (band["env_steps"].tolist(), band["mean"].tolist()) == ([520], [2.0])


def test_long_curves_are_thinned_to_their_ends():
    long = pd.DataFrame({"seed": 0, "env_steps": range(1, 5001), "episodes": 1, "success_rate": 0.5})
    steps = statistics.curve_band(long, "success_rate", 0.0, 1.0, draws=10, seed=0)["env_steps"]
    assert len(steps) == 200
    assert (steps[0], steps[-1]) == (1, 5000)


def test_missing_columns_and_no_episodes_are_reported(tables):
    results, curves = tables({"extrinsic": 0.5})
    with pytest.raises(DataError, match="no column return, success"):
        summarised(results.drop(columns=["return", "success"]), curves)
    with pytest.raises(DataError, match="training curves: no column window"):
        summarised(results, curves.drop(columns=["window"]))
    with pytest.raises(DataError, match="no episodes"):
        summarised(results.head(0), curves)

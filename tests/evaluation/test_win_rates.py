"""Win rates and Elo against planted strengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from laurel.evaluation.divergence import divergence_curve
from laurel.evaluation.summary import text_columns
from laurel.evaluation.win_rates import POINTS, SHOWN, examples, win_rates
from laurel.params import parse_params
from laurel.params.arm_infos import ArmInfo

STRENGTHS = {"base": 0.0, "good": 1.5, "bad": -1.0}
EPISODES = 2000


@pytest.fixture(scope="module")
def arms() -> Any:
    writer = {"reward": None, "agent": {"actor": "writer"}}
    content = {"env": {"id": "laurel/Completions-v0"}, "collect": {"steps": 10}, "agent": {"seeds": [0], "steps": 10}}
    arms = {"good": {"reward": "text"}, "bad": {"reward": "length"}, "base": writer}
    return parse_params({**content, "arms": arms}, "test").resolved_arms


@pytest.fixture(scope="module")
def results() -> pd.DataFrame:
    """Bradley-Terry's choices: the larger of Gumbel draws about the strengths."""
    rng = np.random.default_rng(0)
    rows = {"seed": 0, "episode": range(EPISODES), "prompt": [f"p{i % 200}" for i in range(EPISODES)], "text": "a b c"}
    return pd.concat([pd.DataFrame({"arm": arm, "return": rng.gumbel(s, size=EPISODES), **rows})
                      for arm, s in STRENGTHS.items()])  # fmt: skip


def curves(kl: float = 3.0) -> pd.DataFrame:
    steps = range(10, 110, 10)
    return pd.concat([pd.DataFrame({"arm": arm, "env_steps": steps, "reference_kl": [0.0] * 9 + [kl]})
                      for arm in ("good", "bad")])  # fmt: skip


def test_planted_strengths_are_found(results: pd.DataFrame, arms: Any) -> None:
    found = win_rates(results, curves(), arms, 0)
    assert list(found) == ["base", "good", "bad"]
    for arm, strength in STRENGTHS.items():
        low, high = found[arm]["elo"]["ci95"]
        assert low - 10 <= POINTS * strength <= high + 10
        assert high - low < 120
    wins = found["good"]["wins"]
    assert wins["ci95"][0] < 1 / (1 + np.exp(-1.5)) < wins["ci95"][1]
    assert wins["of"] == EPISODES
    assert (found["good"]["kl"], found["good"]["words"]) == (3.0, 3.0)


def test_agents_of_several_seeds_are_the_sample_not_their_episodes(results: pd.DataFrame, arms: Any) -> None:
    """Each agent of `good` wins either nearly always or nearly never: thousands of episodes are six agents."""
    rng = np.random.default_rng(1)
    covered, of = 0, 12
    for _ in range(of):
        parts = []
        for seed, strength in enumerate(rng.choice([-2.2, 2.2], size=6)):  # 10% or 90%, and 50% on average
            some = results.loc[results["episode"] < 40].assign(seed=seed)
            good = some["arm"] == "good"
            parts.append(some.assign(**{"return": rng.gumbel(size=len(some)) + np.where(good, strength, 0.0)}))
        found = win_rates(pd.concat(parts), curves(), arms, 0)["good"]
        covered += found["wins"]["ci95"][0] <= 0.5 <= found["wins"]["ci95"][1]
        assert found["wins"]["ci95"][1] - found["wins"]["ci95"][0] > 0.3
        assert found["elo"]["ci95"][1] - found["elo"]["ci95"][0] > 150
    assert covered >= of - 1


def test_equal_texts_have_half_a_win_each(results: pd.DataFrame, arms: Any) -> None:
    same = results.assign(**{"return": 0.3})
    found = win_rates(same, curves(), arms, 0)["good"]
    assert (found["wins"]["value"], found["elo"]["value"]) == (0.5, pytest.approx(0, abs=1e-6))
    same.loc[(same["arm"] == "good") & (same["episode"] < EPISODES // 2), "return"] = 0.4
    assert win_rates(same, curves(), arms, 0)["good"]["wins"]["value"] == 0.75


def test_a_divergence_estimated_below_0_is_written_without_a_minus_sign(results: pd.DataFrame, arms: Any) -> None:
    of_arms = {arm: {"seeds": [0]} for arm in STRENGTHS}
    table = text_columns({"arms": of_arms, "texts": win_rates(results, curves(kl=-0.01), arms, 0)})
    assert table is not None
    heads, rows = table
    assert {row[heads.index("KL to the base")] for row in rows} == {"0", "0.0"}


def test_an_arm_that_always_wins_has_a_finite_strength(arms: Any, results: pd.DataFrame) -> None:
    certain = results.assign(**{"return": results["arm"].map(STRENGTHS)})
    found = win_rates(certain, curves(), arms, 0)
    assert 400 < found["good"]["elo"]["value"] < 4000
    assert found["bad"]["wins"]["value"] == 0.0
    two = {name: arms[name] for name in ("base", "good")}
    strength = win_rates(certain, curves()[:10], two, 0)["good"]["elo"]["value"] / POINTS
    prior = 1000 / POINTS  # the standard deviation: here the likelihood of the wins is as steep as the prior
    assert EPISODES / (1 + np.exp(strength)) == pytest.approx(strength / prior**2, rel=0.01)


def test_an_arm_that_always_wins_has_an_interval(arms: Any, results: pd.DataFrame) -> None:
    """About that of a share of n of n by Clopper and Pearson; one prompt shows nothing."""
    certain = results.assign(**{"return": results["arm"].map(STRENGTHS)})
    two = {name: arms[name] for name in ("base", "good")}

    def bounds(n: int) -> list[float]:
        elo: dict[str, Any] = win_rates(certain[certain["episode"] < n], curves()[:10], two, 0)["good"]["elo"]
        assert elo["ci95"][0] < elo["value"] < elo["ci95"][1]
        return list(elo["ci95"])

    share = 0.025 ** (1 / 20)
    assert bounds(20)[0] == pytest.approx(POINTS * np.log(share / (1 - share)), abs=50)
    assert bounds(1)[0] < 0
    certain = certain.assign(prompt=[f"p{i % 20}" for i in certain["episode"]])
    assert bounds(100)[0] == pytest.approx(POINTS * np.log(share / (1 - share)), abs=50), "as many as there are prompts"


def test_words_are_of_an_arms_own_texts_and_wins_of_episodes_that_both_have(arms: Any, results: pd.DataFrame) -> None:
    two = {name: arms[name] for name in ("base", "good")}
    few = results[results["episode"] < 4].assign(**{"return": 1.0})
    few.loc[few["arm"] == "good", ["text", "return"]] = "a b c d e", 2.0
    found = win_rates(few[(few["arm"] != "good") | (few["episode"] > 0)], curves()[:10], two, 0)
    assert (found["base"]["words"], found["good"]["words"]) == (3.0, 5.0)
    assert (found["good"]["wins"]["value"], found["good"]["wins"]["of"]) == (1.0, 3)


def of_seeds(results: pd.DataFrame, seeds: dict[str, list[int]]) -> pd.DataFrame:
    """An arm's every seed has the same episodes, with returns of its own."""
    parts = [results[(results["arm"] == arm) & (results["episode"] < 40)].assign(seed=seed)
             for arm, seeds_of_arm in seeds.items() for seed in seeds_of_arm]  # fmt: skip
    both = pd.concat(parts, ignore_index=True)
    return both.assign(**{"return": both["return"] + both["seed"] * (both["arm"] == "good")})


def test_each_arm_meets_the_base_in_all_seeds_that_both_have(arms: Any, results: pd.DataFrame) -> None:
    """A third arm with fewer seeds takes none away from the other."""
    seeds = {"base": [0, 1, 2], "good": [0, 1, 2, 3], "bad": [2]}
    few = of_seeds(results, seeds)
    models = win_rates(few, curves(), arms, 0)
    alone = win_rates(few[few["arm"] != "bad"], curves()[:10], {name: arms[name] for name in ("base", "good")}, 0)
    assert models["good"]["wins"] == alone["good"]["wins"]
    assert (models["good"]["wins"]["of"], models["bad"]["wins"]["of"]) == (120, 40)
    assert models["good"]["elo"]["value"] == pytest.approx(alone["good"]["elo"]["value"], abs=30)
    widths = [found["good"]["elo"]["ci95"][1] - found["good"]["elo"]["ci95"][0] for found in (models, alone)]
    assert widths[0] == pytest.approx(widths[1], rel=0.3), "over seeds, although the third arm has a single one"
    metrics = {"arms": {arm: {"seeds": seeds_of_arm} for arm, seeds_of_arm in seeds.items()}, "texts": models}
    heads, rows = text_columns(metrics) or ([], [])
    assert {row[0]: row[heads.index("seeds of both")] for row in rows} == {"base": "-", "good": "3", "bad": "1"}


def test_an_arm_without_a_seed_of_the_base_is_not_compared(arms: Any, results: pd.DataFrame) -> None:
    seeds = {"base": [0], "good": [1], "bad": [0]}
    some = of_seeds(results, seeds)
    models = win_rates(some, curves(), arms, 0)
    assert (models["good"]["wins"], models["good"]["elo"], models["good"]["words"]) == (None, None, 3.0)
    assert models["bad"]["wins"]["of"] == 40
    metrics = {"arms": {arm: {"seeds": seeds_of_arm} for arm, seeds_of_arm in seeds.items()}, "texts": models}
    assert (text_columns(metrics) or ([], []))[1][-1] == ["good", "-", "0", "-", "3.0", "3.0"]
    two = {name: arms[name] for name in ("base", "good")}
    none = win_rates(some[some["arm"] != "bad"], curves()[:10], two, 0)
    assert (none["base"]["elo"]["value"], none["good"]["wins"]) == (0.0, None)


def test_examples_are_of_arms_that_have_the_seed(arms: Any, results: pd.DataFrame) -> None:
    some = of_seeds(results, {"base": [0, 1], "good": [1, 2], "bad": [3]})
    shown = examples(some, ["base", "good", "bad"])
    assert [[arm for arm, _, _ in written] for _, written in shown] == [["base", "good"]] * SHOWN


def test_runs_without_language_models_have_no_win_rates(arms: Any, results: pd.DataFrame) -> None:
    assert win_rates(results, curves().drop(columns="reference_kl"), arms, 0) == {}
    assert win_rates(results, curves(), {"good": arms["good"]}, 0) == {}


def test_examples_are_of_the_same_prompts(results: pd.DataFrame) -> None:
    shown = examples(results, ["base", "good"])
    assert [prompt for prompt, _ in shown] == [f"p{number}" for number in range(SHOWN)]
    assert [arm for arm, _, _ in shown[0][1]] == ["base", "good"]


def test_pay_and_return_are_drawn_over_the_root_of_the_divergence() -> None:
    """A point is the mean of an arm's seeds, and of up to three updates."""
    columns = {"env_steps": [1, 2, 3, 4], "reference_kl": [-1.0, 1.0, 3.0, 14.0]}
    of_seeds = [
        pd.DataFrame({"arm": "a", **columns, "shaped_reward": paid, "return_mean": [8.0, 4.0, 0.0, 2.0]})
        for paid in ([0.0, 0.0, 0.0, 0.0], [2.0, 4.0, 6.0, 8.0])
    ]
    info = ArmInfo("a", "method", "an arm", ("text",))
    paid, returned = divergence_curve(pd.concat(of_seeds), [info]).axes
    assert paid.get_ylabel() == "mean of an update's completions"
    assert returned.get_ylabel() == "mean of the last 50 to 100 completions"
    for axes, expected in ((paid, [1.0, 1.5, 2.0, 3.0]), (returned, [8.0, 6.0, 4.0, 2.0])):
        (line,) = axes.lines
        assert list(line.get_xdata()) == pytest.approx([0.0, 0.0, 1.0, 6**0.5])
        assert list(line.get_ydata()) == pytest.approx(expected)

"""Rewards of another package: what they pay is checked, alone, in sums, as bonus and as potential."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from single_steps import nowhere

from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter, Transitions
from laurel.errors import PluginError
from laurel.params import EnvParams
from laurel.params.rewards import RewardParams
from laurel.params.training import ShapingParams
from laurel.rewards.base import UNPAID, Reward, Steps, paid, require_reward
from laurel.rewards.functions import CaptionReward, WeightedSum
from laurel.rewards.method import Method, PayTable
from laurel.rewards.paying import RewardCalculator


@pytest.fixture(scope="module")
def adapter() -> EnvAdapter:
    return adapter_for(EnvParams(id="MiniGrid-Empty-5x5-v0"))


class Theirs:
    """A reward of another package, which returns what it is given."""

    threshold, unseen = 0.0, 0

    def __init__(self, found: object) -> None:
        self.found = found

    def begin(self, n_envs: int) -> None:
        """Do nothing."""

    def pay(self, steps: Steps) -> Any:
        return self.found


@pytest.mark.parametrize("form", ["bonus", "potential"])
@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (np.float32([[1, np.nan, 2]]), "NaN or infinity"),
        (np.float32([[np.inf, np.inf, UNPAID]]), "NaN or infinity"),
        (np.float32([1, 2, 3]), r"shape \(3,\) .* shape \(1, 3\)"),
        (np.array([["1", "2", "3"]]), r"type <U1"),
    ],
)
def test_a_reward_that_returns_no_numbers_is_refused(
    returned: Any, problem: str, summed: bool, form: Any, adapter: EnvAdapter
) -> None:
    reward: Reward = Theirs(returned)
    reward = (
        WeightedSum([(CaptionReward({}, 0.0, lambda texts: np.zeros(len(texts), np.float32)), 1.0), (reward, 0.5)])
        if summed
        else reward
    )
    calculator = RewardCalculator(adapter, reward, ShapingParams(form=form, gamma=0.9), 3)
    size = adapter.observation_size
    observation = np.zeros((3, size), adapter.observation_dtype)
    none = np.zeros((1, 3), np.bool_)
    steps = replace(nowhere(3), observation=observation, next_observation=observation)
    with pytest.raises(PluginError, match=rf"test_foreign_rewards\.Theirs: its pay returned .*{problem}"):
        calculator.pay(steps, ~none, none, none)


TWO_OF_THREE = np.array([[1, 2, np.nan], [1, 2, 3]])


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "returned None, but"),
        (np.zeros(3), r"returned an array of shape \(3,\) and type float64, but an array of shape \(2, 3\)"),
        (np.full((2, 3), "a"), r"returned an array of shape \(2, 3\) and type <U1, but"),
        (np.full((2, 3), np.nan), "returned NaN or infinity, but"),
        (np.full((2, 3), np.inf), "returned NaN or infinity, but"),
        (np.ones((2, 3), int), None),
        (np.full((2, 3), UNPAID), None),
        (TWO_OF_THREE, None),
    ],
)
def test_a_reward_of_another_package_that_pays_wrongly_is_named(found: object, said: str | None) -> None:
    """What it returns for a row that is no step does not matter."""
    valid = np.array([[True, True, False], [True, True, True]])
    no = np.zeros((2, 3), bool)
    rows = np.zeros((6, 1))
    steps = Transitions(rows, np.zeros(6), np.zeros(6, np.float32), rows, no.reshape(-1), no.reshape(-1))
    given = Steps(steps, np.zeros((2, 3), np.int64), [""], valid, no, no)
    if said is None:
        assert paid(Theirs(found), given).shape == (2, 3)
        return
    with pytest.raises(PluginError, match=rf"The reward \S*Theirs: its pay {said}"):
        paid(Theirs(found), given)


def test_a_reward_that_lacks_something_is_named() -> None:
    with pytest.raises(
        PluginError, match=r"rewards\.mine: its method made None, which has no threshold, unseen, begin, pay"
    ):
        require_reward("mine", None)
    assert isinstance(require_reward("mine", Theirs(None)), Theirs)


@pytest.mark.parametrize(("name", "value"), [("threshold", float("nan")), ("threshold", "1"), ("unseen", "a")])
def test_a_reward_with_an_odd_threshold_is_named(name: str, value: Any) -> None:
    odd = Theirs(None)
    setattr(odd, name, value)
    with pytest.raises(PluginError, match=rf"rewards\.mine: its method made a reward whose {name} is {value!r}, but a"):
        require_reward("mine", odd)


class Theory(Method[RewardParams]):
    """A method of another package, whose methods return what they are given."""

    kind, summary = "theory", "a theory"

    def check(self, context: Any, adapter: Any) -> Any:
        return context

    def notes(self, name: str, qualities: Any) -> Any:
        return qualities

    def needs(self) -> Any:
        return "novelty"

    def table(self, place: Any, quantile: float) -> Any:
        return place

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        raise NotImplementedError


def table(n_rewards: int, reward: float = 1.0) -> PayTable:
    return PayTable(["a", "b"], np.full(n_rewards, reward, np.float32), np.zeros(2, np.float32), np.zeros(2, int), 0.0)


def test_what_a_method_of_another_package_returns_is_checked() -> None:
    """True as the answer of a check left its arm out, and a sentence in place of sentences gave a note per letter."""
    method = Theory(RewardParams(kind="theory"))
    for sentence in (None, "it needs a map."):
        assert method.check(sentence, None) == sentence
    assert method.notes("theory", ["One.", "Two."]) == ["One.", "Two."]
    assert method.table(table(2), 0.5) is not None
    begin = r"^The reward method \S*Theory: its"
    with pytest.raises(
        PluginError, match=rf"{begin} check returned True, but it must return a sentence, or None\. Fix"
    ):
        method.check(True, None)
    with pytest.raises(PluginError, match=rf"{begin} notes returned 'One\.', but it must return a list of texts\."):
        method.notes("theory", "One.")
    with pytest.raises(PluginError, match=rf"{begin} needs returned 'novelty', but it must return a list of texts\."):
        method.needs()
    for wrong in (table(1), table(2, np.nan)):
        with pytest.raises(
            PluginError, match=rf"{begin} table returned .*, but .* finite rewards, .* of its 2 texts\."
        ):
            method.table(wrong, 0.5)
    with pytest.raises(
        PluginError, match=rf"{begin} table returned \{{\}}, but it must return a laurel\S*PayTable, or N"
    ):
        method.table({}, 0.5)

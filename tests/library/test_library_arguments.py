"""What callers of `import laurel` may give by mistake, and the sentence that they get."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

import laurel
from acting import Acting
from laurel.envs.generic import GenericAdapter
from laurel.errors import EnvError, ParamsError
from laurel.library.agent import LoadedAgent
from laurel.params import EnvParams

Made = Callable[..., Path]
NOTHING: Any = None
FIVE: Any = 5
TEXT: Any = "x"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: laurel.load_reward(NOTHING), "laurel: the location is NoneType None, but must be a path."),
        (lambda: laurel.load_reward(FIVE), "laurel: the location is int 5, but must be a path."),
        (lambda: laurel.load_agent(NOTHING), "laurel: the location is NoneType None, but must be a path."),
        (lambda: laurel.read(NOTHING), "laurel: the location is NoneType None, but must be a path."),
        (lambda: laurel.load_reward("data", seed=TEXT), "laurel: seed is 'x', but must be a whole number or None."),
    ],
)
def test_what_is_no_path_is_named(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ParamsError, match=f"^{re.escape(said)}$"):
        call()


def test_any_whole_number_is_a_seed(made: Made) -> None:
    place = made("FrozenLake-v1")
    assert laurel.load_reward(place, seed=np.int64(0)).name == laurel.load_reward(place, seed=0).name  # type: ignore[arg-type]
    with pytest.raises(ParamsError, match=r"^laurel: seed is True"):
        laurel.load_reward(place, seed=True)


@pytest.mark.parametrize(
    ("pairs", "kind"),
    [(None, "NoneType"), ("a b", "str"), ({"a": "b"}, "dict"), (pd.DataFrame({"a": ["x"], "b": ["y"]}), "DataFrame")],
)
def test_what_is_no_rows_of_two_texts_is_named(pairs: Any, kind: str) -> None:
    with pytest.raises(ParamsError, match=f"^laurel.annotate: pairs is a {kind}, but must be rows of two texts"):
        laurel.annotate(pairs, goal="You win.")


def test_shaping_is_a_dictionary(made: Made) -> None:
    place = made("FrozenLake-v1")
    with pytest.raises(ParamsError, match=r"^laurel: shaping is 5, but must be a dictionary"):
        laurel.RewardWrapper(gym.make("FrozenLake-v1"), place, FIVE)
    with pytest.raises(ParamsError, match=r"^laurel: the location is LoadedReward"):
        laurel.load_reward(laurel.load_reward(place))  # type: ignore[arg-type]


def test_parts_of_an_observation_that_are_missing_are_named() -> None:
    space = gym.spaces.Dict({"joints": gym.spaces.Box(-1, 1, (2,)), "speed": gym.spaces.Box(0, 1, ())})
    adapter = GenericAdapter("Robot-v0", space, gym.spaces.Discrete(2))
    agent = LoadedAgent(EnvParams(id="Robot-v0"), adapter, NOTHING, NOTHING, 0)
    with pytest.raises(
        EnvError, match=r"has \"joints\" \(2,\), a batch one axis more, but got one with 'place'\. Give"
    ):
        agent.predict({"place": 1})
    with pytest.raises(EnvError, match=r"but got int\. Give"):
        agent.predict(5)


def test_an_observation_of_parts_of_different_lengths_is_acted_on() -> None:
    space = gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,))])
    adapter = GenericAdapter("Robot-v0", space, gym.spaces.Discrete(2))
    actor = Acting(lambda features: features[:, 1].astype(int))  # whether the first part is 1
    agent = LoadedAgent(EnvParams(id="Robot-v0"), adapter, actor, actor, 0)
    assert agent.predict((1, np.zeros(2)))[0] == 1
    assert agent.predict((np.array([0, 1]), np.zeros((2, 2))))[0].tolist() == [0, 1]


@pytest.mark.parametrize("wrong", [10, -1, 3.7, math.nan])
def test_numbers_that_no_state_has_are_named(wrong: float) -> None:
    adapter = GenericAdapter("Corridor-v0", gym.spaces.Discrete(10), gym.spaces.Discrete(2))
    agent = LoadedAgent(EnvParams(id="Corridor-v0"), adapter, NOTHING, NOTHING, 0)
    for given in (wrong, np.array([3, wrong])):
        with pytest.raises(EnvError, match=rf"Corridor-v0: .* whole number from 0 to 9, but got {float(wrong):g}"):
            agent.predict(given)

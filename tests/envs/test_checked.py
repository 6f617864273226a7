"""Adapters of the user: methods that fail or return something else than they must, and those made in a function."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import laurel.envs
from laurel.envs.base import EnvAdapter, Transitions
from laurel.errors import EnvError

NO = np.zeros(2, dtype=bool)
STEPS = Transitions(np.zeros((2, 1)), np.zeros(2), np.zeros(2, np.float32), np.zeros((2, 1)), NO, NO)
ARGUMENTS: Mapping[str, tuple[Any, ...]] = {
    "oracle": ("You walk.",),
    "succeeded": (np.zeros(2, np.float32), NO),
    "further_measures": (STEPS,),
    "features": (np.zeros((2, 1)),),
    "describe_observation": (np.zeros(1),),
}


def made(name: str, method: Any) -> EnvAdapter:
    kind = type("Theirs", (EnvAdapter,), {"__module__": "theirs", name: method})
    return kind("Theirs-v0", gym.spaces.Discrete(2), gym.spaces.Discrete(2))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_method_that_raises_is_named(name: str) -> None:
    def fails(self: EnvAdapter, *_: Any) -> None:
        raise KeyError("left")

    with pytest.raises(EnvError, match=rf"Theirs-v0: the adapter's {name} raised KeyError: 'left'\. --debug"):
        getattr(made(name, fails), name)(*ARGUMENTS[name])


@pytest.mark.parametrize(
    ("name", "found", "said"),
    [
        ("oracle", "high", "returned 'high', but it must return a finite number, or None"),
        ("oracle", float("nan"), "returned nan, but it must return a finite number, or None"),
        ("succeeded", True, r"returned True, but it must return an array of shape \(2,\) and type bool, or None"),
        ("succeeded", np.zeros(2), r"returned an array of shape \(2,\) and type float64, but it must return"),
        ("further_measures", {"speed": 1.0}, r"must return a mapping of names to arrays of shape \(2,\)"),
        ("further_measures", {"speed": np.array([1, np.nan])}, "of finite numbers"),
        ("further_measures", None, "returned None, but it must return a mapping"),
        (
            "features",
            np.zeros((1, 3)),
            r"returned an array of shape \(1, 3\) .* must return an array of shape \(2, F\)",
        ),
        ("features", np.full((2, 3), np.nan), "of finite numbers"),
        ("describe_observation", 5, "returned 5, but it must return a text, or None"),
    ],
)
def test_a_wrong_answer_is_named(name: str, found: Any, said: str) -> None:
    with pytest.raises(EnvError, match=f"Theirs-v0: the adapter's {name} .*{said}"):
        getattr(made(name, lambda *_: found), name)(*ARGUMENTS[name])


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("oracle", None),
        ("oracle", np.float32(1)),
        ("succeeded", NO),
        ("succeeded", None),
        ("further_measures", {"speed": np.ones(2)}),
        ("further_measures", {}),
        ("features", np.ones((2, 3), np.float32)),
        ("describe_observation", "You stand."),
    ],
)
def test_a_right_answer_is_passed_on(name: str, found: Any) -> None:
    assert getattr(made(name, lambda *_: found), name)(*ARGUMENTS[name]) is found


def test_events_are_whole_numbers() -> None:
    def fails(self: EnvAdapter) -> Iterator[int]:
        yield 0
        raise KeyError("left")

    assert list(made("events", lambda self: range(3)).events()) == [0, 1, 2]
    for events, said in (
        (lambda self: 5, "adapter's events returned 5, but it must return whole numbers"),
        (lambda self: ["left"], "adapter's events has 'left', which is not a whole number"),
        (fails, "adapter's events raised KeyError: 'left'"),
    ):
        with pytest.raises(EnvError, match=said):
            list(made("events", events).events())


def test_an_adapter_that_a_function_defines_is_kept() -> None:
    def define(*ids: str) -> None:
        type("Made", (EnvAdapter,), {"ids": ids, "description": "x", "goal": "y", "caption": lambda self, step: "z"})

    define("FrozenLake-v1")
    gc.collect()
    found = laurel.envs._adapter_class("FrozenLake-v1")
    try:
        assert found.__name__ == "Made"
    finally:
        found.ids = ()

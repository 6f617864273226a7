"""Environments whose own code fails: each becomes a sentence that names the environment and what it raised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from laurel.envs import adapter_for
from laurel.envs.vector import make_vector
from laurel.errors import EnvError
from laurel.params import EnvParams


class Faulty(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault: str) -> None:
        self.fault = fault
        if fault == "constructor":
            raise ZeroDivisionError("no wheels")
        if fault == "import":
            raise ModuleNotFoundError("No module named 'wheels'")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.fault == "reset":
            raise RuntimeError("no road\nsecond line")
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        if self.fault == "step":
            raise KeyError("left")
        return np.zeros(2, np.float32), float(self.fault) if self.fault in ("nan", "inf") else 0.0, False, False, {}


SAID = {
    "import": r"Faulty/import-v0 needs a package that is not installed: ModuleNotFoundError: No module named 'wheels'",
    "constructor": r"Faulty/constructor-v0 cannot be made: ZeroDivisionError: no wheels\. --debug shows where",
    "reset": r"Faulty/reset-v0: the environment's reset raised RuntimeError: no road\. --debug",
    "step": r"Faulty/step-v0: the environment's step raised KeyError: 'left'\. --debug",
    "nan": r"Faulty/nan-v0: the reward in step 1 of environment 0 is nan",
    "inf": r"Faulty/inf-v0: the reward in step 1 of environment 0 is inf",
}


@pytest.fixture(params=SAID)
def fault(request: pytest.FixtureRequest) -> Iterator[str]:
    env_id = f"Faulty/{request.param}-v0"
    gym.register(env_id, lambda **_: Faulty(request.param), disable_env_checker=True)
    yield request.param
    del gym.registry[env_id]


def roll(params: EnvParams) -> None:
    envs = make_vector(params, adapter_for(params), 2, 0)
    envs.reset()
    envs.step(np.zeros(2, np.int64))


def test_a_faulty_environment_is_named(fault: str) -> None:
    params = EnvParams(id=f"Faulty/{fault}-v0")
    with pytest.raises(EnvError, match=SAID[fault]):
        roll(params)


def test_ale_names_its_package() -> None:
    with pytest.raises(EnvError, match=r"pip install ale-py, and write \"ale_py:ALE/Pong-v5\""):
        adapter_for(EnvParams(id="ALE/Pong-v5"))

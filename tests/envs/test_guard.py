"""Environments whose own code fails: each becomes a sentence that names the environment and what it raised."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import gymnasium as gym
import numpy as np
import pytest
import yaml
from gymnasium.vector import AutoresetMode

from laurel.agents.actor import Rule
from laurel.envs import EnvAdapter, adapter_for, make_reference
from laurel.envs.captioner import Captioner
from laurel.envs.guard import guarded
from laurel.envs.spaces import PackedSpace
from laurel.envs.vector import VectorEnv, make_vector
from laurel.errors import EnvError
from laurel.evaluation.episode import moments
from laurel.evaluation.rollout import roll_out
from laurel.params import EnvParams
from minimal_params import MINIMAL


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
        if self.fault == "exit":
            raise SystemExit(3)
        if self.fault == "step":
            raise KeyError("left")
        reward = {"nan": float("nan"), "inf": float("inf"), "no reward": None, "text": "1"}.get(self.fault, 0.0)
        ended = None if self.fault == "no end" else False
        return OBSERVED.get(self.fault, np.zeros(2, np.float32)), reward, ended, False, {}


OBSERVED: dict[str, Any] = {
    "NaN": np.array([0, np.nan], np.float32),
    "shape": np.zeros(3, np.float32),
    "words": np.array(["left", "right"]),
    "ragged": [[0.0], [1.0, 2.0]],
}
"""What is observed in place of two numbers."""


SAID = {
    "import": r"Faulty/import-v0 needs a package that is not installed: ModuleNotFoundError: No module named 'wheels'",
    "constructor": r"Faulty/constructor-v0 cannot be made: ZeroDivisionError: no wheels\. --debug shows where",
    "reset": r"Faulty/reset-v0: the environment's reset raised RuntimeError: no road\. --debug",
    "exit": r"Faulty/exit-v0: the environment's step raised SystemExit: 3\. --debug",
    "step": r"Faulty/step-v0: the environment's step raised KeyError: 'left'\. --debug",
    "nan": r"Faulty/nan-v0: the reward in step 1 of environment 0 is nan",
    "inf": r"Faulty/inf-v0: the reward in step 1 of environment 0 is inf",
    "no reward": r"Faulty/no-reward-v0: the environment's step returned reward None, but a number is required",
    "text": r"the environment's step returned reward '1', but a number is required",
    "no end": r"the environment's step returned terminated None, but true or false is required",
    "NaN": r"the environment's step does not match its observation_space: the observation contains NaN or infinity",
    "shape": r"the observation has the shape \(3,\), but \(2,\) is declared",
    "words": r"the observation holds <U5, but numbers are declared",
    "ragged": r"the observation is missing, or is a ragged array",
}


@pytest.fixture(params=SAID)
def fault(request: pytest.FixtureRequest) -> Iterator[str]:
    env_id = f"Faulty/{request.param.replace(' ', '-')}-v0"
    gym.register(env_id, lambda **_: Faulty(request.param), disable_env_checker=True)
    yield request.param
    del gym.registry[env_id]


def watch(params: EnvParams) -> None:
    """As `laurel play` and films do."""
    adapter = adapter_for(params)
    shown = moments(
        make_reference(params, render_mode=None),
        adapter,
        Rule(lambda _: 0),
        np.random.default_rng(0),
        Captioner(adapter),
        2,
        0,
        None,
    )
    next(shown)
    next(shown)


def roll_with_sb3(params: EnvParams) -> None:
    from laurel.agents.sb3.env import PackedEnvs

    envs = PackedEnvs(params, adapter_for(params), 2, 0)
    envs.reset()
    envs.step(np.zeros(2, np.int64))


def evaluate(params: EnvParams) -> None:
    adapter = adapter_for(params)
    roll_out(params, adapter, Rule(lambda _: 0), n_envs=2, episodes=2, seed=0, learned=None)


def roll(params: EnvParams) -> None:
    envs = make_vector(params, adapter_for(params), 2, 0)
    envs.reset()
    envs.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("use", [roll, roll_with_sb3, evaluate, watch])
def test_a_faulty_environment_is_named(
    use: Callable[[EnvParams], None], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laurel.evaluation.episode.view", lambda _: "nothing to see")
    said = SAID[fault].replace(" of environment 0", "( of environment 0)?")
    with pytest.raises(EnvError, match=said):
        use(EnvParams(id=f"Faulty/{fault.replace(' ', '-')}-v0"))


class Batch:
    """A vector form of an environment's own, which no wrapper looks at."""

    def step(self, actions: Any) -> Any:
        no = np.zeros(2, np.bool_)
        return np.array([[0, 0], [0, np.nan]], np.float32), np.zeros(2), no, no, {}


class Outside(gym.Env[Any, Any]):
    """Observes what its space excludes."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, space: gym.Space[Any], seen: Any) -> None:
        self.observation_space, self.seen = space, seen

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.seen, {}


@pytest.mark.parametrize(
    ("space", "inside", "outside"),
    [
        (gym.spaces.Discrete(3), 2, 3),
        (gym.spaces.Discrete(3), 0, -1),
        (gym.spaces.Discrete(3, start=5), 7, 2),
        (gym.spaces.MultiDiscrete([2, 3]), [1, 2], [2, 2]),
        (gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Discrete(2)]), (2, 1), (2, 2)),
    ],
)
def test_an_observation_outside_a_discrete_space_is_named(space: gym.Space[Any], inside: Any, outside: Any) -> None:
    """One-hot features of such a number would be those of another one, or none."""
    guarded(Outside(space, inside), "Outside-v0").reset()
    with pytest.raises(EnvError, match=r"Outside-v0: the environment's reset does not match .* which is outside "):
        guarded(Outside(space, outside), "Outside-v0").reset()


class Together(gym.vector.VectorEnv[Any, Any, Any]):
    """A vector version of a user's environment, which no wrapper guards."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int, fault: str) -> None:
        if fault == "constructor":
            raise ZeroDivisionError("no wheels")
        self.num_envs, self.fault = num_envs, fault
        self.single_observation_space, self.single_action_space = Faulty.observation_space, Faulty.action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if self.fault == "reset":
            raise RuntimeError("no road")
        return np.zeros((self.num_envs, 2), np.float32), {}

    def step(self, actions: Any) -> Any:
        raise KeyError("left")


class TogetherAdapter(EnvAdapter):
    ids = ("Together-v0",)
    description = goal = anti_goal = "Go."

    def caption(self, transition: Any) -> str:
        return ""


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("constructor", r"its vector environment cannot be made with .*: ZeroDivisionError: no wheels\. --debug"),
        ("reset", r"the vector environment's reset raised RuntimeError: no road\. --debug"),
        ("step", r"the vector environment's step raised KeyError: 'left'\. --debug"),
    ],
)
def test_a_faulty_vector_version_is_named(fault: str, said: str) -> None:
    gym.register("Together-v0", lambda fault: Faulty("none"), disable_env_checker=True, vector_entry_point=Together)  # type: ignore[arg-type]
    try:
        with pytest.raises(EnvError, match=f"Together-v0: {said}"):
            roll(EnvParams(id="Together-v0", kwargs={"fault": fault}))
    finally:
        del gym.registry["Together-v0"]


class Overflowing(gym.Env[Any, Any]):
    action_space = gym.spaces.Discrete(2)

    def __init__(self, space: gym.Space[Any], observation: Any) -> None:
        self.observation_space, self.observation = space, observation

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observation, {}


@pytest.mark.parametrize(
    ("space", "observed", "said"),
    [
        (gym.spaces.Box(0, 9, (2,), np.uint8), [-1, 9], "numbers from -1 to 9, but .* of uint8, from 0 to 255"),
        (gym.spaces.Box(0, 9, (2,), np.uint8), [0.0, 300.0], "numbers from 0.0 to 300.0, but .* of uint8"),
        (gym.spaces.Box(0, 9, (2,), np.int64), [1, 2**31], "numbers from 1 to 2147483648, but .* of int32, from"),
        (gym.spaces.MultiBinary(2), [0, 128], "numbers from 0 to 128, but .* of int8, from -128 to 127"),
    ],
)
def test_numbers_that_would_wrap_around_are_refused(space: gym.Space[Any], observed: list[Any], said: str) -> None:
    pair = gym.spaces.Dict({"own": space, "other": gym.spaces.Box(-1, 1, (1,), np.float32)})
    for whole, seen in ((space, np.array(observed)), (pair, {"own": np.array(observed), "other": [0.5]})):
        if whole is pair and "int32" in said:
            continue  # beside fractions all are stored as float32
        with pytest.raises(EnvError, match=f"does not match its observation_space: .* has {said}"):
            guarded(Overflowing(whole, seen), "Overflowing-v0").reset()


def test_numbers_beyond_the_bounds_that_can_be_stored_are_not_refused() -> None:
    space = gym.spaces.Box(0, 9, (2,), np.int64)
    seen, _ = guarded(Overflowing(space, np.array([-1, 10])), "Overflowing-v0").reset()
    assert PackedSpace(space).pack_one(seen).tolist() == [-1, 10]


def test_nan_of_a_vector_form_is_named() -> None:
    adapter = EnvAdapter("Batch-v0", Faulty.observation_space, Faulty.action_space)
    envs = VectorEnv("gymnasium", cast("Any", Batch()), adapter, 2, reset=lambda: None, pack=adapter.pack)
    with pytest.raises(EnvError, match="Batch-v0: the observation in step 1 of environment 1 contains NaN"):
        envs.step(np.zeros(2, np.int64))


def test_debug_shows_the_environments_own_traceback(tmp_path: Path) -> None:
    """`laurel collect` in a process of its own."""
    source = (
        "import gymnasium as gym, numpy as np\n"
        "class Cart(gym.Env):\n"
        "    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None): return 0, {}\n"
        "    def step(self, action): return self.turn_the_wheel(), 0.0, False, False, {}\n"
        "    def turn_the_wheel(self): raise KeyError('left')\n"
        "gym.register('Cart-v0', Cart)\n"
    )
    (tmp_path / "cart.py").write_text(source)
    params = {
        **MINIMAL,
        "env": {"id": "cart:Cart-v0"},
        "annotate": {"embedding": {"goal": "Go.", "anti_goal": "Stop."}},
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    command = [sys.executable, "-m", "laurel", "collect"]
    plain, debug = (
        subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True, check=False)
        for more in ([], ["--debug"])
    )
    assert plain.returncode == 2
    assert "laurel: Cart-v0: the environment's step raised KeyError: 'left'." in plain.stderr
    assert "Traceback" not in plain.stderr
    assert "in turn_the_wheel" in debug.stderr


def test_missing_ale_names_its_package() -> None:
    with pytest.raises(EnvError, match=r"pip install ale-py, and write \"ale_py:ALE/Pong-v5\""):
        adapter_for(EnvParams(id="ALE/Pong-v5"))

"""Every adapter on every backend: captions are listed and numbered identically."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from laurel.envs import return_threshold
from laurel.envs.captioner import NO_CAPTION, Captioner
from laurel.params import EnvParams

MINIGRID = (
    "MiniGrid-Empty-5x5-v0",
    "MiniGrid-DoorKey-5x5-v0",
    "MiniGrid-DoorKey-8x8-v0",
    "MiniGrid-UnlockPickup-v0",
    "MiniGrid-KeyCorridorS3R1-v0",
    "MiniGrid-FourRooms-v0",
    "MiniGrid-MultiRoom-N4-S5-v0",
    "MiniGrid-LavaCrossingS9N1-v0",
    "MiniGrid-Dynamic-Obstacles-5x5-v0",
    "MiniGrid-RedBlueDoors-6x6-v0",
    "MiniGrid-BlockedUnlockPickup-v0",
    "MiniGrid-LockedRoom-v0",
    "MiniGrid-Fetch-5x5-N2-v0",
    "BabyAI-GoToRedBall-v0",
)
TABULAR = (
    "Blackjack-v1",
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "Taxi-v3",
    "Taxi-v4",
)
CONTROL = (
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "CartPole-v1",
    "Acrobot-v1",
    "LunarLander-v3",
    "LunarLanderContinuous-v3",
)
GENERIC = ("Pendulum-v1",)
OWN = ("laurel/Crafting-v0",)
IDS = (*MINIGRID, *TABULAR, *CONTROL, *GENERIC, *OWN)
IN_ENVPOOL = tuple(env_id for env_id in IDS if not env_id.startswith(("Blackjack", "CliffWalking", "Taxi", "laurel/")))

needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed")
on_each_backend = pytest.mark.parametrize(
    ("env_id", "backend"),
    [(env_id, "gymnasium") for env_id in IDS]
    + [pytest.param(env_id, "envpool", marks=needs_envpool) for env_id in IN_ENVPOOL],
)


@pytest.mark.parametrize("with_action", [False, True])
@on_each_backend
def test_a_thousand_random_steps_have_listed_captions(roll, backend, env_id, with_action):
    walk = roll(env_id, backend, with_action=with_action)
    adapter = walk.adapter
    assert walk.backend == backend
    assert walk.transitions.observation.shape == (1000, adapter.observation_size)
    assert walk.transitions.observation.dtype == adapter.observation_dtype
    assert adapter.features(walk.transitions.observation).dtype == np.float32

    adapter.encode(walk.transitions)  # reset rows are in it, and must not fail
    rows = walk.transitions[walk.valid]
    events = adapter.encode(rows)
    assert events.dtype == np.int64
    captions = [adapter.describe(int(event)) for event in events]
    for caption in captions:
        assert caption
        assert caption == caption.strip()
        assert caption[0].isupper()
        assert caption.endswith(".")
        assert "None" not in caption

    listed = list(adapter.events())
    assert len(listed) == len(set(listed)) < 4000
    if listed:
        assert set(captions) <= {adapter.describe(event) for event in listed}
    assert adapter.generic == (not listed)


@pytest.mark.parametrize("env_id", IDS)
def test_captions_are_a_pure_function_of_each_row(roll, env_id):
    walk = roll(env_id, "gymnasium")
    rows = walk.transitions[walk.valid]
    together = walk.adapter.encode(rows)
    order = np.random.default_rng(1).permutation(len(rows))
    np.testing.assert_array_equal(walk.adapter.encode(rows[order]), together[order])
    np.testing.assert_array_equal(walk.adapter.encode(rows[:7]), together[:7])


@on_each_backend
def test_naming_the_action_refines_the_caption(roll, backend, env_id):
    plain, named = roll(env_id, backend), roll(env_id, backend, with_action=True)
    np.testing.assert_array_equal(plain.transitions.action, named.transitions.action)
    rows, valid = plain.transitions, plain.valid
    without = [plain.adapter.describe(int(event)) for event in plain.adapter.encode(rows)[valid]]
    with_action = [named.adapter.describe(int(event)) for event in named.adapter.encode(rows)[valid]]
    assert len(set(with_action)) > len(set(without))
    if not env_id.startswith("Blackjack"):  # there, the whole sentence is put in other words
        assert all(long.endswith(short) for short, long in zip(without, with_action, strict=True))


@needs_envpool
@pytest.mark.parametrize("env_id", IN_ENVPOOL)
def test_backends_pack_the_same(roll, env_id):
    ours, theirs = roll(env_id, "gymnasium"), roll(env_id, "envpool")
    assert ours.transitions.observation.shape == theirs.transitions.observation.shape
    assert ours.transitions.observation.dtype == theirs.transitions.observation.dtype
    assert ours.transitions.action.dtype == theirs.transitions.action.dtype
    for column in ("reward", "terminated", "truncated"):
        assert getattr(ours.transitions, column).dtype == getattr(theirs.transitions, column).dtype
    if env_id in MINIGRID:  # every cell holds values that the other backend knows as well
        for digit in range(3):
            seen = [np.unique(walk.transitions.observation[:, digit:147:3]) for walk in (ours, theirs)]
            assert len(np.setxor1d(*seen)) <= 2
    if env_id in CONTROL:  # random walks of the same physics cover much the same ranges
        low, high = (np.array([f(w.transitions.observation, axis=0) for w in (ours, theirs)]) for f in (np.min, np.max))
        overlap = np.minimum(*high) - np.maximum(*low)
        assert (overlap >= 0.3 * (np.maximum(*high) - np.minimum(*low))).all()


@pytest.mark.parametrize("env_id", [env_id for env_id in IDS if env_id not in GENERIC])
def test_adapters_describe_the_task_to_a_language_model(roll, env_id):
    adapter = roll(env_id, "gymnasium").adapter
    for words in (adapter.description, adapter.goal, adapter.anti_goal):
        assert words.endswith(".")
    assert adapter.goal != adapter.anti_goal
    worth = {caption: adapter.oracle(caption) for caption in map(adapter.describe, adapter.events())}
    assert adapter.oracle("") == 0.0
    assert max(worth.values()) == 1.0
    assert len(set(worth.values())) > 1
    assert all(adapter.oracle(f"{caption} (x3)") == value for caption, value in worth.items())
    assert all(worth[caption] == max(worth.values()) for caption in adapter.success_captions())
    assert bool(adapter.success_captions()) == (env_id != "CartPole-v1"), "there, nothing is ever achieved for good"


def test_the_captioner_numbers_texts_not_events(roll):
    walk = roll("MountainCar-v0", "gymnasium")
    captioner = Captioner(walk.adapter, enumerate_events=True)
    assert captioner.texts == [walk.adapter.describe(event) for event in walk.adapter.events()]
    rows = walk.transitions[walk.valid]
    said = [captioner.texts[i] for i in captioner.ids(rows)]
    assert said == [walk.adapter.describe(int(event)) for event in walk.adapter.encode(rows)]
    assert len(set(captioner.texts)) == len(captioner.texts)


def test_the_captioner_takes_no_rows_and_large_event_numbers(roll):
    walk = roll("CliffWalking-v1", "gymnasium")

    class Sparse:
        info_fields: ClassVar[dict[str, str]] = {}

        def encode(self, transitions):
            return transitions.observation[:, 0].astype(np.int64) * 2**40

        def describe(self, event):
            return "" if event == 36 * 2**40 else f"square {event >> 40} of {walk.adapter.env_id}"

    captioner = Captioner(Sparse())
    ids = captioner.ids(walk.transitions)
    for i, square in zip(ids, walk.transitions.observation[:, 0], strict=True):
        assert i == NO_CAPTION if square == 36 else captioner.texts[i].startswith(f"square {square} ")
    assert captioner.ids(walk.transitions[:0]).shape == (0,)
    assert Captioner(walk.adapter).ids(walk.transitions[:0]).shape == (0,)


def test_the_threshold_of_an_environment_is_known_before_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `laurel transfer`, whose worker processes alone make environments."""
    (tmp_path / "unmade.py").write_text(
        'import gymnasium as gym\ngym.register("Unmade-v0", "gymnasium.envs.classic_control:CartPoleEnv", 7.0)'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert return_threshold(EnvParams(id="unmade:Unmade-v0")) == 7.0

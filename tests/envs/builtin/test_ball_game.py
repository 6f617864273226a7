"""The ball game: a fair game of two sides, whose commentary is its captions."""

from __future__ import annotations

import itertools
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import laurel.envs.builtin  # noqa: F401  registers it
from laurel.envs import adapter_for
from laurel.envs.ball_game import COMMENTARY, CONCEDED, GOAL, NEAR, BallGame
from laurel.envs.vector import make_vector
from laurel.params import EnvParams
from tiny_project import UNTRACKED, Project, read_json

ENV = EnvParams(id="laurel/BallGame-v0")


def test_it_passes_gymnasiums_checks() -> None:
    check_env(gym.make(ENV.id).unwrapped, skip_render_check=True)


def played(choose: object, games: int = 300) -> tuple[float, set[int]]:
    """Play games; return the mean return and the plays that occurred."""
    env, rng, total, said = BallGame(), np.random.default_rng(0), 0.0, set()
    for seed in range(games):
        observation, _ = env.reset(seed=seed)
        over = False
        while not over:
            observation, reward, over, _, info = env.step(np.int64(choose(observation, rng)))  # type: ignore[operator]
            total += reward
            said.add(info["play"])
    return total / games, said


def test_a_good_policy_beats_a_random_one_and_every_play_has_a_caption() -> None:
    def good(observation: np.ndarray, rng: np.random.Generator) -> int:
        zone, holder, marked = observation
        return 0 if holder else 1 if marked else 2 if zone >= NEAR else 0

    chance, said = played(lambda _, rng: rng.integers(3))
    assert said == set(range(len(COMMENTARY)))
    assert played(good)[0] > chance + 0.3


def test_captions_are_the_commentary() -> None:
    adapter = adapter_for(ENV)
    envs = make_vector(ENV, adapter, 8, seed=1)
    envs.reset()
    rng = np.random.default_rng(0)
    for _ in range(50):
        step = envs.step(rng.integers(3, size=8))
        for event, reward in zip(step.info["play"][step.valid].tolist(), step.reward[step.valid], strict=True):
            assert {GOAL: 1.0, CONCEDED: -1.0}.get(event, 0.0) == reward
            assert adapter.describe(event) == COMMENTARY[event][0]
    envs.close()


def test_hand_written_progress_is_positive_for_plays_that_gain() -> None:
    """The gain is that of the best policy's chances, by value iteration on sampled transitions, to about 0.01."""
    env, places = BallGame(), [(zone, holder, marked) for zone in range(5) for holder in (0, 1) for marked in (0, 1)]
    env.reset(seed=0)
    seen: dict[tuple[int, int], list[tuple[int, float, int]]] = {}
    for place, action in itertools.product(range(len(places)), range(3)):
        for _ in range(300):
            env._zone, env._holder, env._marked = places[place]
            after, reward, over, _, info = env.step(np.int64(action))
            arrival = -1 if over else places.index(tuple(after.tolist()))
            seen.setdefault((place, action), []).append((arrival, reward, info["play"]))
    value = np.zeros(len(places) + 1)  # the last is 0: the game is over
    for _ in range(300):
        for place in range(len(places)):
            value[place] = max(np.mean([r + 0.99 * value[to] for to, r, _ in seen[place, a]]) for a in range(3))
    gains: dict[int, list[float]] = {}
    for (place, _), outcomes in seen.items():
        for arrival, reward, play in outcomes:
            gains.setdefault(play, []).append(reward + 0.99 * value[arrival] - value[place])
    gain = {play: np.mean(of) for play, of in gains.items()}
    assert len(gain) == len(COMMENTARY)
    for play, (text, progress) in enumerate(COMMENTARY):
        assert (progress > 0) == (gain[play] > (-0.01 if progress > 0 else 0.01)), (text, gain[play])


@pytest.mark.slow
def test_a_preference_arm_beats_random_play(tmp_path: Path) -> None:
    """The labels are a scripted teacher's."""
    project = Project.create(
        tmp_path / "p",
        {
            **UNTRACKED,
            "env": {"id": ENV.id},
            "annotate.annotator": "scripted",
            "arms": ["preference", "random_policy"],
            "agent.steps": 60_000,
            "agent.ppo": {"n_envs": 16, "n_steps": 32, "batch_size": 128, "hidden": [32], "learning_rate": 0.003},
            "evaluate.episodes": 100,
        },
    )
    project.run()
    arms = read_json(project.output("evaluate") / "metrics.json")["arms"]
    assert arms["preference"]["return"]["mean"] > arms["random_policy"]["return"]["mean"] + 0.3

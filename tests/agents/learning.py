"""Learners as training makes them, and what tests ask of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from probe_environments import probe_id

from laurel.agents.algorithms import initial_policy, make_learner
from laurel.agents.learner import Learner
from laurel.envs import adapter_for
from laurel.envs.vector import VectorEnv, make_vector
from laurel.evaluation.rollout import roll_out
from laurel.params import EnvParams
from laurel.params.algorithms import AlgorithmParams
from laurel.seeding import derive_seed, generator

GAMMA = 0.9
SEEDS = pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
"""Two seeds, one of them in the quick tests."""


def probe(kind: type[gym.Env[Any, Any]], *, limit: int | None = None) -> EnvParams:
    return EnvParams(id=probe_id(kind), backend="gymnasium", max_episode_steps=limit)


def make(
    env: EnvParams, settings: AlgorithmParams, seed: int = 0, *, kind: Callable[..., Learner] = make_learner
) -> tuple[Any, VectorEnv]:
    """Make a learner, of another kind than training makes where one is named, and its environments."""
    torch.set_num_threads(1)
    adapter = adapter_for(env)
    learner = kind(initial_policy(adapter, settings, 0, seed), settings, generator(seed, "actions"))
    return learner, make_vector(env, adapter, settings.n_envs, derive_seed(seed, "envs"))


def collected(env: EnvParams, settings: AlgorithmParams, seed: int = 0) -> tuple[Any, Any, VectorEnv]:
    """Return a learner, its first rollout and the environments."""
    learner, envs = make(env, settings, seed)
    rollout = learner.rollout(envs)
    learner.collect(envs, envs.reset(), rollout)
    return learner, rollout, envs


def learned(env: EnvParams, settings: AlgorithmParams, updates: int, seed: int = 0) -> Any:
    """Return a learner that has learned for some updates."""
    learner, envs = make(env, settings, seed)
    observation, rollout = envs.reset(), learner.rollout(envs)
    for update in range(updates):
        learner.schedule(update / updates)
        observation = learner.collect(envs, observation, rollout)
        learner.learn(rollout)
    envs.close()
    return learner


def slow_gae(
    reward: Any, value: Any, terminated: Any, truncated: Any, valid: Any, gamma: float, lam: float
) -> dict[tuple[int, int], float]:
    """Sum (gamma lam)^l delta_{t+l} over what is left of the step's episode (eq. 16), step by step."""
    n_steps, n_envs = reward.shape
    advantage = {}
    for n in range(n_envs):
        for t in range(n_steps):
            if not valid[t, n]:
                continue
            total, weight, step = 0.0, 1.0, t
            while True:
                after = 0.0 if terminated[step, n] else float(value[step + 1, n])
                total += weight * (float(reward[step, n]) + gamma * after - float(value[step, n]))
                if terminated[step, n] or truncated[step, n] or step + 1 == n_steps:
                    break
                weight, step = weight * gamma * lam, step + 1
            advantage[t, n] = total
    return advantage


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in learner.policy.state_dict().items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def poisoned(rollout: Any) -> Any:
    """Return a copy of a rollout with garbage in the reset rows."""
    other = copy.deepcopy(rollout)
    resets = ~rollout.valid
    assert resets.any()
    other.reward[resets] = 1e6
    other.extrinsic[resets] = 1e6
    other.action[resets] = 0
    return other


def best_return(env: EnvParams, settings: AlgorithmParams, steps: int, goal: float, seed: int) -> float:
    """Train until the mean return of the last 100 episodes reaches a goal, or for `steps`; return the best mean."""
    return max(returns_of_the_last(env, settings, steps, goal, seed))


def returns_of_the_last(
    env: EnvParams, settings: AlgorithmParams, steps: int, goal: float, seed: int
) -> Sequence[float]:
    """Train until the mean return of the last 100 episodes reaches a goal, or for `steps`; return all such means."""
    learner, envs = make(env, settings, seed)
    observation, rollout = envs.reset(), learner.rollout(envs)
    running, finished, means = np.zeros(settings.n_envs), list[float](), [0.0]
    updates = steps // (settings.n_envs * settings.n_steps)
    for update in range(updates):
        learner.schedule(update / updates)
        observation = learner.collect(envs, observation, rollout)
        learner.learn(rollout)
        for reward, ended in zip(rollout.extrinsic, rollout.terminated | rollout.truncated, strict=True):
            running += reward
            finished += running[ended].tolist()
            running[ended] = 0
        if len(finished) >= 100:
            means.append(float(np.mean(finished[-100:])))
        if means[-1] >= goal:
            break
    envs.close()
    return means


def mean_return(learner: Any, env: EnvParams, episodes: int = 200) -> float:
    """Play episodes as evaluation does; return their mean return."""
    adapter = adapter_for(env)
    actor = learner.policy.as_actor(greedy=True)
    rows = roll_out(env, adapter, actor, n_envs=20, episodes=episodes, seed=99, learned=None)
    return float(np.mean([row["return"] for row in rows]))

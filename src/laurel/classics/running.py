"""Running an agent many times at once, and keeping its rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.agents.agent import Agent, Experience
from laurel.agents.bandits.agent import BanditAgent
from laurel.arrays import BoolArray, DoubleArray, IntArray
from laurel.errors import EnvError
from laurel.seeding import derive_seed

Source = str | gym.envs.registration.EnvSpec | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]
"""An environment of which copies can be made, or copies already made."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Results of R runs of T steps."""

    rewards: DoubleArray
    """(R, T)"""
    optimal: BoolArray | None
    """(R, T) whether the best arm was pulled; None where the environment does not report it."""
    regret: DoubleArray | None
    """(R, T) regret: how much more the best arm pays on average; None as above."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """Results of R runs of E episodes."""

    returns: DoubleArray
    """(R, E) undiscounted returns."""
    lengths: IntArray
    """(R, E) steps."""


def run_agent(env: Source, agent: Agent, n_runs: int = 200, seed: int = 0, *, n_steps: int | None = None) -> Steps:
    """Run an agent in `n_runs` copies of an environment at once, a step at a time.

    Args:
        env: an id, a spec, an environment that Gymnasium made, or a vector environment of `n_runs`.
        agent: is reset first.
        n_runs: R.
        seed: of the environments and the agent, whose random streams differ.
        n_steps: T; by default the environment's limit of an episode. A longer run includes the reset steps between
            episodes, whose reward is 0.

    Raises:
        EnvError: copies cannot be made of `env`, it has other actions than a bandit agent has arms, or it has no limit
            and `n_steps` is missing.
    """
    envs, owned = _vector(env, n_runs)
    _check_arms(envs, agent)
    spec = envs.spec
    n_steps = n_steps or (spec.max_episode_steps if spec else None)
    if not n_steps:
        raise EnvError("run_agent: the environment has no limit of steps. Give n_steps.")
    rewards = np.zeros((n_runs, n_steps))
    best = np.zeros((n_runs, n_steps), dtype=np.bool_)
    regret = np.zeros((n_runs, n_steps))
    reported = {"best_arm": False, "regret": False}
    observation, info = envs.reset(seed=derive_seed(seed, "environment"))
    agent.reset(derive_seed(seed, "agent"), n_runs)
    ended = np.zeros(n_runs, dtype=np.bool_)
    for t in range(n_steps):
        action = agent.get_action(observation, info)
        if "best_arm" in info:
            reported["best_arm"] = True
            best[:, t] = (action == info["best_arm"]) & ~ended
        after, reward, terminated, truncated, info = envs.step(action)
        if "regret" in info:
            reported["regret"] = True
            regret[:, t] = info["regret"]
        rewards[:, t] = np.where(ended, 0.0, reward)
        agent.observe(Experience(observation, action, rewards[:, t], after, terminated, truncated, ~ended))
        observation, ended = after, terminated | truncated
    if owned:
        envs.close()
    return Steps(rewards, best if reported["best_arm"] else None, regret if reported["regret"] else None)


def run_episodes(
    env: Source,
    agent: Agent,
    n_runs: int = 10,
    seed: int = 0,
    *,
    n_episodes: int,
    max_steps: int | None = None,
) -> Episodes:
    """Run an agent in `n_runs` copies of an environment at once, until each has finished `n_episodes`.

    Finished runs are no longer updated: the agent learns from at most `n_episodes` of each.

    Args:
        env: an id, a spec, an environment that Gymnasium made, or a vector environment of `n_runs`.
        agent: is reset first.
        n_runs: R.
        seed: of the environments and the agent, whose random streams differ.
        n_episodes: E.
        max_steps: give up after this many steps per run; None: no limit.

    Raises:
        EnvError: copies cannot be made of `env`, it has other actions than a bandit agent has arms, or episodes were
            not done by `max_steps`.
    """
    envs, owned = _vector(env, n_runs)
    _check_arms(envs, agent)
    returns, lengths = np.zeros((n_runs, n_episodes)), np.zeros((n_runs, n_episodes), dtype=np.int64)
    done = np.zeros(n_runs, dtype=np.int64)
    observation, info = envs.reset(seed=derive_seed(seed, "environment"))
    agent.reset(derive_seed(seed, "agent"), n_runs)
    ended = np.zeros(n_runs, dtype=np.bool_)
    steps = 0
    while (done < n_episodes).any():
        if steps == max_steps:
            raise EnvError(f"run_episodes: {int(done.min())} of {n_episodes} episodes ended in {max_steps} steps.")
        action = agent.get_action(observation, info)
        after, reward, terminated, truncated, info = envs.step(action)
        valid = ~ended & (done < n_episodes)
        agent.observe(Experience(observation, action, reward, after, terminated, truncated, valid))
        rows = np.flatnonzero(valid)
        returns[rows, done[rows]] += reward[rows]
        lengths[rows, done[rows]] += 1
        observation, ended = after, terminated | truncated
        done += valid & ended
        steps += 1
    if owned:
        envs.close()
    return Episodes(returns, lengths)


def _vector(env: Source, n_runs: int) -> tuple[gym.vector.VectorEnv[Any, Any, Any], bool]:
    """Return `n_runs` copies of an environment, and whether they were made here."""
    if isinstance(env, gym.vector.VectorEnv):
        if env.num_envs != n_runs:
            raise EnvError(f"The vector environment has {env.num_envs} copies, but n_runs is {n_runs}.")
        if env.metadata.get("autoreset_mode") is not gym.vector.AutoresetMode.NEXT_STEP:
            raise EnvError("The vector environment must reset in the step after an episode (AutoresetMode.NEXT_STEP).")
        return env, False
    if isinstance(env, gym.Env):
        if env.spec is None:
            raise EnvError("Only an environment from gymnasium.make can be copied, since a copy is made from its spec.")
        env = env.spec
    if isinstance(env, str) and env.startswith("laurel/"):
        import laurel.envs.builtin  # noqa: F401  registers them
    return gym.make_vec(env, num_envs=n_runs), True


def _check_arms(envs: gym.vector.VectorEnv[Any, Any, Any], agent: Agent) -> None:
    """Refuse a bandit agent whose arms are not the environment's actions."""
    space = envs.single_action_space
    if not isinstance(agent, BanditAgent):
        return
    fix = "Bandit agents need Discrete actions from 0 on."
    if isinstance(space, gym.spaces.Discrete) and space.start == 0:
        if space.n == agent.n_arms:
            return
        fix = f"Make the agent with n_arms {space.n}."
    raise EnvError(f"The agent has {agent.n_arms} arms, but the environment's actions are {space}. {fix}")

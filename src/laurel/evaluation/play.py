"""Evaluation episodes: the actor of each arm on fresh episodes, a table for each agent."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch

from laurel.agents.actor import Actor
from laurel.agents.actors import make_actor
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.evaluation.rollout import LearnedReward, roll_out
from laurel.params import Params
from laurel.params.arms import RANDOM, ArmInfo, arm_infos
from laurel.rewards.method import Inputs
from laurel.rewards.stored import StoredRewards, reward_of
from laurel.seeding import derive_seed


def load_actor(adapter: EnvAdapter, agent: Path | None, *, greedy: bool, kind: str = RANDOM) -> Actor:
    """Return a trained agent as an actor, or an actor of a kind where there is none.

    Raises:
        DataError: the agent is missing, damaged, or of another environment.
    """
    if agent is None:
        return make_actor(kind, adapter, "arms.agent")
    return make_actor("checkpoint", adapter, "", path=agent, greedy=greedy)


def watched_arm(params: Params, reward: Path) -> ArmInfo | None:
    """Return the arm by whose reward all agents are watched: the first method whose rewards there are."""
    made = StoredRewards.read(reward).settings
    methods = (info for info in arm_infos(params) if info.role == "method" and info.rewards)
    return next((info for info in methods if made.keys() >= set(info.rewards)), None)


def watching(params: Params, adapter: EnvAdapter, inputs: Inputs) -> LearnedReward | None:
    """Return what agents are watched by; None where no method has a reward.

    Raises:
        DataError: the rewards are missing or damaged.
    """
    info = watched_arm(params, inputs.reward)
    if info is None:
        return None
    reward = reward_of(params, info.name, params.agent.seeds[0], adapter, inputs)
    return LearnedReward(reward, params.for_arm(info.name).shaping) if reward else None


def play_agent(
    params: Params, arm: str, seed: int, agent: Path | None, inputs: Inputs, table: Path, advance: Callable[[int], None]
) -> None:
    """Play an agent's evaluation episodes and write them as a Parquet table; runs in a process of its own.

    Episodes of the same seed begin alike for all arms, so that arms are compared on the same tasks.
    """
    torch.set_num_threads(1)
    logging.getLogger("laurel.envs").setLevel(logging.ERROR)  # the stage has logged it
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    evaluation = derive_seed(params.seed, "evaluate", seed)
    rows = roll_out(
        params.env,
        adapter,
        load_actor(adapter, agent, greedy=params.evaluate.greedy, kind=params.actor_of(arm)),
        n_envs=params.evaluate.n_envs,
        episodes=params.evaluate.episodes,
        seed=evaluation,
        learned=watching(params, adapter, inputs),
    )
    frame = pd.DataFrame(rows)
    frame.insert(0, "arm", arm)
    frame.insert(1, "seed", seed)
    frame.insert(2, "episode", range(len(frame)))
    frame.to_parquet(table, index=False)
    advance(len(rows))

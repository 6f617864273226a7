"""Environments of a group of agents: on the host, or tensor environments on the networks' device.

Knows which environments and algorithms have a device implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from laurel.agents.algorithms import initial_policy
from laurel.agents.device_ppo import DevicePPO
from laurel.agents.learner import Learner, LearnerGroup, Rollout
from laurel.agents.policy import ActorCritic
from laurel.agents.stacked_ppo import StackedPPO
from laurel.device import torch_device
from laurel.envs.base import EnvAdapter
from laurel.envs.joined import Shards
from laurel.envs.tensor import has_tensors, make_tensors
from laurel.envs.tensor.vector import TensorVector
from laurel.envs.vector import VectorEnv, make_vector
from laurel.params import EnvParams
from laurel.params.algorithms import LearnerParams, PPOParams
from laurel.seeding import derive_seed


def on_device(env: EnvParams, adapter: EnvAdapter, settings: LearnerParams, device: str) -> bool:
    """Whether agents act on the device of their networks: on a GPU, if environment and algorithm support it.

    Raises:
        ParamsError: a GPU is asked for, but missing.
    """
    if torch_device(device, "agent.device").type == "cpu":
        return False
    return can_be_on_device(env, adapter, settings)


def can_be_on_device(env: EnvParams, adapter: EnvAdapter, settings: LearnerParams) -> bool:
    """Whether environment and algorithm have a tensor form; of the algorithms, PPO of plain layers has one."""
    return (
        isinstance(settings, PPOParams)
        and settings.hints is None  # hints are computed on the host
        and settings.episodic
        and has_tensors(env, adapter)
        and type(initial_policy(adapter, settings, 0, 0)) is ActorCritic
    )


def make_envs(
    env: EnvParams, adapter: EnvAdapter, n_envs: int, seed: int, device: torch.device | None, shards: int = 1
) -> VectorEnv:
    """Make the environments of an agent: tensors on a device, or those of the host where it is None."""
    if shards > 1:
        seeds = [derive_seed(seed, "shard", number) for number in range(shards)]
        return Shards([make_vector(env, adapter, n_envs // shards, shard_seed) for shard_seed in seeds])
    if device is None:
        return make_vector(env, adapter, n_envs, seed)
    return TensorVector(make_tensors(env, adapter, n_envs, seed, device), adapter)


def make_rollout(learner: Learner, envs: VectorEnv, observed: bool) -> Any:
    """Allocate the host's copy of an agent's steps; `observed`: whether it includes observations."""
    if not isinstance(envs, TensorVector):
        return learner.rollout(envs)
    assert isinstance(learner, StackedPPO)
    shapes = Rollout.shapes(learner.params.n_steps, envs, learner.policy)
    return Rollout(**{**shapes, **({} if observed else {"observation": shapes["observation"][:0]})})


def group_of(learners: Sequence[Learner], envs: Sequence[VectorEnv], rollouts: Sequence[Any]) -> LearnerGroup:
    """Return learners of one setting in lockstep, each with its environments and its rollout."""
    tensor_envs = [vector for vector in envs if isinstance(vector, TensorVector)]
    if not tensor_envs:
        return learners[0].grouped(learners[1:])
    stacked = [learner for learner in learners if isinstance(learner, StackedPPO)]
    return DevicePPO(stacked, tensor_envs, [len(rollout.observation) > 0 for rollout in rollouts])

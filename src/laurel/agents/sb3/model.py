"""Makes Stable-Baselines3's algorithms, before their first step. Imports Stable-Baselines3."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from laurel.agents.sb3.catalog import arguments, check_algorithm
from laurel.agents.sb3.env import FeatureEnvs, PackedEnvs
from laurel.agents.sb3.policy import SB3Policy
from laurel.device import torch_device
from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError, first_line
from laurel.params import EnvParams
from laurel.params.sb3 import SB3Params
from laurel.seeding import derive_seed


def make_envs(env: EnvParams, adapter: EnvAdapter, settings: SB3Params, run_seed: int, seed: int) -> PackedEnvs:
    """Make the environments of the agent with a seed, the same for all arms."""
    return PackedEnvs(env, adapter, settings.n_envs, derive_seed(run_seed, "agent", seed, "envs"))


def make_algorithm(
    settings: SB3Params, envs: VecEnv, adapter: EnvAdapter, *, run_seed: int, seed: int, steps: int, device: str
) -> Any:
    """Make the algorithm of the agent with a seed, in environments with packed observations.

    Raises:
        ParamsError: it is not installed, or does not fit its arguments or the action space.
    """
    algorithm = check_algorithm(settings, adapter.action_space)
    resolved_device = torch_device(device, "agent.device")
    try:
        model = algorithm(
            settings.policy,
            FeatureEnvs(envs, adapter),
            seed=derive_seed(run_seed, "agent", seed, "sb3"),
            device=resolved_device,
            **arguments(settings, algorithm, steps, adapter.action_space),
        )
    except (AssertionError, TypeError, ValueError) as error:
        reason = first_line(error)
        raise ParamsError(f"agent.sb3: {settings.algorithm} cannot be made with these arguments: {reason}.") from error
    except MemoryError as error:
        raise ParamsError(
            f"agent.sb3: {settings.algorithm} does not fit into memory: {first_line(error)}. Lower "
            "buffer_size or n_steps in agent.sb3.kwargs, or agent.sb3.n_envs."
        ) from error
    model.set_logger(Logger(folder=None, output_formats=[]))  # its own makes a temporary directory that stays
    return model


def initial_sb3_policy(
    env: EnvParams, adapter: EnvAdapter, settings: SB3Params, *, run_seed: int, seed: int, steps: int, device: str
) -> SB3Policy:
    """Return the initial policy for a seed, the same for all arms.

    Raises:
        ParamsError: as `make_algorithm`.
    """
    envs = make_envs(env, adapter, settings, run_seed, seed)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # the algorithm seeds all three
    try:
        model = make_algorithm(settings, envs, adapter, run_seed=run_seed, seed=seed, steps=steps, device=device)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        envs.close()
    return SB3Policy.of(model, settings.algorithm, settings.policy)

"""From an arm of params to what is trained: its task, and the reward that it is paid."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from laurel.envs import adapter_for
from laurel.params import Params
from laurel.rewards.method import Inputs
from laurel.rewards.stored import reward_of
from laurel.training.loop import Assignment, Task, train_together


def task_of(params: Params, arm: str, seed: int) -> Task:
    """Return what is trained for an arm with a seed."""
    own = params.for_arm(arm)
    return Task(
        arm=arm,
        seed=seed,
        run_seed=params.seed,
        env=params.env,
        settings=own.agent.sb3 if own.agent.engine == "sb3" else own.agent.settings,
        shaping=own.shaping,
        steps=params.agent.steps,
        checkpoint_steps=params.agent.checkpoint_steps,
        device=params.agent.device,
    )


def steps_of(params: Params, arm: str, seed: int) -> int:
    """Return the environment steps that training an arm with a seed tells of."""
    sb3 = params.for_arm(arm).agent.engine == "sb3"
    return params.agent.steps if sb3 else task_of(params, arm, seed).total_steps


def train_arms(
    params: Params, agents: Sequence[tuple[str, int, Path]], inputs: Inputs, advance: Callable[[int], None]
) -> None:
    """Train agents, each an arm with a seed and its directory; runs in a process of its own.

    Their arms have the same algorithm and settings, so that they are trained in lockstep.
    """
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)  # runs share the cores already, and sums keep their order
    logging.getLogger("laurel.envs").setLevel(logging.ERROR)  # the stage has said it once
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    rewards = [reward_of(params, arm, seed, adapter, inputs) for arm, seed, _ in agents]
    if params.for_arm(agents[0][0]).agent.engine == "sb3":
        from laurel.training.sb3 import train_sb3

        for (arm, seed, directory), reward in zip(agents, rewards, strict=True):
            train_sb3(task_of(params, arm, seed), adapter, reward, directory, advance)
        return
    assigned = [
        Assignment(task_of(params, arm, seed), reward, directory)
        for (arm, seed, directory), reward in zip(agents, rewards, strict=True)
    ]
    with threadpool_limits(1, user_api="blas"):
        train_together(assigned, adapter, advance)

"""The arms that are compared: which reward each one trains on.

extrinsic        the environment's reward alone
preference       the learned reward and the environment's
intrinsic_only   the learned reward alone
random_reward    control: a random reward for each caption, drawn anew for each seed, and the environment's
shuffled_labels  control: a reward model trained on the same answers given to the wrong pairs, and the environment's
similarity       comparison: the annotator's similarity as reward directly, and the environment's
oracle           reference: hand-written progress, and the environment's
random_policy    control: uniform actions, no training
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter, FloatArray
from laurel.params import Params
from laurel.rewards import functions
from laurel.rewards.base import Reward
from laurel.rewards.model import RewardModel
from laurel.training.loop import Assignment, Task, train_together

if TYPE_CHECKING:
    from laurel.training.sb3 import SB3Task


def task_of(params: Params, arm: str, seed: int) -> Task:
    """Return what is trained for an arm with a seed."""
    weights = {"extrinsic": 0.0} if arm == "intrinsic_only" else {}
    return Task(
        arm=arm,
        seed=seed,
        run_seed=params.seed,
        env=params.env,
        settings=params.agent.settings,
        shaping=params.shaping.model_copy(update=weights),
        steps=params.agent.steps,
        checkpoint_steps=params.agent.checkpoint_steps,
        device=params.agent.device,
    )


def sb3_task_of(params: Params, arm: str, seed: int) -> SB3Task:
    """Return what Stable-Baselines3 trains for an arm with a seed."""
    from laurel.training.sb3 import SB3Task

    task = task_of(params, arm, seed)
    return SB3Task(
        arm=arm,
        seed=seed,
        run_seed=task.run_seed,
        env=task.env,
        settings=params.agent.sb3,
        shaping=task.shaping,
        steps=task.steps,
        checkpoint_steps=task.checkpoint_steps,
        device=task.device,
    )


def steps_of(params: Params, arm: str, seed: int) -> int:
    """Return the environment steps that training an arm with a seed tells of."""
    return params.agent.steps if params.agent.engine == "sb3" else task_of(params, arm, seed).total_steps


def train_arms(
    params: Params,
    agents: Sequence[tuple[str, int, Path]],
    captions: Path,
    preferences: Path,
    reward: Path,
    utility: FloatArray | None,
    advance: Callable[[int], None],
) -> None:
    """Train agents, each an arm with a seed and its directory, in lockstep; runs in a process of its own."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)  # runs share the cores already, and sums keep their order
    logging.getLogger("laurel.envs").setLevel(logging.ERROR)  # the stage has said it once
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    rewards = [reward_of(params, arm, seed, adapter, captions, preferences, reward, utility) for arm, seed, _ in agents]
    if params.agent.engine == "sb3":
        from laurel.training.sb3 import train_sb3

        for (arm, seed, directory), function in zip(agents, rewards, strict=True):
            train_sb3(sb3_task_of(params, arm, seed), adapter, function, directory, advance)
        return
    assigned = [
        Assignment(task_of(params, arm, seed), function, directory)
        for (arm, seed, directory), function in zip(agents, rewards, strict=True)
    ]
    with threadpool_limits(1, user_api="blas"):
        train_together(assigned, adapter, advance)


def reward_of(
    params: Params,
    arm: str,
    seed: int,
    adapter: EnvAdapter,
    captions: Path,
    preferences: Path,
    reward: Path,
    utility: FloatArray | None,
) -> Reward | None:
    """Return the learned part of an arm's reward; None where there is none.

    Args:
        params: sections reward, shaping and annotate.embedding are used.
        arm: which arm.
        seed: of the agent; the controls draw by it.
        adapter: the environment's adapter.
        captions: output of the caption stage.
        preferences: output of the annotate stage.
        reward: output of the train-reward stage.
        utility: (V,) the annotator's similarity of each caption of the reward model; for `similarity` alone.
    """
    quantile = params.shaping.quantile
    match arm:
        case "extrinsic" | "random_policy":
            return None
        case "oracle":
            return functions.oracle(adapter)
    model = RewardModel.load(reward)
    match arm:
        case "random_reward":
            return functions.random_reward(model.texts, quantile, seed)
        case "shuffled_labels":
            from laurel.rewards.training import usable_comparisons

            _, comparisons = usable_comparisons(captions, preferences)
            return functions.shuffled_labels(model, comparisons, params.reward, quantile, adapter, seed)
        case "similarity":
            assert utility is not None
            return functions.similarity(model.texts, utility, params.annotate.embedding, quantile, adapter)
        case _:
            return functions.learned(model, adapter, quantile)

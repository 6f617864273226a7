"""From an arm to a training task and its reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.data.manifest import read_manifest
from laurel.feedback.question_queue import Topic
from laurel.params import EnvParams
from laurel.params.annotation import AnnotateParams
from laurel.params.resolved_arms import Arm
from laurel.params.rewards import method_of
from laurel.pool import prepare_worker
from laurel.rewards.method import Inputs, LearningMethod, RewardContext
from laurel.rewards.stored import reward_of
from laurel.training.engines import engine_of
from laurel.training.loop import sample_shard
from laurel.training.task import Agent, Assignment, Task, steps_per_update

if TYPE_CHECKING:
    from laurel.agents.language_model.shards import SampledShard

CHECKPOINT_STEPS = 50_000
"""Environment steps between checkpoints where agent.checkpoint_steps is null."""


def task_of(run_seed: int, env: EnvParams, arm: Arm, seed: int, annotate: AnnotateParams | None = None) -> Task:
    """Return the training task of an arm with a seed; hints ask chat models of `annotate`."""
    settings = arm.agent.settings
    interval = steps_per_update(settings) if settings.every_update else CHECKPOINT_STEPS
    return Task(
        arm=arm.name,
        seed=seed,
        run_seed=run_seed,
        env=env,
        settings=settings,
        shaping=arm.shaping,
        steps=arm.agent.steps,
        checkpoint_steps=arm.agent.checkpoint_steps or interval,
        device=arm.agent.device,
        annotate=annotate,
        curriculum=arm.agent.curriculum,
    )


@dataclass(frozen=True)
class Part:
    """Some rounds of training a language-model actor; other tasks train the others."""

    until: int
    """The round after which it stops."""
    begun: Path | None = None
    """Output of the stage for the rounds before; None: from the beginning."""
    proposals: Sequence[Path] = ()
    """Outputs of the stage propose, one a shard in any order, for the only round of this part; empty: its rounds are
    sampled here."""


def train_arms(
    run_seed: int,
    context: RewardContext,
    agents: Sequence[Agent],
    inputs: Inputs,
    advance: Callable[[int], None],
    part: Part | None = None,
) -> None:
    """Train agents, each an arm with a seed and its directory; runs in a separate process.

    Their arms have the same algorithm and settings, so that they are trained in lockstep. A part of a training with
    proposals is of one agent.
    """
    prepare_worker()
    adapter = context.adapter
    rewards = [reward_of(arm, seed, context, adapter, inputs) for arm, seed, _ in agents]
    first, *_ = agents[0]
    assigned = [
        Assignment(
            task_of(run_seed, context.env, arm, seed, context.annotate),
            reward,
            directory,
            until=part.until if part else None,
            sampled=_sampled(part.proposals) if part else (),
        )
        for (arm, seed, directory), reward in zip(agents, rewards, strict=True)
    ]
    engine_of(first.agent).train(assigned, adapter, advance)


def sample_arm(
    run_seed: int,
    context: RewardContext,
    agent: Agent,
    shard: int,
    output: Path,
    advance: Callable[[int], None],
) -> None:
    """Write a shard of an agent's next round into a directory; runs in a separate process, like `train_arms`."""
    from threadpoolctl import threadpool_limits

    prepare_worker()
    arm, seed, directory = agent
    task = task_of(run_seed, context.env, arm, seed, context.annotate)
    with threadpool_limits(1, user_api="blas"):
        sample_shard(Assignment(task, None, directory), context.adapter, shard).write(output)
    advance(task.steps_per_update // task.settings.shards)


def _sampled(proposals: Sequence[Path]) -> Sequence[SampledShard]:
    """Read the shards of a round, in order."""
    if not proposals:
        return ()
    from laurel.agents.language_model.shards import SampledShard

    numbered = {read_manifest(path)["params"]["shard"]: path for path in proposals}
    return [SampledShard.read(numbered[shard]) for shard in sorted(numbered)]


def topics(agents: Sequence[Agent], context: RewardContext) -> list[Topic]:
    """Return the judges that the agents will ask while they are trained, with their questions."""
    distinct = []
    for arm, seed, _ in agents:
        for name in arm.reward:
            method = method_of(context.rewards[name])
            topic = method.topic(context, seed) if isinstance(method, LearningMethod) else None
            distinct += [topic] if topic else []
    return list(dict.fromkeys(distinct))

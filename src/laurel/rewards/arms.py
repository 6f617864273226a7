"""Which arms can be trained in an environment, i.e. whether their rewards are available there. Imports nothing
heavy.
"""

from __future__ import annotations

from collections.abc import Iterable

from laurel.envs.base import EnvAdapter
from laurel.params.arms import ArmParams
from laurel.params.resolved_arms import Arm
from laurel.params.rewards import judge_of, method_of
from laurel.rewards.method import RewardContext


def skipped_arms(arms: Iterable[ArmParams | Arm], context: RewardContext, adapter: EnvAdapter) -> dict[str, str]:
    """Return arm -> a sentence on why it cannot be trained here."""
    skipped = {}
    for arm in arms:
        for name in arm.reward:
            settings = context.rewards[name]
            reason = method_of(settings).check(context, adapter)
            if reason:
                skipped[arm.name] = f"The arm {arm.name} was left out: {reason}"
    return skipped


def trained_arms(arms: Iterable[ArmParams | Arm], context: RewardContext, adapter: EnvAdapter) -> tuple[str, ...]:
    """Return the names of the arms that are trained here, in order."""
    arms = tuple(arms)
    skipped = skipped_arms(arms, context, adapter)
    return tuple(arm.name for arm in arms if arm.trained and arm.name not in skipped)


def used_label_sets(arms: Iterable[Arm], context: RewardContext) -> dict[str, set[int]]:
    """Return judge -> the numbers of its label sets that the rewards of agents are learned from.

    The agent with seed s learns from the label set s modulo annotate.feedback_seeds, so some sets may be unused.
    """
    used: dict[str, set[int]] = {}
    for arm in arms:
        for name in arm.reward if arm.trained else ():
            if (judge := judge_of(name, context.rewards)) is not None:
                sets = context.label_sets(context.rewards[name])
                used.setdefault(judge, set()).update(seed % sets for seed in arm.agent.seeds)
    return used


def trainers(arms: Iterable[Arm]) -> str:
    """Name the algorithms of the trained arms; without trained arms, the algorithms that would train."""
    arms = tuple(arms)
    trained = [arm.agent.trainer for arm in arms if arm.trained] or [arm.agent.trainer for arm in arms]
    return ", ".join(dict.fromkeys(trained))

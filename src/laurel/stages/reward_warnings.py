"""What evaluation says against rewards: arms that earn more and do worse, and how far rewards are apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.envs.base import EnvAdapter
from laurel.evaluation.distances import Matrix, distances
from laurel.evaluation.hacking import Episode, Hacked, hacked
from laurel.evaluation.performance import Performance
from laurel.evaluation.play import Evaluation, load_actor, watching
from laurel.evaluation.statistics import return_range, seed_scores
from laurel.params.arms import Arm
from laurel.params.rewards import method_of
from laurel.params.training import AgentParams
from laurel.rewards.stored import StoredRewards
from laurel.seeding import derive_seed

if TYPE_CHECKING:
    import pandas as pd


LOOKED_AT, LOOKED_AT_STEPS, SHOWN_EPISODES = 8, 500, 3
"""Episodes of a flagged arm that are played, steps of each at most (as laurel play has it), and how many are shown."""


def hacked_arms(
    evaluation: Evaluation, arms: Mapping[str, Arm], agents: Path, curves: pd.DataFrame, results: pd.DataFrame
) -> list[Hacked]:
    """Find arms whose agents earn more and do worse, with episodes to look at."""
    from dataclasses import replace

    bounds = return_range(curves, seed_scores(results)["return"].to_numpy())
    found = hacked(curves, [arm.name for arm in arms.values() if arm.reward], agents, bounds)
    return [replace(one, episodes=_to_look_at(evaluation, arms[one.arm], agents, one)) for one in found]


def _to_look_at(evaluation: Evaluation, arm: Arm, agents: Path, found: Hacked) -> list[Episode]:
    """Play some episodes of the agent that fell most, as laurel play does, and return those that pay most for least."""
    context, env = evaluation.context, evaluation.context.env
    worst = max(found.periods, key=lambda period: period.true[0] - period.true[1])
    adapter, place = context.adapter, agents / arm.name / f"seed-{worst.seed}"
    actor = load_actor(adapter, arm, place, greedy=evaluation.evaluate.greedy)
    played = []
    for seed in range(LOOKED_AT):
        learned = watching(arm, context, adapter, evaluation.inputs)
        show = Performance(env, adapter, arm.name, actor, learned, 1, LOOKED_AT_STEPS, derive_seed(seed, "play"))
        told = [moment for moment, _ in show.moments(None)]
        paid, last = sum(moment.shaped or 0.0 for moment in told), told[-1]
        command = f"laurel play {arm.name} {worst.seed} --seed {seed}"
        played.append(Episode(command, paid, last.total, last.success, last.step))
    return sorted(played, key=lambda one: (bool(one.solved), one.total, -one.paid))[:SHOWN_EPISODES]


def reward_distances(
    stored: StoredRewards, trajectories: Path, adapter: EnvAdapter, agent: AgentParams, seed: int
) -> tuple[dict[str, Matrix], list[str]]:
    """Compare all rewards but those that change while they pay; of one drawn anew for each seed, its first."""
    names = [name for name, settings in stored.settings.items() if method_of(settings).stationary]
    rewards = {name: stored.load(name, (stored.seeds[name] or agent.seeds)[0], adapter, 0.5) for name in names}
    return distances(rewards, trajectories, adapter, agent.gamma, seed) if rewards else ({}, [])

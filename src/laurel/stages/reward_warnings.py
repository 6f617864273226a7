"""Warnings about rewards: arms that earn more and do worse, misleading sums, and distances between rewards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from laurel.arrays import DoubleArray
from laurel.data.trajectories import finished, read_trajectories
from laurel.envs.base import EnvAdapter
from laurel.evaluation.distances import Matrix, distances
from laurel.evaluation.formats import counted
from laurel.evaluation.hacking import Episode, Hacked, hacked, misled
from laurel.evaluation.performance import Performance
from laurel.evaluation.play import Asking, Evaluation, load_actor, watching
from laurel.evaluation.statistics import return_range
from laurel.params.annotation import BudgetParams
from laurel.params.resolved_arms import Arm
from laurel.params.rewards import method_of
from laurel.params.training import AgentParams
from laurel.rewards.functions import limit
from laurel.rewards.stored import StoredRewards
from laurel.seeding import derive_seed, seed_folder

LOOKED_AT, LOOKED_AT_STEPS, SHOWN_EPISODES = 8, 500, 3
"""Number of episodes to play of a flagged arm, maximum steps of each (as in laurel play), and number to show."""


def hacked_arms(
    evaluation: Evaluation,
    arms: Mapping[str, Arm],
    agents: Path,
    curves: pd.DataFrame,
    results: pd.DataFrame,
    asking: Asking,
) -> list[Hacked]:
    """Find arms whose agents earn more and do worse, with episodes to look at.

    Arms whose tasks a curriculum chose are skipped: harder tasks, with more captions, look the same.

    Args:
        asking: gets the actors and rewards that may ask language models.
    """
    bounds = return_range(curves, results)
    paid = [arm.name for arm in arms.values() if arm.reward and arm.shaping.form == "bonus" and not arm.draws_tasks]
    return [
        replace(suspect, episodes=_to_look_at(evaluation, arms[suspect.arm], agents, suspect, asking))
        for suspect in hacked(curves, paid, agents, bounds)
    ]


def misleading_sums(
    watched: Arm | None, arms: Mapping[str, Arm], results: pd.DataFrame, curves: pd.DataFrame, scored_by: str
) -> list[str]:
    """Warn about arms that reward failure more than success, if episodes were scored by the arm's own reward.

    If that arm uses a potential, describe instead how episodes were scored.

    Args:
        scored_by: whose reward scored the episodes of all agents; empty if agents of that arm are paid the same.
    """
    if watched and watched.shaping.form == "potential":
        return [
            f"Episodes are scored by the reward of {watched.name} in the form bonus, but the arm uses a potential: "
            "the sum of a potential depends on where an episode ends, not on the captions in it."
        ]
    paid = [
        arm
        for arm in arms.values()
        if watched and arm.trained and (arm.reward, arm.shaping) == (watched.reward, watched.shaping)
    ]
    notes = misled(results, paid, return_range(curves, results)) if paid else []
    remark = (
        f" All episodes are scored by the reward of {scored_by}, also those of agents that were paid another one."
        if scored_by
        else ""
    )
    return [note + remark for note in notes]


def bonus_warnings(arms: Iterable[Arm], reward: Path, trajectories: Path) -> list[str]:
    """Compare the possible sum of learned rewards in an episode with the returns of collected episodes.

    Args:
        arms: of the run. Only those with the environment's reward and a single bonus, for captions or outcomes, count.
            If captions can pay more than the spread of collected returns, the line advises to lower the bonus.

    Raises:
        DataError: an input is not there, or damaged.
    """
    stored, lines = StoredRewards.read(reward), []
    collected = _returns(trajectories)
    highest, spread = float(collected.max()), float(np.ptp(collected))
    for arm in arms:
        name = next(iter(arm.reward), "")
        beside_the_task = arm.trained and arm.shaping.extrinsic > 0 and arm.shaping.form == "bonus"
        bonus = beside_the_task and list(arm.reward.values()) == [1.0]
        table = (
            stored.table(name, arm.shaping.quantile, arm.agent.seeds[0]) if bonus and name in stored.settings else None
        )
        if table is None:
            continue
        owner = stored.reward_owner([name], arm.agent.seeds)
        of_arm = f"{arm.name}, by the reward of {owner}" if owner else arm.name
        paid, task = np.maximum(table.rewards - table.threshold, 0), arm.shaping.extrinsic * highest
        best = f"the environment paid the best collected episode {task:.3g}"
        if table.of == "outcome":
            maximum = arm.shaping.intrinsic * float(paid.max(initial=0))
            lines.append(f"{of_arm}: the outcome of an episode pays at most {maximum:.3g}; {best}")
            continue
        maximum = arm.shaping.intrinsic * float(paid.sum())
        captions = counted(int(np.count_nonzero(paid)), "caption")
        line = f"{of_arm}: meeting each of {captions} once pays {maximum:.3g} in all; {best}"
        # the value of doing the task better; collection may never have met a sparse reward, often 1
        if maximum > arm.shaping.extrinsic * (spread or 1.0):
            line += (
                ". If agents collect captions instead of doing the task, lower shaping.intrinsic or set "
                "shaping.form: potential"
            )
        lines.append(line)
    return lines


def _returns(trajectories: Path) -> DoubleArray:
    """Return the returns of the collected episodes that ended, or of all if collection cut off every one.

    With a cost per step, an episode that was cut off would look best.
    """
    paid, ended = [], []
    for steps, position in read_trajectories(trajectories):
        begins = np.flatnonzero(np.diff(position.episode_id, prepend=-1))
        paid.append(np.add.reduceat(steps.reward.astype(np.float64), begins))
        ended.append(finished(steps, position.episode_id))
    totals, completed = np.concatenate(paid), np.concatenate(ended)
    return totals[completed] if completed.any() else totals


def _to_look_at(evaluation: Evaluation, arm: Arm, agents: Path, suspect: Hacked, asking: Asking) -> list[Episode]:
    """Play episodes of the agent whose return fell most; return those with the highest pay and the lowest return.

    Args:
        asking: gets the actors and rewards that may ask language models.
    """
    context, env = evaluation.context, evaluation.context.env
    worst = max(suspect.periods, key=lambda period: period.true[0] - period.true[1])
    adapter, place = context.adapter, agents / arm.name / seed_folder(worst.seed)
    actor = load_actor(adapter, arm, place, greedy=evaluation.evaluate.greedy, annotate=context.annotate)
    asking.add(actor)
    played = []
    for seed in range(LOOKED_AT):
        learned = watching(arm, context, adapter, evaluation.inputs, worst.seed)
        show = Performance(env, adapter, arm.name, actor, learned, 1, LOOKED_AT_STEPS, derive_seed(seed, "play"))
        asking.add(reward=learned)
        moments = [moment for moment, _ in show.moments(None)]
        paid, last = sum(moment.shaped or 0.0 for moment in moments), moments[-1]
        command = f"laurel play {arm.name} {worst.seed} --seed {seed}"
        played.append(Episode(command, paid, last.total, last.success, last.step))
    return sorted(played, key=lambda episode: (bool(episode.solved), episode.total, -episode.paid))[:SHOWN_EPISODES]


def reward_distances(
    stored: StoredRewards,
    trajectories: Path,
    adapter: EnvAdapter,
    agent: AgentParams,
    budget: BudgetParams,
    seed: int,
    asking: Asking,
) -> tuple[dict[str, Matrix], list[str]]:
    """Compare all stationary rewards; of a reward made separately for each seed, the first.

    Args:
        asking: gets the rewards, which may ask language models.

    Returns:
        The distances and notes of `laurel.evaluation.distances.distances`.
    """
    names = [name for name, settings in stored.settings.items() if method_of(settings).stationary]
    rewards = {name: stored.load(name, (stored.seeds[name] or agent.seeds)[0], adapter, 0.5) for name in names}
    for reward in rewards.values():
        limit(reward, budget)
        asking.add(reward=reward)
    return distances(rewards, trajectories, adapter, agent.gamma, seed) if rewards else ({}, [])

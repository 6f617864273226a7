"""Evaluation episodes: the actor of each arm on fresh episodes, a table for each agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from laurel.agents.actor import Actor
from laurel.agents.actors import make_actor
from laurel.agents.algorithms import weights_seed
from laurel.data.json_file import write_json
from laurel.data.usage import UsageNote
from laurel.envs.base import EnvAdapter
from laurel.evaluation.rollout import LearnedReward, roll_out
from laurel.params import EvaluateParams
from laurel.params.annotation import AnnotateParams
from laurel.params.resolved_arms import Arm
from laurel.pool import Job, prepare_worker, run_jobs
from laurel.progress import progress
from laurel.rewards.base import Reward
from laurel.rewards.functions import accounts_of, when_answered
from laurel.rewards.method import Inputs, RewardContext
from laurel.rewards.stored import StoredRewards, reward_of
from laurel.seeding import derive_seed
from laurel.training.preload import preload

SCORING = "scoring"
"""Key of the accounts of a reward that asks a language model about the steps that it scores."""

Played = tuple[Arm, int, Path | None]
"""Arm, seed and the agent's directory, None where the arm is not trained."""


@dataclass(frozen=True)
class Evaluation:
    """Settings shared by the episodes of all agents."""

    run_seed: int
    context: RewardContext
    evaluate: EvaluateParams
    inputs: Inputs
    watched: Arm | None
    """The arm whose learned reward scores the episodes of all agents; None where no method has one."""

    def scorer(self, adapter: EnvAdapter) -> LearnedReward | None:
        """Return the scorer of whole episodes: the watched arm's reward, in the form bonus.

        Also for an arm with a potential: over an episode, F sums to 0 (but for discounting) if it is terminated and to
        the last Phi if it is truncated, neither of which depends on the captions in between.

        Raises:
            DataError: the rewards are missing or damaged.
        """
        learned = watching(self.watched, self.context, adapter, self.inputs)
        if learned is None:
            return None
        return replace(learned, shaping=learned.shaping.model_copy(update={"form": "bonus"}))


def load_actor(
    adapter: EnvAdapter,
    arm: Arm,
    agent: Path | None,
    *,
    greedy: bool,
    annotate: AnnotateParams | None = None,
    initial: int | None = None,
) -> Actor:
    """Return a trained agent as an actor, or the actor of an arm that is not trained.

    Args:
        greedy: take the likeliest action instead of a sample, unless the options of an actor say otherwise.
        annotate: the section of the run, for actors that ask its chat model.
        initial: as in `make_actor`.

    Raises:
        DataError: the agent is missing, damaged, or of another environment.
    """
    if agent is None:
        return make_actor(
            arm.actor or "random",
            adapter,
            f"arms.{arm.name}.agent",
            annotate=annotate,
            initial=initial,
            likeliest=greedy,
            **arm.actor_options,
        )
    return make_actor("checkpoint", adapter, "", path=agent, greedy=greedy, annotate=annotate)


def watched_arm(arms: Iterable[Arm], reward: Path) -> Arm | None:
    """Return the arm whose learned reward scores the episodes of all agents: the first method whose rewards exist."""
    return next((arm for arm in arms if arm.role == "method" and is_paid_from(arm, reward)), None)


def is_paid_from(arm: Arm, reward: Path) -> bool:
    """Whether an arm has a reward besides the environment's, and the output of train-reward holds it."""
    return bool(arm.reward) and StoredRewards.read(reward).settings.keys() >= set(arm.reward)


def watching(
    arm: Arm | None, context: RewardContext, adapter: EnvAdapter, inputs: Inputs, seed: int | None = None
) -> LearnedReward | None:
    """Return the reward to record while agents play: the arm's, or None.

    Args:
        seed: of the agent whose reward it is, as seeds may have label sets or rewards of their own; None: the arm's
            first.

    Raises:
        DataError: the rewards are missing or damaged.
    """
    reward = reward_of(arm, arm.agent.seeds[0] if seed is None else seed, context, adapter, inputs) if arm else None
    return LearnedReward(reward, arm.shaping) if arm and reward else None


def account_of(table: Path) -> Path:
    """Return the file, next to the table of an agent's episodes, with the cost of acting and of SCORING."""
    return table.with_suffix(".json")


def usage_note(table: Path) -> UsageNote:
    """Return the note, next to the table of an agent's episodes, of what processes have asked to play them."""
    return UsageNote(table.with_suffix(".usage.json"))


class Asking:
    """Notes what actors and rewards ask of language models: after their answers, and at the end of the block, also if
    that is stopped.
    """

    def __init__(self, note: UsageNote) -> None:
        self._note = note
        self._actors: list[Actor] = []
        self._rewards: list[Reward] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._note.write(self.accounts)

    def add(self, *actors: Actor, reward: LearnedReward | Reward | None = None) -> None:
        """Add actors and a reward before they are asked."""
        asks = reward.reward if isinstance(reward, LearnedReward) else reward
        self._actors += actors
        self._rewards += [] if asks is None else [asks]
        for actor in actors:
            actor.when_answered(self.note_if_due)
        when_answered(asks, self.note_if_due)

    def note_if_due(self) -> None:
        """Note the usage so far, at intervals."""
        self._note.write_if_due(lambda: self.accounts)

    @property
    def accounts(self) -> list[Mapping[str, Any]]:
        """The usage of each actor and of the parts of each reward."""
        asked = [account for reward in self._rewards for account in accounts_of(reward)]
        return [*(actor.account for actor in self._actors), *asked]


def play_agent(
    evaluation: Evaluation, arm: Arm, seed: int, agent: Path | None, table: Path, advance: Callable[[int], None]
) -> None:
    """Play an agent's evaluation episodes and write them as a Parquet table; runs in a separate process.

    The environments begin alike for all arms, so that arms are compared on the same tasks; later episodes of an
    environment differ where its steps draw random numbers.
    """
    prepare_worker()
    context, evaluate = evaluation.context, evaluation.evaluate
    adapter = context.adapter
    initial = weights_seed(evaluation.run_seed, seed)
    actor = load_actor(adapter, arm, agent, greedy=evaluate.greedy, annotate=context.annotate, initial=initial)
    learned = evaluation.scorer(adapter)
    with Asking(usage_note(table)) as asking:
        asking.add(actor, reward=learned)
        rows = roll_out(
            context.env.with_kwargs(evaluate.kwargs),
            adapter,
            actor,
            n_envs=evaluate.n_envs,
            episodes=evaluate.episodes,
            seed=derive_seed(evaluation.run_seed, "evaluate", seed),
            learned=learned,
            advance=advance,
            each_step=asking.note_if_due,  # another package's actor may not report its answers
        )
    frame = pd.DataFrame(rows)
    frame.insert(0, "arm", arm.name)
    frame.insert(1, "seed", seed)
    frame.insert(2, "episode", range(len(frame)))
    acting, *scoring = asking.accounts
    if acting or scoring:
        write_json(account_of(table), {**acting, SCORING: [dict(account) for account in scoring]})
    frame.to_parquet(table, index=False)


def play_agents(evaluation: Evaluation, agents: Sequence[Played], workers: int | None, tables: Path) -> pd.DataFrame:
    """Play all agents in parallel; a table that is there already was played by a run that was stopped."""
    tables.mkdir(exist_ok=True)
    places = [(tables / f"{arm.name}-{seed}.parquet", arm, seed, agent) for arm, seed, agent in agents]
    episodes = evaluation.evaluate.episodes
    jobs = [
        Job(
            f"evaluation of {arm.name} seed {seed}",
            _play_one,
            (evaluation, arm, seed, agent, table),
            units=episodes,
            kind=arm.name,
        )
        for table, arm, seed, agent in places
        if not is_whole(table)
    ]
    with progress(len(jobs) * episodes, "evaluate", "episodes") as advance:
        run_jobs(
            jobs,
            workers,
            advance,
            preload("play", evaluation.context.env, [arm for arm, _, _ in agents]),
        )
    return pd.concat([pd.read_parquet(table) for table, _, _, _ in places], ignore_index=True)


def is_whole(table: Path) -> bool:
    """Whether a table is there; one that was damaged, as by a power failure, is removed."""
    try:
        return pq.read_metadata(table).num_rows > 0
    except FileNotFoundError:
        return False
    except (OSError, pa.ArrowInvalid):
        table.unlink()
        return False


def _play_one(
    evaluation: Evaluation, arm: Arm, seed: int, agent: Path | None, table: Path, advance: Callable[[int], None]
) -> None:
    """Play an agent in a separate process; its table appears complete or not at all."""
    partial = table.with_suffix(".partial")
    play_agent(evaluation, arm, seed, agent, partial, advance)
    partial.replace(table)

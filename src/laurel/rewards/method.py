"""The interface of reward methods. One file per method: a subclass of `Method`, bound to METHOD.

A method turns the outputs of earlier stages (or nothing at all) into an artefact, a directory that holds all that
paying needs, and loads that again as a `Reward`. The module of a method imports nothing heavy at its top, since params
are checked against its settings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np

from laurel.arrays import FloatArray, IntArray
from laurel.data.preferences import labels_of, set_of
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.feedback.annotator import Account
from laurel.feedback.question_queue import Topic
from laurel.params import CaptionParams, EnvParams, Params
from laurel.params.annotation import MAIN, AnnotateParams
from laurel.params.kinds import Role
from laurel.params.rewards import RewardParams, TrialParams, method_of
from laurel.rewards.base import LearningReward, Reward
from laurel.rewards.functions import ScoredCaptions

Own = TypeVar("Own", bound=RewardParams)
Source = Literal["trajectories", "captions", "preferences"]
"""An output of a stage before train-reward."""
QUALITY = "quality.json"
"""File that a method may write into its artefact: how far the reward can be trusted, for the report."""


@dataclass(frozen=True)
class Tried:
    """Results of agents in a short training on a reward."""

    score: float
    """Mean return by the environment's own reward in the last quarter of it."""
    returns: Sequence[float]
    """Mean return in each fifth of it; NaN where no episode ended."""


class Trial(Protocol):
    """Trains agents on a reward for a short while."""

    def __call__(self, reward: Reward, settings: TrialParams) -> Tried:
        """Train `settings.seeds` agents; the reward keeps nothing between calls, so that all of them are paid by it.

        Raises:
            LaurelError: the reward cannot be paid, or training diverged.
        """
        ...


@dataclass(frozen=True)
class Program:
    """A reward that is code, for the report."""

    source: str
    writer: str
    simulated: bool
    """Whether no language model wrote it."""
    chosen_by: str
    """The score that it was chosen by, as the head of a column."""
    candidates: Sequence[tuple[int, str, float | None, bool]]
    """For each function that was written: round, outcome, score, and whether it is the source."""


@dataclass(frozen=True)
class Inputs:
    """What rewards are made from: outputs of stages, and rewards made before."""

    captions: Path
    preferences: Path
    reward: Path
    """Where all rewards of the run are, each in a folder of its name."""
    trajectories: Path | None = None
    """The collected steps; None for a seed that train-reward did not have, such as those of a search."""
    label_set: int = 0
    """Number of the label set, one of annotate.feedback_seeds, that the preferences are from."""
    judge: Path | None = None
    """The queue of the online judge, for rewards that are learned while these are trained."""
    agents: Path | None = None
    """Folder of trained agents: the final state of such a reward is stored with each."""
    trial: Trial | None = None
    """The short training by which some methods choose; only the stage train-reward has one."""

    def made(self, name: str) -> Path:
        """Return the directory of a reward that was made before, from the same label set."""
        return set_of(self.reward / name, self.label_set)


@dataclass(frozen=True)
class RewardContext:
    """The sections of params that a method may read besides its own: rewards are made anew where they change."""

    env: EnvParams
    caption: CaptionParams
    annotate: AnnotateParams
    rewards: Mapping[str, RewardParams]
    """Settings of all rewards, by name."""

    @cached_property
    def account(self) -> Account:
        """The budget and usage of asking for these rewards; shared by all that are made with this context."""
        return Account(self.annotate.budget)

    @classmethod
    def of(cls, params: Params) -> RewardContext:
        """Return the sections of a whole run."""
        return cls(params.env, params.caption, params.annotate, params.rewards)

    def inputs_of(self, settings: RewardParams, number: int, inputs: Inputs) -> Inputs:
        """Return the inputs of a reward: one label set of its judge's preferences."""
        judge = method_of(settings).judge(self.rewards)
        return replace(inputs, preferences=labels_of(inputs.preferences, judge, number), label_set=number)

    def label_sets(self, settings: RewardParams) -> int:
        """Return how many label sets a reward is made from; a single one where it reads no preferences."""
        return self.annotate.feedback_seeds if "preferences" in method_of(settings).sources(self.rewards) else 1

    @property
    def adapter(self) -> EnvAdapter:
        """A new adapter of the environment, whose captions name the action where the params say so."""
        return adapter_for(self.env, with_action=self.caption.with_action)


@dataclass(frozen=True)
class AgentsReward:
    """A reward that one agent learns while it is trained: which, whose, and where its judge is asked."""

    name: str
    """Of the reward."""
    arm: str
    seed: int
    """Of the agent."""
    quantile: float
    """Of the arm's shaping, where its threshold is."""
    queue: Path | None
    """Where an online judge is asked; None without one."""

    @property
    def agent(self) -> str:
        """The agent in words."""
        return f"{self.arm} seed {self.seed}"


@dataclass(frozen=True)
class PayTable:
    """What a reward pays for each of V texts, in normalised units."""

    texts: Sequence[str]
    rewards: FloatArray
    spreads: FloatArray
    """Uncertainty of each (standard deviation); 0 where it is unknown."""
    counts: IntArray
    """How often collection met each text."""
    threshold: float
    """The normalised reward at the quantile that was asked for: shaping pays what exceeds it."""

    @classmethod
    def of_captions(cls, place: Path, quantile: float) -> PayTable:
        """Return the table of `ScoredCaptions` that were saved with counts; their uncertainty is not known."""
        scored, config = ScoredCaptions.load(place)
        rewards = np.array(list(scored.known.values()), dtype=np.float32)
        counts, threshold = np.array(config["counts"], dtype=np.int64), scored.normalizer.threshold(quantile)
        return cls(list(scored.known), rewards, np.zeros_like(rewards), counts, threshold)


class Method(ABC, Generic[Own]):
    """How a reward is made. A method overrides only what it needs.

    Args:
        settings: an instance of `Settings`.
    """

    kind: ClassVar[str]
    """Its name, the same as that of its module or entry point."""
    role: ClassVar[Role] = "method"
    """Role of arms that are paid its reward: method, control or bound."""
    summary: str
    """What such an arm is paid, in a few words for the report."""
    Settings: ClassVar[type[RewardParams]] = RewardParams
    """Its settings, in `rewards.NAME`."""
    reads: ClassVar[Sequence[Source]] = ()
    """A run none of whose rewards reads preferences asks no annotator."""
    asks: ClassVar[bool] = False
    """Whether `fit` asks a judge (`asked_in_fit`); `estimate` then says how much."""
    stationary: ClassVar[bool] = True
    """Whether it always pays the same for the same steps; False if it learns while it pays."""
    per_seed: ClassVar[bool] = False
    """Whether it is made separately for each agent's seed."""

    def __init__(self, settings: Own) -> None:
        self.settings = settings

    def needs(self) -> Sequence[str]:
        """Return the names of the rewards that it is made from; they are made before it."""
        return ()

    def sources(self, rewards: Mapping[str, RewardParams]) -> Sequence[Source]:
        """Return which of `reads` it is made from with these settings; `rewards` are those of all rewards by name."""
        return self.reads

    def judge(self, rewards: Mapping[str, RewardParams]) -> str:
        """Return the judge whose preferences it reads, if any: `main`, or one of annotate.judges."""
        return MAIN

    def asked_in_fit(self) -> str | None:
        """Return the judge that `fit` asks; None where it asks none."""
        return MAIN if self.asks else None

    def asked_in_training(self) -> str | None:
        """Return the judge that is asked while agents are trained on the reward; None where none is."""
        return None

    def check(self, params: RewardContext, adapter: EnvAdapter) -> str | None:
        """Return why this reward cannot be made here, as a sentence; its arms are then left out.

        Raises:
            LaurelError: something is missing that the user must fix before any run.
        """
        return None

    def estimate(self, params: RewardContext, adapter: EnvAdapter, captions: Path) -> str | None:
        """Return a line that says what a chat model is asked to make it, and the cost; None where none is asked.

        Args:
            params: what else of the run's params it may read.

        Raises:
            DataError: there are no captions yet, or they are damaged.
        """
        return None

    def fit(self, params: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        """Write the artefact into an empty directory.

        Args:
            params: what else of the run's params it may read.
            seed: of the agent where the method is `per_seed`, or of the run.

        Raises:
            LaurelError: inputs are missing or damaged, or leave nothing to learn from.
        """

    def check_shuffled(self, name: str, params: RewardContext, adapter: EnvAdapter) -> str | None:
        """Return why the control of this reward (`fit_shuffled`) cannot be made here, as in `check`.

        Args:
            name: of this reward.

        Raises:
            ParamsError: it has no labels to shuffle.
        """
        raise ParamsError(
            f"rewards: labels of {name} cannot be shuffled, as its kind is {self.kind}, which has no labels to "
            "shuffle. Name another reward in `of`, such as one of kind preference."
        )

    def fit_shuffled(self, params: RewardContext, inputs: Inputs, made: Path, seed: int, place: Path) -> None:
        """Write the artefact of the control: the same reward from the same labels, each given to something else.

        A method that has labels says so in `check_shuffled`, too.

        Args:
            made: this reward's own artefact, from the same label set.
            seed: of the agent; others have other labels.
        """
        raise NotImplementedError

    @abstractmethod
    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        """Return the reward that is stored in the artefact; `shaping.quantile` says where its threshold is.

        Raises:
            DataError: the artefact is missing or damaged.
        """

    def program(self, place: Path) -> Program | None:
        """Return the code of an artefact that is a program, for the report; None for any other."""
        return None

    def table(self, place: Path, quantile: float) -> PayTable | None:
        """Return the artefact's reward of each caption; None where it depends on more than the caption."""
        return None


class LearningMethod(Method[Own]):
    """A method whose reward is learned while an agent is trained; the artefact is then stored with the agent."""

    stationary = False

    @abstractmethod
    def learning_reward(self, own: AgentsReward, params: RewardContext, adapter: EnvAdapter) -> LearningReward:
        """Return the reward that learns while its agent is trained.

        Raises:
            DataError: the reward needs a judge, and there is no queue.
        """

    def topic(self, params: RewardContext, seed: int) -> Topic | None:
        """Return the judge that an agent with this seed asks while it is trained; None if it asks none."""
        return None

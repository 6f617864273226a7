"""The interface of reward methods. One file per method: a subclass of `Method`, bound to METHOD.

A method turns the outputs of earlier stages (or nothing) into an artefact, a self-contained directory, and loads that
as a `Reward`. A method's module must not import anything heavy at the top, since params are checked against its
settings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

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
from laurel.params.rewards import RewardParams, Source, TrialParams, method_of
from laurel.plugins import check_returns, no_sentence, no_texts
from laurel.rewards.base import LearningReward, Reward
from laurel.rewards.functions import ScoredCaptions

Own = TypeVar("Own", bound=RewardParams)
QUALITY = "quality.json"
"""File that a method may write into its artefact: the quality of the reward, for the report."""
LATER = "calls and cost can be estimated once there are captions"


@dataclass(frozen=True)
class Tried:
    """Results of a short training run on a reward."""

    score: float
    """Mean return, by the environment's own reward, in the last quarter of the run."""
    returns: Sequence[float]
    """Mean return of the last episodes, as in a learning curve, in each fifth of the run; NaN if there are too few."""


class Trial(Protocol):
    """Trains agents on a reward for a short while."""

    def __call__(self, reward: Reward, settings: TrialParams) -> Tried:
        """Train `settings.seeds` agents, which share the stateless reward.

        Raises:
            LaurelError: the reward fails, or training diverged.
        """
        ...


@dataclass(frozen=True)
class Program:
    """A reward that is code, for the report."""

    source: str
    writer: str
    simulated: bool
    """Whether it was written by a simulated writer instead of a language model."""
    chosen_by: str
    """Name of the score by which it was chosen, for a table header."""
    candidates: Sequence[tuple[int, str, float | None, bool]]
    """For each function: round, outcome, score, and whether it is the chosen one."""


@dataclass(frozen=True)
class Inputs:
    """Inputs of rewards: outputs of stages, and other rewards."""

    captions: Path
    preferences: Path
    reward: Path
    """Directory of all rewards of the run, each in a folder of its name."""
    trajectories: Path | None = None
    """The collected steps; None for a seed that is unknown to train-reward, such as those of a search."""
    label_set: int = 0
    """Number of the preferences' label set, out of annotate.feedback_seeds."""
    judge: Path | None = None
    """The queue of the online judge, for rewards that are learned during training."""
    agents: Path | None = None
    """Folder of trained agents, each with the final state of such a reward."""
    trial: Trial | None = None
    """Short training runs for methods that compare candidates; only in the stage train-reward."""

    def made(self, name: str) -> Path:
        """Return the directory of another reward, made from the same label set."""
        return set_of(self.reward / name, self.label_set)


@dataclass(frozen=True)
class Collected:
    """Directories of what was collected, for estimates before annotation."""

    trajectories: Path
    captions: Path


@dataclass(frozen=True)
class RewardContext:
    """The sections of params that a method may read besides its own: rewards are made again when they change."""

    env: EnvParams
    caption: CaptionParams
    annotate: AnnotateParams
    rewards: Mapping[str, RewardParams]
    """Settings of all rewards, by name."""

    @cached_property
    def account(self) -> Account:
        """The budget and usage of asking for rewards, shared by all rewards of this context."""
        return Account(self.annotate.budget)

    @classmethod
    def of(cls, params: Params) -> RewardContext:
        """Return the sections of a whole run."""
        return cls(params.env, params.caption, params.annotate, params.rewards)

    def key(self, settings: RewardParams) -> str:
        """Return the key of a reward's settings in params, for messages, such as rewards.goals."""
        named = next((name for name, params in self.rewards.items() if params is settings or params == settings), None)
        return f"rewards.{named}" if named else f"rewards of kind {settings.kind}"

    def inputs_of(self, settings: RewardParams, number: int, inputs: Inputs) -> Inputs:
        """Return the inputs of a reward: one label set of its judge's preferences."""
        judge = method_of(settings).judge(self.rewards)
        return replace(inputs, preferences=labels_of(inputs.preferences, judge, number), label_set=number)

    def label_sets(self, settings: RewardParams) -> int:
        """Return from how many label sets a reward is made; 1 if it uses no preferences."""
        return self.annotate.feedback_seeds if "preferences" in method_of(settings).sources(self.rewards) else 1

    @property
    def adapter(self) -> EnvAdapter:
        """A new adapter of the environment, whose captions name the action if the params say so."""
        return adapter_for(self.env, with_action=self.caption.with_action)


@dataclass(frozen=True)
class AgentsReward:
    """Identifies a reward that one agent learns during training, with the queue of its judge."""

    name: str
    """Of the reward."""
    arm: str
    seed: int
    """Of the agent."""
    quantile: float
    """Quantile of the threshold, from the arm's shaping."""
    queue: Path | None
    """Queue of the online judge; None without one."""

    @property
    def agent(self) -> str:
        """Name of the agent."""
        return f"{self.arm} seed {self.seed}"


@dataclass(frozen=True)
class PayTable:
    """The reward of each of V texts."""

    texts: Sequence[str]
    rewards: FloatArray
    spreads: FloatArray
    """Uncertainty of each (standard deviation); 0 if unknown."""
    counts: IntArray
    """How often collection met each text, or the agent that learned the reward; 0 for all if unknown."""
    threshold: float
    """The reward at the requested quantile: shaping uses the excess over it."""
    normalised: bool = True
    """Whether rewards are in units of their spread over captions; False: as they were answered."""
    of: Literal["caption", "outcome"] = "caption"
    """Kind of the texts: captions, or outcomes, one of which is paid for at the end of an episode."""
    learned_by: str = ""
    """The agent that learned the reward during its training, in words; empty if it was made beforehand."""

    @classmethod
    def of_captions(cls, place: Path, quantile: float) -> PayTable:
        """Return the table of saved `ScoredCaptions` with counts; their uncertainty is unknown."""
        scored, config = ScoredCaptions.load(place)
        rewards = np.array(list(scored.known.values()), dtype=np.float32)
        counts, threshold = np.array(config["counts"], dtype=np.int64), scored.normalizer.threshold(quantile)
        return cls(list(scored.known), rewards, np.zeros_like(rewards), counts, threshold)


def _no_table(returned: Any) -> str | None:
    if not isinstance(returned, PayTable):
        return None if returned is None else "a laurel.rewards.method.PayTable, or None"
    columns = map(np.asarray, (returned.rewards, returned.spreads, returned.counts))
    shape = (len(returned.texts),)
    whole = all(one.shape == shape and one.dtype.kind in "iuf" and np.isfinite(one).all() for one in columns)
    return None if whole else f"one with finite rewards, spreads and counts of its {shape[0]} texts"


_RETURNS = {
    **dict.fromkeys(("check", "check_shuffled", "estimate"), no_sentence),
    **dict.fromkeys(("notes", "needs"), no_texts),
    "table": _no_table,
}
"""Method of `Method` -> what another package's class must return; see `laurel.plugins.check_returns`."""


class Method(ABC, Generic[Own]):
    """A way of making a reward. Methods override only what they need.

    Args:
        settings: an instance of `Settings`.
    """

    kind: ClassVar[str]
    """Its name, the same as that of its module or entry point."""
    role: Role = "method"
    """Role of arms with its reward: method, control or bound."""
    summary: str
    """Short description of the reward, for the report."""
    Settings: ClassVar[type[RewardParams]] = RewardParams
    """Its settings, in `rewards.NAME`."""
    reads: ClassVar[Sequence[Source]] = ()
    """Outputs of stages that it reads. If no reward of a run reads preferences, no annotator is asked."""
    asks: ClassVar[bool] = False
    """Whether `fit` asks a judge (`asked_in_fit`), whose cost `estimate` then gives."""
    stationary: ClassVar[bool] = True
    """Whether the same steps always get the same reward; False if it learns during training."""
    per_seed: ClassVar[bool] = False
    """Whether it is made separately for each agent's seed."""
    of_endings: ClassVar[bool] = False
    """Whether it is made from how the collected episodes ended, so that one must have ended."""

    def __init__(self, settings: Own) -> None:
        self.settings = settings

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_returns(cls, "reward method", _RETURNS)

    def needs(self) -> Sequence[str]:
        """Return the names of the rewards that it depends on, which are made before it."""
        return ()

    def sources(self, rewards: Mapping[str, RewardParams]) -> Sequence[Source]:
        """Return which of `reads` it uses with these settings; `rewards` has the settings of all rewards by name."""
        return self.reads

    def judge(self, rewards: Mapping[str, RewardParams]) -> str:
        """Return the judge whose preferences it reads, if any: `main`, or one of annotate.judges."""
        return MAIN

    def asked_in_fit(self) -> str | None:
        """Return the judge that `fit` asks; None if it asks none."""
        return MAIN if self.asks else None

    def asked_in_training(self) -> str | None:
        """Return the judge that is asked during training on the reward; None if there is none."""
        return None

    def named_files(self) -> Mapping[str, str]:
        """The local files and folders that its settings name, by the key of the setting."""
        return {}

    def trained_model(self) -> str | None:
        """The language model that `fit` trains or loads in its own process, if any."""
        return None

    @property
    def packages(self) -> tuple[str, ...]:
        """Python packages that `fit` needs and that images contain only if built with them."""
        return ()

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        """Return a sentence on why this reward cannot be made here, in which case its arms are left out.

        Raises:
            LaurelError: something is wrong that the user must fix before any run.
        """
        return None

    def estimate(self, context: RewardContext, collected: Collected | None, adapter: EnvAdapter) -> str | None:
        """Return a line with the questions to a chat model and their cost; None if there are none.

        Args:
            context: the other sections that it may read.
            collected: None if there is nothing yet that was collected with these params.

        Raises:
            DataError: they are damaged.
        """
        return None

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        """Write the artefact into an empty directory.

        Args:
            context: the other sections that it may read.
            seed: of the agent if the method is `per_seed`, otherwise of the run.

        Raises:
            LaurelError: inputs are missing or damaged, or contain nothing to learn from.
        """

    def notes(self, name: str, qualities: Sequence[Mapping[str, Any]]) -> Iterable[str]:
        """Yield notes for the report on what the qualities (QUALITY) of its artefacts say.

        Args:
            name: of this reward.
            qualities: of each label set.
        """
        return ()

    def check_shuffled(self, name: str, context: RewardContext, adapter: EnvAdapter) -> str | None:
        """Return a sentence on why the control of this reward (`fit_shuffled`) cannot be made here, as in `check`.

        Args:
            name: of this reward.

        Raises:
            ParamsError: it has no labels to shuffle.
        """
        raise ParamsError(
            f"rewards: labels of {name} cannot be shuffled, as its kind is {self.kind}, which has no labels to "
            "shuffle. Name another reward in `of`, such as one of kind preference."
        )

    def fit_shuffled(self, context: RewardContext, inputs: Inputs, made: Path, seed: int, place: Path) -> None:
        """Write the artefact of the control: the same reward from the same labels, permuted over the labelled items.

        A method that supports this also overrides `check_shuffled`.

        Args:
            made: this reward's own artefact, from the same label set.
            seed: of the agent; each agent has its own permutation.
        """
        raise NotImplementedError

    @abstractmethod
    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        """Load the reward of an artefact; `quantile`, from shaping, determines its threshold.

        Raises:
            DataError: the artefact is missing or damaged.
        """

    def made_from(self, place: Path) -> Sequence[Source]:
        """Return the outputs of stages that an artefact was made from.

        Raises:
            DataError: the artefact is damaged.
        """
        return self.sources({})

    def program(self, place: Path) -> Program | None:
        """Return the code of an artefact that is a program, for the report; None for others."""
        return None

    def table(self, place: Path, quantile: float) -> PayTable | None:
        """Return the artefact's reward of each caption; None if it depends on more than the caption."""
        return None


class LearningMethod(Method[Own]):
    """A method whose reward is learned during an agent's training; the artefact is stored with the agent."""

    stationary = False

    def most_questions(self) -> int:
        """The maximum number of questions that each agent's training asks a judge."""
        return 0

    def first_effect(self, steps_per_update: int) -> int:
        """Return the environment steps after which labels affect the reward for the first time."""
        return 0

    @abstractmethod
    def learning_reward(self, own: AgentsReward, context: RewardContext, adapter: EnvAdapter) -> LearningReward:
        """Return the reward that learns during its agent's training.

        Raises:
            DataError: the reward needs a judge, and there is no queue.
        """

    def topic(self, context: RewardContext, seed: int) -> Topic | None:
        """Return the judge that an agent with this seed asks during training; None if it asks none."""
        return None

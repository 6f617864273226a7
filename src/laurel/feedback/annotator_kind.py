"""An annotator plug-in: how it is made from params, what it checks first, and what it will cost.

A kind is a module in `laurel.feedback.annotators`, or an entry point of the group `laurel.annotators`, with a subclass
of `AnnotatorKind` bound to ANNOTATOR. Its params are the section `annotate.KIND`, validated by its class `Params`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from laurel.arrays import BoolArray
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Annotator, Pair
from laurel.feedback.estimate import Estimate
from laurel.feedback.goals import goal_in_words
from laurel.feedback.text_judge import TextJudge
from laurel.llm.budget import Budget
from laurel.params.annotation import AnnotateParams
from laurel.params.fields import Section
from laurel.params.kinds import ANNOTATORS

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter
    from laurel.feedback.questions.code import Writer
    from laurel.feedback.questions.pair import PairQuestion

Alike = Callable[[Sequence[str]], BoolArray]
"""Returns which of K texts mean the same (K, K)."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Remedies, phrased to follow "Try "."""

    asking: str
    """For answers that cannot be read, depend on the order or contradict each other."""
    aim: str
    """For an annotator that prefers the wrong thing."""
    ties: str
    """For an annotator that prefers nothing."""


class AnnotatorKind(ABC):
    """An annotator as the params define it, before it is made.

    Every kind judges pairs. What else it can do it says by `text_judge`, `alike` and `code_writer`, which return None
    where it cannot; one that asks a chat model (`laurel.feedback.chat_annotator.ChatAnnotator`) is asked questions.

    Args:
        params: section annotate, whose `annotator` is this kind.
    """

    Params: ClassVar[type[Section]]
    """Model of the section `annotate.KIND`."""
    local: ClassVar[bool] = False
    """Whether it is a language model in this process; memory may not suffice for two of them."""

    def __init__(self, params: AnnotateParams) -> None:
        self.params = params

    @property
    def section(self) -> Any:
        """The params of this kind, of the class `Params`."""
        return self.params.section

    @abstractmethod
    def make(
        self, adapter: EnvAdapter, seed: int, captions: Collection[str] = (), *, budget: Budget | None = None
    ) -> Annotator:
        """Make the annotator.

        Args:
            captions: of single steps, for annotators that split segments; those that the adapter lists can be left out.
            budget: what asking may cost; None: as the params say.

        Raises:
            AnnotationError: its model cannot be loaded or asked, or it has nothing to judge this environment by.
            PromptError: the prompt does not exist, or does not go with the environment's captions.
            DataError: the store of answers cannot be used.
        """

    def check(self, adapter: EnvAdapter) -> None:  # noqa: B027 - most have nothing to refuse
        """Refuse params that do not fit each other or the environment; this machine is not looked at.

        Called before anything is collected: loads no model and asks none. Errors as in `make`.
        """

    def check_here(self) -> None:  # noqa: B027 - most have nothing to refuse
        """Refuse what this machine lacks, such as a directory or a package.

        Raises:
            AnnotationError, ParamsError: it lacks something.
        """

    def missing_here(self) -> str | None:
        """Say what is missing that may be there where the annotator is asked, such as a key; None: nothing."""
        return None

    @property
    def simulated(self) -> bool:
        """Whether no model judges, but what the environment's author wrote; shown wherever its answers are."""
        return False

    def text_judge(self, adapter: EnvAdapter, seed: int, captions: Collection[str] = ()) -> TextJudge | None:
        """Return what it says of single texts; None where it only judges pairs. Loads no model.

        Args:
            captions: of single steps, as in `make`.
        """
        return None

    def alike(self) -> Alike | None:
        """Return what compares tasks by their goals in words, for curricula; None where it cannot. Loads no model."""
        return None

    def code_writer(self, adapter: EnvAdapter, seed: int, samples: int) -> Writer | None:
        """Return what writes `samples` reward functions in each round; None where it cannot.

        Raises:
            AnnotationError: it has none for this environment.
        """
        return None

    def estimate(self, adapter: EnvAdapter, pairs: Sequence[Pair], asked: Set[str] = frozenset()) -> Estimate | None:
        """Estimate what asking about pairs takes, opening no connection; None where it takes neither calls nor money.

        Args:
            pairs: all of a run.
            asked: keys of questions that will have been answered by then.

        Raises:
            AnnotationError, DataError, ParamsError: it cannot be asked, or a file cannot be read.
        """
        return None

    def pair_question(self, adapter: EnvAdapter) -> PairQuestion | None:
        """Return the question about pairs in the words of its prompt; None where it is asked without words.

        Raises:
            PromptError: the prompt does not exist.
            AnnotationError: it does not go with the model.
        """
        return None

    def goal(self, adapter: EnvAdapter) -> str:
        """Return the goal that it judges by."""
        return goal_in_words(adapter, None)

    def aims_elsewhere(self, adapter: EnvAdapter) -> bool:
        """Whether it judges by one of the environment's goals other than success at its task."""
        return False

    @property
    def title(self) -> str:
        """Its name for a reader, with its model's where it has one."""
        return self.params.annotator

    @property
    def device_key(self) -> str | None:
        """The parameter below `annotate` that says whether it computes on a GPU; None where it cannot."""
        return f"{self.params.annotator}.device" if hasattr(self.section, "device") else None

    @property
    def packages(self) -> tuple[str, ...]:
        """Python packages that it needs and that an image has only if it was built with them."""
        return ()

    @property
    def files(self) -> dict[str, str]:
        """Files and folders of this machine that its params name, by their keys below `annotate`."""
        return {}

    @property
    def advice(self) -> Advice:
        """What to change if its labels are bad."""
        other = "another annotator (annotate.annotator)"
        return Advice(other, other, other)


def is_directory(name: str) -> bool:
    """Whether this names a directory of this machine, rather than a model on the Hugging Face hub."""
    return name.startswith(("/", ".", "~")) or Path(name).is_dir()


def kind_of(params: AnnotateParams) -> AnnotatorKind:
    """Return the annotator that the params name.

    Raises:
        ParamsError: there is no such annotator, or its package cannot be imported.
    """
    return cast("type[AnnotatorKind]", ANNOTATORS.load(params.annotator, "annotate.annotator"))(params)


def lacks(kind: AnnotatorKind, key: str, cannot: str, able: str) -> AnnotationError:
    """Return the refusal of an annotator that judges pairs, and cannot do what `key` needs.

    Args:
        key: of the params that asks.
        cannot: what it cannot do, such as "gives no scores".
        able: the annotators that can.
    """
    return AnnotationError(
        f"{key}: the annotator {kind.params.annotator} judges pairs, and {cannot}. Set annotate.annotator to {able}."
    )

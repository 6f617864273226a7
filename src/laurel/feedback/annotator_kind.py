"""An annotator plug-in: its construction from params, its checks, and its estimated cost.

A kind is a module in `laurel.feedback.annotators`, or an entry point of the group `laurel.annotators`, with a subclass
of `AnnotatorKind` bound to ANNOTATOR. Its params are the section `annotate.KIND`, validated by its class `Params`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from laurel.arrays import BoolArray
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Annotator, Pair, usage_of
from laurel.feedback.estimate import Estimate
from laurel.feedback.goals import goal_in_words
from laurel.feedback.text_judge import TextJudge
from laurel.llm.budget import Budget
from laurel.params.annotation import AnnotateParams
from laurel.params.fields import Section
from laurel.params.kinds import ANNOTATORS
from laurel.plugins import check_returns, is_ours, no_sentence, no_texts, nothing_returned

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
    """For answers that cannot be read, depend on the order, or are contradictory."""
    aim: str
    """For an annotator that prefers the wrong thing."""
    ties: str
    """For an annotator that only gives ties."""


def remedy_of_ties(tie_band: float, name: str, otherwise: str) -> str:
    """Return a remedy of ties, phrased to follow "Try "; without a tie band there is no smaller one.

    >>> remedy_of_ties(0.1, "annotate.ensemble.tie_band", "other members")
    'a smaller tie band (annotate.ensemble.tie_band), or other members'
    >>> remedy_of_ties(0.0, "annotate.ensemble.tie_band", "other members")
    'other members'
    """
    return f"a smaller tie band ({name}), or {otherwise}" if tie_band else otherwise


def _no_goal(returned: Any) -> str | None:
    return None if isinstance(returned, str) and returned else "a text"


def _no_estimate(returned: Any) -> str | None:
    return None if isinstance(returned, Estimate | None) else "a laurel.feedback.estimate.Estimate, or None"


_RETURNS = {"goal": _no_goal, "missing_here": no_sentence, "notes": no_texts, "estimate": _no_estimate}
"""Method of `AnnotatorKind` -> what another package's class must return; see `laurel.plugins.check_returns`."""


class AnnotatorKind(ABC):
    """An annotator as the params define it, before it is made.

    Every kind judges pairs. Its other abilities are `text_judge`, `alike` and `code_writer`, which return None if not
    supported; a kind that asks a chat model (`laurel.feedback.chat_annotator.ChatAnnotator`) is asked questions.

    Args:
        params: section annotate, whose `annotator` is this kind.
    """

    Params: ClassVar[type[Section]]
    """Model of the section `annotate.KIND`."""
    local: ClassVar[bool] = False
    """Whether it is a language model in this process; two of them may not fit into memory."""

    def __init__(self, params: AnnotateParams) -> None:
        self.params = params

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "make" in vars(cls) and not is_ours(cls):
            cls.make = _complete(cls.make)  # type: ignore[method-assign]
        check_returns(cls, "annotator", _RETURNS)

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
            budget: limit of the cost of asking; None: that of the params.

        Raises:
            AnnotationError: its model cannot be loaded or asked, or it has no criterion for this environment.
            PromptError: the prompt does not exist, or does not fit the environment's captions.
            DataError: the store of answers cannot be used.
        """

    def check(self, adapter: EnvAdapter) -> None:  # noqa: B027 - most have nothing to refuse
        """Refuse params that do not fit each other or the environment, regardless of this machine.

        Called before anything is collected: loads no model and asks none. Errors as in `make`.
        """

    def check_here(self) -> None:  # noqa: B027 - most have nothing to refuse
        """Raise if this machine lacks something required, such as a directory or a package.

        Raises:
            AnnotationError, ParamsError: it lacks something.
        """

    def missing_here(self) -> str | None:
        """Describe what asking requires and this machine lacks, such as a key; the machine that asks may have it. None
        if nothing is missing.
        """
        return None

    def notes(self) -> Sequence[str]:
        """Return what readers of its labels of pairs must know, such as that a setting does not fit its model.

        Raises:
            AnnotationError, PromptError: a file that describes it is damaged, or its prompt does not exist.
        """
        return ()

    @property
    def simulated(self) -> bool:
        """Whether labels come from code by the environment's author instead of a model; shown wherever its answers
        are.
        """
        return False

    def text_judge(self, adapter: EnvAdapter, seed: int, captions: Collection[str] = ()) -> TextJudge | None:
        """Return its judge of single texts; None if it only judges pairs. Loads no model.

        Args:
            captions: of single steps, as in `make`.
        """
        return None

    def alike(self) -> Alike | None:
        """Return a function that compares tasks by the texts of their goals, for curricula; None if not supported.
        Loads no model.
        """
        return None

    def code_writer(self, adapter: EnvAdapter, seed: int, samples: int) -> Writer | None:
        """Return a writer of `samples` reward functions per round; None if not supported.

        Raises:
            AnnotationError: it has none for this environment.
        """
        return None

    def estimate(self, adapter: EnvAdapter, pairs: Sequence[Pair], asked: Set[str] = frozenset()) -> Estimate | None:
        """Estimate the cost of asking about pairs, without opening a connection; None if it takes neither calls nor
        money.

        Args:
            pairs: all of a run.
            asked: keys of questions that will already be answered.

        Raises:
            AnnotationError, DataError, ParamsError: it cannot be asked, or a file cannot be read.
        """
        return None

    @property
    def estimates(self) -> bool:
        """Whether it says what asking it about pairs costs: another package's may leave `estimate` out."""
        kind = type(self)
        return is_ours(kind) or self.simulated or kind.estimate is not AnnotatorKind.estimate

    def pair_question(self, adapter: EnvAdapter) -> PairQuestion | None:
        """Return the question about pairs with its prompt; None if it uses no prompt.

        Raises:
            PromptError: the prompt does not exist.
            AnnotationError: it does not fit the model.
        """
        return None

    def goal(self, adapter: EnvAdapter) -> str:
        """Return the goal that it judges by."""
        return goal_in_words(adapter, None)

    def has_other_goal(self, adapter: EnvAdapter) -> bool:
        """Whether it judges by one of the environment's goals other than success at its task."""
        return False

    @property
    def title(self) -> str:
        """Its display name, with its model if it has one."""
        return self.params.annotator

    @property
    def device_key(self) -> str | None:
        """The parameter below `annotate` with its device; None if it cannot use a GPU."""
        return f"{self.params.annotator}.device" if hasattr(self.section, "device") else None

    @property
    def packages(self) -> tuple[str, ...]:
        """Python packages that it needs and that images contain only if built with them."""
        return ()

    @property
    def files(self) -> dict[str, str]:
        """Files and folders of this machine that its params name, by their keys below `annotate`."""
        return {}

    @property
    def advice(self) -> Advice:
        """What to change if its labels are bad."""
        advice = "another annotator (annotate.annotator)"
        return Advice(advice, advice, advice)


def _complete(make: Callable[..., Annotator]) -> Callable[..., Annotator]:
    """Wrap `make` of another package's annotator to refuse one that lacks something."""

    @wraps(make)
    def complete(self: AnnotatorKind, *args: Any, **options: Any) -> Annotator:
        built = make(self, *args, **options)
        if lacking := [name for name in _REQUIRED if not hasattr(built, name)]:
            raise AnnotationError(
                f'annotate.annotator: the annotator "{self.params.annotator}" ({type(built).__name__}) has no '
                f"{', '.join(lacking)}. Define what laurel.feedback.annotator.Annotator lists (CONTRIBUTING.md, Add an "
                "annotator)."
            )
        for name, kind, words in _TYPES:
            if not isinstance(value := getattr(built, name), kind):
                raise AnnotationError(
                    f'annotate.annotator: the annotator "{self.params.annotator}" ({type(built).__name__}) has {name} '
                    f"{value!r:.60}, but it must be {words} (laurel.feedback.annotator.Annotator)."
                )
        usage_of(built)
        return built

    return complete


_REQUIRED = ("name", "simulated", "usage", "prepare", "annotate")
_TYPES = ("name", str, "text"), ("simulated", bool, "True or False")


def is_directory(name: str) -> bool:
    """Whether this names a directory of this machine, rather than a model on the Hugging Face hub."""
    return name.startswith(("/", ".", "~")) or Path(name).is_dir()


def kind_of(params: AnnotateParams) -> AnnotatorKind:
    """Return the annotator that the params name.

    Raises:
        ParamsError: there is no such annotator, or its package cannot be imported.
    """
    return cast("type[AnnotatorKind]", ANNOTATORS.load(params.annotator, "annotate.annotator"))(params)


def check_annotator(kind: AnnotatorKind, adapter: EnvAdapter) -> None:
    """Check that an annotator fits its params and the environment, by `AnnotatorKind.check`.

    Raises:
        AnnotationError, ParamsError: it does not.
        PluginError: another package's check returns something instead of raising.
    """
    said: object = kind.check(adapter)  # type: ignore[func-returns-value]
    nothing_returned("annotator", kind, "check", said)


def unsupported(kind: AnnotatorKind, key: str, cannot: str, able: str) -> AnnotationError:
    """Return the error for an annotator that only judges pairs and cannot do what `key` needs.

    Args:
        key: the parameter with the requirement.
        cannot: what it cannot do, such as "gives no scores".
        able: the annotators that can.
    """
    return AnnotationError(
        f"{key}: the annotator {kind.params.annotator} judges pairs, and {cannot}. Set annotate.annotator to {able}."
    )

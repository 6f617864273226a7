"""The interface of rewards, which score the steps of running environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from laurel.arrays import BoolArray, FloatArray, IntArray
from laurel.envs.base import Transitions
from laurel.errors import PluginError
from laurel.params.annotation import BudgetParams
from laurel.plugins import in_short, is_ours, returned_wrongly

UNPAID = np.float32(-np.inf)
"""Raw reward of a step that a reward does not score; it becomes 0 after shaping."""


@dataclass(frozen=True, slots=True)
class Steps:
    """T consecutive steps of N environments, including the ends of episodes."""

    transitions: Transitions
    """(T * N) rows: all environments' first step, then all their second, and so on."""
    captions: IntArray
    """(T, N) ids of captions; NO_CAPTION (-1) without a caption."""
    texts: Sequence[str]
    """texts[id] is the caption; grows while training meets new ones."""
    valid: BoolArray
    """(T, N) False where the environment was reset instead of stepped."""
    terminated: BoolArray
    """(T, N) True if the task ended the episode with this step."""
    truncated: BoolArray
    """(T, N) True if the episode was truncated with this step."""


class Reward(Protocol):
    """Scores steps in normalised units; shaping then uses the excess over `threshold`."""

    @property
    def threshold(self) -> float:
        """Raw reward that shaping starts from."""
        ...

    @property
    def unseen(self) -> int:
        """Number of captions that were unknown when training began and were scored when first met."""
        ...

    def begin(self, n_envs: int) -> None:
        """Reset: the next steps are of N environments at the start of episodes."""
        ...

    def pay(self, steps: Steps) -> FloatArray:
        """Return raw rewards (T, N), UNPAID if there is no reward; the steps continue those of the last call."""
        ...


def require_reward(name: str, candidate: Any) -> Reward:
    """Return what a method's `load` made for the reward of this name.

    Raises:
        PluginError: it lacks something of a reward, or has a threshold that is not finite.
    """
    if lacking := [part for part in ("threshold", "unseen", "begin", "pay") if not hasattr(candidate, part)]:
        raise PluginError(
            f"rewards.{name}: its method made {candidate!r:.60}, which has no {', '.join(lacking)}. Define what "
            "laurel.rewards.base.Reward lists (CONTRIBUTING.md, Add a reward method)."
        )
    for name_of, kinds in (("threshold", (int, float, np.number)), ("unseen", (int, np.integer))):
        number = getattr(candidate, name_of)
        if not isinstance(number, kinds) or not np.isfinite(number):
            raise PluginError(
                f"rewards.{name}: its method made a reward whose {name_of} is {number!r:.60}, but a finite number is "
                "required. Fix it."
            )
    reward: Reward = candidate
    return reward


def paid(reward: Reward, steps: Steps) -> FloatArray:
    """Return a reward's raw rewards (T, N).

    Raises:
        PluginError: another package's reward returned something else, NaN or infinity.
    """
    raw: Any = reward.pay(steps)
    if is_ours(type(reward)):
        return raw
    shape = steps.valid.shape
    if isinstance(raw, np.ndarray) and raw.shape == shape and raw.dtype.kind in "biuf":
        if (raw[steps.valid] < np.inf).all():  # False of NaN, too
            return raw.astype(np.float32, copy=False)
        problem = "NaN or infinity"
    else:
        problem = in_short(raw)
    needed = (
        f"an array of shape {shape} (steps, environments) is required, with a finite number or UNPAID for each step"
    )
    raise returned_wrongly("reward", reward, "pay", problem, needed)


class Memoryless:
    """Base class of rewards that depend only on the step itself."""

    unseen: int = 0

    def begin(self, n_envs: int) -> None:
        """Do nothing."""


@runtime_checkable
class OutcomesReward(Reward, Protocol):
    """A reward of outcomes whose answers were given before training."""

    @property
    def unpaid(self) -> int:
        """Number of distinct outcomes met that have no answer, for which it paid nothing."""
        ...


@runtime_checkable
class LearningReward(Reward, Protocol):
    """A reward that is learned while an agent is trained on it, and kept in the agent's checkpoints."""

    name: str
    """Name of the reward in params.yaml."""

    def keep(self, place: Path) -> None:
        """Write the learned reward, as an artefact, and the data that `resume` needs, into a new directory."""
        ...

    def resume(self, place: Path, steps: int) -> None:
        """Prepare to process the first `steps` again, up to the checkpoint, and to learn from them as before.

        Raises:
            DataError: the stored data is missing or damaged.
        """
        ...


@runtime_checkable
class AskingReward(Reward, Protocol):
    """A reward that asks a language model about the steps it scores."""

    @property
    def account(self) -> Mapping[str, Any]:
        """The usage of asking, as `laurel.feedback.chooser.Chooser.account` returns it."""
        ...


@runtime_checkable
class LimitedReward(AskingReward, Protocol):
    """An asking reward with a budget."""

    def limit(self, budget: BudgetParams) -> None:
        """Use the current stage's budget, not that of the run that stored the reward; before the first question."""
        ...


@runtime_checkable
class ReportingReward(AskingReward, Protocol):
    """An asking reward that reports each answer."""

    def when_answered(self, call: Callable[[], None]) -> None:
        """Call a function after each answer of the language model, when `account` has it."""
        ...

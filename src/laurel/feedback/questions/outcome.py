"""Did an episode reach the goal? Asked about the text of an episode, after labelled examples if there are any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from laurel.feedback.prompt import Form, Prompt, quote
from laurel.feedback.yes_no import YesNoQuestion, schema, verdicts

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter


class Example(NamedTuple):
    """An episode whose outcome is known."""

    episode: str
    reached: bool
    why: str = ""
    """The reason in a sentence; shown with the outcome."""


class OutcomeQuestion(YesNoQuestion[str]):
    """Asks whether an episode, given as text, reached the goal; the value is the probability that it did.

    Args:
        goal: defines success; None: the environment's own goal.
        scored: whether to use the probabilities of the answers yes and no, if the prompt is a choice.
        examples: shown in the prompt, in this order.
    """

    form: ClassVar[Form] = Form(
        "outcome", slots=("episode",), optional=("examples",), choices=("yes", "no"), schema=schema("goal_reached")
    )
    VERDICTS = verdicts("goal_reached")

    def __init__(
        self,
        prompt: Prompt,
        adapter: EnvAdapter,
        goal: str | None = None,
        *,
        scored: bool = True,
        examples: Sequence[Example] = (),
    ) -> None:
        super().__init__(prompt, adapter, goal, scored=scored)
        self.examples = tuple(examples)
        self._shown = "\n".join(
            f"{quote(episode)}\nGoal reached: {'yes' if reached else 'no'}{f'. {reason}' if reason else ''}"
            for episode, reached, reason in self.examples
        )

    def texts(self, item: str, variant: int) -> Mapping[str, str]:
        return {"episode": quote(item), "examples": self._shown}

    def shared(self) -> dict[str, Any]:
        """Return the shared part of the answers' keys, examples included."""
        shown = tuple(tuple(example) if example.why else tuple(example)[:2] for example in self.examples)
        return {**super().shared(), "examples": shown}


QUESTION = OutcomeQuestion

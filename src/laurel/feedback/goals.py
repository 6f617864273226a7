"""The goal that annotators judge by: that of params, the environment's own, or a fixed sentence if neither is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laurel.errors import AnnotationError, PromptError, closest

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter
    from laurel.params.judges import EmbeddingParams

UNKNOWN = "What the task is was not told; an episode that ends with a positive reward went well."
"""Text in prompts if no goal is known."""


def embedding_goals(params: EmbeddingParams, adapter: EnvAdapter) -> tuple[str, str]:
    """Return the goal and the anti-goal that a sentence encoder compares captions with.

    Raises:
        AnnotationError: neither the params nor the adapter give a goal.
    """
    goal = params.goal or adapter.encoder_goal or adapter.goal
    if goal is None:
        raise AnnotationError(
            f"annotate.embedding.goal: no useful goal is known for {adapter.env_id}, so a sentence encoder has nothing "
            "to compare its captions with. Set annotate.embedding.goal and anti_goal in the words of the captions, "
            "write an environment adapter with a goal (CONTRIBUTING.md), or choose another annotate.annotator and "
            "leave out the arm similarity."
        )
    return goal, params.anti_goal or adapter.anti_goal


def goal_in_words(adapter: EnvAdapter, goal: str | None) -> str:
    """Return the text of a goal: None is the adapter's own, or UNKNOWN if it has none; a single word names one of its
    `goals`.

    Raises:
        PromptError: the adapter has no goal of that name.
    """
    if goal is None:
        return adapter.goal or UNKNOWN
    if goal in adapter.goals:
        return adapter.goals[goal]
    words = " ".join(goal.split())
    if " " not in words:
        known = (
            f"Goals: {', '.join(adapter.goals)}; or describe" if adapter.goals else "It has no named goals: describe"
        )
        raise PromptError(
            f'goal: {adapter.env_id} has no goal named "{goal}".{closest(goal, adapter.goals)} {known} the goal '
            "in words."
        )
    return words

"""What annotators judge by: the goal of the params or of the environment's adapter; what is said where none is known.

Knows nothing about how an annotator judges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laurel.errors import AnnotationError

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter
    from laurel.params.judges import EmbeddingParams

UNKNOWN = "What the task is was not told; an episode that ends with a positive reward went well."
"""What a chat model reads instead of a goal, where none is known."""


def embedding_goals(params: EmbeddingParams, adapter: EnvAdapter) -> tuple[str, str]:
    """Return the goal and the anti-goal that a sentence encoder compares captions with.

    Raises:
        AnnotationError: neither the params nor the adapter give a goal.
    """
    goal = params.goal or adapter.goal
    if goal is None:
        raise AnnotationError(
            f"annotate.embedding.goal: no useful goal is known for {adapter.env_id}, whose captions are made from its "
            "observation space alone, so a sentence encoder has nothing to compare them with. Set "
            "annotate.embedding.goal and anti_goal in the words of the captions, write an environment adapter for it "
            "(CONTRIBUTING.md), or choose another annotate.annotator and leave out the arm similarity."
        )
    return goal, params.anti_goal or adapter.anti_goal

"""What to change where labels are bad: the parameters of the annotator that is in use, and of no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laurel.params.annotation import AnnotateParams


@dataclass(frozen=True, slots=True)
class Advice:
    """What to try, to follow "Try "."""

    asking: str
    """Where answers cannot be read, depend on the order or contradict each other."""
    aim: str
    """Where it prefers the wrong thing."""
    ties: str
    """Where it prefers nothing."""


def advice_for(params: AnnotateParams) -> Advice:
    """Return what to try with the annotator that the params name."""
    match params.annotator:
        case "embedding":
            goals = "a goal and an anti-goal in the captions' words (annotate.embedding.goal and anti_goal)"
            encoder = "another encoder (annotate.embedding.model)"
            return Advice(
                asking=encoder,
                aim=f"{goals}, {encoder} or another annotator (annotate.annotator)",
                ties=f"a smaller tie band (annotate.embedding.tie_band), or {goals}",
            )
        case "scripted":
            faults = "a teacher with fewer faults (annotate.scripted)"
            return Advice(
                asking=faults,
                aim=faults,
                ties=f"{faults}, or collect steps in which captions show progress (collect.steps, collect.policies)",
            )
        case "openai" | "huggingface":
            asking = f"another prompt (annotate.language_model.prompt) or model (annotate.{params.annotator}.model)"
            aim = f"another goal (annotate.language_model.goal), {asking}"
            return Advice(
                asking=asking, aim=aim, ties=f"a smaller tie band (annotate.language_model.tie_band), or {aim}"
            )
        case "ensemble":
            members = "other members (annotate.ensemble.members)"
            return Advice(
                asking=members, aim=members, ties=f"a smaller tie band (annotate.ensemble.tie_band), or {members}"
            )

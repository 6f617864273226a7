"""A simulated teacher with known faults: for tests and controls, never mistaken for a language model.

Its utility is the environment's hand-written progress. Faults are drawn from the question's own words, so
that a question gets the same answer whenever and wherever it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from laurel.envs.base import Room
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Judgement, Question
from laurel.seeding import generator

if TYPE_CHECKING:
    from laurel.params.annotation import ScriptedParams


class ScriptedAnnotator:
    """Judges by the room's oracle, then errs at the chosen rates."""

    simulated = True

    def __init__(self, params: ScriptedParams, room: Room, seed: int) -> None:
        if room.oracle("") is None:
            raise AnnotationError(
                f"annotate.annotator: scripted judges by an environment's hand-written progress, and {room.env_id} "
                "has none. Use the embedding annotator, or give its room an `oracle`."
            )
        self.params = params
        self.name = (
            f"scripted (simulated: errors {params.error_rate:g}, abstains {params.abstain_rate:g}, "
            f"names the first {params.first_bias:g}, tie band {params.tie_band:g})"
        )
        self._room = room
        self._seed = seed

    @property
    def usage(self) -> dict[str, int]:
        """Return nothing: no call is made."""
        return {}

    def prepare(self, questions: Iterable[Question]) -> None:
        """Do nothing: each question is judged by itself."""

    def annotate(self, questions: Iterable[Question]) -> Iterator[Judgement]:
        """Yield a hard judgement for each question."""
        for question in questions:
            yield self._judge(question)

    def _judge(self, question: Question) -> Judgement:
        p = self.params
        abstains, names_first, errs = generator(self._seed, question.first, question.second).random(3)
        if abstains < p.abstain_rate:
            return Judgement("abstain", None)
        if names_first < p.first_bias:
            return Judgement("ok", 1.0)
        difference = self._utility(question.first) - self._utility(question.second)
        if abs(difference) <= p.tie_band:
            return Judgement("tie", 0.5)
        return Judgement("ok", float((difference > 0) != (errs < p.error_rate)))

    def _utility(self, text: str) -> float:
        return self._room.oracle(text) or 0.0

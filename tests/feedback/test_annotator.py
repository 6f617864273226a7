from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError
from laurel.feedback.annotator import TIE, Answer, Judgement, Pair, judge
from laurel.feedback.annotators import make_annotator
from laurel.feedback.annotators.embedding import EmbeddingAnnotator
from laurel.feedback.annotators.scripted import ScriptedAnnotator
from laurel.params.annotation import AnnotateParams
from laurel.seeding import derive_seed


class Recorder:
    """Prefers the first, and writes down what it was asked."""

    name = "recorder"
    simulated = True

    def __init__(self) -> None:
        self.asked: list[Pair] = []

    def annotate(self, questions: Iterable[Pair]) -> Iterator[Judgement]:
        for question in questions:
            self.asked.append(question)
            yield Judgement("ok", 1.0)


def test_identical_texts_are_ties_without_a_question() -> None:
    annotator = Recorder()
    questions = [Pair(*pair) for pair in ("aa", "ab", "bb", "ba", "aa")]
    assert [j.p_first for j in judge(annotator, questions)] == [0.5, 1.0, 0.5, 1.0, 0.5]
    assert annotator.asked == [Pair("a", "b"), Pair("b", "a")]
    assert (TIE.status, TIE.votes) == ("tie", 0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([Judgement("ok", float("nan"))] * 2, "ok and tie need a probability from 0 to 1"),
        ([Judgement("ok", 2.0)] * 2, "ok and tie need a probability from 0 to 1"),
        ([Judgement("ok", None)] * 2, "ok and tie need a probability from 0 to 1"),
        ([Judgement("ok", "0.7")] * 2, "ok and tie need a probability from 0 to 1"),
        ([Judgement("ok", np.array([0.2, 0.3]))] * 2, "ok and tie need a probability"),
        ([Judgement("tie", 0.9)] * 2, r"a tie has the probability 0\.5"),
        ([Judgement("ok", 0.9, votes="x")] * 2, "its votes must be a number of answers"),
        ([Judgement("ok", 0.9, votes=-4)] * 2, "its votes must be a number of answers"),
        ([Judgement("ok", 0.9, swap_consistent="maybe")] * 2, "True, False or None"),
        ([Judgement("ok", 0.9, answers=[1, 2])] * 2, "its answers must be a tuple"),
        ([Judgement("ok", 0.9, answers=(1, 2))] * 2, "its answers must be a tuple"),
        ([Judgement("ok", 0.9, answers=(Answer(0, "x", "first", 0.9, ""),))] * 2, "its answers must"),
        ([Judgement("ok", 0.9, members=(("m", "x"),))] * 2, "its members must be a tuple"),
        ([Judgement("ok", 0.9, members=((1, 2, 3),))] * 2, "its members must be a tuple"),
        ([Judgement(np.array(["ok", "ok"]), 0.9)] * 2, "its status must be one of"),
        ([Judgement("ok", 0.9, members=("a",))] * 2, "its members must be a tuple"),
        ([Judgement("abstain", 0.5)] * 2, "other statuses have None"),
        ([Judgement("maybe", 0.5)] * 2, "its status must be one of ok, tie, abstain"),
        ([1.0, 1.0], r"gave 1\.0, but a Judgement is required"),
        ([Judgement("ok", 1.0)], "stopped after 1 judgements, but one for each pair is required"),
        ([Judgement("ok", 1.0)] * 3, "every pair had its judgement"),
        (None, "returned None, but a judgement of each pair is required"),
    ],
)
@pytest.mark.parametrize("lazily", [True, False])
def test_an_annotator_that_answers_wrongly_is_named(given: Any, said: str, lazily: bool) -> None:
    class Wrong:
        name, simulated, usage = "wrong", True, {}

        def prepare(self, pairs: Iterable[Pair]) -> None:
            """Do nothing."""

        def annotate(self, pairs: Iterable[Pair]) -> Any:
            return given if given is None else self.drawing(pairs) if lazily else iter(given) if list(pairs) else None

        def drawing(self, pairs: Iterable[Pair]) -> Iterator[Any]:
            waiting = list(given)
            for _ in pairs:
                if not waiting:
                    return
                yield waiting.pop(0)
            yield from waiting

    with pytest.raises(AnnotationError, match=f"The annotator wrong .*{said}"):
        list(judge(Wrong(), [Pair("a", "b"), Pair("b", "c")]))


def test_a_probability_of_one_half_is_a_tie() -> None:
    class Undecided:
        name = "undecided"

        def annotate(self, pairs: Any) -> Any:
            return (Judgement("ok", float(pair.first > pair.second) / 2 + 0.5) for pair in pairs)

    judged = judge(Undecided(), [Pair("b", "a"), Pair("a", "b")])
    assert [(judgement.status, judgement.p_first) for judgement in judged] == [("ok", 1.0), ("tie", 0.5)]


def test_only_identical_texts() -> None:
    assert list(judge(Recorder(), [Pair("a", "a")])) == [TIE]
    assert list(judge(Recorder(), [])) == []


def test_judgements_come_one_by_one() -> None:
    annotator = Recorder()
    judged = judge(annotator, [Pair("a", "b")] * 5)
    next(judged)
    assert len(annotator.asked) == 1


def test_the_params_choose_the_annotator(door_key: EnvAdapter) -> None:
    assert isinstance(make_annotator(AnnotateParams(annotator="embedding"), door_key, 0), EmbeddingAnnotator)
    scripted = make_annotator(
        AnnotateParams.model_validate({"annotator": "scripted", "scripted": {"error_rate": 0.5}}), door_key, 7
    )
    assert isinstance(scripted, ScriptedAnnotator)
    asked = [Pair("You turn.", f"You reach the goal. {i}") for i in range(50)]
    direct = ScriptedAnnotator(scripted.params, door_key, derive_seed(7, "scripted"))
    assert list(scripted.annotate(asked)) == list(direct.annotate(asked))

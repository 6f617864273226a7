from __future__ import annotations

from collections.abc import Iterable, Iterator

from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import TIE, Judgement, Pair, judge
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

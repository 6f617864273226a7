from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Judgement, Pair
from laurel.feedback.annotators import embedding
from laurel.feedback.annotators.embedding import EmbeddingAnnotator
from laurel.llm.encoder import SentenceEncoder
from laurel.params.judges import EmbeddingParams

UNLOCK, BUMP = "You unlock the yellow door with the key.", "You bump into a wall."
GOAL, ANTI_GOAL = "good", "bad"
AIMS = {GOAL: 0.0, ANTI_GOAL: math.pi / 2}
"""Goal and anti-goal at right angles: the utility of a text at angle a is cos(a) - sin(a)."""


class FakeEncoder:
    """Puts texts on a circle, at angles that the test chooses, and writes down what it was asked for."""

    name = "fake"

    def __init__(self, angles: dict[str, float]) -> None:
        self.angles = angles
        self.asked: list[list[str]] = []

    def encode(self, texts: list[str]) -> np.ndarray:
        self.asked.append(list(texts))
        angles = np.array([self.angles[text] for text in texts], dtype=np.float32)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def make(fake: Any, **params: float) -> EmbeddingAnnotator:
    return EmbeddingAnnotator(fake, EmbeddingParams(**params), GOAL, ANTI_GOAL)  # type: ignore[arg-type]


def ask(annotator: EmbeddingAnnotator, first: str, second: str) -> Judgement:
    (judgement,) = annotator.annotate([Pair(first, second)])
    return judgement


# -- a real encoder ---------------------------------------------------------------------------------------------
def test_opening_the_way_beats_walking_into_a_wall(encoder: SentenceEncoder, door_key: EnvAdapter) -> None:
    annotator = EmbeddingAnnotator(encoder, EmbeddingParams(), door_key.goal, door_key.anti_goal)
    judgement = ask(annotator, UNLOCK, BUMP)
    assert judgement.status == "ok"
    assert judgement.p_first is not None
    assert judgement.p_first > 0.9
    assert ask(annotator, BUMP, UNLOCK).p_first == pytest.approx(1 - judgement.p_first, abs=1e-12)


def test_goal_and_anti_goal_turn_the_preference_around(encoder: SentenceEncoder, door_key: EnvAdapter) -> None:
    annotator = EmbeddingAnnotator(encoder, EmbeddingParams(), door_key.anti_goal, door_key.goal)
    judgement = ask(annotator, UNLOCK, BUMP)
    assert judgement.p_first is not None
    assert judgement.p_first < 0.1


def test_loading_uses_the_adapters_goals_unless_others_are_given(door_key: EnvAdapter, monkeypatch: Any) -> None:
    asked: list[str] = []

    class Recorder:
        name = "recorder"

        def encode(self, texts: list[str]) -> np.ndarray:
            asked.extend(texts)
            return np.eye(2, dtype=np.float32)

    monkeypatch.setattr(embedding, "load_encoder", lambda name, device: Recorder())
    annotator = EmbeddingAnnotator.load(EmbeddingParams(), door_key)
    assert asked == [door_key.goal, door_key.anti_goal]
    assert all(part in annotator.name for part in ("recorder", door_key.goal, door_key.anti_goal))
    assert not annotator.simulated
    EmbeddingAnnotator.load(EmbeddingParams(goal="Fly.", anti_goal="Sink."), door_key)
    assert asked[2:] == ["Fly.", "Sink."]


# -- a fake one -------------------------------------------------------------------------------------------------
ANGLES = st.floats(-3, 3)


@settings(deadline=None)
@given(ANGLES, ANGLES, st.floats(1e-6, 10), st.floats(0, 0.5))
def test_judgements_are_the_formula_and_symmetric(a: float, b: float, temperature: float, band: float) -> None:
    annotator = make(FakeEncoder({**AIMS, "a": a, "b": b}), temperature=temperature, tie_band=band)
    forth, back = annotator.annotate([Pair("a", "b"), Pair("b", "a")])
    difference = (math.cos(a) - math.sin(a)) - (math.cos(b) - math.sin(b))
    if abs(abs(difference) - band) > 1e-5:  # closer than that, rounding decides
        assert forth.status == back.status == ("tie" if abs(difference) <= band else "ok")
    assert forth.p_first is not None
    assert back.p_first == pytest.approx(1 - forth.p_first, abs=1e-12)
    if forth.status == "tie":
        assert forth.p_first == 0.5
    else:
        z = np.float64(difference) / temperature
        with np.errstate(over="ignore"):
            expected = 1 / (1 + np.exp(-z))
        tolerance = max(1e-9, min(1, 2e-6 / temperature))  # cosines are single precision
        assert forth.p_first == pytest.approx(expected, abs=tolerance)
    assert forth.votes == 1
    assert forth.swap_consistent is None


def test_the_tie_band_is_closed() -> None:
    fake = FakeEncoder({**AIMS, "a": 0.0, "b": math.pi / 2, "c": math.pi / 4})
    difference = 2.0  # of utility between the goal itself and the anti-goal itself
    assert ask(make(fake, tie_band=difference + 1e-6), "a", "b") == Judgement("tie", 0.5)
    assert ask(make(fake, tie_band=difference - 1e-6), "a", "b").status == "ok"
    assert ask(make(fake, tie_band=0.0), "c", "c") == Judgement("tie", 0.5)


def test_a_tiny_temperature_makes_hard_labels() -> None:
    annotator = make(FakeEncoder({**AIMS, "a": 0.0, "b": 1.0}), temperature=1e-9)
    assert [j.p_first for j in annotator.annotate([Pair("a", "b"), Pair("b", "a")])] == [1.0, 0.0]


def test_utility_lies_between_minus_and_plus_two() -> None:
    texts = [str(i) for i in range(100)]
    fake = FakeEncoder({**AIMS, **{text: i / 15 for i, text in enumerate(texts)}})
    utility = make(fake).utility(texts)
    assert utility.shape == (100,)
    expected = [math.cos(i / 15) - math.sin(i / 15) for i in range(100)]
    np.testing.assert_allclose(utility, expected, atol=1e-6)


def test_each_distinct_text_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "STREAM", 10)
    texts = [f"text {i}" for i in range(12)]
    fake = FakeEncoder({**AIMS, **{text: i / 10 for i, text in enumerate(texts)}})
    annotator = make(fake)
    questions = [Pair(a, b) for a in texts for b in texts]
    assert len(list(annotator.annotate(questions))) == 144
    assert len(list(annotator.annotate(questions))) == 144, "it remembers"
    asked = Counter(text for call in fake.asked for text in call)
    assert asked == Counter([GOAL, ANTI_GOAL, *texts])


def test_questions_are_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come before the questions are all there, and at most a chunk of them is held."""
    monkeypatch.setattr(embedding, "STREAM", 10)
    taken = 0

    def endless() -> Iterator[Pair]:
        nonlocal taken
        while True:
            taken += 1
            yield Pair("a", "b") if taken % 2 else Pair("b", "a")

    answers = make(FakeEncoder({**AIMS, "a": 0.1, "b": 0.9})).annotate(endless())
    assert taken == 0
    favours = [next(answers).p_first for _ in range(25)]
    assert taken <= 30
    assert favours[:2] == [pytest.approx(1 - favours[1]), favours[1]]  # type: ignore[operator]
    assert favours == [favours[i % 2] for i in range(25)]


def test_no_question_no_answer() -> None:
    assert list(make(FakeEncoder(AIMS)).annotate([])) == []

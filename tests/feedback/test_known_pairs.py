"""Pairs to compare judges on: of whom it is known, and nothing made up where it is not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from laurel.data.captions import Segments
from laurel.data.gold import GoldFile, Task
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import collapse
from laurel.errors import AnnotationError
from laurel.feedback.annotators.scripted import OracleUtility
from laurel.feedback.known_pairs import known_by_gold, known_by_oracle
from laurel.params import EnvParams


def segments(texts: list[str]) -> Segments:
    return Segments(texts, np.ones(len(texts), dtype=np.int64), np.arange(len(texts), dtype=np.int64)[:, None])


def test_the_oracle_knows_by_the_sum_over_steps(door_key: EnvAdapter) -> None:
    captions = sorted({door_key.describe(event) for event in door_key.events()} - {""})
    texts = [collapse([a, b]) for a in captions[:6] for b in ("You reach the goal.", "You turn.")]
    known = known_by_oracle(segments(texts), (), door_key, 20, 0)
    utility = OracleUtility(door_key)
    assert 0 < len(known) <= 20
    for question, first in zip(known.questions, known.first_is_better, strict=True):
        assert (utility(question.first) > utility(question.second)) == first
        assert utility(question.first) != utility(question.second)
    assert set(known.first_is_better) == {True, False}
    assert known == known_by_oracle(segments(texts), (), door_key, 20, 0)
    assert known != known_by_oracle(segments(texts), (), door_key, 20, 1)


def test_where_the_oracle_knows_nothing(door_key: EnvAdapter) -> None:
    with pytest.raises(AnnotationError, match="sees no difference between any two of 2 segments"):
        known_by_oracle(segments(["You turn.", "You bump into a wall."]), (), door_key, 20, 0)
    with pytest.raises(AnnotationError, match=r"Pendulum-v1 has no hand-written progress .* Give --gold a file"):
        known_by_oracle(segments(["a", "b"]), (), adapter_for(EnvParams(id="Pendulum-v1")), 20, 0)


def test_gold_labels_with_a_side(tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl"
    task = Task("E-v0", "Win.")
    gold = GoldFile(path, task)
    for i, answer in enumerate(("first", "second", "tie", "first")):
        gold.add(f"a{i}", f"b{i}", answer, "uniform")  # type: ignore[arg-type]
    other = {"env": "F-v0", "goal": "Win.", "first": "x", "second": "y", "answer": "first", "chosen": "uniform"}
    with path.open("a") as file:
        file.write(json.dumps(other) + "\n")
    known = known_by_gold(GoldFile(path, task), 10, 0)
    assert [(q.first, better) for q, better in zip(known.questions, known.first_is_better, strict=True)] == [
        ("a0", True), ("a1", False), ("a3", True),
    ]  # fmt: skip
    assert len(known_by_gold(GoldFile(path, task), 2, 0)) == 2
    with pytest.raises(AnnotationError, match=r"no label with a side for G-v0 .*, but 5 for other"):
        known_by_gold(GoldFile(path, Task("G-v0", "Win.")), 2, 0)

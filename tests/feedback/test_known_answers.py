"""Pairs whose answer is known: they say what their source says, and a judge is scored on both orders together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from laurel.data.gold import GoldFile, Task
from laurel.data.preferences import Pairs, Preferences
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Judgement, Pair
from laurel.feedback.known_answers import KnownPair, Subject, by_gold, by_judge, by_progress, right
from laurel.params import EnvParams


def test_progress_gives_the_better_text_and_no_pair_twice() -> None:
    adapter = adapter_for(EnvParams(id="FrozenLake-v1"))
    pairs = by_progress(adapter, 40, seed=0).pairs
    assert len({frozenset(pair) for pair, _ in pairs}) == 40
    for (first, second), p_first in pairs:
        progress = adapter.oracle(first), adapter.oracle(second)
        assert (progress[0] or 0) > (progress[1] or 0) if p_first == 1 else (progress[0] or 0) < (progress[1] or 0)
    assert 10 < sum(p_first for _, p_first in pairs) < 30, "the better one stands first in about half of them"
    falls = sum("fall through" in text for pair, _ in pairs for text in pair)
    assert falls >= 40 / 4, "one caption of 47, but each level of progress comes as often"
    assert by_progress(adapter, 40, seed=0).pairs == pairs != by_progress(adapter, 40, seed=1).pairs


def test_an_environment_with_few_pairs_gives_them_all(door_key: EnvAdapter) -> None:
    assert len(by_progress(door_key, 200, seed=0).pairs) == len(by_progress(door_key, 100, seed=0).pairs) < 100


def test_an_environment_without_progress_is_refused() -> None:
    with pytest.raises(AnnotationError, match="lists no captions that differ in hand-written progress"):
        by_progress(adapter_for(EnvParams(id="Pendulum-v1")), 10, seed=0)


def test_a_persons_ties_teach_nothing(door_key: EnvAdapter, tmp_path: Path) -> None:
    gold = GoldFile(tmp_path / "gold.jsonl", Task(door_key.env_id, "Reach the goal."))
    with pytest.raises(AnnotationError, match="holds no gold label with a side"):
        by_gold(door_key, gold, 10, seed=0)
    gold.add("good", "bad", "first", "uniform")
    gold.add("bad", "better", "second", "uniform")
    gold.add("bad", "worse", "tie", "uniform")
    known = {KnownPair(Pair("good", "bad"), 1.0), KnownPair(Pair("bad", "better"), 0.0)}
    assert set(by_gold(door_key, gold, 10, seed=0).pairs) == known


def test_another_judges_soft_labels_are_learned_as_they_are(door_key: EnvAdapter) -> None:
    pairs = Pairs(np.array([0, 1, 0]), np.array([1, 2, 2]), "uniform", 0)
    said = [Judgement("ok", 0.8), Judgement("tie", 0.5), Judgement("abstain", None)]
    subject = by_judge(door_key, pairs, Preferences.of(said, "a large model"), ["a", "b", "c"], 10, seed=0)
    assert subject.pairs == (KnownPair(Pair("a", "b"), 0.8),)


def test_a_judge_that_names_what_is_shown_first_is_right_nowhere(door_key: EnvAdapter) -> None:
    subject = Subject(door_key, tuple(KnownPair(Pair(f"a{i}", f"b{i}"), float(i % 2)) for i in range(20)))
    biased = right(subject, [(0.9, 0.9)] * 20)
    assert biased["accuracy"]["value"] == 0
    assert biased["position_bias"]["value"] == 1
    leaning = right(subject, [(0.95, 0.85) if i % 2 else (0.85, 0.95) for i in range(20)])
    assert leaning["accuracy"]["value"] == 1, "both orders together take a bias out"
    assert leaning["position_bias"]["value"] == 1

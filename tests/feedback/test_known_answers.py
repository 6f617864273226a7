"""Pairs whose answer is known: they say what their source says, and a judge is scored on both orders together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from laurel.data.captions import Segments
from laurel.data.gold import GoldFile, Task
from laurel.data.preference_rows import PreferenceRows
from laurel.data.preferences import Preferences
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import collapse
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Judgement, Pair
from laurel.feedback.annotators.scripted import OracleUtility
from laurel.feedback.known_answers import (
    KnownPair,
    Subject,
    by_gold,
    by_judge,
    by_progress,
    by_progress_of_segments,
    right,
)
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


def segments(texts: list[str]) -> Segments:
    return Segments(texts, np.ones(len(texts), dtype=np.int64), np.arange(len(texts), dtype=np.int64)[:, None])


def test_the_oracle_knows_by_the_sum_over_steps(door_key: EnvAdapter) -> None:
    captions = sorted({door_key.describe(event) for event in door_key.events()} - {""})
    texts = [collapse([a, b]) for a in captions[:6] for b in ("You reach the goal.", "You turn.")]
    known = by_progress_of_segments(door_key, segments(texts), (), 20, 0)
    utility = OracleUtility(door_key)
    assert 0 < len(known.pairs) <= 20
    for question, first in zip(known.questions, known.first_is_better, strict=True):
        assert (utility(question.first) > utility(question.second)) == first
        assert utility(question.first) != utility(question.second)
    assert set(known.first_is_better) == {True, False}
    assert known == by_progress_of_segments(door_key, segments(texts), (), 20, 0)
    assert known != by_progress_of_segments(door_key, segments(texts), (), 20, 1)


def test_without_the_oracles_progress(door_key: EnvAdapter) -> None:
    with pytest.raises(AnnotationError, match="is the same for all of 2 segments"):
        by_progress_of_segments(door_key, segments(["You turn.", "You bump into a wall."]), (), 20, 0)
    with pytest.raises(AnnotationError, match=r"Pendulum-v1 has no hand-written progress .* Give --gold a file"):
        by_progress_of_segments(adapter_for(EnvParams(id="Pendulum-v1")), segments(["a", "b"]), (), 20, 0)


def test_gold_labels_with_a_side(door_key: EnvAdapter, tmp_path: Path) -> None:
    path, rng = tmp_path / "gold.jsonl", np.random.default_rng
    task = Task("E-v0", "Win.")
    gold = GoldFile(path, task)
    for i, answer in enumerate(("first", "second", "tie", "first")):
        gold.add(f"a{i}", f"b{i}", answer, "uniform")  # type: ignore[arg-type]
    other = {"env": "F-v0", "goal": "Win.", "first": "x", "second": "y", "answer": "first", "chosen": "uniform"}
    with path.open("a") as file:
        file.write(json.dumps(other) + "\n")
    known = by_gold(door_key, GoldFile(path, task), 10, rng(0))
    assert {(pair.first, p_first) for pair, p_first in known.pairs} == {("a0", 1.0), ("a1", 0.0), ("a3", 1.0)}
    assert len(by_gold(door_key, GoldFile(path, task), 2, rng(0)).pairs) == 2
    with pytest.raises(AnnotationError, match=r"no preference for G-v0 .*, but 5 for other"):
        by_gold(door_key, GoldFile(path, Task("G-v0", "Win.")), 2, rng(0))


def test_gold_labels_of_uncertain_pairs_do_not_rank_judges(door_key: EnvAdapter, tmp_path: Path) -> None:
    """A judge errs most where it is uncertain, so that these pairs would rank it below judges that are as good."""
    gold, rng = GoldFile(tmp_path / "gold.jsonl", Task("E-v0", "Win.")), np.random.default_rng
    gold.add("a", "b", "first", "uncertain")
    assert len(by_gold(door_key, gold, 9, rng(0)).pairs) == 1, "a judge is tuned on them"
    with pytest.raises(AnnotationError, match=r", but 1 for pairs that were chosen as uncertain. .*--sample uniform`"):
        by_gold(door_key, gold, 9, rng(0), representative=True)
    gold.add("c", "d", "second", "uniform")
    ((pair, p_first),) = by_gold(door_key, gold, 9, rng(0), representative=True).pairs
    assert (pair.first, p_first) == ("c", 0.0)


def test_another_judges_soft_labels_are_learned_unchanged(door_key: EnvAdapter) -> None:
    said = [Judgement("ok", 0.8), Judgement("tie", 0.5), Judgement("abstain", None)]
    rows = PreferenceRows(
        [""] * 3, ["a", "b", "a"], ["b", "c", "c"], Preferences.of(said, "a large model"), "uniform", 0
    )
    subject = by_judge(door_key, rows, "Win.", 10, seed=0)
    assert subject.pairs == (KnownPair(Pair("a", "b"), 0.8),)


def test_answers_to_prompts_are_learned_with_their_prompts(door_key: EnvAdapter) -> None:
    labels = Preferences.of([Judgement("ok", 1.0), Judgement("ok", 0.0)], "people")
    rows = PreferenceRows(["Name a fruit.", "Name a mineral."], ["Apple", "Apple"], ["Salt", "Salt"], labels)
    assert set(by_judge(door_key, rows, "Win.", 10, seed=0).pairs) == {
        KnownPair(Pair("Name a fruit.\nApple", "Name a fruit.\nSalt"), 1.0),
        KnownPair(Pair("Name a mineral.\nApple", "Name a mineral.\nSalt"), 0.0),
    }


def test_a_judge_that_always_names_the_first_text_is_never_right(door_key: EnvAdapter) -> None:
    subject = Subject(door_key, tuple(KnownPair(Pair(f"a{i}", f"b{i}"), float(i % 2)) for i in range(20)))
    biased = right(subject, [(0.9, 0.9)] * 20)
    assert biased["accuracy"]["value"] == 0
    assert biased["position_bias"]["value"] == 1
    leaning = right(subject, [(0.95, 0.85) if i % 2 else (0.85, 0.95) for i in range(20)])
    assert leaning["accuracy"]["value"] == 1, "both orders together take a bias out"
    assert leaning["position_bias"]["value"] == 1

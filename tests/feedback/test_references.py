from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from laurel.data.gold import GoldFile, Task
from laurel.data.preferences import Pairs
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.feedback.references import gold_sides, oracle_sides, references, task_of
from laurel.params import EnvParams
from laurel.params.judges import EmbeddingParams, LanguageModelParams, OpenAIParams
from tiny_project import Project, changed

TEXTS = ["You turn.", "You open the yellow door.", "Nothing happens.", "You see a wall."]
TASK = Task("Env-v0", "Win.")
PAIRS = Pairs(np.array([0, 1, 2, 3]), np.array([1, 0, 3, 0]), "uniform", 0)


@pytest.fixture
def gold(tmp_path: Path) -> GoldFile:
    gold = GoldFile(tmp_path / "gold.jsonl", TASK)
    gold.add(TEXTS[0], TEXTS[1], "second", "uniform")
    gold.add(TEXTS[3], TEXTS[2], "tie", "uniform")
    gold.add(TEXTS[3], TEXTS[0], "first", "uncertain")
    gold.add("no longer there", TEXTS[0], "first", "uniform")
    return gold


def test_gold_is_found_by_what_texts_say(gold: GoldFile) -> None:
    np.testing.assert_array_equal(gold_sides(PAIRS, TEXTS, gold, "uniform"), [0.0, 1.0, 0.5, np.nan])
    np.testing.assert_array_equal(gold_sides(PAIRS, TEXTS, gold, "uncertain"), [np.nan, np.nan, np.nan, 1.0])
    turned = Pairs(3 - PAIRS.first, 3 - PAIRS.second, "uniform", 0)
    np.testing.assert_array_equal(gold_sides(turned, TEXTS[::-1], gold, "uniform"), [0.0, 1.0, 0.5, np.nan])


def a_adapter(progress: Callable[[str], float | None]) -> EnvAdapter:
    adapter: Any = SimpleNamespace(oracle=progress, events=lambda: ())
    return adapter


def test_the_oracle_compares_progress() -> None:
    adapter = a_adapter(lambda text: float("door" in text))
    np.testing.assert_array_equal(oracle_sides(PAIRS, TEXTS, adapter), [0.0, 1.0, 0.5, 0.5])


def test_the_oracle_adds_up_over_the_steps_of_a_segment() -> None:
    adapter = adapter_for(EnvParams(id="MiniGrid-DoorKey-5x5-v0"))
    texts = ["You see the goal. (x2)", "You pick up the yellow key. You unlock the yellow door with the key. You turn."]
    pairs = Pairs(np.array([0]), np.array([1]), "uniform", 0)
    np.testing.assert_array_equal(oracle_sides(pairs, texts, adapter), [0.0])


def test_the_oracle_sums_over_the_steps_of_a_segment() -> None:
    adapter = a_adapter(lambda text: float("door" in text))
    segments = [f"{TEXTS[0]} {TEXTS[1]}", f"{TEXTS[1]} (x3)"]
    pair = Pairs(np.array([0]), np.array([1]), "uniform", 0)
    assert oracle_sides(pair, segments, adapter, TEXTS).tolist() == [0.0]


def test_references_without_answers_are_left_out(gold: GoldFile, tmp_path: Path) -> None:
    ignorant = a_adapter(lambda _: None)
    assert set(references(PAIRS, TEXTS, ignorant, gold)) == {"gold", "gold_uncertain"}
    assert references(PAIRS, TEXTS, ignorant, GoldFile(tmp_path / "none", TASK)) == {}
    assert references(PAIRS, TEXTS, ignorant, None) == {}


def test_a_label_is_for_the_goal_that_the_annotator_judges_by(tmp_path: Path) -> None:
    params = Project.create(tmp_path).params
    adapter = adapter_for(params.env)
    assert task_of(params.annotate, adapter) == Task(adapter.env_id, adapter.goal)
    changed_params = changed(params, annotate={"embedding": EmbeddingParams(goal="Jump.")})
    assert task_of(changed_params.annotate, adapter).goal == "Jump."
    chat = {"annotator": "openai", "openai": OpenAIParams(model="m")}
    steered = changed(params, annotate={**chat, "language_model": LanguageModelParams(goal="Sit still and wait.")})
    assert task_of(steered.annotate, adapter).goal == "Sit still and wait."
    assert task_of(changed(params, annotate=chat).annotate, adapter).goal == adapter.goal

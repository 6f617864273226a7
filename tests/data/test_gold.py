import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.data.gold import GoldFile, Task, require_gold
from laurel.errors import DataError

TASK = Task("Env-v0", "Win.")


def answers(gold: GoldFile) -> dict[tuple[str, str], str | None]:
    return {(label.first, label.second): label.answer for label in gold.labels.values()}


def test_answers_last_and_can_be_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "gold.jsonl"
    gold = GoldFile(path, TASK)
    gold.add("a", "b", "first", "uniform")
    gold.add("c", "d", "tie", "uncertain")
    gold.add("e", "f", "second", "uniform")
    gold.add("e", "f", None, "uniform")
    assert answers(gold) == answers(GoldFile(path, TASK)) == {("a", "b"): "first", ("c", "d"): "tie"}
    again = GoldFile(path, TASK)
    again.add("b", "a", "first", "uniform")
    assert answers(GoldFile(path, TASK)) == {("c", "d"): "tie", ("b", "a"): "first"}, "the same pair, turned round"


def test_a_label_is_for_one_task(tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl"
    GoldFile(path, TASK).add("a", "b", "first", "uniform")
    for other in (Task("Env-v0", "Lose."), Task("Env-v1", "Win.")):
        gold = GoldFile(path, other)
        assert (gold.labels, gold.others) == ({}, 1)


texts = st.text(st.characters(exclude_categories=()), max_size=30)


@settings(max_examples=60, deadline=None)
@given(first=texts, second=texts.map(lambda text: f"other {text}"))
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, first: str, second: str) -> None:
    path = tmp_path_factory.mktemp("gold") / "gold.jsonl"
    GoldFile(path, TASK).add(first, second, "tie", "uniform")
    GoldFile(path, TASK).add("x", "y", "first", "uniform")
    assert answers(GoldFile(path, TASK))[first, second] == "tie"
    assert len(GoldFile(path, TASK).labels) == 2


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_line_that_a_crash_cut_off(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "gold.jsonl"
    gold = GoldFile(path, TASK)
    gold.add("a", "b", "first", "uniform")
    gold.add("c", "d", "first", "uniform")
    path.write_bytes(path.read_bytes()[:-cut])
    kept = {("a", "b"): "first"} | ({("c", "d"): "first"} if cut == 1 else {})  # 1: the end of the line alone
    assert answers(GoldFile(path, TASK)) == kept
    GoldFile(path, TASK).add("e", "f", "tie", "uniform")
    assert answers(GoldFile(path, TASK)) == {**kept, ("e", "f"): "tie"}


@pytest.mark.parametrize(
    "line",
    ["nonsense", "[1]", '{"first": "a"}', json.dumps({"env": 1})],
)
def test_an_invalid_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "gold.jsonl"
    GoldFile(path, TASK).add("a", "b", "first", "uniform")
    with path.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(DataError, match=r"gold\.jsonl: line 2 is not a gold label"):
        GoldFile(path, TASK)


@pytest.mark.parametrize("change", [{"answer": "best"}, {"chosen": "x"}, {"second": "a"}, {"goal": None}])
def test_a_value_that_is_not_allowed(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "gold.jsonl"
    GoldFile(path, TASK).add("a", "b", "first", "uniform")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}) + "\n")
    with pytest.raises(DataError, match="line 1 is not a gold label"):
        GoldFile(path, TASK)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert GoldFile(tmp_path / "none", TASK).labels == {}
    with pytest.raises(DataError, match=r"none: no such file, but annotate\.gold names it\. Label some pairs"):
        require_gold(tmp_path / "none")


def label_many(path: Path, who: int) -> None:
    gold = GoldFile(path, TASK)
    for i in range(40):
        gold.add(f"{who}-{i}", "x", "first", "uniform")


def test_two_people_at_once(tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl"
    context = multiprocessing.get_context("fork")
    people = [context.Process(target=label_many, args=(path, who)) for who in range(2)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert len(GoldFile(path, TASK).labels) == 80

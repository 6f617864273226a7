"""Labels written as they come: the bytes depend on the rows alone."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from laurel.data import labels as module
from laurel.data.directory import output_directory
from laurel.data.labels import LabelWriter, join_labels
from laurel.data.preferences import read_answers, read_pairs, read_preferences
from laurel.errors import DataError
from laurel.feedback.annotator import Answer, Judgement

ROWS = 100


def judgements(n: int) -> list[Judgement]:
    rng = random.Random(0)
    made = []
    for i in range(n):
        p = rng.choice([None, 0.5, 0.0, 1.0])
        status = "api_failed" if p is None else "tie" if p == 0.5 else "ok"
        said = tuple(Answer(k % 2, 0, status, p, f"key {i} {k}") for k in range(rng.randrange(3)))
        made.append(Judgement(status, p, len(said), None, said))  # type: ignore[arg-type]
    return made


def write(path: Path, said: list[Judgement], stage: str = "annotate", start: int = 0) -> Path:
    with (
        output_directory(path, stage=stage, params={}) as out,
        LabelWriter(out.path, "uniform", 7, "who") as labels,
    ):
        for i, judgement in enumerate(said, start):
            labels.add(i, i + 1, judgement)
    return path


def content(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.suffix == ".parquet"}


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_ROWS", ROWS)
    monkeypatch.setattr(module, "AT_ONCE", 33)


@pytest.mark.usefixtures("groups")
def test_written_labels_are_read_back_in_groups(tmp_path: Path) -> None:
    said = judgements(2 * ROWS + 50)
    path = write(tmp_path / "p", said)
    assert read_pairs(path).first.tolist() == list(range(len(said)))
    assert read_preferences(path).status.tolist() == [judgement.status for judgement in said]
    answers = read_answers(path)
    assert answers is not None
    assert answers["response"].to_pylist() == [answer.key for judgement in said for answer in judgement.answers]
    assert answers["pair"].to_pylist() == [i for i, judgement in enumerate(said) for _ in judgement.answers]
    metadata = pq.ParquetFile(path / "preferences.parquet").metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [ROWS, ROWS, 50]


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("edges", [(0, 300), (0, 1, 300), (0, 100, 100, 217, 300), tuple(range(0, 301, 20))])
def test_joined_shares_equal_the_whole(tmp_path: Path, edges: tuple[int, ...]) -> None:
    said = judgements(300)
    whole = write(tmp_path / "whole", said)
    shares = [
        write(tmp_path / str(number), said[start:end], "share", start)
        for number, (start, end) in enumerate(itertools.pairwise(edges))
    ]
    with output_directory(tmp_path / "joined", stage="annotate", params={}) as out:
        statuses = join_labels(shares, out.path, "share")
    assert content(tmp_path / "joined") == content(whole)
    assert statuses == read_preferences(whole).status_counts()


def test_at_once_does_not_show_in_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = judgements(100)
    whole = write(tmp_path / "whole", said)
    monkeypatch.setattr(module, "AT_ONCE", 7)
    assert content(write(tmp_path / "again", said)) == content(whole)


def test_annotators_without_answers_have_no_file_of_them(tmp_path: Path) -> None:
    path = write(tmp_path / "p", [Judgement("ok", 1.0)])
    assert sorted(content(path)) == ["pairs.parquet", "preferences.parquet"]
    assert read_answers(path) is None


def test_a_status_that_does_not_go_with_its_probability_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must have a probability if and only if"):
        write(tmp_path / "p", [Judgement("ok", None)])
    assert not (tmp_path / "p").exists()

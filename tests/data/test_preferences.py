from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.data.directory import output_directory
from laurel.data.labels import LabelWriter
from laurel.data.preferences import (
    PREFERENCES_SCHEMA,
    STATUSES,
    UNLABELLED,
    Pairs,
    Preferences,
    read_pairs,
    read_preferences,
)
from laurel.errors import DataError


@dataclass
class Judgement:
    status: str
    p_first: float | None
    votes: int = 1
    swap_consistent: bool | None = None
    answers: tuple[Any, ...] = ()
    members: tuple[Any, ...] = ()


def judgements() -> st.SearchStrategy[Judgement]:
    votes, swap = st.integers(0, 5), st.sampled_from([None, True, False])
    return st.one_of(
        st.builds(Judgement, st.just("ok"), st.floats(0, 1), votes, swap),
        st.builds(Judgement, st.just("tie"), st.just(0.5), votes, swap),
        st.builds(Judgement, st.sampled_from(UNLABELLED), st.none(), votes, swap),
    )


def write(path: Path, pairs: Pairs, said: list[Judgement], annotator: str) -> Path:
    with (
        output_directory(path, stage="annotate", params={}) as out,
        LabelWriter(out.path, pairs.sampler, pairs.seed, annotator) as labels,
    ):
        for first, second, judgement in zip(pairs.first.tolist(), pairs.second.tolist(), said, strict=True):
            labels.add(first, second, judgement)
    assert labels.statuses == {status: sum(j.status == status for j in said) for status in STATUSES}
    return path


@settings(max_examples=60, deadline=None)
@given(said=st.lists(judgements(), max_size=12), seed=st.integers(0, 2**62))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, said: list[Judgement], seed: int) -> None:
    n = len(said)
    pairs = Pairs(np.arange(n), np.arange(n)[::-1] + 7, "frequency", seed)
    path = write(tmp_path_factory.mktemp("p") / "p", pairs, said, "test, é")
    read = read_preferences(path)
    assert len(read) == n
    table = pq.read_table(path / "preferences.parquet")
    assert table["p_first"].null_count == sum(j.p_first is None for j in said)
    assert table["swap_consistent"].null_count == sum(j.swap_consistent is None for j in said)
    for judgement, p, status, votes, swap in zip(
        said, read.p_first, read.status, read.votes, read.swap_consistent, strict=True
    ):
        assert status == judgement.status
        assert votes == judgement.votes
        assert {1: True, 0: False, -1: None}[int(swap)] == judgement.swap_consistent
        assert np.isnan(p) if judgement.p_first is None else p == judgement.p_first
    assert read.usable.tolist() == [j.status in ("ok", "tie") for j in said]
    assert read.status_counts() == {status: sum(j.status == status for j in said) for status in STATUSES}
    again = read_pairs(path)
    np.testing.assert_array_equal(again.first, pairs.first)
    np.testing.assert_array_equal(again.second, pairs.second)
    if n:
        assert (again.sampler, again.seed, read.annotator) == ("frequency", seed, "test, é")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": np.array(["ok", "maybe", "tie"])}, "pair 1 has a status that is not one of ok, tie"),
        ({"p_first": np.array([0.2, 0.4, 0.5])}, "pair 1 must have a probability if and only if"),
        ({"p_first": np.array([np.nan, np.nan, 0.5])}, "pair 0 must have a probability if and only if"),
        ({"p_first": np.array([1.2, np.nan, 0.5])}, r"pair 0 has a probability outside \[0, 1\]"),
        ({"p_first": np.array([0.2, np.nan, 0.6])}, "pair 2 is a tie"),
    ],
)
def test_inputs_that_do_not_match(change: dict[str, Any], words: str) -> None:
    good = Preferences.of([Judgement("ok", 0.2), Judgement("abstain", None), Judgement("tie", 0.5)], "x")
    with pytest.raises(DataError, match=words):
        replace(good, **change)


def test_edited_files(tmp_path: Path) -> None:
    pairs = Pairs(np.array([0, 1]), np.array([1, 2]), "uniform", 3)
    path = write(tmp_path / "p", pairs, [Judgement("ok", 0.2), Judgement("tie", 0.5)], "x")
    table = pq.read_table(path / "preferences.parquet")
    status = pa.array(["ok", "tied"])
    pq.write_table(table.set_column(2, PREFERENCES_SCHEMA.field("status"), status), path / "preferences.parquet")
    with pytest.raises(DataError, match=r"preferences\.parquet: Preferences: pair 1 has a status"):
        read_preferences(path)
    pq.write_table(table.slice(1), path / "preferences.parquet")
    with pytest.raises(DataError, match="pairs are not 0, 1, 2"):
        read_preferences(path)
    table = pq.read_table(path / "pairs.parquet")
    seeds = pa.array([3, 4], pa.int64())
    pq.write_table(table.set_column(4, "seed", seeds), path / "pairs.parquet")
    with pytest.raises(DataError, match='column "seed" holds 2 values'):
        read_pairs(path)


def test_another_stages_directory(tmp_path: Path) -> None:
    with output_directory(tmp_path / "c", stage="caption", params={}):
        pass
    for read in (read_pairs, read_preferences):
        with pytest.raises(DataError, match='that of "annotate" is needed'):
            read(tmp_path / "c")

"""Work that was divided and joined again is what one stage alone gives."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from laurel.data.json_file import write_json
from laurel.data.manifest import RUN, read_manifest
from laurel.data.trajectories import read_trajectories
from laurel.errors import AnnotationError, DataError
from laurel.params import Params
from laurel.stages import merge_trajectories
from laurel.stages.pipeline import STAGE
from shares import annotate_in_shares, merge_shares
from tiny_project import UNTRACKED, VOLATILE, Project, set_run_facts

PARTS = 3


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.create(
        tmp_path / "p",
        {**UNTRACKED, "collect.steps": 1000, "collect.parts": PARTS, "collect.shard_steps": 150, "collect.n_envs": 4},
    )


def content(path: Path) -> dict[str, Any]:
    files = {file.name: file.read_bytes() for file in path.iterdir() if file.name not in ("manifest.json", RUN)}
    return {**files, "manifest": {key: value for key, value in read_manifest(path).items() if key not in VOLATILE}}


def parts_of(params: Params, place: Path) -> list[Path]:
    paths = [place / f"part-{number}" for number in range(params.collect.parts)]
    for number, path in enumerate(paths):
        STAGE["collect"].run(params, output=path, part=number)
    return paths


def join(params: Params, parts: list[Path], output: Path) -> None:
    sections = {name: getattr(params, name) for name in STAGE["collect"].sections}
    merge_trajectories.run(**sections, parts=parts, output=output)


def test_parts_of_a_collection(project: Project, tmp_path: Path) -> None:
    params = project.params
    STAGE["collect"].run(params, output=tmp_path / "whole")
    parts = parts_of(params, tmp_path / "parts")
    for part in parts:
        set_run_facts(part, seconds=1000.0)
    join(params, parts[::-1], tmp_path / "merged")
    assert content(tmp_path / "merged") == content(tmp_path / "whole")
    assert read_manifest(tmp_path / "merged")["seconds"] // 1000 == PARTS
    counts = read_manifest(tmp_path / "whole", "collect")["counts"]
    assert counts["transitions"] == 1000
    assert counts["shards"] >= 2 * PARTS
    assert [path.name for path in (tmp_path / "whole").glob(".*")] == [RUN]
    episodes = [number for _, position in read_trajectories(tmp_path / "whole") for number in position.episode_id]
    assert sorted(set(episodes)) == list(range(counts["episodes"]))
    STAGE["caption"].run(params, trajectories=tmp_path / "merged", output=tmp_path / "captions")


def test_parts_differ_and_the_first_is_a_collection_without_parts(project: Project, tmp_path: Path) -> None:
    first, second, _ = parts_of(project.params, tmp_path / "parts")
    assert [read_manifest(path)["counts"]["transitions"] for path in (first, second)] == [334, 333]
    observations = [pq.read_table(path / "shard-00000.parquet")["observation"] for path in (first, second)]
    assert observations[0] != observations[1]
    project.change({"collect.parts": 1, "collect.steps": 334})
    STAGE["collect"].run(project.params, output=tmp_path / "alone")
    assert pq.read_table(tmp_path / "alone" / "shard-00000.parquet")["observation"] == observations[0]


def test_parts_that_do_not_fit(project: Project, tmp_path: Path) -> None:
    params = project.params
    first, second, third = parts_of(params, tmp_path / "parts")
    with pytest.raises(DataError, match=r"Missing: part 1\. Make"):
        join(params, [first, third], tmp_path / "merged")
    again = shutil.copytree(first, tmp_path / "again")
    with pytest.raises(DataError, match=r"again: holds part 0, and so does .*part-0"):
        join(params, [first, second, third, again], tmp_path / "merged")
    other = params.model_copy(update={"seed": 1})
    with pytest.raises(DataError, match="collected with other parameters"):
        join(other, [first, second, third], tmp_path / "merged")
    with pytest.raises(DataError, match='holds the output of "collect-part"'):
        STAGE["caption"].run(params, trajectories=first, output=tmp_path / "captions")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("of", [2, 7])
def test_shares_of_the_pairs(finished: Project, tmp_path: Path, of: int) -> None:
    project = finished.copy(tmp_path / "p", UNTRACKED)
    project.run("annotate")
    shares = annotate_in_shares(project, tmp_path, of)
    merged = merge_shares(project, shares[::-1], tmp_path / "merged")
    assert content(merged) == content(project.output("annotate"))
    pairs = [read_manifest(path)["counts"]["pairs"] for path in shares]
    assert max(pairs) - min(pairs) <= 1


def test_shares_that_do_not_fit(finished: Project, tmp_path: Path) -> None:
    project = finished.copy(tmp_path / "p", UNTRACKED)
    first, second = annotate_in_shares(project, tmp_path)

    def merged(*shards: Path) -> None:
        merge_shares(project, shards, tmp_path / "merged")

    with pytest.raises(DataError, match=r"share-0: is shard 1 of 2, so 2 are needed, not 1\."):
        merged(first)
    with pytest.raises(DataError, match=r"holds shard 1, and so does .*share-0"):
        merged(first, shutil.copytree(first, tmp_path / "again"))
    project.change({"seed": 1})
    with pytest.raises(DataError, match=r"share-0: was made with seed 0, but it is 1\."):
        merged(first, second)
    project.change({"seed": 0})
    write_json(second / "manifest.json", {**read_manifest(second), "inputs": {"captions": "other"}})
    with pytest.raises(DataError, match=r"share-1: was not made from the captions in "):
        merged(first, second)
    assert not (tmp_path / "merged").exists()


def test_failures_are_judged_over_all_shares(finished: Project, tmp_path: Path) -> None:
    """One share without answers does not stop the merge; all of them do."""
    changes = {**UNTRACKED, "annotate.annotator": "scripted", "annotate.scripted": {"abstain_rate": 1.0}}
    changes["annotate.gates.max_abstain_rate"] = None
    project = finished.copy(tmp_path / "p", changes)
    shares = annotate_in_shares(project, tmp_path)
    with pytest.raises(AnnotationError, match=r"None of \d+ pairs has a preference"):
        merge_shares(project, shares, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()

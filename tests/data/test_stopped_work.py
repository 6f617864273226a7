"""What a stopped stage leaves beside its output: found again by the same work, and by no other."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from laurel.data.directory import output_directory
from laurel.data.manifest import read_manifest


def leftovers(parent: Path) -> list[str]:
    return sorted(p.name for p in parent.iterdir() if p.name.startswith(".") and not p.name.endswith(".lock"))


def stop(output: Path, params: dict[str, Any], name: str = "done") -> list[str]:
    """Begin work that is stopped; return the files of earlier stopped runs of the same work."""
    found: list[str] = []
    with suppress(RuntimeError), output_directory(output, stage="collect", params=params, resumable=True) as out:
        found += sorted(file.name for file in out.path.glob("[!.]*"))
        (out.path / name).touch()
        out.use({"calls": 1})
        raise RuntimeError
    return found


def test_work_on_an_output_with_a_name_that_begins_the_same_is_left_alone(tmp_path: Path) -> None:
    for name in ("a.v2", "a.0123456789ab", "a.partial"):
        stop(tmp_path / name, {})
    before = leftovers(tmp_path)
    assert len(before) == 6, "work and usage of each"
    with output_directory(tmp_path / "a", stage="collect", params={}):
        pass
    assert leftovers(tmp_path) == before
    assert all(stop(tmp_path / name, {}) == ["done"] for name in ("a.v2", "a.0123456789ab", "a.partial"))


def test_stopped_work_goes_on_with_a_higher_limit(tmp_path: Path) -> None:
    """A limit stopped it, and its message says that it will."""
    low, high = ({"annotate": {"seed": 0, "budget": {"max_calls": calls}}} for calls in (10, 20))
    assert stop(tmp_path / "a", low) == []
    assert stop(tmp_path / "a", high) == ["done"]
    assert stop(tmp_path / "a", {"annotate": {"seed": 1, "budget": {"max_calls": 20}}}) == []


def test_what_was_used_under_another_limit_counts(tmp_path: Path) -> None:
    """A later stage may have reached it, so that it is raised and the earlier stages run again, with stored answers."""

    def used(calls: int, cached: int, limit: int, **annotate: int) -> dict[str, float | None]:
        params = {"annotate": {"seed": 0, "budget": {"max_calls": limit}, **annotate}}
        with output_directory(tmp_path / "a", stage="collect", params=params) as out:
            out.use({"calls": calls, "cached": cached})
        return dict(read_manifest(tmp_path / "a")["usage"])

    assert used(16, 0, limit=20) == {"calls": 16, "cached": 0}
    assert used(0, 16, limit=30) == {"calls": 16, "cached": 0}
    assert used(2, 16, limit=40) == {"calls": 18, "cached": 0}
    assert used(0, 18, limit=40) == {"calls": 0, "cached": 18}, "the same once more"
    assert used(5, 0, limit=50, seed=1) == {"calls": 5, "cached": 0}, "other work"


def test_a_damaged_note_of_seconds_does_not_stop_the_work_for_ever(tmp_path: Path) -> None:
    stop(tmp_path / "a", {})
    (note,) = tmp_path.glob(".a.*.partial/.seconds.json")
    note.write_text("")
    assert stop(tmp_path / "a", {}) == ["done"]


def test_a_file_of_the_users_that_changed_while_work_was_stopped_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier version of it made is kept, so that both are in one output."""
    monkeypatch.chdir(tmp_path)
    params = {"agent": {"algorithm": "mine:Algorithm"}, "annotate": {"budget": {"prices": "prices.yaml"}}}
    noted = []
    for version in ("1", "1", "2", "2"):
        Path("mine.py").write_text(version)
        Path("prices.yaml").write_text(str(len(noted)))  # a limit, which may be corrected
        stop(tmp_path / "a", params)
        with (
            suppress(RuntimeError),
            output_directory(tmp_path / "a", stage="collect", params=params, resumable=True) as out,
        ):
            noted.append([note for note in out.notes if "changed while collect was" in note])
            raise RuntimeError
    assert list(map(len, noted)) == [0, 0, 1, 1]
    with output_directory(tmp_path / "a", stage="collect", params=params, resumable=True) as out:
        (note,) = out.notes
    assert note.startswith("mine.py changed while")
    assert sorted(file.name for file in (tmp_path / "a").iterdir()) == [".run.json", "done", "manifest.json"]

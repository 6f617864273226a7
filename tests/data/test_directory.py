import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from laurel.data.directory import check_output, output_directory
from laurel.data.json_file import read_json, write_json
from laurel.data.manifest import digest_directory, read_manifest
from laurel.data.usage import together
from laurel.data.written import written_whole
from laurel.errors import DataError


def write(output: Path, text: str = "one", **kwargs: object) -> None:
    with output_directory(output, stage="collect", params={"seed": 0}, **kwargs) as out:  # type: ignore[arg-type]
        (out.path / "file.txt").write_text(text)
        out.counts["files"] = 1
        out.notes.append("A note.")


def leftovers(parent: Path) -> list[str]:
    return sorted(p.name for p in parent.iterdir() if p.name.startswith(".") and not p.name.endswith(".lock"))


def test_manifest_says_where_content_is_from(tmp_path: Path) -> None:
    write(tmp_path / "a")
    with output_directory(tmp_path / "b", stage="caption", params={"x": 1}, inputs={"a": tmp_path / "a"}) as out:
        (out.path / "f").write_bytes(b"b")
    manifest = read_manifest(tmp_path / "b", "caption")
    assert manifest["inputs"] == {"a": read_manifest(tmp_path / "a")["digest"]}
    assert manifest["params"] == {"x": 1}
    assert manifest["digest"] == digest_directory(tmp_path / "b")
    first = read_manifest(tmp_path / "a")
    assert (first["counts"], first["notes"], first["seconds"] >= 0) == ({"files": 1}, ["A note."], True)
    assert leftovers(tmp_path) == []


def test_digest_depends_on_names_and_bytes_but_not_on_the_manifest(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b")
    write(tmp_path / "c", "two")
    digests = [read_manifest(tmp_path / name)["digest"] for name in "abc"]
    assert digests[0] == digests[1] != digests[2]
    (tmp_path / "a" / "file.txt").rename(tmp_path / "a" / "other.txt")
    assert digest_directory(tmp_path / "a") != digests[0]


def test_failure_leaves_only_the_old_output(tmp_path: Path) -> None:
    write(tmp_path / "a")

    def fail() -> None:
        with output_directory(tmp_path / "a", stage="collect", params={}) as out:
            (out.path / "file.txt").write_text("half")
            raise RuntimeError("half")

    with pytest.raises(RuntimeError, match="half"):
        fail()
    assert (tmp_path / "a" / "file.txt").read_text() == "one"
    assert leftovers(tmp_path) == []


def test_ctrl_c_right_after_the_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(partial: Path) -> None:
        assert partial.is_dir()
        raise KeyboardInterrupt

    monkeypatch.setattr("laurel.data.directory._remove_half_written", pressed)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "a")
    assert leftovers(tmp_path) == []


def test_a_predecessor_that_a_killed_writer_left_beside_the_new_output_is_removed(tmp_path: Path) -> None:
    write(tmp_path / "a", "two")
    shutil.copytree(tmp_path / "a", tmp_path / ".a.previous")
    (tmp_path / ".a.previous" / "file.txt").write_text("one")
    assert read_manifest(tmp_path / "a")["digest"] == digest_directory(tmp_path / "a")
    write(tmp_path / "a", "three")
    assert (tmp_path / "a" / "file.txt").read_text() == "three"
    assert leftovers(tmp_path) == []


def test_failure_while_publishing_leaves_the_old_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a")
    rename = Path.rename

    def killed(self: Path, target: Path) -> Path:
        if self.name.endswith(".partial"):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "a", "two")
    monkeypatch.undo()
    with pytest.raises(RuntimeError), output_directory(tmp_path / "a", stage="collect", params={}):
        raise RuntimeError  # the next try does not get far
    assert (tmp_path / "a" / "file.txt").read_text() == "one"
    write(tmp_path / "a", "three")
    assert (tmp_path / "a" / "file.txt").read_text() == "three"
    assert leftovers(tmp_path) == []


def test_resumable_work_is_kept_for_the_same_params_alone(tmp_path: Path) -> None:
    def fail(seed: int, found: list[str]) -> None:
        with output_directory(tmp_path / "a", stage="collect", params={"seed": seed}, resumable=True) as out:
            found += sorted(file.name for file in out.path.glob("[!.]*"))
            (out.path / f"done-{len(found)}").touch()
            raise RuntimeError

    def attempt(seed: int) -> list[str]:
        found: list[str] = []
        with pytest.raises(RuntimeError):
            fail(seed, found)
        return found

    assert attempt(0) == []
    assert attempt(0) == ["done-0"]
    assert attempt(1) == []
    assert attempt(0) == []  # other params have taken its place


def test_seconds_are_those_of_all_runs_that_it_took(tmp_path: Path) -> None:
    """Also of one that was killed, until it last wrote something; but not of the time in between."""

    def attempt(*, ends: bool) -> None:
        with output_directory(tmp_path / "a", stage="collect", params={}, resumable=True) as out:
            (out.path / "folder").mkdir(exist_ok=True)
            (out.path / "folder" / "done").touch()
            if not ends:
                raise RuntimeError

    for begun, written in ((1000, 1060), (5000, 5003)):  # as if these were the times of two runs
        with pytest.raises(RuntimeError):
            attempt(ends=False)
        (partial,) = tmp_path.glob(".a.*.partial")
        os.utime(partial / ".seconds.json", (begun, begun))
        for path in (partial / "folder", partial / "folder" / "done"):
            os.utime(path, (written, written))
    attempt(ends=True)
    assert read_manifest(tmp_path / "a")["seconds"] == pytest.approx(63, abs=0.9)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".run.json", "folder", "manifest.json"]
    attempt(ends=True)
    assert read_manifest(tmp_path / "a")["seconds"] < 1, "what is made anew takes its own time"


def test_usage_of_a_run_that_was_killed_after_it_was_published_is_not_added_to_the_next(tmp_path: Path) -> None:
    def spend(calls: int) -> tuple[Path, str]:
        with output_directory(tmp_path / "a", stage="collect", params={}) as out:
            out.use({"calls": calls})
            (noted,) = tmp_path.glob(".a.*.spent.json")
            return noted, noted.read_text()

    noted, content = spend(5)
    noted.write_text(content)
    os.utime(noted, (1000, 1000))
    spend(1)
    assert read_manifest(tmp_path / "a")["usage"] == {"calls": 1}


def test_answers_that_stopped_runs_paid_for_are_not_counted_as_stored() -> None:
    found = together({"calls": 20, "failures": 1}, {"calls": 5, "failures": 0, "cached": 30})
    assert found == {"calls": 25, "failures": 1, "cached": 11}


def test_run_specific_details_are_not_in_the_manifest(tmp_path: Path) -> None:
    for place, took in (("a", 5), ("b", 6)):
        with output_directory(tmp_path / place, stage="collect", params={}) as out:
            (out.path / "file.txt").write_text("one")
            out.usage, out.mlflow_run_id, out.started = {"calls": took}, f"run {place}", out.started - took
    assert (tmp_path / "a" / "manifest.json").read_bytes() == (tmp_path / "b" / "manifest.json").read_bytes()
    manifests = [read_manifest(tmp_path / place) for place in "ab"]
    assert [manifest["usage"]["calls"] for manifest in manifests] == [5, 6]
    assert [manifest["mlflow_run_id"] for manifest in manifests] == ["run a", "run b"]
    assert [round(manifest["seconds"]) for manifest in manifests] == [5, 6]
    write(tmp_path / "c", "two")  # as DVC replaces content, which leaves the ignored file of another run
    (tmp_path / "a" / ".run.json").replace(tmp_path / "c" / ".run.json")
    (tmp_path / "b" / ".run.json").unlink()
    for place in "abc":
        manifest = read_manifest(tmp_path / place)
        assert (manifest["seconds"], manifest["usage"], manifest["mlflow_run_id"]) == (None, {}, None)


def test_two_writers_at_once(tmp_path: Path) -> None:
    with output_directory(tmp_path / "a", stage="collect", params={}) as out:
        (out.path / "f").touch()
        with pytest.raises(DataError, match="another process is writing it"):
            write(tmp_path / "a")
        write(tmp_path / "b")  # another place is free
    assert (tmp_path / "a" / "f").exists()


def test_full_disk_and_rights_are_sentences(tmp_path: Path) -> None:
    def failing(number: int, name: str | None) -> None:
        with output_directory(tmp_path / "a", stage="collect", params={}) as out:
            raise OSError(number, os.strerror(number), *([str(out.path / name)] if name else []))

    write(tmp_path / "a")
    with pytest.raises(DataError, match="the disk is full"):
        failing(errno.ENOSPC, None)
    with pytest.raises(DataError, match=r"shard.*: not writable"):
        failing(errno.EACCES, "shard")
    with pytest.raises(DataError, match="cannot be written"):
        failing(errno.EIO, "shard")
    copied = shutil.Error([("a", "b", "[Errno 28] No space left on device: 'b'")])
    for full in (copied, OSError("15360 requested and 3968 written")):  # of shutil.copytree and NumPy
        with (
            pytest.raises(DataError, match="the disk is full"),
            output_directory(tmp_path / "a", stage="collect", params={}),
        ):
            raise full
    assert (tmp_path / "a" / "file.txt").read_text() == "one"
    assert leftovers(tmp_path) == []


def test_errors_that_are_not_about_the_output_pass(tmp_path: Path) -> None:
    for error in (ConnectionError("refused"), FileNotFoundError(errno.ENOENT, "none", "/elsewhere")):
        with pytest.raises(type(error)) as caught, output_directory(tmp_path / "a", stage="collect", params={}):
            raise error
        assert caught.value is error


def test_a_file_that_is_written_whole_is_not_blamed_for_errors_elsewhere(tmp_path: Path) -> None:
    for error in (ConnectionError("refused"), FileNotFoundError(errno.ENOENT, "none", str(tmp_path / "read.db"))):
        with pytest.raises(type(error)) as caught, written_whole(tmp_path / "a.txt"):
            raise error
        assert caught.value is error
    for failure in (OSError(errno.ENOSPC, "full"), OSError("0 of 8 bytes written")):
        with pytest.raises(DataError, match=r"a\.txt: cannot be written"), written_whole(tmp_path / "a.txt"):
            raise failure
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below"
    with pytest.raises(DataError, match=r"below: cannot be written \(Not a directory"), written_whole(below):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("options", ["size=64k", "ro"])
def test_real_full_and_read_only_disks(tmp_path: Path, options: str) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mount is not allowed here")
    try:
        with pytest.raises(DataError, match="disk is full" if "size" in options else "not writable"):
            write(place / "a", "x" * 200_000)
        assert not (place / "a").exists()
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_directory_without_rights(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(DataError, match="not writable"):
        write(tmp_path / "locked" / "a")


def test_folders_not_written_by_a_stage_are_not_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "home"
    precious.mkdir()
    (precious / "thesis.tex").write_text("x")
    with pytest.raises(DataError, match="Laurel did not write"):
        write(precious)
    assert (precious / "thesis.tex").exists()
    with pytest.raises(DataError, match="is a file"):
        write(precious / "thesis.tex")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty")
    assert read_manifest(tmp_path / "empty")


def test_another_stages_output_is_neither_replaced_nor_added_to(tmp_path: Path) -> None:
    write(tmp_path / "agents")
    lost = 'agents: holds the output of the stage "collect", which would be lost'
    with pytest.raises(DataError, match=lost), output_directory(tmp_path / "agents", stage="caption", params={}):
        pass
    with pytest.raises(DataError, match=lost):
        check_output(tmp_path / "agents", "caption")
    check_output(tmp_path / "agents", "collect")
    for place in (tmp_path / "agents" / "rows.jsonl", tmp_path / "agents" / "a" / "b.csv", tmp_path / "agents"):
        with (
            pytest.raises(
                DataError, match=r'agents, the output of the stage "collect", which would then count as chan'
            ),
            written_whole(place),
        ):
            pass
    assert read_manifest(tmp_path / "agents")["stage"] == "collect"
    (tmp_path / "agents" / "part").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "agents" / "part")
    with pytest.raises(DataError, match="lies in"), written_whole(tmp_path / "link" / "x.csv"):
        pass
    with written_whole(tmp_path / "agents" / ".." / "rows.csv") as partial:
        partial.write_text("x")
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    with written_whole(tmp_path / "rows.jsonl") as partial:
        partial.write_text("x")


def test_names_with_glob_characters(tmp_path: Path) -> None:
    write(tmp_path / "run[1]*")
    write(tmp_path / "run[1]*", "two")
    assert (tmp_path / "run[1]*" / "file.txt").read_text() == "two"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"stage": "collect"}', "\xff"])
def test_damaged_manifests(tmp_path: Path, content: str) -> None:
    write(tmp_path / "a")
    (tmp_path / "a" / "manifest.json").write_text(content, encoding="latin-1")
    with pytest.raises(DataError, match=r"manifest\.json"):
        read_manifest(tmp_path / "a")


@pytest.mark.parametrize(
    ("key", "value"),
    [("params", None), ("inputs", None), ("params", []), ("notes", [1]), ("counts", {"ok": "x"}), ("counts", 3)],
)
def test_manifests_with_a_part_that_is_missing_or_of_another_type(tmp_path: Path, key: str, value: object) -> None:
    write(tmp_path / "a")
    content = read_json(tmp_path / "a" / "manifest.json")
    write_json(tmp_path / "a" / "manifest.json", {**content, "counts": {"kappa": -0.1, "unknown": None}})
    assert read_manifest(tmp_path / "a")["counts"] == {"kappa": -0.1, "unknown": None}
    left = {name: part for name, part in content.items() if name != key}
    write_json(tmp_path / "a" / "manifest.json", left if value is None else {**left, key: value})
    with pytest.raises(DataError, match=r"not a Laurel manifest. Run the stage that makes it again"):
        read_manifest(tmp_path / "a")


def test_missing_and_foreign_directories(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such directory\. Run laurel run or laurel collect first"):
        read_manifest(tmp_path / "none", "collect")
    write(tmp_path / "a")
    with pytest.raises(DataError, match='holds the output of "collect", but that of "caption" is needed'):
        read_manifest(tmp_path / "a", "caption")


def test_json_is_written_whole_and_sorted(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"b": 1, "a": "é"})
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == '{\n  "a": "é",\n  "b": 1\n}\n'
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"c": object()})
    assert read_json(tmp_path / "x.json") == {"a": "é", "b": 1}


@pytest.mark.parametrize("exists", [True, False])
def test_an_output_that_is_a_link_stays_one(tmp_path: Path, exists: bool) -> None:
    target = tmp_path / "disk" / "real"
    if exists:
        write(target)
    (tmp_path / "link").symlink_to(target)
    for text in ("two", "three"):
        write(tmp_path / "link", text)
        assert (tmp_path / "link").is_symlink()
        assert (target / "file.txt").read_text() == text
    assert read_manifest(tmp_path / "link")["stage"] == "collect"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "link"]
    assert sorted(path.name for path in target.parent.iterdir()) == [".real.lock", "real"]


def test_a_link_that_was_moved_aside_is_deleted(tmp_path: Path) -> None:
    """As earlier versions left it, which could then never write there again."""
    (tmp_path / "real").mkdir()
    (tmp_path / ".a.previous").symlink_to(tmp_path / "real")
    write(tmp_path / "a")
    write(tmp_path / "a", "two")
    assert leftovers(tmp_path) == []
    assert (tmp_path / "real").is_dir()


def test_links_that_lead_nowhere_or_to_files(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(DataError, match="symbolic link to itself"):
        write(tmp_path / "loop")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(DataError, match="is a file"):
        write(tmp_path / "link")


def test_published_output_survives_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, then the directory that names them, then, after the renaming, the one that names that."""
    synced: list[str] = []
    fsync = os.fsync

    def spy(number: int) -> None:
        synced.append(Path(f"/proc/self/fd/{number}").readlink().name)
        fsync(number)

    monkeypatch.setattr(os, "fsync", spy)
    write(tmp_path / "a")
    assert {"file.txt", "manifest.json"} <= set(synced)
    assert any(name.endswith(".partial") for name in synced)
    assert synced[-1] == tmp_path.name

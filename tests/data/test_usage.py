"""Usage of language models is noted while a run works, for the case that it is killed."""

from __future__ import annotations

import time
from pathlib import Path

from laurel.data.directory import output_directory
from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from laurel.data.usage import SECONDS


def test_usage_is_noted_although_nothing_follows(tmp_path: Path) -> None:
    with output_directory(tmp_path / "a", stage="annotate", params={}) as out:
        for calls in range(1, 33):  # a batch is read at once, and the next one may take a day
            out.use_soon({"calls": calls})
        (noted,) = tmp_path.glob(".a.*.spent.json")
        until = time.monotonic() + 60
        while read_json(noted)["usage"] != {"calls": 32}:
            assert time.monotonic() < until, noted.read_text()
            time.sleep(0.01)
        out.use_soon({"calls": 33})
        out.use_soon({"calls": 34})
    time.sleep(2 * SECONDS)
    assert not noted.exists(), "no note outlives the work"
    assert read_manifest(tmp_path / "a")["usage"] == {"calls": 34}

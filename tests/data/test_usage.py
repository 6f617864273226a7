"""Usage of language models is noted while a run works, for the case that it is killed."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from laurel.data.directory import output_directory
from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from laurel.data.usage import SECONDS
from laurel.errors import AnnotationError


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


@pytest.mark.parametrize("limits_matter", [False, True])
@pytest.mark.parametrize("then", [{"max_cost": 2.0, "on_limit": "stop"}, {"max_cost": 1.0, "on_limit": "continue"}])
def test_what_a_run_spent_until_a_limit_counts_whatever_the_limit_is_then(
    tmp_path: Path, then: dict[str, Any], limits_matter: bool
) -> None:
    for budget, calls in (({"max_cost": 1.0, "on_limit": "stop"}, 5), (then, 2)):
        params = {"annotate": {"n_pairs": 3, "budget": budget}}
        given: dict[str, Any] = {"stage": "annotate", "params": params, "limits_matter": limits_matter}
        with suppress(AnnotationError), output_directory(tmp_path / "a", **given) as out:
            out.use({"calls": calls})
            if calls == 5:
                raise AnnotationError("the budget is spent")
    assert read_manifest(tmp_path / "a")["usage"] == {"calls": 7}

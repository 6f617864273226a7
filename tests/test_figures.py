"""The figures in README and docs/ are of the code that stands here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from laurel.data.digests import digest_file
from laurel.machine import has_avx2
from tiny_project import REPOSITORY, read_json

METRICS = sorted((REPOSITORY / "docs").glob("metrics*.json"))


FINGERPRINTS = REPOSITORY / "docs" / "fingerprints.json"


@pytest.mark.parametrize("file", METRICS, ids=lambda file: file.stem)
def test_figures_are_those_that_a_run_made(file: Path) -> None:
    made = read_json(FINGERPRINTS)[read_json(file)["env"]]["figures"]
    assert digest_file(file) == made, f"{file.name} was changed since a run wrote it: make docs-all"


@pytest.mark.slow
@pytest.mark.skipif(not has_avx2(), reason="digests are of x86-64 with AVX2")
@pytest.mark.parametrize("file", METRICS, ids=lambda file: file.stem)
def test_a_small_run_reproduces_the_stored_output(file: Path) -> None:
    env_id = read_json(file)["env"]
    command = [sys.executable, str(REPOSITORY / "docs" / "fingerprint.py"), env_id]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    today = json.loads(done.stdout)[env_id]
    then = read_json(FINGERPRINTS)[env_id]
    changed = [output for output in today if today[output] != then.get(output)]
    assert not changed, f"the code makes other {', '.join(changed)} than when README's figures were made: make docs-all"

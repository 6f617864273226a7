"""What the images are built on, by programs that stand for Docker and debootstrap."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tiny_project import REPOSITORY

DOCKER = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$1" in
    image) [ "$3" = "$HERE" ];;
    pull) [ -n "$PULLS" ];;
    import) tar -t | grep -q made-here;;
esac
"""


@pytest.mark.parametrize(
    ("variables", "tool", "code", "printed"),
    [
        ({"HERE": "python:3.11-slim-bookworm"}, True, 0, "python:3.11-slim-bookworm\n"),
        ({"PULLS": "1"}, True, 0, "python:3.11-slim-bookworm\n"),
        ({}, True, 0, "laurel-base:bookworm\n"),
        ({"HERE": "laurel-base:bookworm"}, False, 0, "laurel-base:bookworm\n"),
        ({}, False, 1, ""),
        ({"BASE_IMAGE": "mine:1"}, True, 1, ""),
    ],
    ids=["here", "pulled", "made", "made before", "cannot be made", "of the user"],
)
def test_the_base_is_pulled_or_made(
    tmp_path: Path, variables: dict[str, str], tool: bool, code: int, printed: str
) -> None:
    programs = {"docker": DOCKER, "id": "#!/bin/sh\necho 0\n"}
    if tool:
        programs["debootstrap"] = '#!/bin/sh\ntouch "$4/made-here"\n'
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for name in ("bash", "sh", "sed", "dirname", "timeout", "tar", "grep", "mktemp", "rm", "touch", "tail"):
        found = subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True, text=True, check=True)
        (tmp_path / name).symlink_to(found.stdout.strip())
    environment = {"PATH": str(tmp_path), "CALLS": str(tmp_path / "calls"), **variables}
    if temporary := os.environ.get("TMPDIR"):
        environment["TMPDIR"] = temporary
    command = [str(tmp_path / "bash"), str(REPOSITORY / "docker" / "base.sh")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, printed), done.stderr
    assert code == 0 or "BASE_IMAGE" in done.stderr

"""The lock: every file installed from it has a hash, and it contains no URLs."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tiny_project import REPOSITORY

ENTRY = re.compile(
    r"^([\w.-]+)==(\S+?)(?: ; [^\\\n]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)


def test_every_requirement_has_its_hashes() -> None:
    lock = (REPOSITORY / "requirements.lock").read_text()
    entries = ENTRY.findall(lock)
    rest = [line for line in ENTRY.sub("", lock).splitlines() if line and not line.startswith("#")]
    assert rest == []
    assert len(entries) > 200
    assert "://" not in lock


def test_the_locks_satisfy_the_projects_requirements() -> None:
    lock = {
        canonicalize_name(name): version
        for name, version, _ in ENTRY.findall((REPOSITORY / "requirements.lock").read_text())
    }
    assert "torch" not in lock, "its wheels differ by index, and so do their hashes"
    lock |= dict(re.findall(r"^(torch)==(\S+)$", (REPOSITORY / "torch.lock").read_text(), re.MULTILINE))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra, requirements in project["optional-dependencies"].items():
        wanted += requirements if extra not in ("vllm", "inspect") else []
    for requirement in map(Requirement, wanted):
        assert lock[canonicalize_name(requirement.name)] in requirement.specifier, str(requirement)

"""A project small enough that a test can run the whole pipeline in it: a folder with params.yaml and data."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from laurel.data.json_file import write_json
from laurel.data.manifest import LIVE_PAGE, RUN, RUN_FACTS, RUN_PAGE, read_manifest
from laurel.params import Params, load_params
from laurel.stages.pipeline import PLACES, STAGE, STAGES

REPOSITORY = Path(__file__).parents[1]
BIN = Path(sys.executable).parent

TINY: dict[str, Any] = {
    "seed": 0,
    "env": {"id": "MiniGrid-Empty-5x5-v0"},
    "collect": {"steps": 3000, "n_envs": 8, "shard_steps": 1000},
    "caption": {},
    "annotate": {"n_pairs": 200, "probe": {"success_questions": 0}},  # which tests that count calls do not expect
    "arms": ["extrinsic", "preference", "random_policy"],
    "rewards": {"preference": {"ensemble": 3, "hidden": [16], "max_epochs": 30, "patience": 5}},
    "shaping": {},
    "agent": {
        "seeds": [0, 1],
        "steps": 2048,
        "checkpoint_steps": 512,
        "ppo": {"n_envs": 4, "n_steps": 32, "batch_size": 64, "hidden": [16]},
    },
    "evaluate": {"episodes": 4, "n_envs": 4, "bootstrap": 100, "animation_steps": 10},
    "tracking": {},
}
VOLATILE = (*RUN_FACTS, "machine")
"""What may differ between the manifests, as they are read, of two runs with the same result: the machine is described
as far as the process has imported its libraries."""
UNTRACKED = {"tracking.enabled": False}
PLACES_OF = {name: stage.name for stage in STAGES for name, place in PLACES.items() if place == stage.output}
"""What is handed on -> the stage that writes it."""

Changes = Mapping[str, Any]
"""Dotted key -> value, as in {"shaping.beta": 1.0}."""
SAME: Changes = MappingProxyType({})


@dataclass(frozen=True)
class Project:
    path: Path

    @classmethod
    def create(cls, path: Path, changes: Changes = SAME) -> Project:
        path.mkdir(parents=True, exist_ok=True)
        (path / "params.yaml").write_text(yaml.safe_dump(TINY, sort_keys=False))
        project = cls(path)
        project.change(changes)
        return project

    def change(self, changes: Changes) -> None:
        """Set keys of params.yaml."""
        file = self.path / "params.yaml"
        content = yaml.safe_load(file.read_text())
        for key, value in changes.items():
            *sections, last = key.split(".")
            place = content
            for section in sections:
                place = place.setdefault(section, {})
            place[last] = value
        file.write_text(yaml.safe_dump(content, sort_keys=False))

    def copy(self, path: Path, changes: Changes = SAME, *, without: Sequence[str] = ()) -> Project:
        """Copy everything but the outputs of the stages that are named."""
        shutil.copytree(self.path, path, symlinks=True, dirs_exist_ok=True)
        project = Project(path)
        for stage in without:
            shutil.rmtree(project.output(stage))
        project.change(changes)
        return project

    @property
    def params(self) -> Params:
        return load_params(self.path / "params.yaml")

    def output(self, stage: str) -> Path:
        return self.path / STAGE[stage].output

    def inputs(self, stage: str) -> dict[str, Path]:
        return {name: self.path / PLACES[name] for name in STAGE[stage].inputs}

    def run(self, *stages: str) -> None:
        """Run stages (all if none is named) in this process."""
        for name in stages or STAGE:
            STAGE[name].run(self.params, **self.inputs(name), output=self.output(name))

    def laurel(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the command line in a process of its own."""
        return self._run([sys.executable, "-m", "laurel", *arguments], **options)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command line in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "laurel", *arguments],
            cwd=self.path,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def dvc(self, *arguments: str) -> str:
        """Run DVC, which must succeed; return its output."""
        done = self._run([str(BIN / "dvc"), *arguments])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        options = {"capture_output": True, "text": True, "timeout": 900, "check": False, **options}
        return subprocess.run(command, cwd=self.path, env=self.environment(), **options)

    def environment(self) -> dict[str, str]:
        """Return a user's environment variables, without the machine's own settings."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW_", "DVC_", "GIT_"))}
        return {
            **kept,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "DVC_NO_ANALYTICS": "1",
            "DVC_SITE_CACHE_DIR": str(self.path.parent / "dvc-site-cache"),
            "GIT_CONFIG_GLOBAL": os.devnull,
        }

    def wait_until_left(self) -> None:
        """Wait until no process works in this folder any more, which must happen by itself."""
        deadline = time.monotonic() + 120
        while left := self.processes():
            assert time.monotonic() < deadline, f"{left} are left"
            time.sleep(0.05)

    def processes(self) -> dict[int, list[str]]:
        """Return process -> its command line, for those that work in this folder."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    if (entry / "cwd").readlink() == self.path and "State:\tZ" not in (entry / "status").read_text():
                        found[int(entry.name)] = (entry / "cmdline").read_text().split("\0")
        return found


def changed(params: Params, **sections: dict[str, Any]) -> Params:
    """Return params with some fields of their sections replaced."""
    update = {name: getattr(params, name).model_copy(update=fields) for name, fields in sections.items()}
    return params.model_copy(update=update)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def set_run_facts(output: Path, **facts: Any) -> None:
    """Change what is known of the run that wrote a stage's output."""
    known = {key: read_manifest(output)[key] for key in RUN_FACTS}
    write_json(output / RUN, {"digest": read_manifest(output)["digest"], **known, **facts})


def lasting_content(output: Path) -> dict[str, Any]:
    """Return file -> content of a stage's output, without the facts of a single run.

    The manifest's description of the machine is left out: it depends on what a process has imported.
    """
    content: dict[str, Any] = {}
    for file in sorted(
        path for path in output.rglob("*") if path.is_file() and path.name not in (RUN, RUN_PAGE, LIVE_PAGE)
    ):
        name = file.relative_to(output).as_posix()
        match file.name:
            case "manifest.json":
                content[name] = {key: value for key, value in read_json(file).items() if key != "machine"}
            case _:
                content[name] = file.read_bytes()
    return content


def make_repository(path: Path) -> None:
    """Make what a clone of the repository has, as far as the pipeline needs it, with tiny params."""
    Project.create(path)
    files = ("dvc.yaml", "pyproject.toml", "Makefile", "requirements.lock", "torch.lock", ".gitignore", ".dvcignore")
    for name in (*files, ".dvc/config", ".dvc/.gitignore", ".dvc/plots/arms.json"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, path / name)
    (path / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    shutil.copytree(REPOSITORY / "src", path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["init", "--quiet"], ["add", "."], [*identity, "commit", "--quiet", "--message", "tiny"]):
        subprocess.run(["git", *command], cwd=path, check=True)

"""What README's two commands do needs no extra, and a command that needs one says which, in a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from laurel.extras import EXTRAS
from tiny_project import REPOSITORY

BLOCK = f"""
import importlib.abc, json, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {[package for packages in EXTRAS.values() for package in packages]}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
CORE = (
    BLOCK
    + """
import importlib, pkgutil, laurel.rewards.methods
from pathlib import Path
from laurel.params import load_params
from laurel.stages.pipeline import STAGES
from laurel.stages.preflight import check_run

modules = [stage.module for stage in STAGES] + [f"laurel.{name}" for name in (
    "training.arms", "evaluation.play", "evaluation.report", "evaluation.animation", "evaluation.reward_curves",
    "tracking.agents", "feedback.annotators.embedding", "library.wrapper", "library.vector", "library.tables",
    "library.judging", "library.agent",
)]
modules += [f"laurel.rewards.methods.{module.name}" for module in pkgutil.iter_modules(laurel.rewards.methods.__path__)]
for module in modules:
    importlib.import_module(module)
check_run(load_params(Path("params.yaml")))
"""
)
COMMANDS = (
    BLOCK
    + """
from laurel.cli.app import main
sys.exit(main(json.loads(sys.argv[1])))
"""
)


def run(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True)


def test_the_pipeline_needs_no_extra() -> None:
    done = run(CORE, REPOSITORY)
    assert done.returncode == 0, done.stderr


def test_a_missing_extra_is_one_sentence(tmp_path: Path) -> None:
    params = yaml.safe_load((REPOSITORY / "params.yaml").read_text())
    params["annotate"] |= {"annotator": "openai", "openai": {"model": "gpt-5-mini"}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    for extra, command in (
        ("openai", ["check"]),
        ("tune", ["tune", "--trials", "1"]),
        ("cloud", ["pipeline", "compile", "-o", "p.yaml"]),
    ):
        done = run(COMMANDS, tmp_path, json.dumps(command))
        assert done.returncode == 2, (command, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr
        assert f"is not installed: pip install 'laurel-rl[{extra}]'" in done.stderr


def test_every_extra_that_is_named_is_there() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    core = {canonicalize_name(Requirement(requirement).name) for requirement in project["dependencies"]}
    assert EXTRAS.keys() <= project["optional-dependencies"].keys()
    assert len(core) <= 21
    assert not core & {canonicalize_name(package) for packages in EXTRAS.values() for package in packages}

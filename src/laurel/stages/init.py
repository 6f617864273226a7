"""Create a new project: a folder with everything that `laurel run` and `dvc repro` need."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import yaml

from laurel.errors import DataError
from laurel.params.file import NAME
from laurel.stages.pipeline import JUDGES, PLACES, STAGES, Stage

TEMPLATES = {
    "params.yaml": "params.yaml.template",
    "corridor.py": "corridor.py.template",
    "README.md": "README.md.template",
    ".gitignore": "gitignore.template",
}
"""File of a project -> template."""
PROMPT = "motif"
IGNORED_BY_DVC = (
    "__pycache__",
    ".*.lock",
    ".*.partial",
    ".*.previous",
    ".*.spent.json",
    ".run.json",
    "run.html",
    "live.html",
)
OWN, OWN_PROMPT = "corridor.py", "prompt.jinja"
DVC_HEAD = f"""# What `laurel run` does, for DVC: dvc repro. Stages depend on files of your own that params.yaml names:
# put the names of your environment's file and of your prompt in the place of {OWN} and {OWN_PROMPT}.
# `laurel check` says which are missing here.
"""


def init(folder: Path) -> None:
    """Create a project atomically.

    Raises:
        DataError: the folder is not empty, its name is not allowed, or it cannot be written.
    """
    place = folder.resolve()
    if place.exists() and not place.is_dir():
        raise DataError(f"{folder}: is a file. Choose another name.")
    if place.is_dir() and any(place.iterdir()):
        raise DataError(f"{folder}: is not empty, and was not changed. Choose another name, or empty it first.")
    if not place.is_dir() and not NAME.fullmatch(place.name):
        raise DataError(
            f'{folder}: "{place.name}" is not a name for a project: use letters without accents, digits, _ and -.'
        )
    if not place.parent.is_dir():
        raise DataError(f"{folder}: there is no directory {place.parent}. Make it first.")
    try:
        partial = Path(mkdtemp(prefix=".laurel-", dir=place.parent))
        try:
            partial.chmod(0o755)
            for name, content in contents().items():
                (partial / name).write_text(content, encoding="utf-8")
            if place.is_dir():
                for file in partial.iterdir():
                    file.rename(place / file.name)
            else:
                partial.rename(place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror or error}).") from None


def contents() -> dict[str, str]:
    """Return file -> content of a new project."""
    package = files("laurel")
    templates = package / "stages/study"
    templated = {name: (templates / file).read_text(encoding="utf-8") for name, file in TEMPLATES.items()}
    prompt = (package / f"feedback/prompts/pair/{PROMPT}.jinja").read_text(encoding="utf-8")
    return templated | {
        OWN_PROMPT: prompt,
        "dvc.yaml": DVC_HEAD + yaml.safe_dump(dvc_graph(), sort_keys=False, width=120),
        ".dvcignore": "".join(f"{pattern}\n" for pattern in IGNORED_BY_DVC),
    }


def dvc_graph() -> dict[str, Any]:
    """Return the content of dvc.yaml: the stages of a project, which depend on its parameters and its environment."""
    stages: dict[str, Any] = {}
    for stage in STAGES:
        if stage.name == "annotate":
            stages["judges"] = {
                "cmd": "laurel judges",
                "params": ["arms", "rewards"],
                "outs": [{JUDGES: {"persist": True}}],
            }
        files = [OWN, *([OWN_PROMPT] if "annotate" in stage.sections else [])]
        inputs = [PLACES[name] for name in stage.inputs]
        stages[stage.name] = {
            "cmd": f"laurel {stage.name}",
            "deps": [*files, *inputs, *([JUDGES] if "judges" in stage.sections else [])],
            "params": _params(stage),
            "outs": [{stage.output: {"persist": True}}],
        }
    return {"stages": stages, "metrics": ["reports/metrics.json"]}


def _params(stage: Stage) -> list[str]:
    """Return the keys that a stage's result depends on."""
    sections = [name for name in stage.sections if name not in ("judges", "tracking")]
    return [f"{name}.{stage.only[name]}" if name in stage.only else name for name in sections]

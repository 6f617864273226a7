"""User files that parameters name: modules of environments and methods, prompts, labels, models; and plug-ins' code.

`laurel run` reruns a stage if one of them changed. DVC uses the deps in dvc.yaml, which may lack them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from laurel.data.own_files import code_of_plugins, named_files, packages_named
from laurel.params import Params
from laurel.stages.pipeline import PLACES, Stage

DVC_FILE = "dvc.yaml"


def own_files(content: Any, outputs: Iterable[Path]) -> dict[str, str]:
    """Return file -> digest of the user files that parameters name, except outputs of stages, and of the other
    packages whose plug-ins they use.

    For a directory it is a stamp, since a model may be large. The response store is left out, since every run adds to
    it.
    """
    return _named(content, outputs) | code_of_plugins(content)


def _named(content: Any, outputs: Iterable[Path]) -> dict[str, str]:
    places = list(outputs)
    return {file: digest for file, digest in named_files(content).items() if not _among(places, file)}


def unknown_to_dvc(params: Params, stages: Iterable[Stage], folder: Path) -> list[str]:
    """Name the user's files whose changes DVC does not see, since they are not deps in dvc.yaml.

    Args:
        stages: those to look at.
        folder: of dvc.yaml; without that file, nothing is reported.
    """
    try:
        graph = yaml.safe_load((folder / DVC_FILE).read_text(encoding="utf-8"))["stages"]
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return []  # it is missing, or DVC itself reports the error
    missing: dict[str, list[str]] = {}
    for stage in stages:
        entry = graph.get(stage.name) if isinstance(graph, Mapping) else None
        if not isinstance(entry, Mapping):
            continue
        known = [folder / str(dep) for dep in entry.get("deps") or () if isinstance(dep, str)]
        used = stage.used(params)
        packages = map(str, packages_named(used).values())
        for file in (*_named(used, map(folder.__truediv__, _OUTPUTS)), *packages):
            if not any(Path(file).resolve().is_relative_to(dep.resolve()) for dep in known):
                missing.setdefault(file, []).append(stage.name)
    return [
        f"dvc repro does not see changes of {file}: name it in {DVC_FILE}, as one of the deps of {', '.join(names)} "
        "(laurel run sees them)."
        for file, names in missing.items()
    ]


_OUTPUTS = (*PLACES.values(), "reports")


def _among(outputs: Iterable[Path], file: str) -> bool:
    """Whether a file is an output of a stage, or a folder that contains one."""
    return any(
        output.resolve().is_relative_to(Path(file).resolve()) or Path(file).resolve().is_relative_to(output.resolve())
        for output in outputs
    )

"""User files that parameters name, and their digests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from laurel.data.digests import digest_file
from laurel.data.manifest import stamp_directory
from laurel.errors import LaurelError
from laurel.plugins import installed, packages_of

QUESTIONS = "laurel.questions"
"""The group of entry points of questions, which parameters do not name."""


def named_files(content: Any, folder: Path = Path()) -> dict[str, str]:
    """Return file or directory -> digest, or stamp, for the files that parameters name: modules, prompts, labels,
    models.

    The response store is left out, since every run adds to it.

    Args:
        folder: where relative names are looked up.
    """
    return {name: digest for text in possible_names(content) for name, digest in _digests(text, folder).items()}


def possible_names(content: Any) -> Iterator[str]:
    """Yield the values of parameters that may name a file or directory, without the response store."""
    if isinstance(content, Mapping):
        content = [value for key, value in content.items() if key != "responses"]
    if isinstance(content, list):
        for value in content:
            yield from possible_names(value)
    elif isinstance(content, str) and 0 < len(content) < 1000:
        yield content


def _digests(text: str, folder: Path) -> dict[str, str]:
    """Return file or directory -> digest, or stamp, for those in a folder that a value of a parameter names."""
    module = text.partition(":")[0].replace(".", "/")
    named = {Path(text), Path(f"{module}.py"), *([Path(module)] if ":" in text else [])} - {Path()}
    existing = {str(path): folder / path for path in named if exists(folder / path)}
    files = {name: digest_file(file) for name, file in existing.items() if file.is_file()}
    return files | {name: stamp_directory(place) for name, place in existing.items() if place.is_dir()}


def code_of_plugins(content: Any) -> dict[str, str]:
    """Return file -> digest for the other packages that add the kinds which parameters name, or the adapter.

    Files are named with their package, such as `my_method/reward.py`, since packages lie elsewhere on each machine.
    """
    digests: dict[str, str] = {}
    for name, place in packages_named(content).items():
        pattern = "**/*" if (place / "__init__.py").exists() else "*"
        root = Path(*name.split("."))
        for file in place.glob(pattern) if place.is_dir() else [place]:
            inner = root.with_suffix(file.suffix) if file == place else root / file.relative_to(place)
            if file.is_file() and "__pycache__" not in inner.parts:
                digests[inner.as_posix()] = digest_file(file)
    return dict(sorted(digests.items()))


def packages_named(content: Any) -> dict[str, Path]:
    """Return the other packages that add the kinds which parameters name, or the adapter, and those that add questions
    if there are any such: name -> folder or file.
    """
    from laurel.envs import ENTRY_POINTS, adapter_module

    modules = []
    if isinstance(content, Mapping) and "env" in content and installed(ENTRY_POINTS):
        with suppress(LaurelError):  # making the environment reports what is wrong
            modules.append(adapter_module(content["env"]["id"]))
    found = packages_of(set(_texts(content)), *modules)
    # a method or judge names the questions that it asks in its code, and they may be another package's
    return found | packages_of({entry.name for entry in installed(QUESTIONS)}) if found else found


def contents_named(content: Any) -> dict[str, str]:
    """Return file -> digest for all that parameters name and that may change under the same name, without folders."""
    files = {file: digest for file, digest in named_files(content).items() if Path(file).is_file()}
    return files | code_of_plugins(content)


def _texts(content: Any) -> Iterator[str]:
    """Yield all texts among parameters, keys included."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        yield from map(str, content)
        for value in content.values():
            yield from _texts(value)
    elif isinstance(content, list):
        for value in content:
            yield from _texts(value)


def exists(path: Path) -> bool:
    """Whether a file or folder of this name exists; any text is accepted."""
    try:
        return path.exists()
    except OSError:  # a sentence, such as a goal, may be longer than a file name can be
        return False

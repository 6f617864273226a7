"""Local files and folders that parameters name.

Remote steps find them only in their image, and results that were made with others are not taken from a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from laurel.components.step import MOUNTED
from laurel.data.json_file import digest_json
from laurel.data.own_files import exists
from laurel.feedback.annotator_kind import kind_of
from laurel.params import Params
from laurel.params.annotation import MAIN
from laurel.params.rewards import method_of
from laurel.stages.own_files import own_files
from laurel.stages.pipeline import WITHOUT_EFFECT


def local_files(params: Params, *, vertex: bool) -> dict[str, str]:
    """Return key -> the local file, folder or module that it names; buckets that Vertex AI mounts are left out."""
    named = dict(_named(params))
    return {key: text for key, text in named.items() if not (vertex and text.startswith(MOUNTED))}


def code_with_files(code: str, params: Params, outputs: Iterable[Path] = ()) -> str:
    """Return an identifier of the steps' code: Laurel's, and the contents of the user's files that parameters name.

    KFP caches by the names of these files, but not by their contents.

    Args:
        code: identifier of Laurel's code.
        outputs: folders that runs write.
    """
    files = own_files(params.used(*sorted(type(params).model_fields.keys() - WITHOUT_EFFECT)), outputs)
    return digest_json({"code": code, "files": files}) if files else code


def _named(params: Params) -> Iterator[tuple[str, str]]:
    module, colon, _ = params.env.id.rpartition(":")
    if colon and (file := _module_here(module)):
        yield "env.id", f"{params.env.id}, of the file {file}"
    for number, policy in enumerate(params.collect.policies):
        if policy.path is not None:
            yield f"collect.policies[{number}].path", str(policy.path)
    for name, settings in params.rewards.items():
        yield from ((f"rewards.{name}.{key}", place) for key, place in method_of(settings).named_files().items())
    yield from _named_by_annotators(params)
    sections = type(params).model_fields.keys() - WITHOUT_EFFECT - {"annotate"}
    yield from _found(params.used(*sorted(sections)), "")


def _named_by_annotators(params: Params) -> Iterator[tuple[str, str]]:
    asked = params.annotate
    if asked.gold is not None:
        yield "annotate.gold", str(asked.gold)
    if asked.keeps_responses and asked.budget.prices is not None:
        yield "annotate.budget.prices", str(asked.budget.prices)
    named = ((name, judge, number) for name, judge in asked.all_judges.items() for number in range(len(judge.voters)))
    for name, judge, number in named:
        voter, section = judge.voters[number], "annotate" if name == MAIN else f"annotate.judges.{name}"
        if judge.ensemble is not None:
            section += f".ensemble.members[{number}]"
        yield from ((f"{section}.{key}", place) for key, place in kind_of(voter).files.items())


def _found(content: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield every value in params that is the path of a file or folder on this machine."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from _found(value, f"{key}.{name}" if key else name)
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from _found(value, f"{key}[{number}]")
    elif isinstance(content, str) and ("/" in content or "." in content) and exists(Path(content)):
        yield key, content


def _module_here(module: str) -> Path | None:
    """Return the file or folder beside params.yaml that holds a module; None for a module of a package."""
    name = module.partition(".")[0]
    return next((path for path in (Path(f"{name}.py"), Path(name)) if path.exists()), None)

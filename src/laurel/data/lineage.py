"""Whether a stage's inputs fit together: made with the same parameters, from each other, and unchanged since."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from laurel.data.manifest import checked_manifest
from laurel.envs import words_of
from laurel.errors import DataError

PRODUCERS = {
    "trajectories": "collect",
    "captions": "caption",
    "preferences": "annotate",
    "reward": "train-reward",
    "agents": "train-agents",
}
"""Name of an input -> the stage that writes it."""
PARTS = {"begun": "train-agents-part", "proposals": "propose", "shard": "annotate-shard"}
"""The same for inputs that only the pipeline on KFP has: partly trained agents, and a shard of a round's proposals, or
of the pairs."""

FREE = ("env.backend", "agent.seeds", "agent.workers")
"""Parameters that may differ: results do not depend on them, or arms and seeds are independent."""
BUDGET = re.compile(r"annotate\.budget\.(?!on_limit$).+")
"""Limits of spending, which may differ too: an output is complete, unless on_limit is "continue"."""
OWN_SEEDS = re.compile(r"arms\.[^.]+\.agent\.seeds")
"""The same for an arm with settings of its own, of which the seeds are a copy of agent.seeds."""
NAMED = re.compile(r"(arms|rewards)\.[^.]+")
"""Sections of single arms and rewards, which one side may lack."""

_UNSET = object()


def read_inputs(used: Mapping[str, Any], inputs: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """Read the manifests of a stage's inputs.

    Preferences refer to segments by number, and agents fit any task with observations of their shape: with other
    captions or another task, reading them would raise no error but give meaningless results.

    Args:
        used: the params that the stage says it used; where an input names the same, they must agree.
        inputs: names of PRODUCERS and PARTS -> directories.

    Raises:
        DataError: an input is missing, damaged, modified or another stage's, or was made with other parameters or from
            other inputs than those given.
    """
    producers = PRODUCERS | PARTS
    manifests = {name: checked_manifest(path, producers[name]) for name, path in inputs.items()}
    for name, manifest in manifests.items():
        advice = f"Run laurel {producers[name]} again."
        shared = {section: value for section, value in used.items() if section in manifest["params"]}
        for key, old, new in _differences({s: manifest["params"][s] for s in shared}, shared, ""):
            if key in FREE or OWN_SEEDS.fullmatch(key) or (NAMED.fullmatch(key) and _UNSET in (old, new)):
                continue
            if BUDGET.fullmatch(key) and manifest["params"]["annotate"]["budget"].get("on_limit") == "stop":
                continue
            raise DataError(f"{inputs[name]}: was made with {key} {_shown(old)}, but it is {_shown(new)}. {advice}")
        if "env" in used:
            check_adapter(inputs[name], manifest, used["env"]["id"], used["env"]["kwargs"])
        for source, digest in manifest["inputs"].items():
            if source in manifests and digest != manifests[source]["digest"]:
                raise DataError(f"{inputs[name]}: was not made from the {source} in {inputs[source]}. {advice}")
    return manifests


def check_adapter(path: Path, manifest: Mapping[str, Any], env_id: str, kwargs: Mapping[str, Any]) -> None:
    """Raise DataError for steps or captions of another version of the environment's adapter, which would be misread."""
    if (old := manifest.get("adapter")) is not None and old != (new := words_of(env_id, kwargs)):
        raise DataError(
            f"{path}: was made with the adapter {old}, but {env_id} now has {new}, whose captions differ. Run "
            "laurel collect and the later stages again."
        )


def _differences(old: Any, new: Any, key: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield dotted key, old and new value of each entry in which two nested mappings differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys((*old, *new)):
            subkey = f"{key}.{name}" if key else str(name)
            yield from _differences(old.get(name, _UNSET), new.get(name, _UNSET), subkey)
    elif old != new and _shown(old) != _shown(new):  # NaN differs from itself
        yield key, old, new


def _shown(value: Any) -> str:
    return "not set" if value is _UNSET else json.dumps(value)

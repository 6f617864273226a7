"""dvc.yaml says the same as the code: what a stage reads, what it writes, what it depends on."""

import inspect
import json
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from laurel.params import Params
from laurel.params.algorithms import PPOParams
from laurel.params.fields import Section
from laurel.params.rewards import METHODS, TrialParams
from laurel.stages.pipeline import JUDGES, PLACES, STAGES
from our_imports import imported, named, our_modules, parsed, plugged
from tiny_project import REPOSITORY, STAGE, TINY, Project, read_json

SRC = REPOSITORY / "src"
PARAMS = SRC / "laurel/params"
ALL_STAGES = [stage.name for stage in STAGES]
WRITES_NOTHING = {
    "__init__.py": "imports what `import laurel` offers",
    "console.py": "speaks to the user",
    "errors.py": "speaks to the user",
    "extras.py": "says which package is missing",
    "heap.py": "puts garbage collection off",
    "interrupt.py": "stops a stage",
    "permissions.py": "lets a stage ask, or refuses",
    "progress.py": "speaks to the user",
    "workspace.py": "says where caches lie",
    "stages/pipeline.py": "calls stages",
    "stages/track_late.py": "logs runs",
    "tracking": "logs runs",
}
"""What no output depends on -> what it does instead; everything else that a stage reaches is a dependency."""
OF_OTHERS = SRC / "laurel/agents/checkpoint.py"
"""Loads as plug-ins the networks of other packages alone; ours it imports or names."""
TRAIN = {"train-reward", "train-agents"}
"""Stages in which an algorithm may load the learner that it names."""
TRIALS = "train-reward"
"""The stage that trains by PPO alone, as `TrialParams` says."""


ARMS_WANT = {"arms", "rewards", "agent.seeds"}
"""Params by which a stage knows what the arms of a run need of it."""


@pytest.fixture(scope="module")
def dvc() -> dict[str, Any]:
    return yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())


def outputs(stage: dict[str, Any]) -> list[str]:
    return [next(iter(out)) if isinstance(out, dict) else out for out in stage["outs"]]


def test_the_stages_are_those_of_the_command_line(dvc: dict[str, Any]) -> None:
    assert [name for name in dvc["stages"] if name != "judges"] == ALL_STAGES
    for stage in STAGES:
        declared = dvc["stages"][stage.name]
        assert shlex.split(declared["cmd"]) == ["laurel", stage.name], "params.yaml holds everything else"
        assert outputs(declared) == [stage.output]
        read = {key.split(".")[0] for key in declared["params"]}
        assert read == set(stage.sections) - {"tracking", "judges"}, "judges is a file; no output depends on tracking"
        assert [dep for dep in declared["deps"] if not dep.startswith("src/")] == [
            *(PLACES[name] for name in stage.inputs),
            *([JUDGES] if "judges" in stage.sections else []),
        ]


def test_every_input_is_an_output(dvc: dict[str, Any]) -> None:
    written: list[str] = []
    for stage in dvc["stages"].values():
        assert all(dep in written for dep in stage["deps"] if not dep.startswith("src/")), "in the order of the chain"
        written += outputs(stage)
    assert set(PLACES.values()) == set(written) - {"reports", JUDGES}


@pytest.mark.parametrize("name", ALL_STAGES)
def test_params_are_those_of_the_manifest(dvc: dict[str, Any], finished: Project, name: str) -> None:
    used = read_json(finished.output(name) / "manifest.json")["params"]
    chosen_by = {key for key in dvc["stages"][name]["params"] if key not in used}
    assert {*dvc["stages"][name]["params"]} - chosen_by == set(used)
    assert chosen_by <= ARMS_WANT, "the arms decide only which outputs are made, not their content"
    assert set(used) <= set(TINY) - {"tracking", "pipeline"}


def writes_nothing(file: Path) -> bool:
    name = file.relative_to(SRC / "laurel")
    return not WRITES_NOTHING.keys().isdisjoint({name.as_posix(), name.parts[0]})


@cache
def is_empty(file: Path) -> bool:
    """Whether a module has no more than a docstring."""
    return len(parsed(file).body) < 2


def reached(file: Path, name: str) -> set[Path]:
    """Return what a stage's module may run, lazy imports included, its sections of params aside."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        this = waiting.pop()
        if this in found or writes_nothing(this) or PARAMS in this.parents or is_empty(this):
            continue
        found.add(this)
        loaded = [our_modules()[name] for name in plugged(this)] if this != OF_OTHERS else []
        if name == TRIALS:
            loaded = [file for file in loaded if file.parent.name != "algorithms" or file.name == "ppo.py"]
        if name in TRAIN or this == OF_OTHERS:
            loaded += [our_modules()[name] for name in named(this)]
        waiting += [*(our_modules()[name] for name in imported(this)), *loaded]
        if this == SRC / "laurel/pool.py":
            waiting.append(SRC / "laurel/worker_kernels.py")
        if this == SRC / "laurel/rewards/stored.py":  # what loads the methods that params name
            waiting += (SRC / "laurel/rewards/methods").glob("*.py")
    return found


def defaults(section: Any) -> set[Path]:
    """Return the modules that define a section of params, those within it included: they hold its defaults."""
    models = [arg for arg in (section, *get_args(section)) if isinstance(arg, type) and issubclass(arg, Section)]
    nested = [get_args(section)] if get_args(section) else []
    bases = [base for model in models for base in model.__mro__ if issubclass(base, Section) and base.model_fields]
    found = {Path(inspect.getfile(base)) for base in bases}
    for model in models:
        nested += [(field.annotation,) for field in model.model_fields.values()]
    return found.union(*(defaults(part) for parts in nested for part in parts))


def run_by(dvc: dict[str, Any], name: str) -> set[Path]:
    sections = [
        Params.model_fields[section].annotation for section in dvc["stages"][name]["params"] if "." not in section
    ]
    if "rewards" in dvc["stages"][name]["params"]:
        sections += [METHODS.load(kind, "rewards").Settings for kind in METHODS.builtin()]
    module = SRC / STAGE[name].module.replace(".", "/")
    return reached(module.with_suffix(".py"), name).union(*map(defaults, sections), {Path(inspect.getfile(Params))})


def sources(dvc: dict[str, Any], name: str) -> list[Path]:
    return [REPOSITORY / dep for dep in dvc["stages"][name]["deps"] if dep.startswith("src/")]


def names(files: Iterable[Path]) -> list[str]:
    return sorted(file.relative_to(REPOSITORY).as_posix() for file in files)


@pytest.mark.parametrize("name", ALL_STAGES)
def test_code_that_a_stage_runs_is_a_dependency(dvc: dict[str, Any], name: str) -> None:
    declared, needed = sources(dvc, name), run_by(dvc, name)
    assert len(needed) > 8, "imports are found"
    missing = [file for file in needed if not any(path in (file, *file.parents) for path in declared)]
    assert names(missing) == [], f"add these to the deps of {name} in dvc.yaml"


@pytest.mark.parametrize("name", ALL_STAGES)
def test_code_that_a_stage_does_not_run_is_no_dependency(dvc: dict[str, Any], name: str) -> None:
    needed = run_by(dvc, name)
    idle = [path for path in sources(dvc, name) if not any(path in (file, *file.parents) for file in needed)]
    assert names(idle) == [], f"leave these out of the deps of {name} in dvc.yaml"


@pytest.mark.parametrize(
    ("file", "rerun"),
    [
        ("agents/dqn.py", ["train-agents", "evaluate"]),
        (
            "agents/stacked_ppo.py",
            ["train-reward", "train-agents", "evaluate"],
        ),  # rewards may be chosen by a short training
        ("agents/sb3/env.py", ["train-agents", "evaluate"]),
        ("machine.py", ALL_STAGES),  # manifests have it
        ("seeding.py", ["collect", "annotate", "train-reward", "train-agents", "evaluate"]),
        ("pool.py", ["collect", "train-reward", "train-agents", "evaluate"]),
    ],
)
def test_a_comment_reruns_the_stages_that_run_the_file(dvc: dict[str, Any], file: str, rerun: list[str]) -> None:
    changed = SRC / "laurel" / file
    assert [
        name for name in ALL_STAGES if any(path in (changed, *changed.parents) for path in sources(dvc, name))
    ] == rerun


def test_exceptions_from_dependencies_exist() -> None:
    assert [name for name in WRITES_NOTHING if not (SRC / "laurel" / name).exists()] == []
    assert {name for name, field in TrialParams.model_fields.items() if field.annotation is PPOParams} == {"ppo"}
    (trained,) = (SRC / "laurel/training").glob("trial.py")
    assert "settings.ppo" in trained.read_text(encoding="utf-8")


def test_plots_and_metrics_are_there(dvc: dict[str, Any], finished: Project) -> None:
    header = (finished.path / "reports/curves.csv").read_text().splitlines()[0].split(",")
    for plot in dvc["plots"]:
        ((_, definition),) = plot.items()
        assert definition["x"] in header
        for file, column in definition["y"].items():
            assert file == "reports/curves.csv"
            assert column in header
        template = json.loads((REPOSITORY / ".dvc/plots" / f"{definition['template']}.json").read_text())
        assert template["encoding"]["color"]["field"] in header
    assert dvc["metrics"] == ["reports/metrics.json"]

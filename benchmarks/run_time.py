"""Duration of `dvc repro` on params.yaml in a fresh clone, stage by stage, and again with nothing changed.

The bound is the time of training's matrix products and of the environments' own steps alone, on all cores: see
limits.py. Another clone is run to profile the longest stages: the CPU time of all their processes by part, and how long
cores were idle. The remaining time that train-agents predicts is compared with the actual one. Run it with: python
benchmarks/run_time.py
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sampled
from limits import PARTS, least_seconds
from record import about, command_line, load_average, write

from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from laurel.stages.pipeline import STAGES

REPOSITORY = Path(__file__).resolve().parents[1]
TARGET, TARGET_AGAIN = 90, 1.5
WAYS, WITHIN = (0.1, 0.3, 0.5), 0.2
"""Shares of the steps at which the estimate of the remaining time is checked, and its tolerance."""
UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
"""If set, each process of a stage compiles all of Laurel's modules; removed here, since users do not set it."""
PROGRESS = re.compile(r"train-agents: ([\d,]+)/([\d,]+) steps \(.*, (\d+) s left\)")
DONE = re.compile(r"train-agents: ([\d,]+)/\1 steps \(.*, \d+ s\)")
IMPORTS, MLFLOW = {"imports": ("importlib", set[str]())}, {"MLflow": ("laurel/tracking/", set[str]())}
WAITING = {"the live page and MLflow, beside them": ("laurel/pool.py", {"run_jobs"})}
"""Threads of the waiting parent process, which are sampled in its time."""
PARTS_OF: dict[str, sampled.Parts] = {
    "train-agents": {**IMPORTS, **PARTS, **MLFLOW, **WAITING},
    "evaluate": {
        **IMPORTS,
        "environments": PARTS["environments"],
        "policies": ("laurel/agents/", set()),
        "captions, counts and pay": ("laurel/rewards/", set()),
        "films": ("evaluation/film.py", set()),
        "figures": ("evaluation/plots.py", set()),
        "statistics": ("evaluation/statistics.py", set()),
        "episodes": ("evaluation/rollout.py", set()),
        **MLFLOW,
    },
    "train-reward": {
        **IMPORTS,
        "gradient steps of rewards": ("rewards/bradley_terry.py", set()),
        "captions' vectors": ("laurel/llm/", set()),
        **MLFLOW,
    },
}
IDLE = "idle cores"
"""The part of a profile that no process of the stage spends: all cores times the stage's duration, less its CPU time.
It includes what other programs take of the cores meanwhile."""
Line = tuple[float, str]
"""When a line was printed, and the line."""


def main() -> None:
    """Measure, print the results and write them."""
    command_line(__doc__).parse_args()
    load = f"{load_average()} before the run"
    with tempfile.TemporaryDirectory() as directory:
        folder = _clone(Path(directory) / "clone")
        total, lines = _repro(folder)
        repeated = statistics.median(_repro(folder)[0] for _ in range(3))
        seconds = {stage.name: read_manifest(folder / stage.output, stage.name)["seconds"] for stage in STAGES}
        agents = list((folder / "data" / "agents").glob("*/seed-*/state.json"))
        steps = sum(read_json(state)["env_steps"] for state in agents)
    spent = _profiled()
    stages = sum(seconds.values())
    bound = steps * sum(least_seconds()) / (os.cpu_count() or 1)
    common = about("dvc", "envpool", "minigrid", "laurel-rl", remarks=(load,))
    write(
        "run_time",
        {
            "value": [round(stages), round(repeated, 1)],
            "unit": "seconds of all stages of params.yaml in a fresh clone; and of `dvc repro` with nothing changed",
            "target": f"<= {TARGET} and <= {TARGET_AGAIN}",
            "met": stages <= TARGET and repeated <= TARGET_AGAIN,
            "peer": f"a bound: products and environments of the {steps:,} steps of {len(agents)} agents, on all cores; "
            "and seconds of train-agents, of evaluate, of all other stages, of `dvc repro` from start to end",
            "peer_value": [
                *(round(bound), round(seconds["train-agents"]), round(seconds["evaluate"])),
                *(round(stages - seconds["train-agents"] - seconds["evaluate"]), round(total)),
            ],
            "seconds": {name: round(taken, 1) for name, taken in seconds.items()},
            "profile_unit": "core seconds of",
            "profile": {
                stage: {part: [round(seconds_of, 2)] for part, seconds_of in profile.items() if seconds_of >= 0.05}
                for stage, profile in spent.items()
            },
            "why": f"The bound for training alone is {bound:.0f} s, and training reaches "
            f"{bound / seconds['train-agents']:.0%} of it. " + " ".join(map(_most, spent, spent.values())),
        },
        common,
    )
    write("run_time_left", time_left(lines), common)


def _most(stage: str, spent: dict[str, float]) -> str:
    """Describe what a stage spends most of its CPU time on, and how long cores are idle."""
    total = sum(spent.values())
    cpu = total - spent[IDLE]
    largest = sorted((part for part in spent if part not in (sampled.ELSE, IDLE)), key=lambda part: -spent[part])[:2]
    shares = " and ".join(f"{spent[part] / cpu:.0%} of its CPU time on {part}" for part in largest)
    return f"{stage} spends {shares}; {spent[IDLE] / total:.0%} of the cores' time is idle."


def time_left(lines: list[Line]) -> dict[str, Any]:
    """Compare train-agents' estimates of the remaining time with the actual time until its last step."""
    (ended,) = (moment for moment, line in lines if DONE.match(line))
    looks = []
    for way in WAYS:
        for moment, line in lines:
            if found := PROGRESS.match(line):
                done, total = (int(number.replace(",", "")) for number in found.groups()[:2])
                if done >= way * total:
                    looks.append((done / total, float(found[3]), ended - moment))
                    break
    errors = [told / left - 1 for _, told, left in looks]
    in_range = len(looks) == len(WAYS) and max(map(abs, errors)) <= WITHIN
    entry: dict[str, Any] = {
        "value": [round(error, 2) for error in errors],
        "unit": "relative error of train-agents' estimate of the remaining seconds, after at least "
        + ", ".join(f"{way:.0%}" for way in WAYS)
        + " of its steps",
        "target": f"at most {WITHIN:g} at each",
        "met": in_range,
        "peer": "of each: share of the steps done, seconds estimated, actual seconds",
        "peer_value": [[round(done, 2), round(told), round(left)] for done, told, left in looks],
    }
    return entry if in_range else {**entry, "why": "Agents of some arms are slower than the arms measured so far."}


def _clone(folder: Path) -> Path:
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(folder)], check=True)  # noqa: S603, S607
    return folder


def _profiled() -> dict[str, dict[str, float]]:
    """Return the core seconds of each part of the longest stages, of a run of their own."""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as stacks:
        _repro(_clone(Path(directory) / "clone"), sampled.everywhere(Path(stacks)))
        return {stage: core_seconds(Path(stacks), stage, parts) for stage, parts in PARTS_OF.items()}


def core_seconds(stacks: Path, stage: str, parts: sampled.Parts) -> dict[str, float]:
    """Return the CPU seconds of each part of a stage, as its processes wrote them, and how long cores were IDLE."""
    spent = sampled.parts_of(sampled.written(stacks)[stage], parts)
    idle = (os.cpu_count() or 1) * sampled.spans(stacks)[stage] - sum(spent.values())
    return {**spent, IDLE: max(idle, 0.0)}


def _repro(folder: Path, environment: Mapping[str, str] = os.environ) -> tuple[float, list[Line]]:
    """Run `dvc repro` with this Python's commands; return its seconds, and what it printed when."""
    path = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    lines, started = [], time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro", "--quiet"],
        cwd=folder,
        env={name: value for name, value in environment.items() if name != UNCOMPILED} | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append((time.time(), line))
            sys.stderr.write(line)
    if process.returncode:
        raise SystemExit(f"dvc repro ended with {process.returncode}, see above")
    return time.perf_counter() - started, lines


if __name__ == "__main__":
    main()

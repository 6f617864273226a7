"""How long `dvc repro` takes on params.yaml in a fresh clone, stage by stage, and once more where nothing changed.

The bound is what training would take if nothing but its matrix products and the environments' own steps took time, on
all cores: see limits.py. Run it with: python benchmarks/run_time.py
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from limits import least_seconds
from record import about, command_line, load_average, write

from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from laurel.stages.pipeline import STAGES

REPOSITORY = Path(__file__).resolve().parents[1]
TARGET, TARGET_AGAIN = 90, 1.5


def main() -> None:
    """Measure, print the result and write it."""
    command_line(__doc__).parse_args()
    load = f"{load_average()} before the run"
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(folder)], check=True)  # noqa: S603, S607
        whole = _repro(folder)
        again = statistics.median(_repro(folder) for _ in range(3))
        seconds = {stage.name: read_manifest(folder / stage.output, stage.name)["seconds"] for stage in STAGES}
        agents = list((folder / "data" / "agents").glob("*/seed-*/state.json"))
        steps = sum(read_json(state)["env_steps"] for state in agents)
    stages = sum(seconds.values())
    bound = steps * sum(least_seconds()) / (os.cpu_count() or 1)
    found = {
        "value": [round(stages), round(again, 1)],
        "unit": "seconds of all stages of params.yaml in a fresh clone; and of `dvc repro` where nothing changed",
        "target": f"<= {TARGET} and <= {TARGET_AGAIN}",
        "met": stages <= TARGET and again <= TARGET_AGAIN,
        "peer": f"a bound: products and environments of the {steps:,} steps of {len(agents)} agents, on all cores; and "
        "seconds of train-agents, of evaluate, of all other stages, of `dvc repro` from start to end",
        "peer_value": [
            *(round(bound), round(seconds["train-agents"]), round(seconds["evaluate"])),
            *(round(stages - seconds["train-agents"] - seconds["evaluate"]), round(whole)),
        ],
        "seconds": {name: round(taken, 1) for name, taken in seconds.items()},
    }
    if not found["met"]:
        found["why"] = (
            f"Training alone is bound by {bound:.0f} s, of which it reaches {bound / seconds['train-agents']:.0%}; the "
            "profile is that of seed_batch. Most of evaluate steps the reference environments, which are written in "
            "Python; most of train-reward makes a control's reward anew for each seed."
        )
    write("run_time", found, about("dvc", "envpool", "minigrid", "laurel-rl", remarks=(load,)))


def _repro(folder: Path) -> float:
    """Run `dvc repro` with this Python's commands; return its seconds."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "dvc", "repro", "--quiet"],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=sys.stderr,
        check=True,
    )
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

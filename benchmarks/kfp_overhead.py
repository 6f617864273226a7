"""Overhead of KFP's process runner per step: a chain of three stages as a pipeline, and as plain commands.

Both start a Python process for each stage, with the same parameters, and take turns. Images and clusters are not
measured. Run it with: python benchmarks/kfp_overhead.py
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from record import about, command_line, write

TARGET = 1.0
REPEATS = 7
STAGES = ("collect", "caption", "annotate")
PARAMS: dict[str, Any] = {
    "env": {"id": "FrozenLake-v1", "backend": "gymnasium"},
    "collect": {"steps": 500, "n_envs": 4},
    "annotate": {"annotator": "scripted", "n_pairs": 50},
    "arms": ["preference"],
    "agent": {"seeds": [0], "steps": 1},
    "tracking": {"enabled": False},
}


def main() -> None:
    """Measure both, print the result and write it."""
    command_line(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "params.yaml").write_text(json.dumps(PARAMS))  # JSON is YAML
        os.chdir(folder)
        run_pipeline = _pipeline(folder)
        run_pipeline()  # what is read from disk for the first time counts for neither
        _run_commands()
        under_kfp, alone = [], []
        for _ in range(REPEATS):
            under_kfp.append(_timed(run_pipeline))
            alone.append(_timed(_run_commands))
    a_step, a_command = statistics.median(under_kfp) / len(STAGES), statistics.median(alone) / len(STAGES)
    overhead = round(a_step - a_command, 3)
    found = {
        "value": overhead,
        "unit": "extra seconds of a step compared with its stage called alone",
        "target": f"<= {TARGET}",
        "met": overhead <= TARGET,
        "peer": "seconds of a stage called alone, as a command",
        "peer_value": round(a_command, 3),
    }
    write("kfp_overhead", found, about("kfp", "laurel-rl"))


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _run_commands() -> None:
    for stage in STAGES:
        subprocess.run([sys.executable, "-m", "laurel", stage], check=True)  # noqa: S603


def _pipeline(folder: Path) -> Callable[[], None]:
    """Return a run of the stages by KFP, with the components of the whole pipeline."""
    from contextlib import redirect_stdout

    from kfp import dsl, local

    from laurel.components.annotate import annotate
    from laurel.components.caption import caption
    from laurel.components.collect import collect

    @dsl.pipeline(name="chain")  # type: ignore[untyped-decorator]
    def chain() -> None:
        judges = [{"judges": ["main"]}]  # as the step judges finds them for these arms
        common = {"env": PARAMS["env"], "tracking": PARAMS["tracking"], "code_version": "1"}
        trajectories = collect(**common, seed=0, collect=PARAMS["collect"]).outputs["trajectories"]
        captions = caption(**common, caption={}, trajectories=trajectories).outputs["captions"]
        annotate(**common, seed=0, caption={}, annotate=PARAMS["annotate"], captions=captions, judges=judges)

    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(folder / "steps"))

    def run() -> None:
        with Path(os.devnull).open("w") as devnull, redirect_stdout(devnull):
            chain()

    return run


if __name__ == "__main__":
    main()

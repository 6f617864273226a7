"""Speed of collecting and captioning compared with the environment alone; time and memory with ten times the steps.

`laurel collect` and `laurel caption` run as commands, including Python's start, on random actions in DoorKey. The
limit is EnvPool with the same number of environments, random actions and its best number of threads, without storing
observations. Both take turns. Run it with: python benchmarks/collect_caption.py
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from record import about, command_line, load_average, write

SHARE, MEMORY, GROWTH = 0.5, 1000, 1.2
ENV_ID = "MiniGrid-DoorKey-8x8-v0"
N_ENVS = 64
"""As in params.yaml."""
RAW_SECONDS = 3.0
SEED = 0


@dataclass(frozen=True)
class Spent:
    """Resources used by a command."""

    seconds: float
    cpu_seconds: float
    megabytes: float
    """Peak resident memory."""


def main() -> None:
    """Measure, print the results and write them."""
    parser = command_line(__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="and ten times as many, once (default: 1000000)")
    parser.add_argument("--rounds", type=int, default=3, help="of the smaller number of steps (default: 3)")
    arguments = parser.parse_args()
    load = f"{load_average()} before the run"
    threads = _best_threads()
    raw, small = [], []
    for _ in range(arguments.rounds):
        raw.append(raw_rate(threads))
        small.append(_collect_and_caption(arguments.steps))
    large = _collect_and_caption(10 * arguments.steps)
    raw.append(raw_rate(threads))
    limit = statistics.median(raw)
    rate = arguments.steps / statistics.median(_seconds(run) for run in small)
    rate_large = 10 * arguments.steps / _seconds(large)
    common = about("envpool", "numpy", "pyarrow", "laurel-rl", remarks=(load,))
    write(
        "collect_caption",
        {
            "value": round(rate_large / limit, 3),
            "unit": f"steps collected and captioned per second, as a share of the environment's own rate, "
            f"{10 * arguments.steps:,} steps in {N_ENVS} environments",
            "target": f">= {SHARE}",
            "met": rate_large / limit >= SHARE,
            "peer": f"steps/s of {ENV_ID} alone, EnvPool with {threads} threads; collected and captioned: "
            f"{10 * arguments.steps:,} and {arguments.steps:,}",
            "peer_value": [round(limit), round(rate_large), round(rate)],
            "share_of_fewer_steps": round(rate / limit, 3),
            "seconds": {stage: round(spent.seconds, 1) for stage, spent in large.items()},
            "cpu_microseconds_a_step": {
                stage: round(spent.cpu_seconds / arguments.steps / 10 * 1e6, 2) for stage, spent in large.items()
            },
        },
        common,
    )
    growth = rate / rate_large
    peaks = [round(max(spent.megabytes for spent in run.values())) for run in (small[-1], large)]
    write(
        "collect_memory",
        {
            "value": peaks[1],
            "unit": f"peak MB of resident memory to collect and caption {10 * arguments.steps:,} steps",
            "target": f"< {MEMORY:,}, and at most {GROWTH} times the time per step with {arguments.steps:,} steps",
            "met": peaks[1] < MEMORY and growth <= GROWTH,
            "peer": f"MB with {arguments.steps:,} steps; the time per step with ten times as many, relative to these",
            "peer_value": [peaks[0], round(growth, 2)],
            "megabytes": {stage: [round(run[stage].megabytes) for run in (small[-1], large)] for stage in large},
        },
        common,
    )


def _best_threads() -> int:
    cpus = os.cpu_count() or 1
    return max(sorted({1, 2, cpus, 2 * cpus}), key=raw_rate)


def raw_rate(threads: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the steps a second of the environments alone, by a clock."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import envpool

        envs = envpool.make(ENV_ID, env_type="gymnasium", num_envs=N_ENVS, num_threads=threads, seed=SEED)
        envs.reset()
    actions = np.random.default_rng(SEED).integers(0, 7, (1000, N_ENVS))
    for action in actions[:100]:
        envs.step(action)
    taken, started = 0, clock()
    while (seconds := clock() - started) < RAW_SECONDS:
        for action in actions:
            envs.step(action)
        taken += actions.size
    envs.close()
    return taken / seconds


def _collect_and_caption(steps: int) -> dict[str, Spent]:
    """Run the two commands; return the resources used by each."""
    params: dict[str, Any] = {
        "seed": SEED,
        "env": {"id": ENV_ID},
        "collect": {"steps": steps, "n_envs": N_ENVS},
        "arms": ["extrinsic"],
        "agent": {"seeds": [0], "steps": 1},
        "tracking": {"enabled": False},
    }
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "params.yaml").write_text(json.dumps(params))  # JSON is YAML
        return {stage: command(stage, folder) for stage in ("collect", "caption")}


def command(stage: str, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> Spent:
    """Run a stage, or another command of `laurel`, in a folder with params; return the resources used."""
    words, started = [sys.executable, "-m", "laurel", stage, *options], time.perf_counter()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, env=environment)  # noqa: S603
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit((folder / "log").read_text())
    megabytes = used.ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)
    return Spent(time.perf_counter() - started, used.ru_utime + used.ru_stime, megabytes)


def _seconds(run: dict[str, Spent]) -> float:
    return sum(spent.seconds for spent in run.values())


if __name__ == "__main__":
    main()

"""Speed-up of training seeds as a batch: 8 agents in lockstep, compared with one after another and with two processes.

The same agents are trained in four ways, with the same bytes as result: one after another; together; one after
another in each of two processes, four agents each; together in each of two. Settings are those of params.yaml, where
most of the time goes into matrix products that a batch does not make cheaper, and those of a small network with few
environments, where it goes into call overhead. The ways take turns. Run it with: python benchmarks/seed_batch.py
"""

import cProfile
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from record import ONE_THREAD, about, command_line, load_average, write

from laurel.pool import Job, run_jobs

SEEDS, PROCESSES, ROUNDS = 8, 2, 3
SETTINGS: dict[str, tuple[str, dict[str, Any], int]] = {
    "CartPole-v1, 64 environments, 64-64": ("CartPole-v1", {}, 40 * 2048),
    "MiniGrid-DoorKey-8x8-v0, 64 environments, 64-64": ("MiniGrid-DoorKey-8x8-v0", {}, 10 * 2048),
    "CartPole-v1, 8 environments, batches of 64, 32-32": (
        "CartPole-v1",
        {"n_envs": 8, "batch_size": 64, "hidden": (32, 32)},
        200 * 256,
    ),
}
PRELOAD = ["laurel.training.loop", "threadpoolctl", "envpool", "minigrid"]
TIMES = 2.0
PARTS = {
    "products of matrices and tanh": ("stacked.py", {"forward", "backward"}),
    "environments": ("vector.py", {"step"}),
    "Adam's step": ("stacked_update.py", {"_descend", "adam"}),
    "rows of minibatches": ("stacked_update.py", {"_take", "_columns", "epoch"}),
    "the loss and its gradient": ("stacked_update.py", {"differentiate"}),
}
"""Parts of a profile: files of Laurel's, and functions including their callees, except `backward`."""
WHY = (
    "Batching agents saves call overhead: NumPy calls, steps of environments that are one array, sampling and storing "
    "of steps. With few environments and small minibatches this overhead is most of a run, and the target is met. "
    "With the settings of params.yaml most of the time goes into matrix products, since gradients are computed by "
    "hand in NumPy: they keep a core busy for one agent already, and take as long for eight agents at once as for "
    "each in turn. The profile of the same training, seconds one after another and together, shows it, although a "
    "profiler overstates the cost of calls. DoorKey's environments are EnvPool's, in C++ and not an array: the gain "
    "is that the environments of all agents step at the same time, in separate threads, if there are cores for them; "
    "one pool for all agents was no faster. The pipeline uses the better combination: each process trains its agents "
    "together."
)
Way = tuple[int, bool]
"""Processes, and whether each trains its agents together."""
WAYS: dict[str, Way] = {
    "one after another": (1, False),
    "together": (1, True),
    "two processes, one after another": (PROCESSES, False),
    "two processes, together": (PROCESSES, True),
}


def main() -> None:
    """Measure all ways with all settings, and write the record."""
    command_line(__doc__).parse_args()
    found: dict[str, dict[str, float]] = {}
    for name, (env_id, settings, steps) in SETTINGS.items():
        _run((1, False), env_id, settings, 2048)  # what is done for the first time does not count
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(ROUNDS):
            for way, setting in WAYS.items():
                seconds[way].append(_run(setting, env_id, settings, steps))
        found[name] = {way: round(SEEDS * steps / statistics.median(samples)) for way, samples in seconds.items()}
    gains = {name: rates["together"] / rates["one after another"] for name, rates in found.items()}
    processes = {
        name: rates["two processes, together"] / rates["two processes, one after another"]
        for name, rates in found.items()
    }
    combined = {name: rates["two processes, together"] / rates["one after another"] for name, rates in found.items()}
    write(
        "seed_batch",
        {
            "value": [round(gain, 2) for gain in gains.values()],
            "unit": f"times the steps/s of {SEEDS} agents in lockstep compared with one after another, in one "
            "process, with " + "; ".join(SETTINGS),
            "target": f">= {TIMES:g} each, and in two processes >= 1 times one after another in two",
            "met": min(gains.values()) >= TIMES and min(processes.values()) >= 1,
            "peer": "the same with both in two processes; the pipeline's way, together in two, is "
            + ", ".join(f"{times:.2f}" for times in combined.values())
            + " times as fast as one after another in one",
            "peer_value": [round(gain, 2) for gain in processes.values()],
            "steps_per_second": found,
            "why": WHY,
            "profile": {name: _profiled(*SETTINGS[name]) for name in SETTINGS},
        },
        about("torch", "numpy", "gymnasium", "laurel-rl", remarks=(ONE_THREAD, f"{load_average()} after the run")),
    )


def _run(way: Way, env_id: str, settings: dict[str, Any], steps: int) -> float:
    """Train all agents in a way; return the seconds."""
    n_processes, together = way
    with tempfile.TemporaryDirectory() as place:
        size = SEEDS // n_processes
        parts = [range(start, start + size) for start in range(0, SEEDS, size)]
        jobs = [
            Job(f"part {i}", work, (env_id, settings, steps, place, seeds, together)) for i, seeds in enumerate(parts)
        ]
        started = time.perf_counter()
        run_jobs(jobs, n_processes, _unreported, PRELOAD)
        return time.perf_counter() - started


def _unreported(n: int, *, free: bool = False, left: float | None = None) -> None:
    """Take a report of progress, and show nothing."""


def _profiled(env_id: str, settings: dict[str, Any], steps: int) -> dict[str, list[float]]:
    """Return the seconds of each part, one after another and together, in this process and under a profiler."""
    parts: dict[str, list[float]] = {part: [] for part in (*PARTS, "all else")}
    with tempfile.TemporaryDirectory() as place:
        work(env_id, settings, 2048, place, [0], True, lambda _: None)  # imports are in no profile
    for together in (False, True):
        with tempfile.TemporaryDirectory() as place:
            profile = cProfile.Profile()
            profile.runcall(work, env_id, settings, steps, place, range(SEEDS), together, lambda _: None)
        stats = pstats.Stats(profile)
        left = stats.total_tt  # type: ignore[attr-defined]
        for part, (file, functions) in PARTS.items():
            rows = stats.stats.items()  # type: ignore[attr-defined]
            seconds = sum(row[3] for (path, _, name), row in rows if Path(path).name == file and name in functions)
            if "differentiate" in functions:
                seconds -= sum(
                    row[3] for (path, _, name), row in rows if path.endswith("stacked.py") and name == "backward"
                )
            parts[part].append(round(seconds, 2))
            left -= seconds
        parts["all else"].append(round(left, 2))
    return parts


def work(
    env_id: str,
    settings: dict[str, Any],
    steps: int,
    place: str,
    seeds: Sequence[int],
    together: bool,
    advance: Callable[[int], None],
) -> None:
    """Train some agents; runs in a process of its own."""
    import torch
    from threadpoolctl import threadpool_limits

    from laurel.envs import adapter_for
    from laurel.params import EnvParams
    from laurel.params.algorithms import PPOParams
    from laurel.params.training import ShapingParams
    from laurel.training.loop import train_together
    from laurel.training.task import Assignment, Task

    torch.set_num_threads(1)
    env, ppo = EnvParams(id=env_id), PPOParams.model_validate(settings)
    adapter = adapter_for(env)
    agents = [
        Assignment(Task("extrinsic", seed, 0, env, ppo, ShapingParams(), steps, steps), None, Path(place) / str(seed))
        for seed in seeds
    ]
    with threadpool_limits(1, user_api="blas"):
        for group in [agents] if together else [[agent] for agent in agents]:
            train_together(group, adapter, advance)


if __name__ == "__main__":
    main()

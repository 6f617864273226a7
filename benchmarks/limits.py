"""What this machine could do at most, and the share of it that PPO on DoorKey reaches.

A bound of PPO's steps/s of one core: nothing but the matrix products of acting and of the gradient steps, in the shapes
that training has and with the kernels that it uses, and the environments stepped alone. What it leaves out is where the
rest goes: captions, counts and rewards, draws of actions, the loss, Adam, the rows of minibatches, episodes. Beside it:
memory bandwidth, and what each stage takes to start, as a command with next to nothing to do. Run doorkey_ppo.py first,
whose record is compared. Run it with: python benchmarks/limits.py
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from collect_caption import command, raw_rate
from record import ONE_THREAD, RESULTS, about, command_line, load_average, write
from scale import STAGES, params_of

from laurel.envs.minigrid import IMAGE
from laurel.machine import common_kernels
from laurel.params.algorithms import PPOParams

SHARE = 0.5
COPIED = 2**28
"""Bytes of an array that is copied to see how fast memory is; no cache holds it."""


def main() -> None:
    """Measure, print the result and write it."""
    command_line(__doc__).parse_args()
    load = f"{load_average()} before the run"
    (products, environments), bandwidth = least_seconds(), _bandwidth()
    with tempfile.TemporaryDirectory() as directory:
        params_of(Path(directory))
        starts = {stage: command(stage, Path(directory)).cpu_seconds for stage in STAGES}
    bound = 1 / (products + environments)
    reached = json.loads((RESULTS / "doorkey_ppo.json").read_text())["per_cpu_second"]["laurel"]
    found = {
        "value": round(reached / bound, 2),
        "unit": "share of a core's bound that PPO on DoorKey-8x8 reaches with a reward for each caption",
        "target": f">= {SHARE:g}",
        "met": reached >= SHARE * bound,
        "peer": "the bound in steps/s of a core; microseconds a step of products and of environments; GB/s of memory",
        "peer_value": [
            *(round(bound), round(1e6 * products, 2), round(1e6 * environments, 2)),
            round(bandwidth / 1e9, 1),
        ],
        "cpu_seconds_of_a_start": {stage: round(seconds, 1) for stage, seconds in starts.items()},
    }
    if not found["met"]:
        found["why"] = (
            "The rest goes to what is not a product: the profile of a single agent in seed_batch gives its parts. They "
            "are many small operations on arrays of some thousand numbers, none of which takes a tenth of a run."
        )
    write("limits", found, about("numpy", "envpool", "laurel-rl", remarks=(ONE_THREAD, load)))


def least_seconds() -> tuple[float, float]:
    """Return the seconds of a core that a step of PPO takes at least: of matrix products, and of the environments."""
    with common_kernels():  # of this process they are chosen already
        command = [sys.executable, __file__, "products"]
        products = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603
    return products, 1 / max(raw_rate(1) for _ in range(3))


def _products() -> float:
    """Return the seconds that the matrix products take for each environment step."""
    from threadpoolctl import threadpool_limits

    ppo = PPOParams()
    widths = (IMAGE, *ppo.hidden)
    with threadpool_limits(1):
        acting = sum(best_products((*widths, out), ppo.n_envs, learning=False) for out in (7, 1)) / ppo.n_envs
        learning = sum(best_products((*widths, out), ppo.batch_size, learning=True) for out in (7, 1)) / ppo.batch_size
    return acting + ppo.n_epochs * learning


def best_products(widths: tuple[int, ...], rows: int, *, learning: bool) -> float:
    """Return the seconds of the products of a network's layers for a batch: forwards, and also backwards to learn."""
    rng, seconds = np.random.default_rng(0), 0.0
    for layer, (n_in, n_out) in enumerate(pairwise(widths)):
        x, w, y = (
            rng.standard_normal(shape).astype(np.float32) for shape in ((n_in, rows), (n_out, n_in), (n_out, rows))
        )
        seconds += _best(lambda w=w, x=x: w @ x)
        if learning:
            seconds += _best(lambda y=y, x=x: y @ x.T)
            seconds += _best(lambda w=w, y=y: w.T @ y) if layer else 0.0
    return seconds


def _bandwidth() -> float:
    """Return the bytes a second that are read and written by a copy."""
    there, here = np.ones(COPIED // 8), np.empty(COPIED // 8)
    return 2 * COPIED / _best(lambda: np.copyto(here, there), times=5)


def _best(work: Callable[[], object], times: int = 200) -> float:
    """Return the seconds of the quickest of some calls."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


if __name__ == "__main__":
    if sys.argv[1:] == ["products"]:
        sys.stdout.write(str(_products()))
    else:
        main()

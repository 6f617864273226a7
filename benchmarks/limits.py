"""Upper bounds for this machine, and the share of them that PPO reaches on DoorKey and on CartPole.

The bound for PPO's steps/s on one core counts only the matrix products of acting and of the gradient steps, in the
shapes of training, and the environments stepped alone. Everything uses the matrix kernels of `make run`, which all
CPUs with AVX2 support. A profile of the same training shows where the rest goes; the bound's parts take longer there,
too, since other arrays compete for the caches. Also measured: memory bandwidth, and the start-up time of each stage,
as a command with almost nothing to do. Run it with: python benchmarks/limits.py
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
import numpy as np
from collect_caption import N_ENVS, RAW_SECONDS, SEED, command, raw_rate
from record import ONE_THREAD, about, command_line, load_average, write
from running import run_peer
from sampled import parts_of, sampled
from scale import STAGES, params_of

from laurel.envs.minigrid_codes import IMAGE
from laurel.machine import common_kernels
from laurel.params.algorithms import PPOParams

SHARE = 0.5
COPIED = 2**28
"""Bytes of the array copied to measure memory bandwidth; larger than any cache."""
DOORKEY, CARTPOLE = "DoorKey-8x8", "CartPole-v1"
SHAPES = {DOORKEY: (IMAGE, 7), CARTPOLE: (4, 2)}
"""Numbers of features and actions."""
SCRIPTS = {DOORKEY: ("doorkey_ppo.py", "paid"), CARTPOLE: ("cartpole_ppo.py",)}
"""The training script, and the arguments after the seed."""
SEEDS = (0, 1, 2)
PROFILED = {DOORKEY: 4, CARTPOLE: 6}
"""Number of profiled runs, each with its own seed."""
PARTS = {
    "products of matrices and tanh": ("agents/stacked.py", {"forward", "backward"}),
    "environments": ("envs/vector.py", {"begin_step", "end_step", "reset"}),
    "captions, counts and pay": ("training/pay.py", {"mix_into"}),
    "actions drawn, their log-probabilities": ("agents/stacked_ppo.py", {"_draw", "_noise", "_log_probs"}),
    "features": ("laurel/envs/", {"features"}),
    "steps kept": ("agents/learner.py", {"record"}),
    "advantages": ("agents/ppo.py", {"gae"}),
    "rows of minibatches": ("agents/stacked_update.py", {"_take", "_columns", "epoch"}),
    "the loss and its gradient": ("agents/stacked_update.py", {"differentiate"}),
    "Adam's step": ("agents/stacked_update.py", {"_descend", "adam"}),
    "episodes": ("agents/episodes.py", set[str]()),
    "checkpoints": ("training/checkpoint.py", set[str]()),
}
"""Parts of a training profile: files of Laurel's, and functions including their callees."""


def main() -> None:
    """Measure, print the result and write it."""
    command_line(__doc__).parse_args()
    load = f"{load_average()} before the run"
    least = {DOORKEY: least_seconds(), CARTPOLE: least_seconds(CARTPOLE)}
    bandwidth = _bandwidth()
    with tempfile.TemporaryDirectory() as directory:
        params_of(Path(directory))
        starts = {stage: command(stage, Path(directory)).cpu_seconds for stage in STAGES}
    with common_kernels():  # this process has already chosen its kernels
        reached = {name: statistics.median(_trained(name, seed) for seed in SEEDS) for name in SCRIPTS}
        profiles = {name: _measured("profile", name) for name in SCRIPTS}
    bounds = {name: 1 / sum(seconds) for name, seconds in least.items()}
    shares = {name: reached[name] / bounds[name] for name in SCRIPTS}
    ratios = {name: reached[name] * least[name][0] for name in SCRIPTS}
    write(
        "limits",
        {
            "value": [round(share, 2) for share in shares.values()],
            "unit": f"share of a core's bound that PPO reaches on {DOORKEY} with a reward for each caption, and on "
            f"{CARTPOLE} with the settings of cartpole_ppo",
            "target": f">= {SHARE:g} on {DOORKEY}",
            "met": shares[DOORKEY] >= SHARE,
            "peer": "of each: the bound in steps/s of a core, PPO's steps/s of a core, microseconds per step of "
            "products and of environments; and GB/s of memory",
            "peer_value": [
                *(
                    [round(bounds[name]), round(reached[name]), *(round(1e6 * seconds, 2) for seconds in least[name])]
                    for name in SCRIPTS
                ),
                round(bandwidth / 1e9, 1),
            ],
            "cpu_seconds_of_a_start": {stage: round(seconds, 1) for stage, seconds in starts.items()},
            "profile_unit": "microseconds per step of",
            "profile": {
                name: {part: [round(microseconds, 2)] for part, microseconds in profile.items()}
                for name, profile in profiles.items()
            },
            "why": "The bound counts products and environments, with the kernels that all CPUs with AVX2 have; of a "
            f"bound by products alone PPO reaches {ratios[DOORKEY]:.0%} on {DOORKEY} and {ratios[CARTPOLE]:.0%} on "
            f"{CARTPOLE}. "
            "The rest, beside products and environments, is many small operations on arrays of some thousand "
            f"numbers; and of {CARTPOLE}'s {1e6 / reached[CARTPOLE]:.2f} microseconds per step "
            f"{1e6 / reached[CARTPOLE] - sum(profiles[CARTPOLE].values()):.2f} are one-time costs of a process.",
        },
        about("numpy", "envpool", "gymnasium", "laurel-rl", remarks=(ONE_THREAD, load)),
    )


def least_seconds(name: str = DOORKEY) -> tuple[float, float]:
    """Return the seconds of a core that a step of PPO takes at least: of matrix products, and of the environments.

    Environments are timed by the processor's clock, as PPO is: other work on the machine would make the bound too low.
    """
    with common_kernels():
        products = _measured("products", name)["seconds"]
    rate = raw_rate if name == DOORKEY else _raw_cartpole
    return products, 1 / max(rate(1, time.process_time) for _ in range(3))


def _measured(task: str, name: str) -> dict[str, float]:
    """Measure in a separate process, whose matrix kernels are set by an environment variable."""
    found: dict[str, float] = run_peer(Path(sys.executable), "../limits.py", task, name, ours=True)
    return found


def _trained(name: str, seed: int) -> float:
    """Return the steps that PPO makes in a second of a core."""
    script, *arguments = SCRIPTS[name]
    figures = run_peer(Path(sys.executable), f"../{script}", seed, *arguments, ours=True)
    return figures["steps"] / figures["cpu_seconds"]


# -- the bound --------------------------------------------------------------------------------------------------
def _raw_cartpole(_threads: int, clock: Callable[[], float]) -> float:
    """Return the steps a second of Gymnasium's own vector of cart poles, by a clock."""
    import gymnasium as gym

    envs = gym.make_vec(CARTPOLE, N_ENVS, vectorization_mode="vector_entry_point")
    envs.reset(seed=SEED)
    actions = np.random.default_rng(SEED).integers(0, 2, (1000, N_ENVS))
    taken, started = 0, clock()
    while (seconds := clock() - started) < RAW_SECONDS:
        for action in actions:
            envs.step(action)
        taken += actions.size
    return taken / seconds


def _ppo_of(name: str) -> PPOParams:
    import cartpole_ppo

    return PPOParams() if name == DOORKEY else PPOParams.model_validate(cartpole_ppo.PPO)


def _products(name: str) -> float:
    """Return the seconds that the matrix products take for each environment step."""
    from threadpoolctl import threadpool_limits

    ppo, (features, actions) = _ppo_of(name), SHAPES[name]
    widths = (features, *ppo.hidden)
    with threadpool_limits(1):
        acting = sum(best_products((*widths, out), ppo.n_envs, learning=False) for out in (actions, 1)) / ppo.n_envs
        of_a_batch = sum(best_products((*widths, out), ppo.batch_size, learning=True) for out in (actions, 1))
    return acting + ppo.n_epochs * of_a_batch / ppo.batch_size


def best_products(widths: tuple[int, ...], rows: int, *, learning: bool) -> float:
    """Return the seconds of the products of a network's layers for a batch: forwards, and also backwards to learn."""
    rng, seconds = np.random.default_rng(0), 0.0
    for layer, (n_in, n_out) in enumerate(pairwise(widths)):
        x, w, y = (
            rng.standard_normal(shape).astype(np.float32) for shape in ((n_in, rows), (n_out, n_in), (n_out, rows))
        )
        seconds += _best(partial(np.matmul, w, x))
        if learning:
            seconds += _best(partial(np.matmul, y, x.T))
            seconds += _best(partial(np.matmul, w.T, y)) if layer else 0.0
    return seconds


def _bandwidth() -> float:
    """Return the bytes a second that are read and written by a copy."""
    source, target = np.ones(COPIED // 8), np.empty(COPIED // 8)
    return 2 * COPIED / _best(lambda: np.copyto(target, source), times=5)


def _best(work: Callable[[], object], times: int = 200) -> float:
    """Return the seconds of the fastest of several calls."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


# -- where the rest goes ----------------------------------------------------------------------------------------
def _profile(name: str) -> dict[str, float]:
    """Return the microseconds a step of each part of training."""
    import cartpole_ppo
    import doorkey_ppo

    def train(seed: int) -> int:
        if name == CARTPOLE:
            return cartpole_ppo.ours(seed)[1]
        doorkey_ppo.run(seed, True, 0.1)
        return doorkey_ppo.STEPS

    train(PROFILED[name])  # imports are in no profile
    with sampled() as found:
        steps = sum(train(seed) for seed in range(PROFILED[name]))
    return {part: 1e6 * seconds / steps for part, seconds in parts_of(found, PARTS).items()}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["products", name]:
            sys.stdout.write(json.dumps({"seconds": _products(name)}))
        case ["profile", name]:
            sys.stdout.write(json.dumps(_profile(name)))
        case _:
            try:
                main()
            except subprocess.CalledProcessError as error:
                sys.exit(error.stderr)

"""Time of PPO's gradient step on a minibatch, by hand in NumPy as in Laurel, and by the alternatives.

The alternatives are autograd, autograd compiled by torch.compile, autograd in bfloat16 (on CPUs that multiply it),
and by hand with the matrix kernels of this CPU instead of those that all CPUs with AVX2 support; these kernels
(OPENBLAS_CORETYPE chooses them) make agents depend on the CPU. The bound is the step's matrix products alone, with
the same kernels: fusing everything else could gain no more. The shapes are those of params.yaml on DoorKey. One thread.
Run it with: python benchmarks/update_step.py
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

from limits import best_products
from record import ONE_THREAD, about, command_line, load_average, write

from laurel.envs.minigrid_codes import IMAGE
from laurel.machine import KERNELS, common_kernels
from laurel.params.algorithms import PPOParams

ACTIONS, REPEATS = 7, 40
HAND, OWN, EAGER, COMPILED, BFLOAT = "by hand", "by hand, own kernels", "autograd", "compiled", "bfloat16"
OWN_PRODUCTS = "the products alone, own kernels"


def main() -> None:
    """Measure all methods, print the result and write it."""
    command_line(__doc__).parse_args()
    load = f"{load_average()} before the run"
    with common_kernels():
        found = _measured("hand")
    own_kernels = _measured("hand", **{KERNELS: ""})
    found |= {OWN: own_kernels[HAND], OWN_PRODUCTS: own_kernels["products"]}
    found |= _measured("autograd")
    peers = {name: microseconds for name, microseconds in found.items() if name not in (HAND, "products")}
    quickest = min((EAGER, COMPILED, BFLOAT), key=lambda name: found[name])
    write(
        "update_step",
        {
            "value": round(found[HAND]),
            "unit": f"microseconds of a gradient step of PPO on {PPOParams().batch_size} steps of DoorKey, by hand",
            "target": "less than with autograd, compiled or not, in either precision",
            "met": found[HAND] < found[quickest],
            "peer": "microseconds of " + ", of ".join(("its matrix products alone", *peers)),
            "peer_value": [round(found["products"]), *map(round, peers.values())],
            "why": f"Products with the kernels that all CPUs with AVX2 have take {found['products'] / found[HAND]:.0%} "
            f"of the step. This CPU's own kernels would save {1 - found[OWN] / found[HAND]:.0%}, but they add up in "
            "another order, so that the same seed would give other agents on another CPU: they are not used.",
        },
        about("torch", "numpy", "laurel-rl", remarks=(ONE_THREAD, load)),
    )


def _measured(way: str, **environment: str) -> dict[str, float]:
    """Return microseconds by method, measured in a separate process, whose kernels are set by an environment
    variable.
    """
    kept = {name: value for name, value in {**os.environ, **environment}.items() if value or name not in environment}
    command = [sys.executable, __file__, way]
    answer = subprocess.run(command, env=kept, check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own
    found: dict[str, float] = json.loads(answer.splitlines()[-1])
    return found


def _by_hand() -> dict[str, float]:
    import numpy as np
    from threadpoolctl import threadpool_limits

    from laurel.agents.policy import ActorCritic
    from laurel.agents.stacked_ppo import StackedPPO
    from laurel.agents.stacked_update import Update

    params, rng = PPOParams(), np.random.default_rng(0)
    policy = ActorCritic(IMAGE, ACTIONS, continuous=False, hidden=params.hidden)
    learner = StackedPPO(policy, params, rng)
    assert learner.place is not None
    size, total = params.batch_size, params.n_envs * params.n_steps
    features, facts, index = _steps(total), _facts(total), rng.permutation(total)[None, :size]
    update, counts = Update(learner.place[0], slice(0, 1), size), np.array([size])
    with threadpool_limits(1):
        taken = _best(lambda: update.step([features], facts, index, counts))
        products = sum(best_products((IMAGE, *params.hidden, out), size, learning=True) for out in (ACTIONS, 1))
    return {HAND: 1e6 * taken, "products": 1e6 * products}


def _by_autograd() -> dict[str, float]:
    import torch

    from laurel.agents.policy import ActorCritic
    from laurel.agents.ppo import clipped_loss

    torch.set_num_threads(1)
    params = PPOParams()
    policy = ActorCritic(IMAGE, ACTIONS, continuous=False, hidden=params.hidden)
    optimizer = torch.optim.Adam(policy.parameters(), lr=params.learning_rate, eps=1e-5, fused=True)
    total = params.n_envs * params.n_steps
    old, advantage, returns, action = map(torch.from_numpy, _facts(total))
    features, index = torch.from_numpy(_steps(total)), torch.randperm(total)[: params.batch_size]

    def loss_of(features: Any, action: Any, old: Any, advantage: Any, returns: Any) -> Any:
        log_prob, entropy, value = policy(features, action)
        return clipped_loss(params, log_prob, entropy, value, old, advantage, returns)[0]

    def step(loss_of: Callable[..., Any], half: bool = False) -> None:
        inputs = features[index], action[index].long(), old[index], advantage[index], returns[index]
        with torch.autocast("cpu", torch.bfloat16) if half else nullcontext():
            loss = loss_of(*inputs)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), params.max_grad_norm)
        optimizer.step()

    compiled = torch.compile(loss_of)
    ways = {EAGER: lambda: step(loss_of), COMPILED: lambda: step(compiled), BFLOAT: lambda: step(loss_of, half=True)}
    return {name: 1e6 * _best(way) for name, way in ways.items()}


def _steps(total: int) -> Any:
    import numpy as np

    return np.random.default_rng(1).random((total, IMAGE), np.float32)


def _facts(total: int) -> Any:
    """Return log-probabilities, advantages, returns and actions of steps (4, total)."""
    import numpy as np

    rng = np.random.default_rng(2)
    drawn = np.log(1 / ACTIONS) + 0.1 * rng.standard_normal(total), *rng.standard_normal((2, total))
    return np.stack([*drawn, rng.integers(ACTIONS, size=total)]).astype(np.float32)


def _best(work: Callable[[], None]) -> float:
    """Return the CPU seconds of the fastest of several calls."""
    work()
    moments = [time.process_time()]
    for _ in range(REPEATS):
        work()
        moments.append(time.process_time())
    return min(after - before for before, after in pairwise(moments))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["hand"]:
            sys.stdout.write(json.dumps(_by_hand()))
        case ["autograd"]:
            sys.stdout.write(json.dumps(_by_autograd()))
        case _:
            main()

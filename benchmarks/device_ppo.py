"""Speed of PPO entirely on the device: steps/s of up to 256 agents, with environments as tensors beside the networks.

It is compared with the path of a machine without a GPU (environments on the host, by EnvPool or Gymnasium's vectors,
and networks in NumPy, with as many agents in lockstep, in one process) and with a limit: the same tensor environments
stepped by random actions, without networks. Without a GPU the tensors are on the CPU, which shows that the path works
and its cost there, but nothing about a GPU. On all sides a row in which an environment only resets counts as a step;
with agents that have hardly learned these are about 4% of CartPole's. Run it with: python benchmarks/device_ppo.py
"""

import contextlib
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

from record import ONE_THREAD, about, command_line, load_average, write

AGENTS = (1, 16, 64, 256)
ENVS = ("CartPole-v1", "MiniGrid-DoorKey-8x8-v0")
UPDATES = {"cuda": 20, "cpu": 1}
"""Timed updates for 256 agents; with fewer agents, more updates in the same time."""
SHARE, ALONE_SECONDS = 0.5, 5.0
Rates = dict[str, dict[int, int]]


class _DoneError(Exception):
    """Raised to stop training after enough timed updates."""


def main() -> None:
    """Measure all, in turns, and write the record."""
    command_line(__doc__).parse_args()
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "the CPU (no GPU)"
    on_device: Rates = {env_id: {} for env_id in ENVS}
    on_host: Rates = {env_id: {} for env_id in ENVS}
    alone: Rates = {env_id: {} for env_id in ENVS}
    for env_id, n_agents in itertools.product(ENVS, AGENTS):
        on_device[env_id][n_agents] = _rate(env_id, n_agents, device, tensors=True)
        on_host[env_id][n_agents] = _rate(env_id, n_agents, "cpu", tensors=False)
        alone[env_id][n_agents] = _alone(env_id, n_agents, device)
    n_most = AGENTS[-1]
    value, peer, limit = ([rates[env_id][n_most] for env_id in ENVS] for rates in (on_device, on_host, alone))
    shares = [reached / at_most for reached, at_most in zip(value, limit, strict=True)]
    met = min(shares) >= SHARE and all(ours >= theirs for ours, theirs in zip(value, peer, strict=True))
    on_gpu = device == "cuda"
    write(
        "device_ppo",
        {
            "value": value,
            "unit": f"steps/s of {n_most} agents at once, all on {name}, in {' and '.join(ENVS)}",
            "target": f">= {SHARE:g} of the tensor environments' own rate and >= the host's, {n_most} at once"
            if on_gpu
            else "no target without a GPU",
            "met": met if on_gpu else None,
            "peer": "environments of the host and NumPy, in one process of this machine; the tensor environments alone "
            "by random actions; and the share of these",
            "peer_value": [peer, limit, [round(share, 2) for share in shares]],
            "why": "The rest is acting and learning, with a gradient step for each minibatch.",
            "device": name,
            "steps_per_second": {"device": on_device, "host": on_host, "alone": alone},
        },
        about(
            *("torch", "numpy", "gymnasium", "minigrid", "laurel-rl"),
            remarks=(ONE_THREAD, f"{load_average()} after the run", f"with all on {name}"),
        ),
    )


def _rate(env_id: str, n_agents: int, device: str, *, tensors: bool) -> int:
    """Return the steps/s of agents trained together by the settings of params.yaml, their first update left out."""
    import torch
    from threadpoolctl import threadpool_limits

    from laurel.envs import adapter_for
    from laurel.params import EnvParams
    from laurel.params.algorithms import PPOParams
    from laurel.params.training import ShapingParams
    from laurel.training.loop import train_together
    from laurel.training.task import Assignment, Task

    torch.set_num_threads(1)
    env, ppo, shaping = EnvParams(id=env_id), PPOParams(), ShapingParams()
    adapter, update_steps = adapter_for(env), ppo.n_envs * ppo.n_steps
    updates = max(UPDATES[device], min(8, UPDATES[device] * AGENTS[-1] // n_agents))
    times: list[float] = []

    def advance(_: int) -> None:
        times.append(time.perf_counter())
        if len(times) > updates + 1:  # the first says that there was no checkpoint
            raise _DoneError

    with tempfile.TemporaryDirectory() as place, threadpool_limits(1, user_api="blas"):
        total = (updates + 2) * update_steps  # never reached, so nothing is saved
        tasks = [Task("extrinsic", seed, 0, env, ppo, shaping, total, total, device) for seed in range(n_agents)]
        agents: list[Any] = [Assignment(task, None, Path(place) / str(task.seed)) for task in tasks]
        with contextlib.suppress(_DoneError):
            train_together(agents, adapter, advance, tensors=tensors)
    return round(updates * n_agents * update_steps / (times[-1] - times[1]))


def _alone(env_id: str, n_agents: int, device: str) -> int:
    """Return the steps/s of the tensor environments of as many agents, by random actions."""
    import torch

    from laurel.envs import adapter_for
    from laurel.envs.tensor import make_tensors
    from laurel.envs.tensor.base import TensorEnv
    from laurel.params import EnvParams
    from laurel.params.algorithms import PPOParams

    torch.set_num_threads(1)
    env, ppo, place = EnvParams(id=env_id), PPOParams(), torch.device(device)
    adapter = adapter_for(env)
    parts = [make_tensors(env, adapter, ppo.n_envs, seed, place) for seed in range(n_agents)]
    envs = TensorEnv.stacked(parts)
    actions = torch.randint(adapter.action_space.n, (ppo.n_steps, envs.n_rows), device=place)  # type: ignore[attr-defined]

    def roll() -> None:
        for action, drawn in zip(actions, envs.draw(ppo.n_steps), strict=True):
            envs.step(action, drawn)
        if device == "cuda":
            torch.cuda.synchronize()

    with torch.no_grad():
        roll()
        taken, started = 0, time.perf_counter()
        while (seconds := time.perf_counter() - started) < ALONE_SECONDS:
            roll()
            taken += actions.numel()
    return round(taken / seconds)


if __name__ == "__main__":
    main()

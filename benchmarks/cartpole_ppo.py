"""Time until PPO solves CartPole: Laurel, Stable-Baselines3, and a compiled JAX loop like PureJaxRL's.

Each trains until the mean return of the last 100 training episodes, in the order in which they began, reaches 475.
Laurel and Stable-Baselines3 stop there; the JAX loop runs to the end; only its time up to that step counts, plus its
compilation. The ratio without compilation is also reported. Each uses its own settings: Stable-Baselines3 those of
its zoo, the JAX loop those of CleanRL, as in PureJaxRL, and Laurel those below. Imports do not count. Seeds take
turns. Run it with: python benchmarks/cartpole_ppo.py
"""

import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from environment import peer_python
from record import ONE_THREAD, about, command_line, load_average, write
from running import SB3, Figures, run_peer

if TYPE_CHECKING:
    from reaching import Clock

SEEDS = (0, 1, 2)
STEPS = 500_000
JAX = ("jax==0.10.2", "gymnax==1.0.1", "optax==0.2.8", "six==1.17.0")
SECONDS, SB3_TIMES, JAX_TIMES = 0.5, 10.0, 3.0
PPO = {"n_epochs": 2, "learning_rate": 8e-3, "entropy_coef": 0.0, "hidden": (32, 32)}
"""Settings that differ from params.yaml."""
EXTRINSIC = 0.02
"""shaping.extrinsic: a critic with tanh learns returns near 500 slowly."""


def main() -> None:
    """Measure all, and write a record of each comparison."""
    command_line(__doc__).parse_args()
    sb3, jax = peer_python("sb3", ("--no-deps", SB3)), peer_python("jax-ppo", JAX)
    found: dict[str, list[Figures]] = {"laurel": [], "sb3": [], "jax": []}
    for seed in SEEDS:
        found["laurel"].append(run_peer(Path(sys.executable), "../cartpole_ppo.py", seed, ours=True))
        found["sb3"].append(run_peer(sb3, "sb3_ppo.py", "cartpole", seed, ours=True))
        found["jax"].append(run_peer(jax, "purejax_ppo.py", seed))
    to_goal = {name: [run["seconds_to_goal"] for run in runs] for name, runs in found.items()}
    speed = {name: statistics.median(run["steps"] / run["seconds"] for run in runs) for name, runs in found.items()}
    solved = {name: all(seconds is not None for seconds in times) for name, times in to_goal.items()}
    median = {name: statistics.median([s or float("inf") for s in times]) for name, times in to_goal.items()}
    compiled = statistics.median(run["steps"] / (run["seconds"] - run["compile_seconds"]) for run in found["jax"])
    needed = [run["steps"] for run in found["laurel"]]
    told = {
        "seconds_to_475": {name: [s and round(s, 2) for s in times] for name, times in to_goal.items()},
        "steps": {name: [run["steps"] for run in runs] for name, runs in found.items()},
        "per_cpu_second": {
            name: round(statistics.median(run["steps"] / run["cpu_seconds"] for run in runs))
            for name, runs in found.items()
        },
        "compile_seconds": [round(run["compile_seconds"], 2) for run in found["jax"]],
        "settings": {**PPO, "shaping.extrinsic": EXTRINSIC},
        "why": f"The seeds need {min(needed):,} to {max(needed):,} steps, which differ between processors, since these "
        f"round differently. A step takes {1e6 / speed['laurel']:.1f} microseconds here, and one of the compiled loop "
        f"{1e6 / compiled:.1f}.",
    }
    peers = {"stable-baselines3": SB3, "jax": " ".join(JAX)}
    common = about(
        "torch", "numpy", "gymnasium", "laurel-rl", remarks=(ONE_THREAD, f"{load_average()} after the run"), **peers
    )
    write(
        "cartpole_ppo",
        {
            "value": round(median["laurel"], 2),
            "unit": "seconds until PPO solves CartPole (last 100 episodes, by start, >= 475), median of 3 seeds",
            "target": f"<= {SECONDS:g}",
            "met": solved["laurel"] and median["laurel"] <= SECONDS,
            "peer": "Stable-Baselines3 with its zoo's settings; a JAX loop after PureJaxRL, with its compilation",
            "peer_value": [round(median["sb3"], 2), round(median["jax"], 2)],
            **told,
        },
        common,
    )
    unit, solving = (
        "times the environment steps per second until CartPole is solved",
        "both solving it with each seed",
    )
    write(
        "cartpole_ppo_sb3",
        {
            "value": round(speed["laurel"] / speed["sb3"], 1),
            "unit": unit,
            "target": f">= {SB3_TIMES:g}, {solving}",
            "met": speed["laurel"] / speed["sb3"] >= SB3_TIMES and solved["laurel"] and solved["sb3"],
            "peer": "steps/s of Stable-Baselines3, zoo settings; and of Laurel",
            "peer_value": [round(speed["sb3"]), round(speed["laurel"])],
            **told,
        },
        common,
    )
    write(
        "cartpole_ppo_jax",
        {
            "value": [round(speed["laurel"] / other_speed, 1) for other_speed in (speed["jax"], compiled)],
            "unit": f"{unit}; and compared with an already compiled loop",
            "target": f">= {JAX_TIMES:g} with the compilation, {solving}",
            "met": speed["laurel"] / speed["jax"] >= JAX_TIMES and solved["laurel"] and solved["jax"],
            "peer": f"steps/s of a JAX loop after PureJaxRL, {STEPS:,} steps, with its compilation and without; "
            "and of Laurel",
            "peer_value": [round(speed["jax"]), round(compiled), round(speed["laurel"])],
            **told,
        },
        common,
    )


def ours(seed: int) -> tuple["Clock", int]:
    """Train until the goal, in a process of its own; return the clock that was started with it, and the steps."""
    import numpy as np
    import torch
    from reaching import Clock

    from laurel.agents.algorithms import initial_policy, make_learner
    from laurel.envs import adapter_for
    from laurel.envs.vector import make_vector
    from laurel.params import EnvParams
    from laurel.params.algorithms import PPOParams
    from laurel.seeding import derive_seed, generator

    torch.set_num_threads(1)
    env, params = EnvParams(id="CartPole-v1"), PPOParams.model_validate(PPO)
    clock = Clock(params.n_envs)
    adapter = adapter_for(env)
    learner = make_learner(initial_policy(adapter, params, 0, seed), params, generator(0, "agent", seed, "actions"))
    envs = make_vector(env, adapter, params.n_envs, derive_seed(0, "agent", seed, "envs"))
    rollout, observation = learner.rollout(envs), envs.reset()
    running, steps, reached = np.zeros(params.n_envs), 0, False
    while steps < STEPS and not reached:
        observation = learner.collect(envs, observation, rollout)
        rollout.reward *= EXTRINSIC
        learner.learn(rollout)
        steps += int(rollout.valid.sum())  # not the rows in which an environment only resets, as the peers count
        for reward, ended in zip(rollout.extrinsic, rollout.terminated | rollout.truncated, strict=True):
            running += reward
            reached = clock.reached(zip(np.flatnonzero(ended).tolist(), running[ended].tolist(), strict=True))
            running[ended] = 0
    return clock, steps


if __name__ == "__main__":
    match sys.argv[1:]:
        case [seed] if seed.isdigit():
            clock, steps = ours(int(seed))
            clock.tell(steps)
        case _:
            try:
                main()
            except subprocess.CalledProcessError as error:
                sys.exit(error.stderr)

"""How fast PPO trains on MiniGrid-DoorKey-8x8 with the learned reward in the loop, beside Stable-Baselines3.

Both have the settings of params.yaml, the same rewards by caption and the same shaping; Stable-Baselines3 steps
MiniGrid as its users do, and gets the reward through a `VecEnvWrapper`. What the reward costs is measured on runs
whose reward weighs nothing: they take the very steps of runs without it. Imports do not count, and seeds take turns.
Run it with: python benchmarks/doorkey_ppo.py
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from environment import peer_python
from record import ONE_THREAD, about, command_line, load_average, write
from running import SB3, Figures, run_peer

SEEDS = (0, 1, 2)
STEPS, PEER_STEPS = 40 * 2048, 5 * 2048
TIMES, SHARE = 10.0, 0.03
ROUNDS = 15
WHY = (
    "A few microseconds a step for captions, counts and pay, which a host that other machines share measures to a few "
    "hundredths: see how far the seeds are apart, which do the same work."
)


def main() -> None:
    """Measure both, and write the records."""
    command_line(__doc__).parse_args()
    sb3 = peer_python("sb3", ("--no-deps", SB3))
    found: dict[str, list[Figures]] = {"laurel": [], "sb3": []}
    costs: list[float] = []
    for seed in SEEDS:
        found["laurel"].append(run_peer(Path(sys.executable), "../doorkey_ppo.py", seed, "paid", ours=True))
        found["sb3"].append(run_peer(sb3, "sb3_ppo.py", "doorkey", seed, PEER_STEPS, 1, ours=True))
        costs.append(run_peer(Path(sys.executable), "../doorkey_ppo.py", seed, "cost", ours=True)["cost"])
    speed, per_cpu = (
        {name: statistics.median(some["steps"] / some[of] for some in runs) for name, runs in found.items()}
        for of in ("seconds", "cpu_seconds")
    )
    packages, peers = ("torch", "numpy", "envpool", "minigrid", "laurel-rl"), {"stable-baselines3": SB3}
    common = about(*packages, remarks=(ONE_THREAD, f"{load_average()} after the run"), **peers)
    write(
        "doorkey_ppo",
        {
            "value": round(speed["laurel"] / speed["sb3"], 1),
            "unit": "times as many environment steps a second of PPO on DoorKey-8x8 with a reward for each caption",
            "target": f">= {TIMES:g}",
            "met": speed["laurel"] / speed["sb3"] >= TIMES,
            "peer": "steps/s of Stable-Baselines3 with the reward in a VecEnvWrapper, same settings; and of Laurel",
            "peer_value": [round(speed["sb3"]), round(speed["laurel"])],
            "per_cpu_second": {name: round(value) for name, value in per_cpu.items()},
        },
        common,
    )
    write(
        "doorkey_reward_cost",
        {
            "value": round(statistics.median(costs), 3),
            "unit": "share by which captions, counts and rewards lengthen the same run of PPO on DoorKey-8x8",
            "target": f"<= {SHARE:g} with each seed",
            "met": max(costs) <= SHARE,
            "peer": f"of each seed; processor time, the shortest of {ROUNDS} runs",
            "peer_value": [round(cost, 3) for cost in costs],
            **({} if max(costs) <= SHARE else {"why": WHY}),
        },
        common,
    )


def ours(seed: int, what: str) -> None:
    """Train with the reward paid, or find out what it costs; runs in a process of its own."""
    import torch
    from doorkey_task import ENV, reward_of
    from reaching import Clock

    from laurel.envs import adapter_for
    from laurel.params.training import PPOParams, ShapingParams
    from laurel.training.loop import train
    from laurel.training.task import Task

    torch.set_num_threads(1)
    adapter = adapter_for(ENV)

    def run(rewarded: bool, intrinsic: float, steps: int = STEPS) -> Clock:
        shaping = ShapingParams(intrinsic=intrinsic)
        task = Task("preference", seed, 0, ENV, PPOParams(), shaping, steps, steps)
        clock = Clock()
        with tempfile.TemporaryDirectory() as place:
            train(task, adapter, reward_of(adapter) if rewarded else None, Path(place) / "agent", lambda _: None)
        return clock

    run(True, 0.0, steps=1)  # imports what is imported when it is needed
    if what == "paid":
        run(True, 0.1).tell(STEPS)
        return
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for rewarded in (True, False):
            seconds[rewarded].append(run(rewarded, 0.0).worked)
    sys.stdout.write(json.dumps({"cost": min(seconds[True]) / min(seconds[False]) - 1}))


if __name__ == "__main__":
    match sys.argv[1:]:
        case [seed, ("paid" | "cost") as what]:
            ours(int(seed), what)
        case _:
            try:
                main()
            except subprocess.CalledProcessError as error:
                sys.exit(error.stderr)

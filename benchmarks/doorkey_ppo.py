"""Speed of PPO on MiniGrid-DoorKey-8x8 with a reward for each caption in the loop, compared with Stable-Baselines3.

Both use the settings of params.yaml, the same caption rewards and the same shaping; Stable-Baselines3 steps MiniGrid
in the usual way, and gets the reward through a `VecEnvWrapper`. The cost of the reward is measured on runs in which
it has weight 0, so that they take exactly the steps of runs without it; of each update the shortest of all runs counts,
since whole runs are interrupted too often on a shared host. Timers around the reward functions break it down, and the
work of each seed is counted. Imports do not count, and seeds take turns. Run it with: python benchmarks/doorkey_ppo.py
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from environment import peer_python
from record import ONE_THREAD, about, command_line, load_average, write
from running import SB3, Figures, run_peer

if TYPE_CHECKING:
    from reaching import Clock

SEEDS = (0, 1, 2)
STEPS, PEER_STEPS = 40 * 2048, 5 * 2048
TIMES, SHARE = 10.0, 0.03
ROUNDS, TIMED_ROUNDS = 15, 3
REST, WHOLE = "figures of the curve, and all else of the pay", "the whole run"
WHY = (
    "Timers attribute {paid:.2f} of {whole:.2f} microseconds per step to the reward, which adds {share:.1%}; the seeds "
    "measured {seeds}. Their rewards do as much work: of {steps:,} steps each, with {captions} distinct captions, "
    "something comes into view in {sights}."
)


def main() -> None:
    """Measure both, and write the records."""
    command_line(__doc__).parse_args()
    sb3 = peer_python("sb3", ("--no-deps", SB3))
    found: dict[str, list[Figures]] = {"laurel": [], "sb3": []}
    costs: list[float] = []
    parts: list[dict[str, float]] = []
    work: list[dict[str, int]] = []
    for seed in SEEDS:
        found["laurel"].append(run_peer(Path(sys.executable), "../doorkey_ppo.py", seed, "paid", ours=True))
        found["sb3"].append(run_peer(sb3, "sb3_ppo.py", "doorkey", seed, PEER_STEPS, 1, ours=True))
        cost = run_peer(Path(sys.executable), "../doorkey_ppo.py", seed, "cost", ours=True)
        costs.append(cost["cost"])
        parts.append(cost["parts"])
        work.append(cost["work"])
    speed, per_cpu = (
        {name: statistics.median(figures["steps"] / figures[clock] for figures in runs) for name, runs in found.items()}
        for clock in ("seconds", "cpu_seconds")
    )
    packages, peers = ("torch", "numpy", "envpool", "minigrid", "laurel-rl"), {"stable-baselines3": SB3}
    common = about(*packages, remarks=(ONE_THREAD, f"{load_average()} after the run"), **peers)
    write(
        "doorkey_ppo",
        {
            "value": round(speed["laurel"] / speed["sb3"], 1),
            "unit": "times the environment steps per second of PPO on DoorKey-8x8 with a reward for each caption",
            "target": f">= {TIMES:g}",
            "met": speed["laurel"] / speed["sb3"] >= TIMES,
            "peer": "steps/s of Stable-Baselines3 with the reward in a VecEnvWrapper, same settings; and of Laurel",
            "peer_value": [round(speed["sb3"]), round(speed["laurel"])],
            "per_cpu_second": {name: round(value) for name, value in per_cpu.items()},
        },
        common,
    )
    spent = {part: statistics.median(profile[part] for profile in parts) for part in parts[0]}
    paid = sum(spent.values()) - spent[WHOLE]
    write(
        "doorkey_reward_cost",
        {
            "value": round(statistics.median(costs), 3),
            "unit": "share of time that captions, counts and rewards add to the same run of PPO on DoorKey-8x8",
            "target": f"<= {SHARE:g} with each seed",
            "met": max(costs) <= SHARE,
            "peer": f"of each seed; CPU time, of each update the shortest of {ROUNDS} runs",
            "peer_value": [round(cost, 3) for cost in costs],
            "work": {counted: [counts[counted] for counts in work] for counted in work[0]},
            "profile_unit": "microseconds per step of",
            "profile": {"PPO with a reward": {part: [round(microseconds, 3)] for part, microseconds in spent.items()}},
            "why": WHY.format(
                paid=paid,
                whole=spent[WHOLE],
                share=paid / (spent[WHOLE] - paid),
                seeds=", ".join(f"{cost:.1%}" for cost in costs),
                steps=STEPS,
                captions=_listed(counts["captions"] for counts in work),
                sights=_listed(counts["sights"] for counts in work),
            ),
        },
        common,
    )


def _listed(numbers: Iterable[int]) -> str:
    *firsts, last = (f"{number:,}" for number in numbers)
    return f"{', '.join(firsts)} and {last}"


def ours(seed: int, task: str) -> None:
    """Train with the reward, or measure its cost; runs in a separate process."""
    run(seed, True, 0.0, steps=1)  # triggers the lazy imports
    if task == "paid":
        run(seed, True, 0.1).tell(STEPS)
        return
    seconds: dict[bool, list[list[float]]] = {True: [], False: []}
    for number in range(ROUNDS):
        for rewarded in (True, False) if number % 2 else (False, True):
            took: list[float] = []
            run(seed, rewarded, 0.0, took=took)
            seconds[rewarded].append(took)
    timed = min((_timed_run(seed) for _ in range(TIMED_ROUNDS)), key=lambda spent: spent[WHOLE])
    cost = shortest(seconds[True]) / shortest(seconds[False]) - 1
    sys.stdout.write(json.dumps({"cost": cost, "parts": timed, "work": _work(seed)}))


def shortest(runs: Sequence[Sequence[float]]) -> float:
    """Return the time of a run composed of the fastest measurement of each update."""
    return sum(min(update) for update in zip(*runs, strict=True))


def run(seed: int, rewarded: bool, intrinsic: float, steps: int = STEPS, took: list[float] | None = None) -> "Clock":
    """Train an agent; return the clock that was started with it.

    Args:
        took: is given the CPU seconds of each update.
    """
    import torch
    from doorkey_task import ENV, reward_of
    from reaching import Clock

    from laurel.envs import adapter_for
    from laurel.params.algorithms import PPOParams
    from laurel.params.training import ShapingParams
    from laurel.training.loop import train
    from laurel.training.task import Task

    torch.set_num_threads(1)
    adapter = adapter_for(ENV)
    task = Task("preference", seed, 0, ENV, PPOParams(), ShapingParams(intrinsic=intrinsic), steps, steps)
    reward = reward_of(adapter) if rewarded else None
    updated: list[float] = []
    clock = Clock()
    with tempfile.TemporaryDirectory() as place:
        train(task, adapter, reward, Path(place) / "agent", lambda _: updated.append(clock.worked))
    if took is not None:
        took += [after - before for before, after in pairwise(updated)]
    return clock


def _work(seed: int) -> dict[str, int]:
    """Count the reward's work in a run: distinct captions, and steps in which something comes into view."""
    from laurel.envs import minigrid, minigrid_sights
    from laurel.envs.captioner import Captioner

    counted = {"captions": 0, "sights": 0, "resets": 0}
    ids_of, first_sight = Captioner.ids_of, minigrid_sights.first_sight

    def captioned(captioner: Captioner, transitions: Any, valid: Any) -> Any:
        found = ids_of(captioner, transitions, valid)
        counted["captions"], counted["resets"] = len(captioner.texts), counted["resets"] + int((~valid).sum())
        return found

    def seen(before: Any, after: Any) -> Any:
        found = first_sight(before, after)
        counted["sights"] += int((found[:, 0] > 0).sum())
        return found

    with patch.object(Captioner, "ids_of", captioned), patch.object(minigrid, "first_sight", seen):
        run(seed, True, 0.0)
    return counted


def _timed_run(seed: int) -> dict[str, float]:
    """Return the microseconds per step of computing rewards, and of a whole run."""
    from laurel.envs.captioner import Captioner
    from laurel.rewards.functions import CaptionReward
    from laurel.rewards.shaping import Bonus
    from laurel.training.credit import Credit
    from laurel.training.pay import TrainingReward

    timed: tuple[tuple[type, str, str], ...] = (
        (Captioner, "ids_of", "captions"),
        (CaptionReward, "pay", "rewards looked up"),
        (Bonus, "__call__", "counts and the bonus"),
        (Credit, "add", "what each caption earned"),
        (TrainingReward, "mix_into", REST),
    )
    spent = {part: 0.0 for *_, part in timed}
    with ExitStack() as stack:
        for kind, name, part in timed:
            stack.enter_context(_clock_around(kind, name, spent, part))
        worked = run(seed, True, 0.0).worked
    spent[REST] = 2 * spent[REST] - sum(spent.values())  # it calls the others
    return {part: 1e6 * seconds / STEPS for part, seconds in {**spent, WHOLE: worked}.items()}


@contextmanager
def _clock_around(kind: type, name: str, spent: dict[str, float], part: str) -> Iterator[None]:
    """Sum the CPU time of a method within the block."""
    method = getattr(kind, name)

    def timed(*arguments: Any) -> Any:
        began = time.process_time()
        try:
            return method(*arguments)
        finally:
            spent[part] += time.process_time() - began

    setattr(kind, name, timed)
    try:
        yield
    finally:
        setattr(kind, name, method)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [seed, ("paid" | "cost") as task]:
            ours(int(seed), task)
        case _:
            try:
                main()
            except subprocess.CalledProcessError as error:
                sys.exit(error.stderr)

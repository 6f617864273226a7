"""The cost of an online judge, and how soon agents learn DoorKey-8x8 without any collected data.

By default the judge is also asked about captions that the environment lists, which agents may not have met yet. Agents
are trained without this, too (`listed: false`), on questions about captions that they have met.

The same agents are trained on the same labels twice: with the judge beside them, and replayed from the first run's
log, without a judge. Both are timed in wall-clock time and in the CPU time of all processes of the stage, which other
work on the machine affects less. Steps until 90% of the last 100 episodes succeed are compared with those for labels
made beforehand, in docs/metrics.json. Rounds take turns. Run it with: python benchmarks/online_annotation.py
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import yaml
from record import ONE_THREAD, about, command_line, load_average, write

from laurel.agents.episodes import WINDOW

ROOT = Path(__file__).resolve().parents[1]
AT_MOST, SLOWER, MINUTES, QUESTIONS = 1.1, 1.05, 3.0, 500
SOLVED = 0.9
LOOK_SECONDS = 0.2
"""Polling interval of the processes' CPU time; CPU time after the last poll is not counted."""
PARAMS: dict[str, Any] = {
    "env": {"id": "MiniGrid-DoorKey-8x8-v0"},
    "collect": {"steps": 1},
    "arms": {"online": {"reward": "online"}},
    "rewards": {"online": {}},
    "tracking": {"enabled": False},
}


class Used(NamedTuple):
    """Resources that a process has used."""

    seconds: float
    parent: str
    begun: int
    """In clock ticks."""


class Cost(NamedTuple):
    """Resources used by training."""

    seconds: float
    processors: float
    """Processor seconds of all processes."""
    first: float
    """Processor seconds of the first worker, which is the judge if there is one."""


def main() -> None:
    """Measure both, and write the records."""
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="agents; default: 10")
    parser.add_argument("--rounds", type=int, default=1, help="how often both are timed; default: 1")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with_judge, without_judge = [], []
        for number in range(options.rounds):
            with_judge.append(trained(place / f"beside-{number}", options.seeds))
            without_judge.append(
                trained(place / f"alone-{number}", options.seeds, replay=str(place / "beside-0/data/agents"))
            )
        trained(place / "met", options.seeds, listed=False)
        agents = sorted((place / "beside-0/data/agents/online").glob("seed-*"))
        steps = [steps_to_threshold(agent) for agent in agents]
        of_met = [steps_to_threshold(agent) for agent in sorted((place / "met/data/agents/online").glob("seed-*"))]
        asked = {pair for agent in agents for pair in pairs_of(agent)}
        most_pairs = max(len(pairs_of(agent)) for agent in agents)
    recorded = json.loads((ROOT / "docs/metrics.json").read_text())["arms"]["preference"]["steps_to_threshold"]
    offline = [math.inf if n_steps is None else n_steps for n_steps in recorded["per_seed"][: options.seeds]]
    ratio, ratio_of_met = (statistics.median(needed) / statistics.median(offline) for needed in (steps, of_met))
    rounds = list(zip(with_judge, without_judge, strict=True))
    slower = statistics.median(online.seconds / plain.seconds for online, plain in rounds)
    slower_cpu = statistics.median(online.processors / plain.processors for online, plain in rounds)
    cheap = max(slower, slower_cpu) <= SLOWER
    judge = statistics.median(cost.first for cost in with_judge)
    share = statistics.median(cost.first / (cost.processors - cost.first) for cost in with_judge)
    loaded = loading()
    common = about("torch", "numpy", "envpool", "minigrid", "laurel-rl", remarks=(ONE_THREAD, load_average()))
    minutes = statistics.median(cost.seconds for cost in with_judge) / 60
    met = max(ratio, ratio_of_met) <= AT_MOST and len(asked) <= QUESTIONS and minutes <= MINUTES
    reason = (
        f"If the judge is also asked about listed captions before agents meet them, agents take {ratio:.2f} times the "
        f"steps; if it is asked only about captions that they have met (listed: false), {ratio_of_met:.2f} times. The "
        f"median of {len(steps)} seeds moves by an update of 2,048 steps or many; see benchmarks/suites/online.md."
    )
    write(
        "online_annotation",
        {
            "value": [round(ratio, 2), round(ratio_of_met, 2), len(asked), round(minutes, 1)],
            "unit": "times the steps until DoorKey-8x8 is solved with labels made beforehand, "
            f"median of {len(steps)} seeds: if the judge is asked about listed captions, and only about those met "
            "(listed: false); distinct questions asked by all of them; minutes to train them all",
            "target": f"<= {AT_MOST:g} both, <= {QUESTIONS}, <= {MINUTES:g}",
            "met": met,
            "peer": "labels of 200,000 collected steps, docs/metrics.json: median steps; online: median steps with "
            "listed captions, and without; questions per agent",
            "peer_value": [*(statistics.median(needed) for needed in (offline, steps, of_met)), most_pairs],
            **({} if met else {"why": reason}),
        },
        common,
        last=False,
    )
    write(
        "online_slowdown",
        {
            "value": [round(slower, 3), round(slower_cpu, 3)],
            "unit": "times the duration of training the same agents with the judge beside them as from its log; the "
            "same "
            "in CPU seconds",
            "target": f"<= {SLOWER:g}",
            "met": cheap,
            "peer": "seconds with the judge, and without, of each round; CPU seconds with it, and without",
            "peer_value": [
                [round(cost[field], 1) for cost in costs] for field in (0, 1) for costs in (with_judge, without_judge)
            ],
            "judge": f"{judge:.1f} processor seconds of its own, {share:.1%} of all others'",
            "loading": f"{loaded:.2f} processor seconds to load the judge's encoder, once, while agents wait",
            **({} if cheap else {"why": f"The judge's own process takes {share:.1%}: the rest is waiting and noise."}),
        },
        common,
    )


def trained(folder: Path, seeds: int, **settings: Any) -> Cost:
    """Train agents; return what the stage took."""
    folder.mkdir()
    agent = yaml.safe_load((ROOT / "params.yaml").read_text())["agent"]
    content = {**PARAMS, "rewards": {"online": settings}, "agent": {**agent, "seeds": list(range(seeds))}}
    (folder / "params.yaml").write_text(yaml.safe_dump(content))
    seconds, processors = 0.0, dict[str, Used]()
    for stage in ("collect", "caption", "annotate", "train-reward", "train-agents"):
        began, processors = time.perf_counter(), {}
        command = [sys.executable, "-m", "laurel", stage]
        with (folder / "errors.txt").open("w+") as errors:
            process = subprocess.Popen(  # noqa: S603 - our own
                command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL,
                stderr=errors, start_new_session=True,
            )  # fmt: skip
            while process.poll() is None:
                processors |= processor_seconds(process.pid)
                time.sleep(LOOK_SECONDS)
            seconds = time.perf_counter() - began
            errors.seek(0)
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, command, stderr=errors.read())
    by_parent = Counter(used.parent for used in processors.values())
    workers = [used for used in processors.values() if used.parent == by_parent.most_common(1)[0][0]]
    first = min(workers, key=attrgetter("begun"))
    return Cost(seconds, sum(used.seconds for used in processors.values()), first.seconds)


def processor_seconds(session: int) -> dict[str, Used]:
    """Return what each process of a session has used so far: workers have other parents than the stage."""
    found = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state = place.read_text().rpartition(") ")[2].split()
        except OSError:  # it has just ended
            continue
        if int(state[3]) == session:
            seconds = (int(state[11]) + int(state[12])) / os.sysconf("SC_CLK_TCK")
            found[place.parent.name] = Used(seconds, state[1], int(state[19]))
    return found


def loading() -> float:
    """Return the processor seconds that a process takes to load the encoder, once all else is imported."""
    imports = "import time, torch, laurel.feedback.responders, laurel.llm.encoder as encoder"
    timed = "began = time.process_time(); encoder.load_encoder(encoder.PACKAGED); print(time.process_time() - began)"
    command = [sys.executable, "-c", f"{imports}; {timed}"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603 - our own


def steps_to_threshold(agent: Path) -> float:
    """Return the environment steps after which an agent had solved the task, infinite where it never did.

    As reports do, it takes means over WINDOW episodes alone; a curve begins with means over fewer.
    """
    rows = pq.read_table(agent / "curve.parquet", columns=["env_steps", "window", "success_rate"]).to_pylist()
    full = (row for row in rows if row["window"] >= WINDOW)
    return next((row["env_steps"] for row in full if (row["success_rate"] or 0) >= SOLVED), math.inf)


def pairs_of(agent: Path) -> set[tuple[str, str]]:
    """Return the questions that an agent had answered."""
    rows = pq.read_table(agent / "reward/online/labels.parquet").to_pylist()
    return {(row["first"], row["second"]) for row in rows}


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr)

"""The cost of a run that is a hundred times as large: 500 agents in MLflow and the report, and 1,000,000 captions.

    python benchmarks/scale.py agents      # logging 500 agents in MLflow, and their report
    python benchmarks/scale.py captions    # each stage as a command, with 10,000 and 1,000,000 distinct captions
    python benchmarks/scale.py             # both

The agents' learning curves are synthetic and all networks are the same. The limits are a bare client of MLflow that
writes the same runs, parameters, metrics, tags and files, and matplotlib alone with the same figures. Captions come
from a walk in which every step has its own words, judged by the scripted teacher. `collect_caption.py --steps 10000000`
does the same for steps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from collect_caption import Spent, command
from held import ELSE
from record import about, command_line, load_average, write
from sampled import Parts, Seconds, parts_of, sampled

from laurel.envs import EnvAdapter, Transition

ARMS, SEEDS, EPISODES = ("extrinsic", "preference", "random_reward", "shuffled_labels", "oracle"), 100, 20
MOST_METRICS, MOST_PARAMS = 1000, 100
"""Maximum entries of one MLflow request."""
BARE, OWN_TAGS = "bare", ("arm", "seed", "role")
"""The model that the bare client registers, and the tags that it gets."""
MLFLOW_SECONDS, REPORT_SECONDS, REPORT_MEGABYTES = 60, 10, 2
FEW, MANY, GROWTH = 10_000, 1_000_000, 1.2
HELD, LEAST = 200_000, 4.0
"""Captions in the memory profile, and the bytes per caption from which a module is listed."""
EPOCHS = 2
"""Maximum epochs of the reward model in that profile: its memory does not depend on them, and tracing is slow."""
MLFLOW_PARTS: Parts = {
    "SQLAlchemy and SQLite": ("/sqlalchemy/", set()),
    "MLflow": ("/mlflow/", set()),
    "tables and files read": ("/pyarrow/", set()),
    "Laurel": ("/laurel/", set()),
}
REPORT_PARTS: Parts = {
    "imports": ("importlib", set()),
    "matplotlib": ("/matplotlib/", set()),
    "pandas": ("/pandas/", set()),
    "statistics": ("evaluation/", set()),
}
"""Parts of the profiles."""
Profile = dict[str, dict[str, list[float]]]
STAGES = ("collect", "caption", "annotate", "train-reward", "train-agents", "evaluate")


class Walk(gym.Env[npt.NDArray[np.float64], np.int64]):
    """A walk from a place drawn from a thousand million; an episode has 100 steps."""

    observation_space = gym.spaces.Box(0, 2e9, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = int(self.np_random.integers(10**9))
        return np.array([self._place], np.float64), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._place += 1 + int(action)
        return np.array([self._place], np.float64), float(action), False, False, {}


class WalkAdapter(EnvAdapter):
    """Captions the place of the walk."""

    ids = ("Walk-v0",)
    description = "A walk."
    goal = "You walk far."

    def caption(self, step: Transition) -> str:
        return f"You walk to place {step.next_observation[0]:.0f}."

    def oracle(self, caption: str) -> float | None:
        return float(caption.removesuffix(".").rpartition(" ")[2] or 0) / 1e9


gym.register("Walk-v0", lambda **_: Walk(), max_episode_steps=100)


def main() -> None:
    """Measure, print the results and write them."""
    parser = command_line(__doc__)
    parser.add_argument("what", nargs="?", choices=["agents", "captions"], help="one alone (default: both)")
    part = parser.parse_args().what
    if part != "captions":
        agents()
    if part != "agents":
        captions()


def params_of(folder: Path, **changes: Any) -> None:
    """Write the params of a run."""
    params: dict[str, Any] = {
        "seed": 0,
        "env": {"id": "MiniGrid-DoorKey-8x8-v0"},
        "collect": {"steps": 2000},
        "annotate": {"annotator": "scripted"},
        "arms": ["preference"],
        "agent": {"seeds": [0], "steps": 2048},
        "evaluate": {"episodes": 2},
        "tracking": {"enabled": False},
    }
    (folder / "params.yaml").write_text(json.dumps(params | changes))  # JSON is YAML


# -- agents -----------------------------------------------------------------------------------------------------
def agents() -> None:
    """Log 500 agents, of which one was trained, and write their report."""
    load = f"{load_average()} before the run"
    with tempfile.TemporaryDirectory() as directory, chdir(directory):
        folder = Path(directory)
        params_of(folder, arms=["extrinsic"], agent={"seeds": [0], "steps": 250_000})
        for stage in STAGES[:-1]:
            command(stage, folder)
        tracked, bare, tracking = _tracked(folder)
        report, drawn, megabytes, reporting = _reported(folder)
    common = about("mlflow", "matplotlib", "laurel-rl", remarks=(load,))
    n = len(ARMS) * SEEDS
    write(
        "scale_mlflow",
        {
            "value": round(tracked[0], 1),
            "unit": f"seconds to log {n} agents, their curves and networks in MLflow",
            "target": f"<= {MLFLOW_SECONDS}",
            "met": tracked[0] <= MLFLOW_SECONDS,
            "peer": "the limit: seconds of a bare MlflowClient that writes the same runs, parameters, metrics, tags, "
            "files and model versions to the same store; CPU seconds of Laurel, and of the bare client",
            "peer_value": [round(bare[0], 1), round(tracked[1], 1), round(bare[1], 1)],
            "profile": tracking,
            "why": f"The bare client takes {bare[1] / tracked[1]:.0%} of Laurel's CPU time; beside it Laurel reads "
            "checkpoints and asks for what they lack.",
        },
        common,
    )
    write(
        "scale_report",
        {
            "value": [round(report, 1), round(megabytes, 2)],
            "unit": f"CPU seconds of statistics, figures and report page of {n} agents; MB of the page, without videos",
            "target": f"<= {REPORT_SECONDS} and <= {REPORT_MEGABYTES}",
            "met": report <= REPORT_SECONDS and megabytes <= REPORT_MEGABYTES,
            "peer": "the limit: CPU seconds of matplotlib alone, which writes the same figures once as PNG and once as "
            "SVG, and of writing the page",
            "peer_value": round(drawn, 1),
            "profile": reporting,
            "why": f"The limit is {drawn / report:.0%} of it. Each figure is drawn once as PNG and once as SVG, after "
            "its layout was computed twice, so that it does not move; the limit does not compute it.",
        },
        common,
    )


@contextmanager
def _timed(spent: list[float]) -> Iterator[Seconds]:
    started, cpu = time.perf_counter(), time.process_time()
    with sampled() as found:
        yield found
    spent += [time.perf_counter() - started, time.process_time() - cpu]


def _tracked(folder: Path) -> tuple[list[float], list[float], Profile]:
    """Return wall and CPU seconds of logging all agents, those of a bare client, and what both are spent on."""
    from laurel.data.directory import Output
    from laurel.params import load_params
    from laurel.stages.pipeline import TRAINING_SECTIONS
    from laurel.tracking.agents import track_agents
    from laurel.tracking.tracker import Tracker

    params = load_params(folder / "params.yaml")
    params = params.model_copy(update={"tracking": params.tracking.model_copy(update={"enabled": True})})
    arm, trained, n = params.resolved_arms["extrinsic"], _trained(folder), len(ARMS) * SEEDS
    ours: list[float] = []
    theirs: list[float] = []
    sections = {name: getattr(params, name) for name in TRAINING_SECTIONS}
    tracker = Tracker(sections, "train-agents", {}, Output(folder))
    with tracker.stage_run() as run:
        if run is None:
            raise SystemExit("MLflow cannot be reached, see above.")
        track_agents(tracker, run, [(arm, n, trained)])  # to copy, and since first requests take longer
        run_id = tracker.output.agent_runs[f"extrinsic/seed-{n}"]
        with _timed(theirs) as bare:
            log_bare(run.client, run_id, trained, n)
        with _timed(ours) as found:
            track_agents(tracker, run, [(arm, seed, trained) for seed in range(n)])
    measured = {f"{n} agents in MLflow": found, "a bare client": bare}
    profiles = [_profile(name, stacks, MLFLOW_PARTS) for name, stacks in measured.items()]
    return ours, theirs, {**profiles[0], **profiles[1]}


def log_bare(client: Any, run_id: str, directory: Path, n: int) -> None:
    """Write a run n times by MLflow's own client, in as few requests as it allows.

    Args:
        client: an MlflowClient.
        run_id: id of the run, whose parameters, metrics and tags are written.
        directory: whose files are logged as a model.
    """
    from mlflow.entities import LoggedModelOutput, Param

    run = client.get_run(run_id)
    metrics = [point for name in run.data.metrics for point in client.get_metric_history(run_id, name)]
    params = [Param(name, value) for name, value in run.data.params.items()]
    client.create_registered_model(BARE)
    requests = max(-(-len(metrics) // MOST_METRICS), -(-len(params) // MOST_PARAMS))
    for _ in range(n):
        new = client.create_run(run.info.experiment_id, tags=run.data.tags, run_name=run.info.run_name).info.run_id
        for batch in range(requests):
            client.log_batch(
                new,
                metrics=metrics[batch * MOST_METRICS : (batch + 1) * MOST_METRICS],
                params=params[batch * MOST_PARAMS : (batch + 1) * MOST_PARAMS],
            )
        tags = {name: run.data.tags[name] for name in OWN_TAGS if name in run.data.tags}
        model = client.create_logged_model(run.info.experiment_id, "agent", source_run_id=new, tags=tags)
        client.log_model_artifacts(model.model_id, str(directory))
        client.finalize_logged_model(model.model_id, "READY")
        client.log_outputs(new, [LoggedModelOutput(model.model_id, 0)])
        client.create_model_version(BARE, model.model_uri, run_id=new, tags=dict(model.tags))
        client.set_terminated(new)


def _profile(name: str, found: Seconds, parts: Parts) -> Profile:
    return {name: {part: [round(seconds, 2)] for part, seconds in parts_of(found, parts).items()}}


def _trained(folder: Path) -> Path:
    return folder / "data" / "agents" / "extrinsic" / "seed-0"


def _reported(folder: Path) -> tuple[float, float, float, Profile]:
    """Return the CPU seconds of a report of all agents, those of the limit, its megabytes, and a profile."""
    import pandas as pd

    from laurel.evaluation import plots
    from laurel.evaluation.report import ReportContent, render
    from laurel.evaluation.statistics import rank_agreement, summarise
    from laurel.evaluation.verdict import headline
    from laurel.params import load_params
    from laurel.params.arm_infos import arm_infos

    params_of(folder, arms=list(ARMS))
    params, rng = load_params(folder / "params.yaml"), np.random.default_rng(0)
    curve = pd.read_parquet(_trained(folder) / "curve.parquet")
    skill = {(arm, seed): rng.beta(1 + place, 2) for place, arm in enumerate(ARMS) for seed in range(SEEDS)}
    curves = pd.concat(
        curve.assign(arm=arm, seed=seed, success_rate=rising, return_mean=0.9 * rising)
        for (arm, seed), end in skill.items()
        for rising in [np.linspace(0, end, len(curve)) ** 2]
    )
    solved = {agent: rng.random(EPISODES) < end for agent, end in skill.items()}
    results = pd.DataFrame(
        {"arm": arm, "seed": seed, "episode": number, "return": 0.9 * won, "success": bool(won), "length": 100}
        | {"terminated": bool(won), "raw_reward": 0.1, "shaped_reward": float(won) + rng.random()}
        for (arm, seed), wins in solved.items()
        for number, won in enumerate(wins)
    )
    spent: list[float] = []
    with _timed(spent) as found:
        summary = summarise(
            results,
            curves,
            arm_infos(params.arms, params.rewards, params.agent),
            success_threshold=params.evaluate.success_threshold,
            reward_threshold=None,
            draws=params.evaluate.bootstrap,
            seed=0,
        )
        named = {"env": params.env.id, "annotator": "scripted", "algorithm": "ppo", "annotation": {}, "reward": {}}
        metrics = {"headline": asdict(headline(summary)), **named, **summary}
        figures = plots.draw(results, curves, metrics, draws=params.evaluate.bootstrap, seed=0)
        drawn = {name: plots.save(figure, folder / "figures", name) for name, figure in figures.items()}
        rank = rank_agreement(results)
        page = render(ReportContent(title=params.env.id, metrics=metrics, figures=drawn, rank=rank))
    alone: list[float] = []
    with _timed(alone):
        draw_bare(figures, page, folder)
    return spent[1], alone[1], len(page.encode()) / 1e6, _profile("a report of 500 agents", found, REPORT_PARTS)


def draw_bare(figures: Mapping[str, Any], page: str, folder: Path) -> None:
    """Write matplotlib's figures as PNG and SVG, in the size of the report's, and a page, into a folder."""
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=200)
        figure.savefig(folder / f"{name}.svg")
    (folder / "page.html").write_text(page)


# -- captions ---------------------------------------------------------------------------------------------------
def captions() -> None:
    """Run all stages on a few and on many distinct captions."""
    load = f"{load_average()} before the run"
    small, large = (_run(n) for n in (FEW, MANY))
    growth = {stage: large[stage].megabytes / small[stage].megabytes for stage in STAGES}
    found: dict[str, Any] = {
        "value": round(max(spent.megabytes for spent in large.values())),
        "unit": f"peak MB of resident memory of all stages with {MANY:,} distinct captions, scripted teacher",
        "target": f"at most {GROWTH} times that of {FEW:,}, in each stage",
        "met": max(growth.values()) <= GROWTH,
        "peer": f"MB with {FEW:,}; and CPU seconds of all stages with {FEW:,} and {MANY:,}",
        "peer_value": [
            round(max(spent.megabytes for spent in small.values())),
            *(round(sum(spent.cpu_seconds for spent in run.values())) for run in (small, large)),
        ],
        "megabytes": {stage: [round(run[stage].megabytes) for run in (small, large)] for stage in STAGES},
        "cpu_seconds": {stage: [round(run[stage].cpu_seconds, 1) for run in (small, large)] for stage in STAGES},
    }
    if not found["met"]:
        found["why"] = _why(growth)
        found["profile_unit"] = f"bytes for each of {HELD:,} captions at the fullest, asked for by"
        found["profile"] = _held([stage for stage in STAGES if growth[stage] > GROWTH])
    write("scale_captions", found, about("pyarrow", "laurel-rl", remarks=(load,)))


def _why(growth: dict[str, float]) -> str:
    """Explain which stages need more memory for more captions, and why."""
    holds = {
        "caption": "caption holds each distinct caption as a Python string with its numbers, some hundred bytes, for "
        "lookups by text",
        "annotate": "annotate reads all captions as Python strings, to sample pairs and to ask about captions of "
        "success",
        "train-reward": "train-reward holds them, too, with the observations before and after each and the rewards of "
        "every ensemble member",
    }
    grown = {stage: times for stage, times in growth.items() if times > GROWTH}
    times = ", ".join(f"{stage} {times:.2f}" for stage, times in grown.items())
    return (
        f"Growth of peak memory: {times} times. "
        + "; ".join(holds.get(stage, f"{stage}: not explained") for stage in grown)
        + "."
    )


def _run(n: int) -> dict[str, Spent]:
    """Run all stages where that many steps have a caption each; return what they took."""
    with _project(n) as folder:
        return {stage: command(stage, folder) for stage in STAGES}


def _held(stages: Sequence[str]) -> Profile:
    """Return how many bytes for each caption a stage holds at its fullest, by the module that asked for them."""
    profile: Profile = {}
    with _project(HELD, max_epochs=EPOCHS) as folder:
        for stage in STAGES[: 1 + max(map(STAGES.index, stages))]:
            if stage not in stages:
                command(stage, folder)
                continue
            script, file = Path(__file__).with_name("held.py"), folder / "held.json"
            subprocess.run([sys.executable, script, file, stage], cwd=folder, check=True, capture_output=True)  # noqa: S603
            held = {part: size / HELD for part, size in json.loads(file.read_text()).items()}
            parts = {part: size for part, size in held.items() if size >= LEAST and part != ELSE}
            rest = sum(held.values()) - sum(parts.values())
            profile[stage] = {part: [round(size, 1)] for part, size in {**parts, ELSE: rest}.items()}
    return profile


@contextmanager
def _project(n: int, **preference: int) -> Iterator[Path]:
    """Yield a folder with the params of a walk of so many steps, and what differs for the reward model."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        params_of(
            folder,
            env={"id": "scale:Walk-v0"},
            collect={"steps": n},
            rewards={"preference": {"input": "observation", **preference}},  # not texts: they would be encoded
        )
        os.environ["PYTHONPATH"] = str(Path(__file__).parent)
        yield folder


if __name__ == "__main__":
    main()

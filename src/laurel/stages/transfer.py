"""Transfer: rewards and agents of finished runs, tried in each other's environments, as two matrices with intervals.

Cell (i, j) of the agents' matrix is the result of the agents of run i in the environment of run j, without further
training. Cell (i, j) of the rewards' matrix is the result of new agents trained in j on the reward of run i; (j, j) is
the result of run j itself. Results that are up to date are kept, so that a stopped command can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from laurel import __version__
from laurel.data.digests import digest_file
from laurel.data.json_file import digest_json, write_json
from laurel.data.manifest import read_manifest
from laurel.data.own_files import code_of_plugins, named_files
from laurel.data.written import prepare, written_whole
from laurel.envs import return_threshold
from laurel.errors import DataError, ParamsError
from laurel.evaluation.formats import counted, markdown
from laurel.evaluation.play import is_whole, load_actor
from laurel.evaluation.rollout import roll_out
from laurel.evaluation.statistics import estimate, return_range, seed_scores, solved
from laurel.evaluation.summary import CURVES, METRICS, RESULTS, brief, read_metrics
from laurel.machine import today
from laurel.params import Params, load_params
from laurel.params.arms import ArmParams
from laurel.params.file import read_mapping
from laurel.params.resolved_arms import Arm
from laurel.pool import Job, prepare_worker, run_jobs
from laurel.progress import progress
from laurel.rewards.method import RewardContext
from laurel.rewards.methods.stored import Stored, StoredParams
from laurel.rewards.stored import StoredRewards
from laurel.seeding import derive_seed, seed_folder
from laurel.stages.pipeline import PLACES, STAGES
from laurel.stages.project import REPORTS, run_project, up_to_date
from laurel.training.preload import preload

TRANSFERRED = "transferred"
"""Name of the arm and of its reward in the runs of this module."""


@dataclass(frozen=True)
class Source:
    """A finished run."""

    name: str
    folder: Path
    params: Params
    arm: Arm
    """The arm whose reward and agents are tried."""
    metrics: Mapping[str, Any]

    @property
    def agents(self) -> Path:
        return self.folder / PLACES["agents"]

    @property
    def reward(self) -> Path:
        return self.folder / PLACES["reward"]


def read_sources(folders: Sequence[Path], arm: str | None) -> list[Source]:
    """Read finished runs.

    Args:
        folders: each with params.yaml, data and reports.
        arm: whose reward and agents are tried; None: each run's first method with a single reward.

    Raises:
        DataError: a run is not finished or not up to date.
        ParamsError: two runs have the same name, or a run has no such arm, or one without a single reward.
    """
    sources = []
    for folder in folders:
        file = folder / "params.yaml"
        params = load_params(file)
        stale = next((stage.name for stage in STAGES if not up_to_date(stage, params, folder)), None)
        if stale is not None:
            advice = _other_files(params.used(), folder) or "Run laurel benchmark on its suite, or laurel run there."
            raise DataError(f"{folder}: is not a finished run: {stale} is not up to date. {advice}")
        metrics = read_metrics(folder / REPORTS / METRICS)
        arms = params.resolved_arms
        fit = [name for name, entry in arms.items() if entry.trained and list(entry.reward.values()) == [1.0]]
        methods = [name for name in fit if arms[name].role == "method"]
        name = arm or next(iter(methods), "")
        if name not in fit:
            refusal = f"{name} is not one" if name else "no arm with the role method is one"
            allowed = f" --arm may be one of {', '.join(methods or fit)}." if fit else ""
            raise ParamsError(
                f"{folder}: only an arm that is trained on a single reward can be transferred, and {refusal}.{allowed}"
            )
        sources.append(Source(folder.resolve().name, folder, params, arms[name], metrics))
    names = [source.name for source in sources]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ParamsError(
            f"transfer: the runs are {', '.join(names)}, but there must be two or more, each with its own name."
        )
    return sources


def _other_files(content: Any, folder: Path) -> str | None:
    """Say what to do about a file that parameters name in a run's folder and that the working folder does not have."""
    present = named_files(content)
    for name, digest in named_files(content, folder).items():
        if name not in present:
            return (
                f"The working folder has no {name}, which its params name: run this command where it is, or copy it "
                "here, as the files of all the runs must be."
            )
        if Path(name).is_file() and present[name] != digest:
            return (
                f"Its params name {name}, and the one in the working folder differs from the one in {folder}. Copy "
                "that here, or, if another run needs this one, give each a name of its own and run laurel run again."
            )
    return None


def transfer(
    sources: Sequence[Source],
    work: Path,
    output: Path,
    command: str,
    report: Callable[[str], None],
    *,
    train: bool = True,
    play_agents: bool = True,
) -> None:
    """Fill both matrices and write their page.

    Args:
        work: parent of the cells' folders.
        output: NAME.md; NAME.json beside it has the same data.
        command: the command line, for the page.
        report: called with a line for each training run that begins.
        train: False computes only the diagonal of the rewards' matrix, so that nothing is trained.
        play_agents: False leaves out the agents' matrix, as where agents do not fit the other environments.

    Raises:
        DataError: agents of one run do not fit the environment of another, a reward is not one for all agents, or the
            output or the folder `work` cannot be written or lies in a stage's output.
        StageError: a training run failed, and has printed why; finished ones are kept.
    """
    prepare(output.parent, output)
    prepare(work, work)
    for source in sources if train else ():
        context = RewardContext.of(source.params)
        Stored(StoredParams(**_stored(source))).check(context, context.adapter)
    agents = _agents(sources, work / "agents") if play_agents else {}
    rewards: dict[str, dict[str, Any]] = {source.name: {} for source in sources}
    for origin in sources:
        for target in sources:
            cell: dict[str, Any] = target.metrics["arms"][target.arm.name]
            if origin is not target and not train:
                continue
            if origin is not target:
                report(f"agents in {target.name}, paid by the reward of {origin.name}")
                cell = _trained(origin, target, work / "rewards" / f"{origin.name}.to.{target.name}")
            rewards[origin.name][target.name] = {key: cell[key] for key in ("success", "return", "solved")}
    controls = {
        arm: {source.name: source.metrics["arms"].get(arm) for source in sources}
        for arm in dict.fromkeys(
            name
            for source in sources
            for name, entry in source.metrics["arms"].items()
            if entry["role"] in ("baseline", "control", "bound")
        )
    }
    record = {
        "command": command,
        "date": today().isoformat(),
        "version": __version__,
        "arms": {source.name: source.arm.name for source in sources},
        "seeds": {source.name: len(source.params.agent.seeds) for source in sources},
        "agents": agents,
        "rewards": rewards,
        "same_weights": _same_weights(sources),
        "label_sets": {source.name: sets for source in sources if (sets := _label_sets(source)) > 1},
        "controls": controls,
    }
    write_json(output.with_suffix(".json"), record)
    with written_whole(output) as partial:
        partial.write_text(page(record), encoding="utf-8")


def page(record: Mapping[str, Any]) -> str:
    """Return the matrices in Markdown."""
    names = list(record["arms"])

    def rows(matrix: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
        return [[origin, *(brief(of_origin.get(name)) for name in names)] for origin, of_origin in matrix.items()]

    trained = all(name in of_origin for of_origin in record["rewards"].values() for name in names)
    untrained = "" if trained else "; nothing was trained for the other cells (--agents-only)"
    same_weights = [
        f"The rewards of {', '.join(runs)} have the same weights, since their captions and labels are the same: agents "
        "that are paid them in one environment do not differ."
        for runs in record["same_weights"]
    ]
    sets = [
        f"The run {name} has {n} label sets: its own agents, on the diagonal, are each paid the reward of their seed's "
        "label set, and agents elsewhere all that of label set 0."
        for name, n in record["label_sets"].items()
        if trained
    ]
    seeds = {name: counted(n, "seed") for name, n in record["seeds"].items()}
    parts = [
        "# Transfer between environments",
        f"`{record['command']}`, {record['date']}, Laurel {record['version']}. Arm "
        f"{_by_run(record['arms'])}, {_by_run(seeds)}; rows: made or trained there; "
        "columns: tried there. Success of fresh episodes, or the return where an environment has no notion of success, "
        "with 95% intervals over seeds, and how many seeds solved the task.",
        "## Rewards: new agents, trained on another environment's reward",
        markdown(["reward made in", *names], rows(record["rewards"])),
        *same_weights,
        *sets,
        f"The diagonal is the run itself{untrained}. For comparison, the runs' baselines, controls and bounds:",
        markdown(["arm", *names], rows(record["controls"])),
    ]
    if record["agents"]:
        parts += [
            "## Agents: played elsewhere without further training",
            markdown(["agents trained in", *names], rows(record["agents"])),
        ]
    return "\n\n".join(parts) + "\n"


def _by_run(values: Mapping[str, object]) -> str:
    """Return the value of all runs, or each with the runs that have it.

    >>> _by_run({"a": 2, "b": 2}), _by_run({"a": 2, "b": 3, "c": 2})
    ('2', '2 (a, c), 3 (b)')
    """
    runs: dict[str, list[str]] = {}
    for name, value in values.items():
        runs.setdefault(str(value), []).append(name)
    return ", ".join(value if len(runs) == 1 else f"{value} ({', '.join(names)})" for value, names in runs.items())


# -- rewards --------------------------------------------------------------------------------------
def _trained(origin: Source, target: Source, folder: Path) -> dict[str, Any]:
    """Train agents in the target on the origin's reward, with the target's settings; return their results."""
    content = dict(read_mapping(target.folder / "params.yaml"))
    params = next(arm for arm in target.params.arms if arm.name == target.arm.name)
    content["rewards"] = {TRANSFERRED: _stored(origin)}
    content["arms"] = {TRANSFERRED: _arm(params)}
    content["evaluate"] = {**(content.get("evaluate") or {}), "animation_steps": 0}
    folder.mkdir(parents=True, exist_ok=True)
    file, text = folder / "params.yaml", yaml.safe_dump(content, sort_keys=False)
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")
    run_project(file, folder)
    reports = folder / REPORTS
    return _summary(pd.read_parquet(reports / RESULTS), target, pd.read_csv(reports / CURVES))


def _stored(origin: Source) -> dict[str, str]:
    """Return the settings of the reward that a run made."""
    (name,) = origin.arm.reward
    digest = str(read_manifest(origin.reward, "train-reward")["digest"])
    return {"kind": "stored", "path": str(origin.reward), "name": name, "digest": digest}


def _same_weights(sources: Sequence[Source]) -> list[list[str]]:
    """Group runs whose rewards have the same weights, due to the same captions and labels."""
    by_weights: dict[str, list[str]] = {}
    for source in sources:
        (name,) = source.arm.reward
        weights = {file.name: digest_file(file) for file in (source.reward / name).glob("*.safetensors")}
        by_weights.setdefault(digest_json(weights) if weights else source.name, []).append(source.name)
    return [names for names in by_weights.values() if len(names) > 1]


def _label_sets(source: Source) -> int:
    """Return the number of label sets that a run's reward was made from."""
    (name,) = source.arm.reward
    return StoredRewards.read(source.reward).sets[name]


def _arm(arm: ArmParams) -> dict[str, Any]:
    """Return a copy of an arm with another reward."""
    kept = arm.model_dump(mode="json", include={"shaping", "agent", "extrinsic"})
    return {**{key: value for key, value in kept.items() if value not in (None, {})}, "reward": TRANSFERRED}


# -- agents ---------------------------------------------------------------------------------------
def _agents(sources: Sequence[Source], work: Path) -> dict[str, dict[str, Any]]:
    """Evaluate all agents in all environments; existing tables are of the same agents and episodes."""
    work.mkdir(parents=True, exist_ok=True)
    places: dict[tuple[str, str], Path] = {}
    jobs = []
    for origin in sources:
        digest = str(read_manifest(origin.agents, "train-agents")["digest"])
        for target in sources:
            table = work / f"{origin.name}.to.{target.name}.{_key(origin, digest, target.params)[:12]}.parquet"
            places[origin.name, target.name] = table
            if not is_whole(table):
                name, args = f"agents of {origin.name} in {target.name}", (origin, target, table)
                episodes = len(origin.params.agent.seeds) * target.params.evaluate.episodes
                jobs.append(Job(name, play, args, units=episodes, kind=target.name))
    with progress(sum(job.units for job in jobs), "transfer: agents", "episodes") as advance:
        lists = [preload("play", source.params.env, source.params.resolved_arms.values()) for source in sources]
        modules = dict.fromkeys(module for modules in lists for module in modules)
        run_jobs(jobs, sources[0].params.agent.workers, advance, list(modules))
    return {
        origin.name: {
            target.name: _summary(pd.read_parquet(places[origin.name, target.name]), target) for target in sources
        }
        for origin in sources
    }


def _key(origin: Source, digest: str, params: Params) -> str:
    """Return the key of the episodes of agents with a digest in the environment of parameters.

    It has the content of the user's own files, too, such as an environment's module.
    """
    used = params.used("seed", "env", "caption", "evaluate")
    content = {"agents": digest, "arm": origin.arm.name, "version": __version__}
    files = named_files(used) | code_of_plugins(used)
    return digest_json({**content, **used, **({"files": files} if files else {})})


def play(origin: Source, target: Source, table: Path, advance: Callable[[int], None]) -> None:
    """Evaluate the agents of a run in another's environment and write their episodes; runs in a separate process."""
    prepare_worker()
    params, adapter = target.params, RewardContext.of(target.params).adapter
    frames = []
    for seed in origin.params.agent.seeds:
        agent = origin.agents / origin.arm.name / seed_folder(seed)
        try:
            actor = load_actor(adapter, origin.arm, agent, greedy=params.evaluate.greedy)
        except DataError as error:
            raise DataError(f"{error} To try rewards alone: --rewards-only.") from error
        rows = roll_out(
            params.env.with_kwargs(params.evaluate.kwargs),
            adapter,
            actor,
            n_envs=params.evaluate.n_envs,
            episodes=params.evaluate.episodes,
            seed=derive_seed(params.seed, "evaluate", seed),
            learned=None,
            advance=advance,
        )
        frames.append(pd.DataFrame(rows).assign(arm=TRANSFERRED, seed=seed, episode=range(len(rows))))
    partial = table.with_suffix(".partial")
    pd.concat(frames, ignore_index=True).to_parquet(partial, index=False)
    partial.replace(table)


def _summary(played: pd.DataFrame, target: Source, curves: pd.DataFrame | None = None) -> dict[str, Any]:
    """Return success and return over seeds, with intervals, and how many seeds solved the target's task.

    The range of returns is that of the target's own agents and the transferred ones together.

    Args:
        played: episodes of the transferred arm.
        curves: of its training, if it was trained there.
    """
    reports, columns = target.folder / REPORTS, ["arm", "seed", "return"]
    results = pd.concat([pd.read_parquet(reports / RESULTS)[columns], played[columns]], ignore_index=True)
    trained = [frame[["return_mean"]] for frame in (pd.read_csv(reports / CURVES), curves) if frame is not None]
    bounds = return_range(pd.concat(trained, ignore_index=True), results)
    scores = seed_scores(played)
    returns, success = (scores[name].to_numpy(dtype=np.float64) for name in ("return", "success"))
    evaluate = target.params.evaluate
    draws: dict[str, int] = {"draws": evaluate.bootstrap, "seed": target.params.seed}
    known = bool(np.isfinite(success).all())
    threshold = evaluate.success_threshold if known else return_threshold(target.params.env)
    return {
        "success": estimate(success, 0.0, 1.0, **draws) if known else None,
        "return": estimate(returns, *bounds, **draws),
        "solved": None if threshold is None else solved(success if known else returns, threshold),
    }

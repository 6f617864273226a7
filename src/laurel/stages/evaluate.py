"""evaluate: agents → report. Plays fresh episodes, computes the statistics, draws, writes, logs the summary."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel import __version__
from laurel.params import CaptionParams, CollectParams, EnvParams, EvaluateParams, TrackingParams
from laurel.params.annotation import AnnotateParams
from laurel.params.arms import Arm, ArmInfo, ArmParams, arm_infos, judges_of, resolve_arms, used
from laurel.params.fields import dumped
from laurel.params.rewards import RewardParams
from laurel.params.training import AgentParams, ShapingParams

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import pandas as pd

    from laurel.data.directory import Output
    from laurel.envs.base import EnvAdapter
    from laurel.evaluation.distances import Matrix
    from laurel.evaluation.hacking import Episode, Hacked
    from laurel.evaluation.play import Evaluation
    from laurel.evaluation.report import Portrait
    from laurel.evaluation.run_page import RunFacts
    from laurel.rewards.method import PayTable
    from laurel.rewards.stored import StoredRewards
    from laurel.tracking.runs import Run

METRICS, RESULTS, CURVES, REPORT, ANIMATION = (
    "metrics.json",
    "results.parquet",
    "curves.csv",
    "report.html",
    "episodes.webp",
)
PORTRAITS = "arms"
"""Films of every arm."""
EPISODES = "episodes"
"""Tables of the agents that were played already, while the others are."""
PACKAGES = ("torch", "transformers", "gymnasium", "minigrid", "envpool", "mlflow", "dvc", "numpy", "rliable")
"""Of which the report gives the versions."""
SB3_PACKAGES = ("stable-baselines3", "sb3-contrib")
"""Their versions are given, too, where they trained."""

LOOKED_AT, LOOKED_AT_STEPS, SHOWN_EPISODES = 8, 500, 3
"""Episodes of a flagged arm that are played, steps of each at most (as laurel play has it), and how many are shown."""

Agents = list[tuple[Arm, int, Path | None]]
"""Arm, seed and the agent's directory, None where the arm is not trained."""


def run(
    seed: int,
    env: EnvParams,
    collect: CollectParams,
    caption: CaptionParams,
    annotate: AnnotateParams,
    arms: Sequence[ArmParams],
    rewards: Mapping[str, RewardParams],
    shaping: ShapingParams,
    agent: AgentParams,
    evaluate: EvaluateParams,
    tracking: TrackingParams,
    trajectories: Path,
    captions: Path,
    preferences: Path,
    reward: Path,
    agents: Path,
    output: Path,
) -> None:
    """Evaluate all agents on the reference environment.

    Args:
        seed: all random numbers derive from it.
        env: where agents act.
        collect: shown in the report.
        caption: what is said of a step.
        annotate: who judged.
        arms: which are compared.
        rewards: how what they are paid was made.
        shaping: from a reward to what is paid, unless an arm has its own.
        agent: seeds and the training, unless an arm has its own.
        evaluate: how many episodes, and what is shown.
        tracking: whether and where runs are logged.
        trajectories: output of the collect stage.
        captions: output of the caption stage.
        preferences: output of the annotate stage.
        reward: output of the train-reward stage.
        agents: output of the train-agents stage.
        output: directory to write metrics.json, results.parquet, report.html, figures/ and more into.

    Raises:
        DataError: an input is missing or damaged, or does not go with the others.
    """
    import shutil
    from dataclasses import asdict

    from laurel.data.captions import read_vocabulary
    from laurel.data.directory import output_directory, read_json, write_json
    from laurel.data.lineage import read_inputs
    from laurel.data.quality import QUALITY
    from laurel.data.sample import read_sample
    from laurel.evaluation.play import Evaluation, watched_arm
    from laurel.evaluation.statistics import rank_agreement, summarise
    from laurel.evaluation.summary import SCHEMA
    from laurel.evaluation.verdict import headline
    from laurel.progress import progress
    from laurel.rewards.arms import trainers
    from laurel.rewards.method import QUALITY as REWARD_QUALITY
    from laurel.rewards.method import Inputs, RewardContext
    from laurel.rewards.stored import StoredRewards
    from laurel.stages.track_late import track_late
    from laurel.tracking.runs import Tracker

    inputs = {
        "trajectories": trajectories,
        "captions": captions,
        "preferences": preferences,
        "reward": reward,
        "agents": agents,
    }
    sections: dict[str, Any] = {"seed": seed, "env": env, "collect": collect, "caption": caption, "annotate": annotate}
    sections |= {"arms": arms, "rewards": rewards, "shaping": shaping, "agent": agent, "evaluate": evaluate}
    described = used(sections)
    manifests = read_inputs(described, inputs)  # the report says that these were its parameters
    with output_directory(output, stage="evaluate", params=described, inputs=inputs, resumable=True) as out:
        context, every = RewardContext(env, caption, annotate, rewards), resolve_arms(arms, rewards, shaping, agent)
        adapter, infos = context.adapter, arm_infos(arms, rewards)
        watched = watched_arm(every.values(), reward)
        evaluation = Evaluation(seed, context, evaluate, Inputs(captions, preferences, reward, trajectories), watched)
        stored, quality, table = StoredRewards.read(reward), {}, None
        if watched:
            name = next(iter(watched.reward))
            table = stored.table(name, watched.shaping.quantile)
            if (reward / name / REWARD_QUALITY).exists():
                quality = read_json(reward / name / REWARD_QUALITY)
        played = _agents(every.values(), agents, manifests["agents"])
        curves = _curves(played)
        results = _play(evaluation, played, agent.workers, out)
        asked = _asked(played, out)
        rank = rank_agreement(results)
        with progress(4, "evaluate: report", "parts") as advance:
            summary = summarise(
                results,
                curves,
                infos,
                success_threshold=evaluate.success_threshold,
                reward_threshold=_reward_threshold(env),
                draws=evaluate.bootstrap,
                seed=seed,
            )
            for name, account in asked.items():
                summary["arms"][name]["asked"] = account
            metrics: dict[str, Any] = {
                "schema": SCHEMA,
                "headline": asdict(headline(summary)),
                "env": env.id,
                "annotator": annotate.annotator,
                "algorithm": trainers(every.values()),
                **summary,
                "annotation": {
                    **manifests["preferences"]["counts"],
                    **read_json(preferences / QUALITY),
                    **_side_by_side(preferences),
                },
                "reward": {**quality, "kendall_tau_vs_return": rank["tau"] if rank else None} if watched else {},
            }
            if simulated := stored.simulated():
                metrics["simulated"] = simulated
            found = _hacked(evaluation, every, agents, curves, results)
            if found:
                metrics["hacking"] = {
                    one.arm: {"agents": one.agents, "seeds": [period.seed for period in one.periods]} for one in found
                }
            metrics["distances"], left_out = _distances(stored, trajectories, adapter, agent, seed)
            out.notes += left_out
            out.notes += [note for manifest in manifests.values() for note in manifest["notes"]]
            advance(1)
            animation = _animate(evaluation, adapter, played, out)
            portraits = _portraits(evaluation, infos, adapter, played, results, out) if animation else []
            advance(1)
            write_json(out.path / METRICS, metrics)
            sample = _with_references(annotate, adapter, read_sample(preferences), read_vocabulary(captions).texts)
            films = animation, portraits
            _write_report(sections, adapter, stored, table, metrics, results, curves, rank, films, sample, found, out)
            facts = _write_run_page(env, manifests, metrics, out)
            advance(1)
            shutil.rmtree(out.path / EPISODES)
            out.counts = {"arms": len(summary["arms"]), "agents": len(played), "episodes": len(results)}
            tracked_as = {**sections, "tracking": tracking}
            late = track_late(tracked_as, inputs, out)
            with Tracker(tracked_as, "evaluate", inputs, out, known=late).stage_run() as tracked:
                if tracked:
                    runs = {**manifests["agents"]["mlflow_agent_runs"], **out.agent_runs}
                    _track(tracked, env, tracking, metrics, facts, results, played, out.path, runs)
            advance(1)


def _agents(arms: Iterable[Arm], agents: Path, manifest: dict[str, Any]) -> Agents:
    """List what is played: every trained agent, and arms that need no training.

    Raises:
        DataError: an agent was not trained, or there is nothing to play.
    """
    from laurel.errors import DataError

    asked = manifest["params"]["arms"]
    played: Agents = []
    for arm in arms:
        if arm.trained and arm.name in asked and not (agents / arm.name).is_dir():
            continue  # left out where it was to be trained; the manifest's notes say why
        for seed in arm.agent.seeds:
            place = agents / arm.name / f"seed-{seed}"
            if arm.trained and not place.is_dir():
                raise DataError(
                    f"{agents}: holds no agent of the arm {arm.name} with seed {seed}. Run laurel train-agents again."
                )
            played.append((arm, seed, place if arm.trained else None))
    if not played:
        raise DataError(f"{agents}: holds no agent of any arm of arms, so there is nothing to evaluate.")
    return played


def _play(evaluation: Evaluation, agents: Agents, workers: int | None, out: Output) -> pd.DataFrame:
    """Play all agents in parallel; a table that is there already was played by a run that was stopped."""
    import pandas as pd

    from laurel.pool import Job, run_jobs
    from laurel.progress import progress

    tables = out.path / EPISODES
    tables.mkdir(exist_ok=True)
    places = [(tables / f"{arm.name}-{seed}.parquet", arm, seed, agent) for arm, seed, agent in agents]
    jobs = [
        Job(f"evaluation of {arm.name} seed {seed}", _play_one, (evaluation, arm, seed, agent, table))
        for table, arm, seed, agent in places
        if not table.exists()
    ]
    with progress(len(jobs) * evaluation.evaluate.episodes, "evaluate", "episodes") as advance:
        run_jobs(jobs, workers, advance, ["laurel.evaluation.play"])
    results = pd.concat([pd.read_parquet(table) for table, _, _, _ in places], ignore_index=True)
    results.to_parquet(out.path / RESULTS, index=False)
    return results


def _play_one(
    evaluation: Evaluation, arm: Arm, seed: int, agent: Path | None, table: Path, advance: Callable[[int], None]
) -> None:
    """Play an agent in a process of its own; its table appears whole or not at all."""
    from laurel.evaluation.play import play_agent

    partial = table.with_suffix(".partial")
    play_agent(evaluation, arm, seed, agent, partial, advance)
    partial.replace(table)


def _asked(agents: Agents, out: Output) -> dict[str, dict[str, Any]]:
    """Return for each arm whose actor asks a language model what that took, and note it."""
    from laurel.data.directory import read_json
    from laurel.evaluation.play import account_of

    found: dict[str, dict[str, Any]] = {}
    for arm, seed, _ in agents:
        file = account_of(out.path / EPISODES / f"{arm.name}-{seed}.parquet")
        if file.exists():
            account, sums = read_json(file), found.setdefault(arm.name, {})
            for key, value in account.items():
                number = isinstance(value, int | float) and isinstance(sums.get(key, 0), int | float)
                sums[key] = sums.get(key, 0) + value if number else value
    for name, sums in found.items():
        sums["parse_rate"] = 1 - sums["unread"] / max(sums["states"], 1)
        out.notes.append(
            f"The arm {name} asked {sums['model']} about {sums['states']:,} states (distinct ones of each of its "
            f"agents), and {sums['parse_rate']:.1%} of them had an answer that could be read; in the others all "
            "choices were equally likely."
        )
        out.run_notes.append(
            f"The arm {name} took {sums.get('calls', 0):,} calls of {sums['model']} and {sums.get('cached', 0):,} "
            "answers from the store."
        )
    kept = ("model", "states", "unread", "parse_rate")  # what a run with a full store repeats
    return {name: {key: sums[key] for key in kept} for name, sums in found.items()}


def _curves(agents: Agents) -> pd.DataFrame:
    """Gather the learning curves of all trained agents."""
    import pandas as pd

    from laurel.data.parquet import read_table
    from laurel.training.loop import CURVE, CURVE_SCHEMA

    tables = []
    for arm, seed, agent in agents:
        if agent is not None:
            table = read_table(agent / CURVE, CURVE_SCHEMA, "train-agents").to_pandas()
            table.insert(0, "arm", arm.name)
            table.insert(1, "seed", seed)
            tables.append(table)
    return (
        pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["arm", "seed", *CURVE_SCHEMA.names])
    )


def _hacked(
    evaluation: Evaluation, arms: Mapping[str, Arm], agents: Path, curves: pd.DataFrame, results: pd.DataFrame
) -> list[Hacked]:
    """Find arms whose agents earn more and do worse, with episodes to look at."""
    from dataclasses import replace

    from laurel.evaluation.hacking import hacked
    from laurel.evaluation.statistics import return_range, seed_scores

    bounds = return_range(curves, seed_scores(results)["return"].to_numpy())
    found = hacked(curves, [arm.name for arm in arms.values() if arm.reward], agents, bounds)
    return [replace(one, episodes=_to_look_at(evaluation, arms[one.arm], agents, one)) for one in found]


def _to_look_at(evaluation: Evaluation, arm: Arm, agents: Path, found: Hacked) -> list[Episode]:
    """Play some episodes of the agent that fell most, as laurel play does, and return those that pay most for least."""
    from laurel.evaluation.hacking import Episode
    from laurel.evaluation.performance import Performance
    from laurel.evaluation.play import load_actor, watching
    from laurel.seeding import derive_seed

    context, env = evaluation.context, evaluation.context.env
    worst = max(found.periods, key=lambda period: period.true[0] - period.true[1])
    adapter, place = context.adapter, agents / arm.name / f"seed-{worst.seed}"
    actor = load_actor(adapter, arm, place, greedy=evaluation.evaluate.greedy)
    played = []
    for seed in range(LOOKED_AT):
        learned = watching(arm, context, adapter, evaluation.inputs)
        show = Performance(env, adapter, arm.name, actor, learned, 1, LOOKED_AT_STEPS, derive_seed(seed, "play"))
        told = [moment for moment, _ in show.moments(None)]
        paid, last = sum(moment.shaped or 0.0 for moment in told), told[-1]
        command = f"laurel play {arm.name} {worst.seed} --seed {seed}"
        played.append(Episode(command, paid, last.total, last.success, last.step))
    return sorted(played, key=lambda one: (bool(one.solved), one.total, -one.paid))[:SHOWN_EPISODES]


def _distances(
    stored: StoredRewards, trajectories: Path, adapter: EnvAdapter, agent: AgentParams, seed: int
) -> tuple[dict[str, Matrix], list[str]]:
    """Compare all rewards but those that change while they pay; of one drawn anew for each seed, its first."""
    from laurel.evaluation.distances import distances
    from laurel.params.rewards import method_of

    names = [name for name, settings in stored.settings.items() if method_of(settings).stationary]
    rewards = {name: stored.load(name, (stored.seeds[name] or agent.seeds)[0], adapter, 0.5) for name in names}
    return distances(rewards, trajectories, adapter, agent.gamma, seed) if rewards else ({}, [])


def _side_by_side(preferences: Path) -> dict[str, Any]:
    """Return the quality of the labels of every judge and label set; nothing where there is one alone."""
    from laurel.data.directory import read_json
    from laurel.data.quality import QUALITY

    found = []
    for file in sorted(preferences.rglob(QUALITY)):
        quality, place = read_json(file), file.relative_to(preferences).parent
        which = [f"label set {part.removeprefix('set-')}" if part.startswith("set-") else part for part in place.parts]
        name = ", ".join([which[1] if which[:1] == ["judges"] else "main", *which[-1:] * ("set-" in str(place))])
        if quality:
            found.append({**quality, "annotator": f"{name}: {quality['annotator']}"})
    return {"label_sets_by": found} if len(found) > 1 else {}


def _reward_threshold(env: EnvParams) -> float | None:
    """Return the mean return at which Gymnasium calls the environment solved, if it says so."""
    import gymnasium as gym

    from laurel.envs import reference_id

    return gym.spec(reference_id(env)).reward_threshold


def _animate(evaluation: Evaluation, adapter: EnvAdapter, agents: Agents, out: Output) -> tuple[Path, str] | None:
    """Film one episode of an agent before and after its training; return the file and the arm."""
    from laurel.envs.captioner import Captioner
    from laurel.evaluation.animation import record, side_by_side
    from laurel.evaluation.play import load_actor, watching
    from laurel.evaluation.rendering import NotRenderedError
    from laurel.seeding import derive_seed
    from laurel.training.untrained import untrained

    trained = [(arm, seed, place) for arm, seed, place in agents if place is not None]
    evaluate, env = evaluation.evaluate, evaluation.context.env
    if evaluate.animation_steps == 0 or not trained:
        return None
    arm, seed, place = next((agent for agent in trained if agent[0].role == "method"), trained[0])
    episode = derive_seed(evaluation.run_seed, "animation")
    before_training = untrained(evaluation.run_seed, env, arm.agent, adapter, seed)
    captioner = Captioner(adapter)
    shown = arm if arm.role == "method" else None
    reward = watching(shown, evaluation.context, adapter, evaluation.inputs)
    actors = before_training.as_actor(), load_actor(adapter, arm, place, greedy=evaluate.greedy)
    steps = evaluate.animation_steps
    try:
        before, after = (record(env, adapter, actor, captioner, steps, episode, reward) for actor in actors)
    except NotRenderedError as error:
        out.notes.append(f"There is no animation: {error}")
        return None
    side_by_side(before, after, out.path / ANIMATION)
    return out.path / ANIMATION, arm.name


def _portraits(
    evaluation: Evaluation,
    infos: Sequence[ArmInfo],
    adapter: EnvAdapter,
    agents: Agents,
    results: pd.DataFrame,
    out: Output,
) -> list[Portrait]:
    """Film an episode of every arm: of the seed whose mean return is the arm's median, the same start for all."""
    from laurel.envs.captioner import Captioner
    from laurel.evaluation.animation import portrait, record
    from laurel.evaluation.arms import ordered
    from laurel.evaluation.play import load_actor
    from laurel.evaluation.report import Portrait
    from laurel.evaluation.statistics import seed_scores
    from laurel.seeding import derive_seed

    evaluate, env = evaluation.evaluate, evaluation.context.env
    episode = derive_seed(evaluation.run_seed, "animation")
    places = {(arm.name, seed): (arm, place) for arm, seed, place in agents}
    scores = seed_scores(results).sort_values(["return", "seed"])
    (out.path / PORTRAITS).mkdir()
    found = []
    played_arms = {arm.name for arm, _, _ in agents}
    for arm in (info.name for info in ordered(infos) if info.name in played_arms):
        by_return = scores.loc[scores["arm"] == arm, "seed"].tolist()
        seed = int(by_return[(len(by_return) - 1) // 2])
        actor = load_actor(adapter, *places[arm, seed], greedy=evaluate.greedy, annotate=evaluation.context.annotate)
        steps = evaluate.animation_steps
        played = record(env, adapter, actor, Captioner(adapter), steps, episode, None)
        file = out.path / PORTRAITS / f"{arm}.webp"
        portrait(played, file)
        last = played[-1]
        ended = f"{last.outcome} after {last.step} steps" if last.over else last.outcome
        found.append(Portrait(arm, seed, file, f"{ended}, return {last.total:.2f}"))
    return found


def _with_references(
    annotate: AnnotateParams, adapter: EnvAdapter, sample: list[dict[str, Any]], captions: Collection[str]
) -> list[dict[str, Any]]:
    """Add to each pair of the sample what a person or the environment's progress says of it, where that is known."""
    import numpy as np

    from laurel.data.preferences import Pairs
    from laurel.feedback.references import references
    from laurel.stages.label_quality import gold_of

    if not sample:
        return []
    texts = [pair[side] for pair in sample for side in ("first", "second")]
    place = {text: texts.index(text) for text in texts}
    first, second = (np.array([place[pair[side]] for pair in sample]) for side in ("first", "second"))
    known = references(Pairs(first, second, "sample", 0), texts, adapter, gold_of(annotate, adapter), captions)
    return [
        {**pair, "references": {name: float(side[i]) for name, side in known.items() if not np.isnan(side[i])}}
        for i, pair in enumerate(sample)
    ]


def _made() -> list[str]:
    """Return when, from which commit and on what machine this is made."""
    import os
    from datetime import UTC, datetime

    from laurel.machine import machine
    from laurel.tracking.runs import git_sha

    found = machine()
    commit = git_sha()
    return [
        datetime.now(UTC).strftime("%Y-%m-%d"),
        *([f"commit {commit}"] if commit else []),
        f"{found['cpu']}, {found['architecture']}, {os.cpu_count()} cores",
        f"Python {found['python']}",
    ]


def _write_report(
    sections: Mapping[str, Any],
    adapter: EnvAdapter,
    stored: StoredRewards,
    table: PayTable | None,
    metrics: dict[str, Any],
    results: pd.DataFrame,
    curves: pd.DataFrame,
    rank: dict[str, Any] | None,
    films: tuple[tuple[Path, str] | None, list[Portrait]],
    sample: list[dict[str, Any]],
    found: list[Hacked],
    out: Output,
) -> None:
    import pandas as pd

    from laurel.evaluation import plots
    from laurel.evaluation.report import ReportContent, render

    vocabulary, animation = None, films[0]
    if table:
        columns = {"text": table.texts, "reward": table.rewards, "spread": table.spreads, "count": table.counts}
        vocabulary = pd.DataFrame({"id": range(len(table.texts)), **columns})
    figures = plots.draw(
        results,
        curves,
        metrics,
        calibration=metrics["reward"].get("calibration", ()),
        draws=sections["evaluate"].bootstrap,
        seed=sections["seed"],
    )
    drawn = {name: plots.save(figure, out.path / "figures", name) for name, figure in figures.items()}
    curves.to_csv(out.path / CURVES, index=False)
    content = ReportContent(
        title=sections["env"].id,
        metrics=metrics,
        description=adapter.description,
        figures=drawn,
        notes=out.notes,
        programs=stored.programs(),
        hacked=found,
        portraits=films[1],
        animation=animation[0] if animation else None,
        animation_of=animation[1] if animation else "",
        vocabulary=vocabulary,
        threshold=table.threshold if table else None,
        rank=rank,
        annotation={"annotator": sections["annotate"].annotator, **metrics["annotation"]}
        if judges_of(sections["arms"], sections["rewards"])
        else None,
        sample=sample,
        reward=metrics["reward"],
        params=dumped(sections),
        versions=_versions(with_sb3=any(arm.agent_of(sections["agent"]).engine == "sb3" for arm in sections["arms"])),
    )
    (out.path / REPORT).write_text(render(content), encoding="utf-8")


def _write_run_page(
    env: EnvParams, manifests: Mapping[str, dict[str, Any]], metrics: Mapping[str, Any], out: Output
) -> RunFacts:
    """Write what is true of this run alone beside the report."""
    from laurel.data.directory import RUN_PAGE
    from laurel.data.lineage import PRODUCERS
    from laurel.evaluation.run_page import RunFacts, render_run

    took = {PRODUCERS[name]: manifest["seconds"] for name, manifest in manifests.items()} | {"evaluate": out.seconds}
    facts = RunFacts(
        title=env.id,
        made=_made(),
        stage_seconds={stage: seconds for stage, seconds in took.items() if seconds is not None},
        usage=manifests["preferences"]["usage"],
        annotators=[str(one["annotator"]) for one in metrics["annotation"].get("by", ())],
        notes=[*(note for manifest in manifests.values() for note in manifest["run_notes"]), *out.run_notes],
    )
    (out.path / RUN_PAGE).write_text(render_run(facts), encoding="utf-8")
    return facts


def _versions(*, with_sb3: bool) -> dict[str, str]:
    """Return the versions of what a result may depend on, as far as it is installed."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version(), "laurel": __version__}
    for package in (*PACKAGES, *(SB3_PACKAGES if with_sb3 else ())):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def _track(
    tracked: Run,
    env: EnvParams,
    tracking: TrackingParams,
    metrics: dict[str, Any],
    facts: RunFacts,
    results: pd.DataFrame,
    agents: Agents,
    path: Path,
    runs: Mapping[str, str],
) -> None:
    """Log the summary again from the files, and the final figures of each agent with its own run.

    The best trained agent of a method is registered under an alias.
    """
    from laurel.data.directory import RUN_PAGE
    from laurel.evaluation.statistics import seed_scores
    from laurel.tracking.agents import log_evaluation, name_of
    from laurel.tracking.runs import BEST, flatten

    of_run = {"seconds": facts.stage_seconds, "annotation": {"usage": facts.usage}}
    numbers = {k: v for k, v in {**flatten(metrics), **flatten(of_run)}.items() if isinstance(v, int | float)}
    tracked.log_params({"verdict": metrics["headline"]["verdict"]})
    tracked.log_metrics({key.replace("@", "_"): float(value) for key, value in numbers.items()})
    for name in (METRICS, REPORT, RUN_PAGE, RESULTS):
        tracked.log_file(path / name)
    scores = {
        (str(row["arm"]), int(row["seed"])): (float(row["return"]), float(row["success"]))
        for row in seed_scores(results).to_dict("records")
    }
    final = {
        name_of(*agent): {"return": returned, "success": None if math.isnan(success) else success}
        for agent, (returned, success) in scores.items()
    }
    log_evaluation(tracked, runs, final)
    of_methods = {(arm.name, seed): place for arm, seed, place in agents if place and arm.role == "method"}
    if not tracking.register_models or not of_methods:
        return
    best = max(of_methods, key=lambda agent: (scores[agent][0], agent))
    tags = {"env": env.id, "arm": best[0], "role": "method", "seed": str(best[1]), "return": f"{scores[best][0]:.4g}"}
    source = tracked.log_model(of_methods[best], "best_agent", tags)
    tracked.register(f"agent.{env.id}", source, tags, alias=BEST)

"""evaluate: agents → report. Plays fresh episodes, computes the statistics, draws, writes, logs the summary."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from laurel.data.captions import read_vocabulary
from laurel.data.directory import Output, output_directory
from laurel.data.json_file import read_json, write_json
from laurel.data.lineage import read_inputs
from laurel.data.manifest import LIVE_PAGE, RUN_PAGE, read_manifest
from laurel.data.own_files import contents_named
from laurel.data.quality import QUALITY
from laurel.data.sample import read_sample
from laurel.data.usage import added, of_all
from laurel.envs import return_threshold
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError
from laurel.evaluation.live_page import MOVED
from laurel.evaluation.play import Evaluation, Played, play_agents, usage_note, watched_arm
from laurel.evaluation.run_page import RunFacts
from laurel.evaluation.statistics import further_measures, rank_agreement, seed_scores, summarise
from laurel.evaluation.summary import CURVES, METRICS, REPORT, RESULTS, SCHEMA
from laurel.evaluation.verdict import headline
from laurel.evaluation.win_rates import win_rates
from laurel.llm.mirror import mirrored
from laurel.llm.spending import shared_budget
from laurel.params.annotation import AnnotateParams
from laurel.params.arm_infos import ArmInfo, arm_infos
from laurel.params.arms import judges_of, used
from laurel.params.resolved_arms import Arm
from laurel.params.rewards import chain, judge_of, method_of
from laurel.params.stage_sections import EvaluationSections, arms_of
from laurel.progress import progress
from laurel.rewards.arms import trainers
from laurel.rewards.method import Inputs, LearningMethod, PayTable, RewardContext
from laurel.rewards.stored import StoredRewards, own_reward
from laurel.seeding import seed_folder
from laurel.stages.accounts import annotated, asked, note_annotated, noting
from laurel.stages.films import filming, small_world_figures
from laurel.stages.label_sets import LabelSet, label_sets, measured
from laurel.stages.report_files import FIGURES, Findings, drawn, rendered, with_references, write_run_page
from laurel.stages.reward_warnings import hacked_arms, misleading_sums, reward_distances
from laurel.stages.track_late import track_late
from laurel.tracking.agents import log_evaluation, name_of
from laurel.tracking.judgements import log_asked
from laurel.tracking.run import Run
from laurel.tracking.tracker import BEST, Tracker, flatten
from laurel.training.curve import CURVE_SCHEMA, read_curve

EPISODES = "episodes"
"""Folder of the tables of finished agents, while the others are played."""
Scores = dict[tuple[str, int], tuple[float, float]]
"""Arm and seed of an agent -> its mean return and its success."""


def run(
    trajectories: Path,
    captions: Path,
    preferences: Path,
    reward: Path,
    agents: Path,
    output: Path,
    responses: Path | None = None,
    **sections: Unpack[EvaluationSections],
) -> None:
    """Evaluate all agents on the reference environment.

    Args:
        output: directory to write metrics.json, results.parquet, report.html, figures/ and more into.
        responses: as in `laurel.stages.annotate.run`, for actors that ask a language model.

    Raises:
        DataError: an input is missing or damaged, or does not match the others.
    """
    inputs = {"trajectories": trajectories, "captions": captions, "preferences": preferences}
    inputs |= {"reward": reward, "agents": agents}
    annotate, described = sections["annotate"], used(sections)
    manifests = read_inputs(described, inputs)  # the report says that these were its parameters
    kept = responses if annotate.keeps_responses else None
    with (
        mirrored(annotate.language_model.store, kept),
        shared_budget(annotate) as sections["annotate"],
        output_directory(output, stage="evaluate", params=described, inputs=inputs, resumable=True) as out,
    ):
        out.use({})  # what stopped runs used
        subject = _Subject.of(sections, inputs, manifests)
        out.own_files = contents_named(described)
        results = play_agents(subject.evaluation, subject.played, sections["agent"].workers, out.path / EPISODES)
        results.to_parquet(out.path / RESULTS, index=False)
        with progress(4, "evaluate: report", "parts") as advance:
            evaluation, infos, played = subject.evaluation, subject.infos, subject.played
            note = usage_note(out.path / EPISODES / "films")
            with filming(evaluation, infos, played, results, out.path, note) as films:
                findings = _measured(subject, results, out)
                advance(1)
                extra, paths = small_world_figures(evaluation, infos, subject.adapter, played, results)
                if paths:
                    findings.metrics["paths"] = paths
                figures = drawn(findings, extra, out.path / FIGURES)
                advance(1)
                shown = films()
                out.usage = added(out.usage, of_all([shown.usage]))
            facts = _write(findings, rendered(findings, figures, shown, out), out)
            if (output / LIVE_PAGE).exists():  # a browser that shows it is redirected to the report
                (out.path / LIVE_PAGE).write_text(MOVED, encoding="utf-8")
            advance(1)
            out.counts = {"arms": len(findings.metrics["arms"]), "agents": len(played), "episodes": len(results)}
            _log(subject, findings, facts, out)
            shutil.rmtree(out.path / EPISODES)  # last: its notes of usage, too, are needed where this is stopped
            advance(1)


@dataclass(frozen=True)
class _Subject:
    """The inputs of the evaluation."""

    sections: EvaluationSections
    inputs: Mapping[str, Path]
    manifests: Mapping[str, dict[str, Any]]
    """Manifests of the inputs."""
    adapter: EnvAdapter
    arms: Mapping[str, Arm]
    infos: Sequence[ArmInfo]
    evaluation: Evaluation
    played: list[Played]
    stored: StoredRewards
    sets: Sequence[LabelSet]
    """The label sets that arms need."""

    @classmethod
    def of(
        cls, sections: EvaluationSections, inputs: Mapping[str, Path], manifests: Mapping[str, dict[str, Any]]
    ) -> _Subject:
        """Read the inputs; errors as in `run`."""
        annotate, rewards, arms = sections["annotate"], sections["rewards"], arms_of(sections)
        context = RewardContext(sections["env"], sections["caption"], annotate, rewards)
        made_from = Inputs(
            inputs["captions"], inputs["preferences"], inputs["reward"], inputs["trajectories"], agents=inputs["agents"]
        )
        watched = watched_arm(arms.values(), inputs["reward"])
        return cls(
            sections,
            inputs,
            manifests,
            context.adapter,
            arms,
            [
                replace(info, draws_tasks=arms[info.name].draws_tasks)
                for info in arm_infos(sections["arms"], rewards, sections["agent"])
            ],
            Evaluation(sections["seed"], context, sections["evaluate"], made_from, watched),
            _agents(arms.values(), inputs["agents"], manifests["agents"]),
            StoredRewards.read(inputs["reward"]),
            label_sets(annotate, judges_of(sections["arms"], rewards)),
        )

    @property
    def scored_by(self) -> str:
        """Owner of the reward that scores the episodes of all agents, as `StoredRewards.reward_owner` names it."""
        watched = self.evaluation.watched
        return self.stored.reward_owner(watched.reward, watched.agent.seeds) if watched else ""

    @property
    def judge(self) -> AnnotateParams:
        """The first judge whose labels arms need, or else the main one."""
        annotate = self.sections["annotate"]
        return annotate.of_judge(self.sets[0].judge) if self.sets else annotate

    @property
    def labels(self) -> Path:
        """The first label set of that judge."""
        preferences = self.inputs["preferences"]
        return self.sets[0].place(preferences) if self.sets else preferences


def _measured(subject: _Subject, results: pd.DataFrame, out: Output) -> Findings:
    """Compute the statistics and the rest of metrics.json; add notes to the output."""
    sections, manifests, stored, arms = subject.sections, subject.manifests, subject.stored, subject.arms
    evaluation, evaluate, seed = subject.evaluation, sections["evaluate"], sections["seed"]
    watched, agents = evaluation.watched, subject.inputs["agents"]
    curves, rank = _curves(subject.played), rank_agreement(results)
    table, quality = _of_reward(watched, stored, agents) if watched else (None, {})
    summary = summarise(
        results,
        curves,
        subject.infos,
        success_threshold=evaluate.success_threshold,
        reward_threshold=return_threshold(sections["env"]),
        draws=evaluate.bootstrap,
        seed=seed,
    )
    for name, account in asked(subject.played, out.path / EPISODES, out).items():
        summary["arms"][name]["asked"] = account
    metrics: dict[str, Any] = {
        "schema": SCHEMA,
        "headline": asdict(headline(summary)),
        "env": sections["env"].id,
        "annotator": subject.judge.annotator if subject.sets else annotator_asked(sections),
        "algorithm": trainers(arms.values()),
        **summary,
        "annotation": _annotation(subject),
        "reward": {**quality, "kendall_tau_vs_return": rank["tau"] if rank else None} if watched else {},
    }
    if simulated := stored.simulated():
        metrics["simulated"] = simulated
    if learned_there := annotated(subject.played):
        metrics["online"] = learned_there
        note_annotated(learned_there, out)
    with noting(usage_note(out.path / EPISODES / "looked_at"), out) as asking:
        hacked = hacked_arms(evaluation, arms, agents, curves, results, asking)
    if hacked:
        metrics["hacking"] = {
            suspect.arm: {"agents": suspect.agents, "seeds": [period.seed for period in suspect.periods]}
            for suspect in hacked
        }
    if measures := further_measures(results, draws=evaluate.bootstrap, seed=seed):
        metrics["further"] = measures
    if models := win_rates(results, curves, arms, seed):
        metrics["texts"] = models
    budget, trajectories = sections["annotate"].budget, subject.inputs["trajectories"]
    with noting(usage_note(out.path / EPISODES / "distances"), out) as asking:
        metrics["distances"], notes = reward_distances(
            stored, trajectories, subject.adapter, sections["agent"], budget, seed, asking
        )
    out.notes += [*misleading_sums(watched, arms, results, curves, subject.scored_by), *notes]
    out.notes += [note for manifest in manifests.values() for note in manifest["notes"]]
    texts = read_vocabulary(subject.inputs["captions"]).texts
    sample = with_references(subject.judge, subject.adapter, read_sample(subject.labels), texts)
    shown = (metrics, results, curves, rank, table, sample, hacked, subject.scored_by)
    return Findings(sections, subject.adapter, stored, manifests, *shown)


def annotator_asked(sections: EvaluationSections) -> str | None:
    """Return the annotator that rewards ask about other things than pairs, such as outcomes; None if none is asked."""
    rewards = sections["rewards"]
    paid = [name for arm in arms_of(sections).values() if arm.trained for name in arm.reward]
    methods = [method_of(rewards[name]) for name in chain(rewards, paid)]
    judges = [
        judge
        for method in methods
        for judge in (method.asked_in_fit(), method.asked_in_training())
        if judge is not None
    ]
    return sections["annotate"].of_judge(judges[0]).annotator if judges else None


def _annotation(subject: _Subject) -> dict[str, Any]:
    """Return the number, kind and quality of labels."""
    return {
        **subject.manifests["preferences"]["counts"],
        **read_manifest(subject.labels, "annotate")["counts"],
        **read_json(subject.labels / QUALITY),
        **({"label_sets_by": measured(subject.inputs["preferences"], subject.sets)} if len(subject.sets) > 1 else {}),
    }


def _write(findings: Findings, page: str, out: Output) -> RunFacts:
    """Write metrics, curves, the report and the page of the run."""
    write_json(out.path / METRICS, findings.metrics)
    findings.curves.to_csv(out.path / CURVES, index=False)
    (out.path / REPORT).write_text(page, encoding="utf-8")
    return write_run_page(findings.sections["env"], findings.manifests, findings.metrics, out)


def _log(subject: _Subject, findings: Findings, facts: RunFacts, out: Output) -> None:
    """Log to MLflow; stages that were not logged when they ran are logged first."""
    sections, manifests = subject.sections, subject.manifests
    late = track_late(sections, subject.inputs, out)
    with Tracker(sections, "evaluate", subject.inputs, out, known=late).stage_run() as tracked:
        if tracked:
            runs = {**manifests["agents"]["mlflow_agent_runs"], **out.agent_runs}
            scores = _scores(findings.results)
            _track(tracked, findings.metrics, facts, scores, out.path, runs)
            if sections["tracking"].register_models:
                made_rewards = late.get("reward", manifests["reward"]["mlflow_run_id"])
                _register_best(tracked, subject, scores, made_rewards)
            log_asked(tracked, out.asked)  # last: a server may have no traces


def _agents(arms: Iterable[Arm], agents: Path, manifest: dict[str, Any]) -> list[Played]:
    """List the agents to play: every trained one, and arms that need no training.

    Raises:
        DataError: an agent was not trained, or there is nothing to play.
    """
    asked = manifest["params"]["arms"]
    played: list[Played] = []
    for arm in arms:
        if arm.trained and arm.name in asked and not (agents / arm.name).is_dir():
            continue  # train-agents left it out; its manifest's notes say why
        for seed in arm.agent.seeds:
            place = agents / arm.name / seed_folder(seed)
            if arm.trained and not place.is_dir():
                raise DataError(
                    f"{agents}: holds no agent of the arm {arm.name} with seed {seed}. Run laurel train-agents again."
                )
            played.append((arm, seed, place if arm.trained else None))
    if not played:
        raise DataError(f"{agents}: holds no agent of the arms in params.yaml, so there is nothing to evaluate.")
    return played


def _curves(agents: Sequence[Played]) -> pd.DataFrame:
    """Gather the learning curves of all trained agents."""
    tables = []
    for arm, seed, agent in agents:
        if agent is not None:
            table = read_curve(agent).to_pandas()
            table.insert(0, "arm", arm.name)
            table.insert(1, "seed", seed)
            tables.append(table)
    return (
        pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["arm", "seed", *CURVE_SCHEMA.names])
    )


def _of_reward(watched: Arm, stored: StoredRewards, agents: Path) -> tuple[PayTable | None, dict[str, Any]]:
    """Return the table of the reward that scores all agents, and its quality beside that of the other rewards."""
    learned = (reward for reward in watched.reward if method_of(stored.settings[reward]).role == "method")
    name, seed = next(learned, next(iter(watched.reward))), watched.agent.seeds[0]
    qualities = stored.qualities()
    own_quality = qualities[name][stored.set_of_seed(name, seed)] if name in qualities else {}
    all_qualities = [
        {"reward": reward, "label_set": number, "judge": judge_of(reward, stored.settings), **quality}
        for reward, sets in qualities.items()
        for number, quality in enumerate(sets)
    ]
    others = {"of": name, "by": all_qualities} if len(all_qualities) > 1 else {}
    if isinstance(method_of(stored.settings[name]), LearningMethod):
        place = own_reward(agents / watched.name / seed_folder(seed), name)
        table = method_of(stored.settings[name]).table(place, watched.shaping.quantile)
        table = replace(table, learned_by=f"the agent of {watched.name} with seed {seed}") if table else None
    else:
        table = stored.table(name, watched.shaping.quantile, seed)
    return table, {**own_quality, **others}


def _track(
    tracked: Run,
    metrics: dict[str, Any],
    facts: RunFacts,
    scores: Scores,
    path: Path,
    runs: Mapping[str, str],
) -> None:
    """Log the summary again from the files, and the final figures of each agent with its own run."""
    of_run = {"seconds": facts.stage_seconds, "usage": facts.usage}
    numbers = {k: v for k, v in {**flatten(metrics), **flatten(of_run)}.items() if isinstance(v, int | float)}
    tracked.log_params({"verdict": metrics["headline"]["verdict"]})
    tracked.log_metrics({key: float(value) for key, value in numbers.items()})
    for name in (METRICS, REPORT, RUN_PAGE, RESULTS):
        tracked.log_file(path / name)
    final = {
        name_of(*agent): {"return": returned, "success": None if math.isnan(success) else success}
        for agent, (returned, success) in scores.items()
    }
    log_evaluation(tracked, runs, final)


def _register_best(tracked: Run, subject: _Subject, scores: Scores, made_rewards: str | None) -> None:
    """Register the best trained agent of a method under an alias, and point the same alias to its reward.

    If its arm has several rewards, that is the first one, which has the largest weight.

    Args:
        made_rewards: the run that registered the rewards, if there is one.
    """
    of_methods = {
        (arm.name, seed): (arm, place) for arm, seed, place in subject.played if place and arm.role == "method"
    }
    if not of_methods:
        return
    env = subject.sections["env"]
    best = max(of_methods, key=lambda agent: (scores[agent][0], agent))
    arm, place = of_methods[best]
    tags = {"env": env.id, "arm": best[0], "role": "method", "seed": str(best[1]), "return": f"{scores[best][0]:.4g}"}
    tracked.register(f"agent.{env.id}", tracked.log_model(place, "best_agent", tags, loads=True), tags, alias=BEST)
    if arm.reward:
        paid = next(iter(arm.reward))
        tags = {"reward": paid, **subject.stored.label_set_tag(paid, best[1])}
        tracked.point_to(BEST, f"reward.{env.id}", made_rewards or "", tags)


def _scores(results: pd.DataFrame) -> Scores:
    return {
        (str(row["arm"]), int(row["seed"])): (float(row["return"]), float(row["success"]))
        for row in seed_scores(results).to_dict("records")
    }

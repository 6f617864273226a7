"""train-agents: reward model → agents. Trains every arm with every seed, in parallel over the cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Unpack

from laurel.data.asked import ASKED, Asked, joined
from laurel.data.directory import output_directory
from laurel.data.json_file import read_json
from laurel.data.lineage import read_inputs
from laurel.data.usage import added, of_all
from laurel.envs.base import EnvAdapter
from laurel.llm.mirror import mirrored
from laurel.llm.spending import shared_budget
from laurel.params.arm_infos import ArmInfo, arm_infos
from laurel.params.arms import used
from laurel.params.resolved_arms import served_actors
from laurel.params.rewards import method_of
from laurel.params.stage_sections import TrainingSections, arms_of
from laurel.progress import progress
from laurel.rewards.arms import skipped_arms
from laurel.rewards.judging import Judging
from laurel.rewards.method import Inputs, LearningMethod, RewardContext
from laurel.seeding import seed_folder
from laurel.stages.training_notes import notes_on_arms, notes_on_gpu, notes_on_questions, notes_on_training
from laurel.stages.training_parts import check_part, copy_checkpoints, steps_until
from laurel.tracking.agents import NOTE, STAGE, AgentRuns, left_by_killed, read_note
from laurel.tracking.judgements import log_asked
from laurel.tracking.server import failures
from laurel.tracking.tracker import Tracker
from laurel.training.checkpoint import STATE, is_finished, read_run, used_by
from laurel.training.checks import check_agents
from laurel.training.engines import engine_of, steps_of
from laurel.training.preload import preload
from laurel.training.task import Agent

if TYPE_CHECKING:
    from laurel.pool import Job
    from laurel.stages.live import LivePage
    from laurel.training.arms import Part

Live: TypeAlias = "Callable[[str, Sequence[ArmInfo], Sequence[Agent], int, int], LivePage]"
"""Has the arguments of `laurel.stages.live.LivePage` after `place`. It is passed in, so that the stage of agents does
not depend on drawing code."""


def run(
    captions: Path,
    preferences: Path,
    reward: Path,
    output: Path,
    responses: Path | None = None,
    live: Live | None = None,
    *,
    branch: bool = False,
    part: Part | None = None,
    **sections: Unpack[TrainingSections],
) -> None:
    """Train the agents of all arms and seeds.

    Args:
        output: directory to write <arm>/seed-<n>/ into. A killed stage can be resumed.
        responses: as in `laurel.stages.annotate.run`, for rewards and hints that ask a language model during training.
        live: writes the page of learning curves during training; None: no page.
        branch: whether other arms of the run are trained elsewhere, in which case all of these may be skipped.
        part: some rounds of one arm with one seed, which are not tracked; None: the whole training.

    Raises:
        WorkerError: a training process died; finished work is kept.
        AnnotationError: the online judge cannot be made.
        ParamsError: an arm cannot be trained with these params.
        EnvError: the algorithm does not fit the environment.
        DataError: an input is missing or damaged, or does not fit the others.
    """
    from laurel.training.arms import topics

    seed, env, annotate, agent = sections["seed"], sections["env"], sections["annotate"], sections["agent"]
    described = used(sections)
    inputs = {"captions": captions, "preferences": preferences, "reward": reward}
    read_inputs(described, inputs)
    kept = responses if annotate.keeps_responses else None
    stage = "train-agents"
    if part is not None:
        sections["tracking"] = sections["tracking"].model_copy(update={"enabled": False})
        stage = check_part(part, sections, inputs)
    killed = left_by_killed(output)
    with (
        mirrored(annotate.language_model.store, kept),
        shared_budget(annotate) as asking,
        output_directory(
            output, stage=stage, params=described, inputs=inputs, resumable=True, limits_matter=_judged_online(sections)
        ) as out,
    ):
        context = RewardContext(env, sections["caption"], asking, sections["rewards"])
        adapter, arms = context.adapter, arms_of(sections)
        # a run's preflight has checked this, but a notebook has none
        check_agents(seed, arms.values(), context, adapter, branch=branch)
        skipped = skipped_arms(sections["arms"], context, adapter)
        trained = [arm for arm in arms.values() if arm.trained and arm.name not in skipped]
        out.notes += [
            *skipped.values(),
            *notes_on_arms(trained, context, adapter),
            *notes_on_gpu(env, trained, adapter),
        ]
        places = [(arm, number, out.path / arm.name / seed_folder(number)) for number in agent.seeds for arm in trained]
        if part is not None and part.begun is not None:
            copy_checkpoints(part.begun, out.path, [place for _, _, place in places])
        unfinished = [agent for agent in places if not is_finished(agent[2], part.until if part else None)]
        modules = preload("train", env, arms.values())
        judging = Judging(seed, context, topics(unfinished, context), modules)
        judging.answered = lambda: out.use_soon(judging.used())
        sources = Inputs(captions, preferences, reward)
        work = _Work(seed, context, unfinished, part, sources, agent.workers, modules)
        all_steps = sum(steps_of(arm) for arm, _, _ in places)
        infos = arm_infos(sections["arms"], sections["rewards"], sections["agent"])
        page = live(env.id, infos, places, all_steps - work.steps, all_steps) if live else None
        tracker, note = Tracker(sections, "train-agents", inputs, out), out.path / NOTE
        with tracker.stage_run(resumed=read_note(note).get(STAGE)) as tracked:
            runs = AgentRuns(tracker, tracked, note) if tracked else None
            if tracked:
                tracker.end_killed(
                    tracked, {run: ended_at for left, (run, ended_at) in killed.items() if not left.exists()}
                )
            if page and tracked:
                with suppress(*failures()):  # training continues without the link
                    tracked.describe(f"[Learning curves while the agents train]({page.place.resolve().as_uri()})")
            with tracker.at_work(), runs or nullcontext(), page or nullcontext():
                try:
                    work.do(judging, page, runs)
                finally:
                    out.use(judging.usage)
                    out.usage = added(out.usage, of_all(used_by(place) for _, _, place in places))
            out.asked = [*judging.asked, *_asked_by(places)]
            if runs:
                runs.finish(places)
            if tracked:
                log_asked(tracked, out.asked)
        _remove_leftovers(out.path)
        note.unlink(missing_ok=True)
        most_steps = max((steps_of(arm) for arm in trained), default=0)
        out.counts = {"arms": len(trained), "seeds": len(agent.seeds), "steps_each": most_steps}
        out.notes += [*notes_on_training(places), *judging.notes]
        out.run_notes += notes_on_questions(places)
        out.run_notes += page.notes if page else []


def _judged_online(sections: TrainingSections) -> bool:
    """Whether a reward is learned from a judge that is asked during training."""
    methods = (method_of(sections["rewards"][name]) for arm in arms_of(sections).values() for name in arm.reward)
    return any(isinstance(method, LearningMethod) and method.asked_in_training() for method in methods)


@dataclass(frozen=True)
class _Work:
    """Agents to be trained, and what the processes that train them need."""

    seed: int
    context: RewardContext
    agents: Sequence[Agent]
    """Agents that are not finished."""
    part: Part | None
    sources: Inputs
    workers: int | None
    modules: Sequence[str]
    """Modules that processes import first."""

    @property
    def steps(self) -> int:
        """The environment steps that are left."""
        return sum(steps_until(arm, self.part) for arm, _, _ in self.agents)

    def do(self, judging: Judging, page: LivePage | None, runs: AgentRuns | None) -> None:
        """Train the agents; errors as in `run`.

        Args:
            judging: answers questions meanwhile.
            page: the page of learning curves.
            runs: the agents' runs in MLflow.
        """
        from laurel.llm.served_sampling import servers
        from laurel.pool import run_jobs

        def begun(job: Job) -> None:
            if runs:
                _, _, agents, *_ = job.args
                runs.begin(agents)

        sampling = () if self.part and self.part.proposals else self.agents
        served = servers(served_actors(arm for arm, _, _ in sampling).values())
        with served, judging, progress(self.steps, "train-agents", "steps") as advance:
            counted = page.counting(advance) if page else advance
            jobs = self._jobs(replace(self.sources, judge=judging.queue))  # it has one from now on
            run_jobs(jobs, self.workers, counted, self.modules, begun)

    def _jobs(self, sources: Inputs) -> list[Job]:
        """Return the processes that train agents."""
        from laurel.training.arms import train_arms

        return [
            job_of(
                ", ".join(f"{arm.name} seed {number}" for arm, number, _ in group),
                train_arms if self.part is None else partial(train_arms, part=self.part),
                (self.seed, self.context, group, sources),
            )
            for group in groups(self.agents, self.context.adapter)
        ]


def job_of(name: str, work: Callable[..., None], args: tuple[int, RewardContext, Sequence[Agent], Inputs]) -> Job:
    """Return a process that trains agents, the third of `args`, as `train_arms` does."""
    from laurel.pool import Job

    _, _, agents, _ = args
    steps = sum(steps_of(arm) for arm, _, _ in agents)
    n_before = sum(read_json(place / STATE)["env_steps"] for _, _, place in agents if (place / STATE).exists())
    return Job(name, work, args, steps, n_before, ", ".join(sorted({arm.name for arm, _, _ in agents})))


def groups(agents: Sequence[Agent], adapter: EnvAdapter) -> list[Sequence[Agent]]:
    """Divide agents among processes; each process trains its group in lockstep.

    Agents of a group have the same algorithm and settings.
    """
    from laurel.pool import usable_cpus

    groups_alike: list[list[Agent]] = []
    for member in agents:
        group = next((peers for peers in groups_alike if peers[0][0].agent == member[0].agent), None)
        if group is None:
            groups_alike.append([member])
        else:
            group.append(member)
    divided: list[Sequence[Agent]] = []
    for batch in groups_alike:
        agent = batch[0][0].agent
        engine = engine_of(agent)
        if not engine.in_lockstep:
            divided += divide(batch, 1, 1)
        elif engine.on_gpu:
            divided += divide(batch, agent.workers or 1, len(batch))  # a GPU is more efficient with more agents at once
        else:
            divided += divide(batch, agent.workers or usable_cpus(), adapter.agents_in_lockstep)
    return divided


def divide(agents: Sequence[Agent], workers: int, largest: int) -> list[Sequence[Agent]]:
    """Divide agents into groups that are trained in lockstep: the same number per worker, with at most `largest` agents
    each.

    Results do not depend on the groups. Groups have similar sizes, so that workers end together.
    """
    if not agents:
        return []
    number = min(len(agents), workers * -(-len(agents) // (workers * largest)))
    ends = [len(agents) * i // number for i in range(number + 1)]
    return [agents[start:end] for start, end in pairwise(ends)]


def _remove_leftovers(path: Path) -> None:
    """Remove leftovers of a killed process: partial checkpoints, and replaced ones."""
    import shutil

    for leftover in path.glob("*/.*"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()  # notes of usage, which the manifest has


def _asked_by(places: Sequence[Agent]) -> list[Asked]:
    """Return samples of questions to chat models in training, for each agent."""
    accounts = [account for _, _, place in places for account in read_run(place).get("accounts", {}).values()]
    return joined(sample for account in accounts for sample in account.get(ASKED, ()))

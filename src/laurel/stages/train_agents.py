"""train-agents: reward model → agents. Trains every arm with every seed, in parallel over the cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Unpack

from laurel.agents.figures import METRICS
from laurel.console import tell
from laurel.data.asked import ASKED, Asked, joined
from laurel.data.directory import output_directory
from laurel.data.json_file import read_json
from laurel.data.lineage import read_inputs
from laurel.device import torch_device
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator_kind import kind_of
from laurel.llm.mirror import mirrored
from laurel.params import EnvParams
from laurel.params.annotation import AnnotateParams
from laurel.params.arms import Arm, ArmInfo, arm_infos, served_actors, used
from laurel.params.stage_sections import TrainingSections, arms_of
from laurel.params.training import AgentParams
from laurel.progress import progress
from laurel.rewards.arms import skipped_arms
from laurel.rewards.judging import Judging
from laurel.rewards.method import Inputs, RewardContext
from laurel.stages.training_parts import check_part, copy_checkpoints, steps_until
from laurel.tracking.agents import NOTE, STAGE, AgentRuns, left_by_killed, read_note
from laurel.tracking.judgements import log_asked
from laurel.tracking.run import Run
from laurel.tracking.server import failures
from laurel.tracking.tracker import Tracker
from laurel.training.checkpoint import STATE, is_finished, read_run
from laurel.training.checks import check_agents
from laurel.training.curve import CURVE
from laurel.training.lockstep import on_device
from laurel.training.preload import preload
from laurel.training.task import steps_of

if TYPE_CHECKING:
    from laurel.pool import Job
    from laurel.stages.live import LivePage
    from laurel.training.arms import Part

RESETS = 0.1
"""Share of environment steps that begin a new episode from which on a note says so."""
Agents = Sequence[tuple[Arm, int, Path]]
"""Arm, seed and directory of each."""
Live: TypeAlias = "Callable[[str, Sequence[ArmInfo], Agents, int, int], LivePage]"
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
    from laurel.llm.served_sampling import servers
    from laurel.pool import run_jobs
    from laurel.training.arms import topics

    seed, env, annotate, agent = sections["seed"], sections["env"], sections["annotate"], sections["agent"]
    described, context = used(sections), RewardContext(env, sections["caption"], annotate, sections["rewards"])
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
        output_directory(output, stage=stage, params=described, inputs=inputs, resumable=True) as out,
    ):
        adapter, every = context.adapter, arms_of(sections)
        # a run's preflight has checked this, but a notebook has none
        check_agents(seed, every.values(), context, adapter, branch=branch)
        skipped = skipped_arms(sections["arms"], context, adapter)
        trained = [arm for arm in every.values() if arm.trained and arm.name not in skipped]
        out.notes += [*skipped.values(), *_notes_on_sb3(trained), *_notes_on_interest(trained, annotate)]
        places = [(arm, number, out.path / arm.name / f"seed-{number}") for number in agent.seeds for arm in trained]
        if part is not None and part.begun is not None:
            copy_checkpoints(part.begun, out.path, [place for _, _, place in places])
        unfinished = [agent for agent in places if not is_finished(agent[2], part.until if part else None)]
        out.notes += [*_notes_on_gpu(env, trained, adapter), *_notes_on_servers(trained)]
        modules = preload("train", env, every.values())
        judging = Judging(seed, context, topics(unfinished, context), modules)
        total = sum(steps_until(arm, part) for arm, _, _ in unfinished)
        tracker, note = Tracker(sections, "train-agents", inputs, out), out.path / NOTE
        with tracker.stage_run(resumed=read_note(note).get(STAGE)) as tracked:
            runs = AgentRuns(tracker, tracked, note) if tracked else None

            def begun(job: Job) -> None:
                if runs:
                    _, _, agents, *_ = job.args
                    runs.begin(agents)

            whole = sum(steps_of(arm) for arm, _, _ in places)
            infos = arm_infos(sections["arms"], sections["rewards"])
            page = live(env.id, infos, places, whole - total, whole) if live else None
            if tracked:
                tracker.end_killed(tracked, {run: at for left, (run, at) in killed.items() if not left.exists()})
            if page and tracked:
                with suppress(*failures()):  # the training goes on without
                    tracked.describe(f"[Learning curves while the agents train]({page.place.resolve().as_uri()})")
            with tracker.at_work(), runs or nullcontext(), page or nullcontext():
                sampling = () if part and part.proposals else unfinished
                served = servers(served_actors(arm for arm, _, _ in sampling).values())
                with served, judging, progress(total, "train-agents", "steps") as advance:
                    sources = Inputs(captions, preferences, reward, judge=judging.queue)
                    jobs = _jobs(seed, context, unfinished, sources, part)
                    run_jobs(jobs, agent.workers, page.counting(advance) if page else advance, modules, begun)
            out.asked = [*judging.asked, *_asked_by(places)]
            if runs:
                runs.finish(places)
            if tracked:
                log_asked(tracked, out.asked)
        _remove_leftovers(out.path)
        note.unlink(missing_ok=True)
        most = max((steps_of(arm) for arm in trained), default=0)
        out.counts = {"arms": len(trained), "seeds": len(agent.seeds), "steps_each": most}
        out.notes += [*notes_on_training(places), *judging.notes]
        out.usage = judging.usage
        out.run_notes += _notes_on_questions(places)
        out.run_notes += page.notes if page else []


def _jobs(seed: int, context: RewardContext, agents: Agents, sources: Inputs, part: Part | None) -> list[Job]:
    """Return the processes that train agents."""
    from laurel.training.arms import train_arms

    return [
        job_of(
            ", ".join(f"{arm.name} seed {number}" for arm, number, _ in some),
            train_arms if part is None else partial(train_arms, part=part),
            (seed, context, some, sources),
        )
        for some in groups(agents, context.adapter)
    ]


def job_of(name: str, work: Callable[..., None], args: tuple[int, RewardContext, Agents, Inputs]) -> Job:
    """Return a process that trains agents, the third of `args`, as `train_arms` does."""
    from laurel.pool import Job

    _, _, agents, _ = args
    steps = sum(steps_of(arm) for arm, _, _ in agents)
    before = sum(read_json(place / STATE)["env_steps"] for _, _, place in agents if (place / STATE).exists())
    return Job(name, work, args, steps, before, ", ".join(sorted({arm.name for arm, _, _ in agents})))


def groups(agents: Agents, adapter: EnvAdapter) -> list[Agents]:
    """Divide agents among processes; each process trains its group in lockstep.

    Agents of a group have the same algorithm and settings.
    """
    from laurel.pool import usable_cpus

    alike: list[list[tuple[Arm, int, Path]]] = []
    for one in agents:
        found = next((some for some in alike if some[0][0].agent == one[0].agent), None)
        if found is None:
            alike.append([one])
        else:
            found.append(one)
    divided: list[Agents] = []
    for some in alike:
        agent = some[0][0].agent
        if agent.engine == "sb3":
            divided += divide(some, 1, 1)  # no sharing between agents there
        elif on_gpu(agent):
            divided += divide(some, agent.workers or 1, len(some))  # a GPU is more efficient with more agents at once
        else:
            divided += divide(some, agent.workers or usable_cpus(), adapter.agents_in_lockstep)
    return divided


def on_gpu(agent: AgentParams) -> bool:
    """Whether Laurel's own algorithms train on a GPU."""
    return agent.engine == "laurel" and torch_device(agent.device, "agent.device").type != "cpu"


def divide(agents: Agents, workers: int, largest: int) -> list[Agents]:
    """Divide agents into groups that are trained in lockstep: the same number per worker, with at most `largest` agents
    each.

    Results do not depend on the groups. Groups have similar sizes, so that workers end together.
    """
    if not agents:
        return []
    number = min(len(agents), workers * -(-len(agents) // (workers * largest)))
    ends = [len(agents) * i // number for i in range(number + 1)]
    return [agents[start:end] for start, end in pairwise(ends)]


def _notes_on_sb3(arms: Sequence[Arm]) -> list[str]:
    """Return notes on algorithms of another library, and on the consequences of interrupting them."""
    from importlib.metadata import version

    from laurel.agents.sb3.catalog import ALGORITHMS

    theirs = [arm.agent for arm in arms if arm.agent.engine == "sb3"]
    notes = []
    for name in dict.fromkeys(agent.sb3.algorithm for agent in theirs):
        package = ALGORITHMS[name][0]
        trained = [arm.name for arm in arms if arm.agent.engine == "sb3" and arm.agent.sb3.algorithm == name]
        who = "The agents" if len(trained) == len(arms) else f"Agents of {', '.join(trained)}"
        notes.append(f"{who} were trained by {name} of {package} {version(package)}, not by Laurel's own.")
    if any(agent.device != "cpu" or agent.sb3.kwargs.get("use_sde") for agent in theirs):
        notes.append(
            "Random numbers of a GPU, or of state-dependent exploration, are not in checkpoints: agents whose "
            "training was interrupted and resumed may differ from uninterrupted ones."
        )
    return notes


def _notes_on_interest(arms: Sequence[Arm], annotate: AnnotateParams) -> list[str]:
    """Return notes on arms whose interest in tasks comes from a simulated judge."""
    judges = {arm.name: arm.agent.curriculum.interest for arm in arms if arm.agent.curriculum is not None}
    simulated = [
        name for name, judge in judges.items() if judge is not None and kind_of(annotate.of_judge(judge)).simulated
    ]
    return [f"Which tasks are interesting was simulated in {', '.join(simulated)}."] if simulated else []


def _notes_on_gpu(env: EnvParams, arms: Sequence[Arm], adapter: EnvAdapter) -> list[str]:
    """Return notes on what ran on the GPU: the networks only, or also the environments."""
    notes = []
    for agent in (arm.agent for arm in arms):
        if not on_gpu(agent):
            continue
        if on_device(env, adapter, agent.settings, agent.device):
            notes.append(
                f"The agents were trained entirely on the GPU: {adapter.env_id} ran there as tensors. Its random "
                "numbers differ from those on the CPU, so agents of the same seed differ."
            )
        else:
            notes.append(
                f"The agents' networks were trained on the GPU, but {adapter.env_id} ran on the CPU: environments run "
                f"on the GPU "
                'only for PPO with an MLP in CartPole and MiniGrid\'s DoorKey and Empty, with env.backend "auto" '
                "and no env.kwargs."
            )
    return list(dict.fromkeys(notes))


def _notes_on_servers(arms: Sequence[Arm]) -> list[str]:
    """Return notes on arms whose proposals were sampled by a server, which are not reproducible."""
    served = served_actors(arms)
    if not served:
        return []
    return [
        f"Proposals of {', '.join(served)} were sampled by a server (agent.language_model.serve), whose batches "
        f"differ from run to run: if these agents are trained again, or interrupted and resumed, they and their "
        f"results differ."
    ]


def _remove_leftovers(path: Path) -> None:
    """Remove leftovers of a killed process: partial checkpoints, and replaced ones."""
    import shutil

    for leftover in path.glob("*/.*"):
        shutil.rmtree(leftover)


def notes_on_training(places: Agents) -> list[str]:
    """Return notes on the training of agents for readers of the report."""
    return [
        *_notes_on_unseen(places),
        *_notes_on_idleness(places),
        *_notes_on_steps(places),
        *_notes_on_resets(places),
    ]


def _notes_on_questions(places: Agents) -> list[str]:
    """Return notes on language-model usage in training, with warnings about unreadable answers.

    Agents of one process share the answers to hints.
    """
    notes, unread = [], dict[str, str]()
    for arm, seed, place in places:
        for purpose, account in read_run(place).get("accounts", {}).items():
            about = account.get("about", "states")
            instead = account.get("instead", "all actions counted as equally likely")
            notes.append(
                f"The process that trained {arm.name} seed {seed} asked {account['model']} for {purpose} about "
                f"{account['states']:,} distinct {about}: {account.get('calls', 0):,} calls, "
                f"{account.get('cached', 0):,} answers from the store. {account['unread']:,} {about} had no answer "
                f"that could be read: {instead} there."
            )
            if account["unread"]:
                unread.setdefault(f"{arm.name} {purpose}", notes[-1])  # once, not for every seed
    for note in unread.values():
        tell(f"train-agents: {note}")
    return notes


def _asked_by(places: Agents) -> list[Asked]:
    """Return samples of questions to chat models in training, for each agent."""
    accounts = [account for _, _, place in places for account in read_run(place).get("accounts", {}).values()]
    return joined(one for account in accounts for one in account.get(ASKED, ()))


def _notes_on_unseen(places: Agents) -> list[str]:
    """Return notes on arms that met captions missing from the table, which were scored when first met, or outcomes
    without an answer, which the reward does not pay.
    """
    notes = []
    for arm in dict.fromkeys(arm.name for arm, _, _ in places):
        states = [read_json(place / STATE) for found, _, place in places if found.name == arm]
        unseen, unpaid = max(one["unseen"] for one in states), max(one.get("unpaid", 0) for one in states)
        if unpaid:
            notes.append(
                f"Agents of {arm} met up to {unpaid} outcome{'s' * (unpaid > 1)} without an answer, since collection "
                "had not met them or the answer could not be read; the reward paid nothing for them."
            )
        if unseen:
            notes.append(
                f"Agents of {arm} met up to {unseen} captions that collection had not met; these were scored during "
                f"training."
            )
    return notes


def _notes_on_idleness(places: Agents) -> list[str]:
    """Return notes on agents that never learned, e.g. because no episode ended, or a replay memory never held
    enough.
    """
    import pyarrow.parquet as pq

    logged = [name for name in METRICS if name != "epsilon"]
    idle: dict[str, list[str]] = {}
    for arm, seed, place in places:
        columns = pq.read_table(place / CURVE, columns=logged).columns
        if all(column.null_count == len(column) for column in columns):
            idle.setdefault(arm.agent.section, []).append(f"{arm.name} seed {seed}")
    return [
        f"{', '.join(names)} never had enough to learn from: their weights are the initial ones. Raise "
        f"agent.steps, or lower n_envs or learning_starts of agent.{section}."
        for section, names in idle.items()
    ]


def _notes_on_steps(places: Agents) -> list[str]:
    """Return notes on runs in which Stable-Baselines3 took many more steps than requested to finish its last
    rollout.
    """
    taken: dict[tuple[str, int, int], list[str]] = {}
    for arm, _, place in places:
        if arm.agent.engine == "sb3" and (steps := read_json(place / STATE)["env_steps"]) > 1.1 * arm.agent.steps:
            taken.setdefault((arm.agent.sb3.algorithm, arm.agent.steps, steps), []).append(arm.name)
    return [
        f"Agents of {', '.join(dict.fromkeys(names))} took {steps:,} environment steps each, not {wanted:,}: "
        f"{algorithm} learns from whole rollouts. Lower agent.sb3.kwargs.n_steps or agent.sb3.n_envs for shorter ones."
        for (algorithm, wanted, steps), names in taken.items()
    ]


def _notes_on_resets(places: Agents) -> list[str]:
    """Return a note on arms of whose steps many began a new episode: RESETS or more."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: dict[str, float] = {}
    for arm, _, place in places:
        if arm.agent.engine == "laurel":
            episodes = pc.sum(pq.read_table(place / CURVE, columns=["episodes"])["episodes"]).as_py() or 0
            steps = read_json(place / STATE)["env_steps"]
            found[arm.name] = max(found.get(arm.name, 0.0), episodes / steps)
    often = {name: share for name, share in found.items() if share >= RESETS}
    if not often:
        return []
    return [
        f"Steps that begin a new episode, without an action, count as environment steps: up to "
        f"{max(often.values()):.0%} of those of {', '.join(often)}. With engine: sb3 they do not count, so compare "
        f"numbers of steps with care."
    ]


def track_agents(tracker: Tracker, run: Run, places: Agents) -> None:
    """Log finished agents as child runs of the stage's, with the times at which their training began and ended."""
    AgentRuns(tracker, run, tracker.output.path / NOTE).finish(places)

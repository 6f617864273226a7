"""train-agents: reward model → agents. Trains every arm with every seed, in parallel over the cores."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.params import Params

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter
    from laurel.tracking.runs import Run, Tracker

Agents = Sequence[tuple[str, int, Path]]
"""Arm, seed and directory of each."""
MAX_GROUP = 8
"""Agents that a process trains at once: more gain little, and end no sooner than the last of them."""


def run(params: Params, captions: Path, preferences: Path, reward: Path, output: Path) -> None:
    """Train the agents of all arms and seeds.

    Args:
        params: sections env, caption, annotate, arms, rewards, shaping and agent are used.
        captions: output of the caption stage.
        preferences: output of the annotate stage.
        reward: output of the train-reward stage.
        output: directory to write <arm>/seed-<n>/ into. A stage that was killed goes on where it was.

    Raises:
        WorkerError: a training process died; what is finished is kept.
        ParamsError: an arm cannot be trained with these params.
        EnvError: the algorithm does not fit the environment.
        DataError: an input is missing or damaged, or does not go with the others.
    """
    from laurel.data.directory import output_directory
    from laurel.data.lineage import read_inputs
    from laurel.envs import adapter_for
    from laurel.pool import Job, run_jobs
    from laurel.progress import progress
    from laurel.rewards.arms import skipped_arms, trained_arms
    from laurel.rewards.method import Inputs
    from laurel.tracking.agents import NOTE, STAGE, AgentRuns, read_note
    from laurel.tracking.runs import Tracker
    from laurel.training.arms import steps_of, train_arms
    from laurel.training.checks import check_agents
    from laurel.training.loop import is_finished

    used = params.used("seed", "env", "caption", "annotate", "arms", "rewards", "shaping", "agent")
    inputs = {"captions": captions, "preferences": preferences, "reward": reward}
    read_inputs(used, inputs)
    with output_directory(output, stage="train-agents", params=used, inputs=inputs, resumable=True) as out:
        adapter = adapter_for(params.env, with_action=params.caption.with_action)
        check_agents(params, adapter)
        out.notes += skipped_arms(params, adapter).values()
        arms = trained_arms(params, adapter)
        out.notes += _notes_on_sb3(params, arms)
        places = [(arm, seed, out.path / arm / f"seed-{seed}") for seed in params.agent.seeds for arm in arms]
        unfinished = [agent for agent in places if not is_finished(agent[2])]
        out.notes += _notes_on_gpu(params, arms, adapter)
        sources = Inputs(captions, preferences, reward)
        jobs = [
            Job(", ".join(f"{arm} seed {seed}" for arm, seed, _ in some), train_arms, (params, some, sources))
            for some in groups(params, unfinished)
        ]
        total = sum(steps_of(params, arm, seed) for arm, seed, _ in unfinished)
        tracker, note = Tracker(params, "train-agents", inputs, out), out.path / NOTE
        with tracker.stage_run(resumed=read_note(note).get(STAGE)) as tracked:
            runs = AgentRuns(tracker, tracked, params, note) if tracked else None

            def begun(job: Job) -> None:
                if runs:
                    _, agents, *_ = job.args
                    runs.begin(agents)

            with runs or nullcontext():
                with progress(total, "train-agents", "steps") as advance:
                    run_jobs(jobs, params.agent.workers, advance, ["laurel.training.arms", *preload(params)], begun)
                if runs:
                    runs.finish(places)
        _remove_leftovers(out.path)
        note.unlink(missing_ok=True)
        out.counts = {"arms": len(arms), "seeds": len(params.agent.seeds), "steps_each": params.agent.steps}
        out.notes += notes_on_training(params, places)


def groups(params: Params, agents: Agents) -> list[Agents]:
    """Divide agents among the processes that the machine has room for; each trains its group in lockstep.

    Those of a group have the same algorithm and settings.
    """
    from laurel.pool import usable_cpus

    alike: list[tuple[Params, list[tuple[str, int, Path]]]] = []
    for agent in agents:
        own = params.for_arm(agent[0])
        found = next((some for other, some in alike if other.agent == own.agent), None)
        if found is None:
            alike.append((own, [agent]))
        else:
            found.append(agent)
    divided: list[Agents] = []
    for own, some in alike:
        if own.agent.engine == "sb3":
            divided += divide(some, 1, 1)  # nothing is shared there
        elif on_gpu(own):
            divided += divide(some, params.agent.workers or 1, len(some))  # the quicker the more it has to do
        else:
            divided += divide(some, params.agent.workers or usable_cpus(), MAX_GROUP)
    return divided


def on_gpu(params: Params) -> bool:
    """Whether Laurel's own algorithms train the arm of these parameters on a GPU."""
    from laurel.device import torch_device

    return params.agent.engine == "laurel" and torch_device(params.agent.device, "agent.device").type != "cpu"


def divide(agents: Agents, workers: int, largest: int) -> list[Agents]:
    """Divide agents into groups that are trained in lockstep: as many for each worker, of `largest` at most.

    What an agent becomes does not depend on its group.
    """
    if not agents:
        return []
    size = -(-len(agents) // (workers * -(-len(agents) // (workers * largest))))
    return [agents[start : start + size] for start in range(0, len(agents), size)]


def _notes_on_sb3(params: Params, arms: Sequence[str]) -> list[str]:
    """Say which algorithms of another library train, and what stopping such a training costs."""
    from importlib.metadata import version

    from laurel.agents.sb3.catalog import ALGORITHMS

    agents = [params.for_arm(arm).agent for arm in arms]
    used = [agent.sb3 for agent in agents if agent.engine == "sb3"]
    who = "The agents were" if len(used) == len(arms) else "Some agents were"
    notes = []
    for name in dict.fromkeys(settings.algorithm for settings in used):
        package = ALGORITHMS[name][0]
        notes.append(f"{who} trained by {name} of {package} {version(package)}, not by Laurel's own.")
    if used and (params.agent.device != "cpu" or any(settings.kwargs.get("use_sde") for settings in used)):
        notes.append(
            "Random numbers of a GPU, or of exploration that depends on the state, are in no checkpoint: agents whose "
            "training was stopped and resumed may differ from those that were trained at one go."
        )
    return notes


def _notes_on_gpu(params: Params, arms: Sequence[str], adapter: EnvAdapter) -> list[str]:
    """Say what was on the GPU: the environments, too, or the networks alone."""
    from laurel.training.lockstep import on_device

    notes = []
    for own in map(params.for_arm, arms):
        if not on_gpu(own):
            continue
        if on_device(own.env, adapter, own.agent.settings, own.agent.device):
            notes.append(
                f"The agents were trained with all on the GPU: {adapter.env_id} ran there as tensors. Its random "
                "streams are others than those of the CPU, so agents of the same seed differ."
            )
        else:
            notes.append(
                f"The agents' networks were trained on the GPU, but {adapter.env_id} ran on the CPU: what can run on "
                'the GPU is PPO of plain layers in CartPole, DoorKey and Empty of MiniGrid, with env.backend "auto" '
                "and no env.kwargs."
            )
    return list(dict.fromkeys(notes))


def preload(params: Params) -> list[str]:
    """Modules that every training process would import for itself, at seconds each."""
    import importlib.util

    modules = ["torch._dynamo"]  # torch.optim imports it at the first step
    if importlib.util.find_spec("envpool"):
        modules.append("envpool")
    if any(params.for_arm(arm).agent.engine == "sb3" for arm in params.arm_names):
        modules.append("laurel.training.sb3")
    return modules


def _remove_leftovers(path: Path) -> None:
    """Remove what a killed process left beside agents: checkpoints half written, or not yet thrown away."""
    import shutil

    for leftover in path.glob("*/.*"):
        shutil.rmtree(leftover)


def notes_on_training(params: Params, places: Agents) -> list[str]:
    """Say what is to be known of how agents became what they are."""
    return [*_notes_on_unseen(places), *_notes_on_idleness(params, places), *_notes_on_steps(params, places)]


def _notes_on_unseen(places: Agents) -> list[str]:
    """Say which arms met captions that no table held; they were scored when they were met."""
    from laurel.data.directory import read_json
    from laurel.training.loop import STATE

    notes = []
    for arm in dict.fromkeys(arm for arm, _, _ in places):
        unseen = max(read_json(place / STATE)["unseen"] for name, _, place in places if name == arm)
        if unseen:
            notes.append(f"The arm {arm} met up to {unseen} captions that collection had not; they were scored then.")
    return notes


def _notes_on_idleness(params: Params, places: Agents) -> list[str]:
    """Say which agents are what they were at first, e.g. because no episode ended, or a memory never held enough."""
    import pyarrow.parquet as pq

    from laurel.agents.learner import METRICS
    from laurel.training.loop import CURVE

    logged = [name for name in METRICS if name != "epsilon"]
    idle: dict[str, list[str]] = {}
    for arm, seed, place in places:
        columns = pq.read_table(place / CURVE, columns=logged).columns
        if all(column.null_count == len(column) for column in columns):
            idle.setdefault(params.for_arm(arm).agent.section, []).append(f"{arm} seed {seed}")
    return [
        f"There was never enough to learn from for {', '.join(names)}: their weights are those of before. Raise "
        f"agent.steps, or lower n_envs or learning_starts of agent.{section}."
        for section, names in idle.items()
    ]


def _notes_on_steps(params: Params, places: Agents) -> list[str]:
    """Say where Stable-Baselines3 took many more steps than it was to: its rollouts are long, and the last is whole."""
    from laurel.data.directory import read_json
    from laurel.training.loop import STATE

    taken: dict[str, int] = {}
    for arm, _, place in places:
        agent = params.for_arm(arm).agent
        if agent.engine == "sb3":
            steps = read_json(place / STATE)["env_steps"]
            taken[agent.sb3.algorithm] = max(steps, taken.get(agent.sb3.algorithm, 0))
    return [
        f"The agents took {steps:,} environment steps each, not {params.agent.steps:,}: {algorithm} learns from whole "
        "rollouts. Lower agent.sb3.kwargs.n_steps or agent.sb3.n_envs for shorter ones."
        for algorithm, steps in taken.items()
        if steps > 1.1 * params.agent.steps
    ]


def track_agents(tracker: Tracker, run: Run, params: Params, places: Agents) -> None:
    """Log whole agents as runs of their own below the stage's, which begin and end when their training did."""
    from laurel.tracking.agents import NOTE, AgentRuns

    AgentRuns(tracker, run, params, tracker.output.path / NOTE).finish(places)

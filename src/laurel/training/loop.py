"""Training of agents, each an arm with a seed, from the first step to the last, resumable anywhere.

Several go in lockstep, so that an algorithm may compute them together. An agent's directory is always a whole
checkpoint: policy, optimiser, random state, learning curve, and the actions taken so far. Environments cannot be
saved, but they are deterministic: a resumed run plays its actions again, without learning, and is then the run that
it was. Every ANEW steps a run goes on from its own checkpoint in environments that are made anew, where nothing that it
learns with remembers older steps: so billions of steps take no more memory, and no longer to resume, than ANEW.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save as arrays_as_bytes
from safetensors.torch import load_file
from safetensors.torch import save as as_bytes

from laurel.agents.actor import Advisor
from laurel.agents.algorithms import initial_policy, make_learner
from laurel.agents.checkpoint import is_as_written, load_policy, save_policy
from laurel.agents.episodes import LEAST, Episodes
from laurel.agents.hints import Hints, make_advisor
from laurel.agents.learner import METRICS, Learner, LearnerGroup
from laurel.agents.ppo import PPO
from laurel.data.digests import digest_file
from laurel.data.json_file import read_json, write_json
from laurel.data.manifest import RUN
from laurel.data.parquet import read_table
from laurel.data.replacing import recover, replace_directory
from laurel.device import torch_device
from laurel.envs.base import Array, BoolArray, EnvAdapter
from laurel.envs.tasks import tasks_of
from laurel.errors import DataError, TrainingError
from laurel.feedback.interest import boring
from laurel.params import EnvParams
from laurel.params.annotation import AnnotateParams
from laurel.params.training import CurriculumParams, ShapingParams
from laurel.rewards.base import Reward
from laurel.rewards.stored import own_reward
from laurel.seeding import derive_seed, generator
from laurel.training.credit import CREDIT
from laurel.training.curriculum import FILE as CURRICULUM
from laurel.training.curriculum import KEY as CURRICULUM_KEY
from laurel.training.curriculum import Curriculum
from laurel.training.lockstep import group_of, make_envs, make_rollout, on_device
from laurel.training.signal import Signal

OPTIMIZER, ACTIONS, STATE, CURVE = "optimizer.safetensors", "actions.safetensors", "state.json", "curve.parquet"
ANEW = 10_000_000
"""Environment steps after which environments are made anew; all episodes that run then are left without an end."""
MOST_ROWS = 50_000
"""Rows of a learning curve; where there are more updates, a row is the mean of several."""
DIGESTED = (OPTIMIZER, ACTIONS)
"""Files of a checkpoint whose digests its state holds; weights are known to their own configuration."""

CURVE_SCHEMA = pa.schema(
    [
        ("env_steps", pa.int64()),
        ("episodes", pa.int64()),  # ended since the row before
        ("window", pa.int64()),  # the last episodes that the next three are over, see laurel.agents.episodes
        ("return_mean", pa.float64()),  # null where those are too few
        ("success_rate", pa.float64()),
        ("length_mean", pa.float64()),
        ("raw_reward", pa.float64()),  # mean normalised learned reward a step
        ("shaped_reward", pa.float64()),  # mean learned reward paid a step, before its weight
        ("share_paid", pa.float64()),  # share of steps that were paid anything
        *[(name, pa.float64()) for name in METRICS],  # null where the algorithm does not say
    ]
)
KL = "reference_kl"
LANGUAGE = {
    KL: "nats a completion",
    "examples": "answers, pairs or groups that a round was tuned on",
    "alone": "proposals for states that were met once",
    "alike": "groups of proposals in which none is better",
    "parse_rate": "share of answers that can be read",
    "tokens": "of an answer, on average",
    "critic_error": "mean absolute difference from values by dynamic programming",
    "critic_rank": "Kendall's tau with those values",
}
"""Columns of the curves of language models, each where an agent has it."""


def _curve_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the schema of a curve that has some of LANGUAGE."""
    return pa.schema([*CURVE_SCHEMA, *[pa.field(name, pa.float64()) for name in LANGUAGE if name in columns]])


@dataclass(frozen=True)
class Task:
    """A training task: everything but the reward function."""

    arm: str
    seed: int
    """Of the agent; arms with the same seed share initial weights and environments."""
    run_seed: int
    """Of the whole run."""
    env: EnvParams
    settings: Any
    """AlgorithmParams, or SB3Params where Stable-Baselines3 trains: of the algorithm, which they also name."""
    shaping: ShapingParams
    """With the arm's own weights."""
    steps: int
    checkpoint_steps: int
    device: str = "cpu"
    """cpu, cuda or auto."""
    annotate: AnnotateParams | None = None
    """The section of the run, for hints of its chat models, and its judge's interest in tasks."""
    curriculum: CurriculumParams | None = None
    """Which tasks episodes are of; None: in turns, or there is but one."""

    @property
    def steps_per_update(self) -> int:
        return steps_per_update(self.settings)

    @property
    def updates(self) -> int:
        """Updates until at least `steps` are done."""
        return self.total_steps // self.steps_per_update

    @property
    def total_steps(self) -> int:
        """Environment steps that are done in the end: whole updates."""
        return total_steps(self.settings, self.steps)

    @property
    def updates_per_row(self) -> int:
        """Updates that a row of the learning curve is the mean of."""
        return -(-self.updates // MOST_ROWS)

    @property
    def updates_per_checkpoint(self) -> int:
        """Updates between checkpoints, which hold whole rows of the curve."""
        rows = max(1, self.checkpoint_steps // (self.steps_per_update * self.updates_per_row))
        return rows * self.updates_per_row

    @property
    def updates_until_anew(self) -> int:
        """Updates after which environments are made anew, at a checkpoint."""
        checkpoints = max(1, ANEW // (self.steps_per_update * self.updates_per_checkpoint))
        return checkpoints * self.updates_per_checkpoint


def steps_per_update(settings: Any) -> int:
    """Return the environment steps that an algorithm learns from at once."""
    return settings.n_envs * settings.n_steps


def total_steps(settings: Any, steps: int) -> int:
    """Return the environment steps of the whole updates in which at least `steps` are done."""
    return -(-steps // steps_per_update(settings)) * steps_per_update(settings)


@dataclass
class Progress:
    """How far training is."""

    update: int = 0
    seconds: float = 0.0
    """The agent's share of them, where several are trained at once."""
    began: float = field(default_factory=time.time)
    """When the training did, in seconds since 1970."""
    curve: list[dict[str, Any]] = field(default_factory=list)
    since: int = 0
    """The update at which environments are made anew; 0 where they are those of the beginning."""
    actions: list[Array] = field(default_factory=list)
    """(T, N) or (T, N, A) of each update since then."""
    backend: str | None = None
    """Of the environments that the actions were taken in; None where none were, or an older version did not tell."""


@dataclass(frozen=True)
class Assignment:
    """An agent to train: the task, the learned part of its reward, and where it is kept."""

    task: Task
    reward: Reward | None
    """None trains on the environment's reward alone."""
    directory: Path
    """Where checkpoints and, in the end, the agent are."""


def train(
    task: Task, adapter: EnvAdapter, reward: Reward | None, directory: Path, advance: Callable[[int], None]
) -> None:
    """Train one agent, as `train_together` trains many."""
    train_together([Assignment(task, reward, directory)], adapter, advance)


def train_together(
    agents: Sequence[Assignment], adapter: EnvAdapter, advance: Callable[[int], None], *, tensors: bool | None = None
) -> None:
    """Train agents in lockstep until `task.steps`, each going on from its checkpoint if there is one.

    Each becomes what it would have become alone. Agents at different updates are trained in separate groups.

    Args:
        agents: to train; their tasks differ in arm, seed and shaping alone.
        adapter: the environment's adapter.
        advance: called with the number of environment steps done, steps of the checkpoints included.
        tensors: whether environments are tensors on the device; None says what `lockstep.on_device` says.
    """
    if tensors is None:
        tensors = on_device(agents[0].task.env, adapter, agents[0].task.settings, agents[0].task.device)
    advisor, interest = _advisor(agents[0].task, adapter), _interest(agents[0].task, adapter)
    runs = [_Run(agent, adapter, tensors, advisor, interest) for agent in agents]
    advance(sum(run.progress.update * run.task.steps_per_update for run in runs))
    for update in sorted({run.progress.update for run in runs}):
        together = [run for run in runs if run.progress.update == update]
        group = _caught_up(together)
        while together[0].progress.update < together[0].task.updates:
            if any(run.ends_here for run in together):
                together = [_anew(run, adapter, tensors, advisor) if run.ends_here else run for run in together]
                group = _group(together)
            _update(together, group)
            advance(sum(run.task.steps_per_update for run in together))
        for run in together:
            run.envs.close()


def _anew(run: _Run, adapter: EnvAdapter, tensors: bool, advisor: Advisor | None) -> _Run:
    """Go on from the checkpoint that was just written, in other environments, as a resumed run would."""
    run.envs.close()
    return _Run(run.agent, adapter, tensors, advisor)


def _group(runs: Sequence[_Run]) -> LearnerGroup:
    return group_of([run.learner for run in runs], [run.envs for run in runs], [run.rollout for run in runs])


def _advisor(task: Task, adapter: EnvAdapter) -> Advisor | None:
    """Return the advisor that hints at actions, one for all agents of a process; None without hints."""
    hints = getattr(task.settings, "hints", None)
    return None if hints is None else make_advisor(hints.actor, hints.options, adapter, task.annotate)


def _interest(task: Task, adapter: EnvAdapter) -> tuple[BoolArray | None, dict[str, Any]]:
    """Return which tasks the judge calls boring beside which, and what asking took; None without its interest."""
    if task.curriculum is None or task.curriculum.interest is None:
        return None, {}
    assert task.annotate is not None
    return boring(tasks_of(adapter, CURRICULUM_KEY), task.annotate, task.curriculum.interest)


def _caught_up(runs: Sequence[_Run]) -> LearnerGroup:
    """Take the actions of checkpoints again, without learning; return the group that goes on."""
    if len({run.progress.since for run in runs}) > 1:  # some of them remember all that they did
        for run in runs:
            _caught_up([run])
        return _group(runs)
    group = _group(runs)
    for update, actions in enumerate(zip(*[run.progress.actions for run in runs], strict=True), runs[0].progress.since):
        places = [run.envs for run in runs], [run.observation for run in runs], [run.rollout for run in runs]
        _move_on(runs, group.replay(*places, actions))
        for run in runs:
            run.signal.mix_into(run.rollout, update / run.task.updates)
            run.learner.replayed(run.rollout)
            run.follow()
            run.episodes.figures()  # they are in the curve already
    return group


def _update(runs: Sequence[_Run], group: LearnerGroup) -> None:
    """Collect a rollout each and learn from them."""
    started = time.perf_counter()
    for run in runs:
        run.learner.schedule(run.progress.update / run.task.updates)
    rollouts = [run.rollout for run in runs]
    _move_on(runs, group.collect([run.envs for run in runs], [run.observation for run in runs], rollouts))
    rewarded = [run.signal.mix_into(run.rollout, run.progress.update / run.task.updates) for run in runs]
    learned = group.learn(rollouts)
    seconds = (time.perf_counter() - started) / len(runs)
    for run, its_reward, metrics in zip(runs, rewarded, learned, strict=True):
        run.account(its_reward, metrics, seconds)


def _move_on(runs: Sequence[_Run], observations: Sequence[Array]) -> None:
    """Note where the next rollouts begin."""
    for run, observation in zip(runs, observations, strict=True):
        run.observation = observation


class _Run:
    """The state of one agent's training."""

    def __init__(
        self,
        agent: Assignment,
        adapter: EnvAdapter,
        tensors: bool,
        advisor: Advisor | None,
        interest: tuple[BoolArray | None, dict[str, Any]] = (None, {}),
    ) -> None:
        """Start training, or resume from the checkpoint, whose actions are replayed later."""
        self.agent, self.task, self.directory = agent, agent.task, agent.directory
        task = agent.task
        recover(agent.directory)
        policy = initial_policy(adapter, task.settings, task.run_seed, task.seed)
        policy.to(torch_device(task.device, "agent.device"))
        self.learner = make_learner(policy, task.settings, generator(task.run_seed, "agent", task.seed, "actions"))
        self.advisor = advisor
        if advisor is not None and isinstance(self.learner, PPO):
            self.learner.hints = Hints(advisor, task.settings.hints)
        self.progress = _restore(agent.directory, self.learner) if agent.directory.exists() else Progress()
        since = self.progress.since
        seed = derive_seed(task.run_seed, "agent", task.seed, "envs", *([since] if since else []))
        self.envs = make_envs(task.env, adapter, task.settings.n_envs, seed, policy.device if tensors else None)
        if self.progress.actions and self.progress.backend not in (self.envs.backend, None):
            raise DataError(
                f"{agent.directory}: its training began in environments of {self.progress.backend}, but here they are "
                f"of {self.envs.backend}, whose episodes differ. Go on where it began, or delete it to train it anew."
            )
        self.signal = Signal(task.shaping, adapter, agent.reward, task.settings.n_envs)
        if since:
            self.signal.recall(agent.directory)
        for part in self.signal.learned if self.progress.update else ():
            part.resume(own_reward(agent.directory, part.name), self.progress.update * task.steps_per_update)
        self.rows: list[dict[str, Any]] = []
        """Of updates since the curve's last row."""
        self.ends_here = False
        """Whether the checkpoint is what goes on, in environments that are made anew."""
        remembers = tensors or advisor is not None or task.curriculum is not None
        self.forgets = not remembers and self.learner.forgets and self.signal.forgets
        self.episodes = Episodes(adapter, task.settings.n_envs)
        self.rollout = make_rollout(self.learner, self.envs, self.signal.rewarded)
        self.curriculum, self._interest = None, interest[1]
        if task.curriculum is not None:
            self.curriculum = Curriculum(task.curriculum, tasks_of(adapter, CURRICULUM_KEY), self.envs, interest[0])
        self.observation = self.envs.reset()

    def follow(self) -> None:
        """Take in the episodes of the last rollout."""
        self.episodes.follow(self.rollout)
        if self.curriculum is not None:
            self.curriculum.follow(self.rollout)

    def account(self, rewarded: Mapping[str, float | None], metrics: Mapping[str, float], seconds: float) -> None:
        """Note an update that was made, and save where it is time.

        Raises:
            TrainingError: the loss is NaN or infinite.
        """
        task, progress = self.task, self.progress
        if self.rollout.valid.any() and not math.isfinite(metrics.get(self.learner.main_loss, 0.0)):
            raise TrainingError(
                f"{task.arm} seed {task.seed}: training diverged after {progress.update * task.steps_per_update:,} "
                f"steps (its loss is NaN or infinite). Lower agent.{self.learner.name}.learning_rate, or the reward's "
                "weights (shaping)."
            )
        progress.update += 1
        progress.seconds += seconds
        progress.actions.append(_compact(self.rollout.action))
        row = {"env_steps": progress.update * task.steps_per_update}
        self.follow()
        at_least = LEAST if progress.update < task.updates else 1  # a short run has no more than it has
        self.rows.append({**row, **self.episodes.figures(at_least=at_least), **rewarded, **metrics})
        if len(self.rows) == task.updates_per_row or progress.update == task.updates:
            progress.curve.append(_joined(self.rows))
            self.rows = []
        if self.forgets and progress.update % task.updates_until_anew == 0 and progress.update < task.updates:
            self.ends_here = True
            self.learner.begin()
            progress.since, progress.actions = progress.update, []
        if progress.update % task.updates_per_checkpoint == 0 or progress.update == task.updates:
            hints = dict(self.advisor.account) if self.advisor else {}
            asked = {"hints": hints, "its interest in tasks": self._interest}
            accounts = {**{name: one for name, one in asked.items() if one}, **self.signal.accounts}
            backend, curriculum = self.envs.backend, self.curriculum
            _save(self.directory, task, self.learner, progress, self.signal, curriculum, backend, accounts)


def _joined(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return rows of a learning curve as one: the sum of their episodes, the means of what is a mean of an update.

    What is a mean over the last episodes is the last row's, as are environment steps.
    """
    last = dict(rows[-1])
    if len(rows) > 1:
        last["episodes"] = sum(row["episodes"] for row in rows)
        for name in last.keys() - {"env_steps", "episodes", "window", "return_mean", "success_rate", "length_mean"}:
            known = [row[name] for row in rows if row.get(name) is not None]
            last[name] = sum(known) / len(known) if known else None
    return last


def _compact(actions: Array) -> Array:
    """Copy actions, in a byte each where they are few."""
    small = actions.dtype.kind == "i" and actions.min() >= 0 and actions.max() <= 255
    return actions.astype(np.uint8) if small else actions.copy()


def _save(
    directory: Path,
    task: Task,
    learner: Learner,
    progress: Progress,
    signal: Signal,
    curriculum: Curriculum | None,
    backend: str,
    accounts: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write a checkpoint beside the last one and put it in its place."""
    partial = directory.with_name(f".{directory.name}.writing")
    shutil.rmtree(partial, ignore_errors=True)  # what a killed run left there
    partial.mkdir(parents=True)
    finished = progress.update >= task.updates
    save_policy(partial, learner.policy, arm=task.arm, seed=task.seed, env=task.env.model_dump(mode="json"))
    (partial / OPTIMIZER).write_bytes(
        as_bytes(learner.state())
    )  # safetensors' own files can be read by their owner alone
    if not finished:
        taken = {f"{i:06d}": actions for i, actions in enumerate(progress.actions)}
        (partial / ACTIONS).write_bytes(arrays_as_bytes(taken))
    known = {name for row in progress.curve for name, value in row.items() if value is not None}
    curve = pa.Table.from_pylist(progress.curve, schema=_curve_schema(known))
    pq.write_table(curve, partial / CURVE, compression="zstd")
    if (credit := signal.credit) is not None:
        pq.write_table(credit, partial / CREDIT, compression="zstd")
    if curriculum is not None:
        pq.write_table(curriculum.table, partial / CURRICULUM, compression="zstd")
    for part in signal.learned:
        part.keep(own_reward(partial, part.name))
    write_json(
        partial / STATE,
        {
            "digests": {f.name: digest_file(f) for f in sorted(partial.iterdir()) if f.name in DIGESTED},
            "update": progress.update,
            **({"since": progress.since} if progress.since else {}),
            "env_steps": progress.update * task.steps_per_update,
            "finished": finished,
            "unseen": signal.unseen,
            "backend": backend,
            "rng": learner.rng.bit_generator.state,
        },
    )
    write_json(partial / RUN, run_of(progress.seconds, progress.began, accounts))
    replace_directory(partial, directory)


def _restore(directory: Path, learner: Learner) -> Progress:
    """Load a checkpoint into a learner.

    Raises:
        DataError: it is damaged or of another network.
    """
    state = read_json(directory / STATE)
    try:
        learner.policy.load_state_dict(load_policy(directory).state_dict())
        curve = read_rows(directory)
        learner.restore(load_file(directory / OPTIMIZER))
        learner.rng.bit_generator.state = state["rng"]
        actions = {} if state["finished"] else load_arrays(directory / ACTIONS)
        since = state.get("since", 0)
        if not state["finished"] and len(actions) != state["update"] - since:
            raise ValueError(f"actions of {len(actions)} updates, but {state['update'] - since} were made")
        if not is_as_written(directory, state):
            raise ValueError("a file was changed since")
        taken = [actions[key] for key in sorted(actions)]
        run = read_run(directory)
        return Progress(state["update"], run["seconds"], run["wall"][0], curve, since, taken, state.get("backend"))
    except (OSError, SafetensorError, pa.ArrowInvalid, RuntimeError, KeyError, TypeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"{directory}: not a complete checkpoint ({reason}). Delete it to train this agent anew."
        ) from None


def read_rows(directory: Path) -> list[dict[str, Any]]:
    """Read the learning curve of a checkpoint.

    Raises:
        ValueError: it is of an older version, whose means were over other episodes.
    """
    rows = pq.read_table(directory / CURVE, schema=_curve_schema(LANGUAGE)).to_pylist()
    if any(row["window"] is None for row in rows):
        raise ValueError("its learning curve is of an older version")
    return rows


def read_curve(directory: Path) -> pa.Table:
    """Read the learning curve of an agent, with those of LANGUAGE that it has.

    Raises:
        DataError: it is missing or damaged.
    """
    read_table(directory / CURVE, CURVE_SCHEMA, "train-agents")
    return read_table(directory / CURVE, _curve_schema(pq.read_schema(directory / CURVE).names), "train-agents")


def run_of(seconds: float, began: float, accounts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what RUN says of an agent: how long it was trained, when that began, and when it had come so far.

    Args:
        accounts: what its training asked of language models: what for -> `laurel.feedback.chooser.Chooser.account`.
    """
    return {"seconds": seconds, "wall": [began, time.time()], **({"accounts": dict(accounts)} if accounts else {})}


def read_run(directory: Path) -> dict[str, Any]:
    """Read an agent's `run_of`; where it is missing, as from data that DVC pulled, it was written in no time."""
    try:
        return dict(json.loads((directory / RUN).read_text(encoding="utf-8")))
    except FileNotFoundError:
        written = (directory / STATE).stat().st_mtime
        return {"seconds": 0.0, "wall": [written, written]}


def is_finished(directory: Path) -> bool:
    """Whether an agent's directory holds the end of its training."""
    recover(directory)
    return directory.exists() and bool(read_json(directory / STATE)["finished"])

"""Agents' runs in MLflow, filled while they train: each begins and ends when its training does.

A thread reads only the agents' checkpoints, so that a slow server does not delay training; anything that could not be
logged during training is logged at its end. An interrupted stage finds its runs again through a file beside the agents.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import threading
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import pyarrow.parquet as pq

from laurel.data.directory import left_by_stopped, without_limits
from laurel.data.json_file import digest_json, read_json, write_json
from laurel.errors import DataError
from laurel.params import EnvParams
from laurel.params.annotation import AnnotateParams
from laurel.params.resolved_arms import Arm
from laurel.params.rewards import RewardParams, chain, judge_of, method_of
from laurel.rewards.method import LearningMethod
from laurel.rewards.stored import OWN
from laurel.seeding import seed_folder
from laurel.tracking.run import TRAINING, Run, status_of
from laurel.tracking.server import failures
from laurel.tracking.tracker import Tracker, flatten
from laurel.training.checkpoint import STATE, read_run
from laurel.training.curve import CURVE
from laurel.training.engines import steps_of
from laurel.training.task import Agent

LOOK_SECONDS = 30.0
"""Polling interval of the checkpoints: each poll costs a request for every agent with a new one."""
POINTS = 30
"""Maximum number of points of a learning curve that are sent to MLflow; the files have them all."""
ADAPTER = "adapter"
"""Folder of an agent's LoRA weights; with an s appended, the run's folder of artifacts for earlier ones."""
NOTE = ".mlflow.json"
"""File with the run of each agent, while the stage is unfinished."""
STAGE = "stage"
"""Key of the stage's own run in that file."""


def name_of(arm: str, seed: int) -> str:
    """Name an agent as manifests do."""
    return f"{arm}/{seed_folder(seed)}"


@dataclass
class _Followed:
    """An agent, and how much of its training has been logged."""

    arm: Arm
    seed: int
    place: Path
    began: float
    """When, in seconds since 1970."""
    run: Run | None = None
    step: int = 0
    """Environment steps up to which its curve is logged."""
    time: float = 0.0
    """When that step was made."""
    stamp: int = -1
    """When the checkpoint that was read last was written."""
    ended: bool = False


@dataclass
class AgentRuns:
    """Runs below a stage's, one for each agent; use it around the training, in the block of the stage's run."""

    tracker: Tracker
    parent: Run
    note: Path
    """The file in which runs are found again; its folder is the stage's output."""
    _followed: dict[str, _Followed] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _known: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> AgentRuns:
        self._known = {**read_note(self.note), STAGE: self.parent.id}
        write_json(self.note, self._known)
        self._thread = threading.Thread(target=self._follow, name="mlflow", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if error is not None:  # the runs end now, and are resumed together with the stage
            for agent in self._followed.values():
                if agent.run is not None and not agent.ended:
                    with suppress(*failures()):
                        agent.run.end(status_of(error))

    def begin(self, agents: Sequence[Agent]) -> None:
        """Record that the training of agents begins now."""
        with self._lock:
            for arm, seed, place in agents:
                self._followed[name_of(arm.name, seed)] = _Followed(arm, seed, place, time.time())

    def finish(self, agents: Sequence[Agent]) -> None:
        """Log the rest of finished agents, end their runs, and record the runs in the stage's output.

        Raises:
            MlflowException: the server refuses it, or any other of `laurel.tracking.server.failures`.
        """
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        for arm, seed, place in agents:
            agent = self._followed.setdefault(name_of(arm.name, seed), _Followed(arm, seed, place, time.time()))
            self._look(agent)
        self.tracker.output.agent_runs.update(
            {name: agent.run.id for name, agent in self._followed.items() if agent.run is not None}
        )
        self.note.unlink(missing_ok=True)

    def _follow(self) -> None:
        """Poll the checkpoints; stop at MLflow's first failure, after which `finish` tries again."""
        with suppress(*failures()):
            while not self._over.wait(LOOK_SECONDS):
                with self._lock:
                    agents = [agent for agent in self._followed.values() if not agent.ended]
                for agent in agents:
                    if not self._over.is_set():
                        self._look(agent)

    def _look(self, agent: _Followed) -> None:
        """Log the part of an agent's checkpoint that has not been logged yet."""
        if agent.ended:
            return
        stamp = written(agent.place)
        checkpoint = read_checkpoint(agent.place) if stamp is not None and stamp != agent.stamp else None
        if agent.run is None:
            began = checkpoint[0][0] if checkpoint else agent.began
            agent.time = began
            agent.run = self._open(agent)
        if checkpoint is None or stamp is None or agent.ended:
            return
        (_, last_worked), state, rows = checkpoint
        agent.stamp = stamp
        first, begun = agent.step, agent.time
        points = [row for row in thinned(rows, steps_of(agent.arm), state["finished"]) if row["env_steps"] > first]
        last = max(int(state["env_steps"]), first + 1)
        agent.run.log_curve(
            ((row["env_steps"], {name: value for name, value in row.items() if name != "env_steps"}) for row in points),
            clock=lambda step: begun + (last_worked - begun) * (step - first) / (last - first),
        )
        agent.step, agent.time = int(state["env_steps"]), last_worked
        if not state["finished"]:
            _log_adapter(agent.run, agent.place, stamp, agent.step)
        else:
            source = agent.run.log_model(agent.place, "agent", self._tags(agent), loads=True)
            if self.tracker.sections["tracking"].register_models:
                agent.run.register(f"agent.{self.tracker.sections['env'].id}", source, self._tags(agent))
            agent.run.end(ended_at=last_worked)
            agent.ended = True

    def _open(self, agent: _Followed) -> Run:
        """Open an agent's run, or resume the one that it had before the stage was stopped."""
        name = name_of(agent.arm.name, agent.seed)
        run = self.parent.find(self._known[name]) if name in self._known else None
        if run is not None:
            agent.ended = run.resume() == "FINISHED"
            agent.step, agent.time = run.last_point("episodes") or (0, agent.time)
            return run
        name_shown = f"{agent.arm.name} seed {agent.seed}"
        run = self.tracker.child_run(self.parent, name_shown, self._tags(agent), began=agent.time)
        sections = self.tracker.sections
        run.log_params(params_of(sections["seed"], sections["env"], agent.arm, agent.seed))
        self._known[name] = run.id
        if self.note.exists():
            write_json(self.note, self._known)
        return run

    def _tags(self, agent: _Followed) -> dict[str, str]:
        sections = self.tracker.sections
        asked = judge_digests(agent.arm, sections["rewards"], sections["annotate"])
        training = training_of(sections["seed"], sections["env"], agent.arm, {**self._made_from, **asked})
        tags = {"arm": agent.arm.name, "seed": str(agent.seed), "role": agent.arm.role, TRAINING: training}
        annotators = annotators_of(agent.arm, sections["rewards"], sections["annotate"])
        return {**tags, "annotator": ", ".join(annotators)} if annotators else tags  # else the stage's

    @cached_property
    def _made_from(self) -> dict[str, str]:
        """The digests of the inputs that all branches of a run share; read once, as there may be hundreds of agents."""
        return self.tracker.digests("captions", "preferences", "reward")


def read_note(note: Path) -> dict[str, str]:
    """Return agent -> run id, as left by an interrupted stage; empty if there is none."""
    try:
        return dict(read_json(note)) if note.exists() else {}
    except (DataError, ValueError, TypeError):  # then the old runs are left alone, and new ones are created
        return {}


def left_by_killed(output: Path) -> dict[Path, tuple[str, float]]:
    """Find what killed stages have left beside their output: note -> the stage's run, and when it worked last."""
    found = {}
    for note in left_by_stopped(output, f"partial/{NOTE}"):
        if run := read_note(note).get(STAGE):
            found[note] = run, max(_replaced(Path(folder)) for folder, _, _ in os.walk(note.parent))
    return found


def _replaced(folder: Path) -> float:
    """Return when an entry of a folder was replaced last, as a checkpoint is; 0 where the folder itself was."""
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def params_of(run_seed: int, env: EnvParams, arm: Arm, seed: int) -> dict[str, Any]:
    """Return an agent's parameters of training: environment, algorithm, and shaping with its arm's weights."""
    agent, section = arm.agent, arm.agent.section
    return {
        "arm": arm.name,
        "seed": seed,
        "run_seed": run_seed,
        **flatten({"env": env.model_dump(mode="json")}),
        **{f"agent.{name}": getattr(agent, name) for name in ("algorithm", "engine", "steps", "device")},
        **flatten({"agent": {section: agent.section_of(section).model_dump(mode="json")}}),
        **(flatten({"agent": {"curriculum": agent.curriculum.model_dump(mode="json")}}) if agent.curriculum else {}),
        **flatten({"shaping": arm.shaping.model_dump(mode="json")}),
    }


def training_of(run_seed: int, env: EnvParams, arm: Arm, made_from: Mapping[str, str]) -> str:
    """Return the tag TRAINING of an arm's agents.

    Args:
        made_from: digests of the stage's inputs that all branches of a run share, and what `judge_digests` returns.
    """
    return digest_json([params_of(run_seed, env, arm, 0), dict(arm.reward), dict(made_from)])[:8]


def annotators_of(arm: Arm, rewards: Mapping[str, RewardParams], annotate: AnnotateParams) -> list[str]:
    """Return the annotators of the judges that an arm's rewards are made or learned from."""
    methods = [method_of(rewards[name]) for name in chain(rewards, arm.reward)]
    judges = [judge_of(name, rewards) for name in arm.reward]
    judges += [judge for method in methods for judge in (method.asked_in_fit(), method.asked_in_training())]
    return list(dict.fromkeys(annotate.of_judge(judge).annotator for judge in judges if judge is not None))


def judge_digests(arm: Arm, rewards: Mapping[str, RewardParams], annotate: AnnotateParams) -> dict[str, str]:
    """Return judge -> a digest of its settings, of the judges that are asked while an arm's agents are trained.

    Spending limits are included where agents continue without a judge that has reached them.
    """
    from laurel.agents.actors import judge_asked

    methods = [method_of(rewards[name]) for name in arm.reward]
    online = any(isinstance(method, LearningMethod) for method in methods)
    asked = [method.asked_in_training() for method in methods]
    if (helper := arm.agent.settings.helper) is not None:
        asked.append(judge_asked(helper.actor, helper.options))
    if arm.agent.curriculum is not None:
        asked.append(arm.agent.curriculum.interest)
    settings = {judge: {"annotate": annotate.of_judge(judge).model_dump(mode="json")} for judge in asked if judge}
    return {
        f"judge {name}": digest_json(content if online else without_limits(content))
        for name, content in settings.items()
    }


def log_evaluation(run: Run, agents: Mapping[str, str], scores: Mapping[str, Mapping[str, float | None]]) -> None:
    """Add final figures to the runs of agents.

    Args:
        run: of the stage, whose client is used.
        agents: agent -> run id.
        scores: agent -> its return and its success, None where that has no meaning.
    """
    for name, values in scores.items():
        if name in agents and (found := run.find(agents[name])) is not None:
            found.log_metrics({f"eval.{measure}": value for measure, value in values.items()})


def thinned(rows: Sequence[Mapping[str, Any]], total: int, finished: bool) -> list[Mapping[str, Any]]:
    """Return POINTS rows of a curve, evenly over its steps, and the last one of a finished curve.

    The choice of rows does not depend on the progress of training.
    """
    kept, part = [], 0
    for row in rows:
        reached = int(row["env_steps"]) * POINTS // max(total, 1)
        if reached > part:
            kept.append(row)
            part = reached
    if finished and rows and (not kept or kept[-1] is not rows[-1]):
        kept.append(rows[-1])
    return kept


def _add_annotation(place: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Add to each row of a curve the label counts at the last check by then, of each reward that is learned in
    training: checks may come between rows, and few rows become points.
    """
    from laurel.rewards.online_artefact import read_rows

    for folder in sorted((place / OWN).glob("*")):
        with suppress(DataError):  # it is being replaced
            checks = read_rows(folder)
            steps = [check.pop("env_steps") for check in checks]
            for row in rows:
                if made := bisect_right(steps, row["env_steps"]):
                    known = checks[made - 1].items()
                    row |= {f"{folder.name}.{key}": float(value) for key, value in known if value is not None}


def _log_adapter(run: Run, place: Path, stamp: int, step: int) -> None:
    """Log intermediate LoRA weights of a language model; the final ones are in the logged model of the agent.

    Does nothing for an agent without an adapter, or while its checkpoint is being replaced.
    """
    with TemporaryDirectory(prefix="laurel-") as scratch:
        copy = Path(scratch) / ADAPTER
        with suppress(FileNotFoundError, shutil.Error):
            shutil.copytree(place / ADAPTER, copy)
            if written(place) == stamp:
                run.log_directory(copy, f"{ADAPTER}s/{step}")


def written(place: Path) -> int | None:
    """Return when an agent's checkpoint was written, in nanoseconds; None without a checkpoint."""
    try:
        return (place / STATE).stat().st_mtime_ns
    except FileNotFoundError:  # not yet written, or just being replaced
        return None


def read_checkpoint(place: Path) -> tuple[tuple[float, float], dict[str, Any], list[dict[str, Any]]] | None:
    """Read an agent's checkpoint: the times at which training began and it was written, its state, and its curve.

    None while it is being replaced.
    """
    try:
        state = json.loads((place / STATE).read_text(encoding="utf-8"))
        content = (place / CURVE).read_bytes()
        began, ended = read_run(place)["wall"]
    except FileNotFoundError:
        return None
    rows = pq.read_table(io.BytesIO(content)).to_pylist()
    _add_annotation(place, rows)
    return (began, ended), state, [row for row in rows if row["env_steps"] <= state["env_steps"]]


def track_agents(tracker: Tracker, run: Run, agents: Sequence[Agent]) -> None:
    """Log finished agents as child runs of the stage's, with the times at which their training began and ended."""
    AgentRuns(tracker, run, tracker.output.path / NOTE).finish(agents)

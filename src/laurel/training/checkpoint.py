"""Checkpoints of an agent in training, written atomically.

Environments cannot be saved, but they are deterministic: their actions are stored instead and replayed on resumption.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save as arrays_as_bytes
from safetensors.torch import load_file
from safetensors.torch import save as as_bytes

from laurel.agents.checkpoint import CONFIG, is_as_written, load_policy, save_policy
from laurel.agents.learner import Learner
from laurel.arrays import Array, FloatArray
from laurel.data.digests import digest_file
from laurel.data.json_file import read_json, write_json
from laurel.data.manifest import RUN
from laurel.data.replacing import recover, replace_directory
from laurel.data.usage import USAGE, Usage, UsageNote, by_asker, latest, resumed_usage
from laurel.errors import DataError, first_line
from laurel.rewards.stored import own_reward
from laurel.training.credit import CREDIT
from laurel.training.curriculum import FILE as CURRICULUM
from laurel.training.curriculum import Curriculum
from laurel.training.curve import CURVE, curve_schema, read_rows
from laurel.training.pay import TrainingReward
from laurel.training.stored_agents import check_stored, state_of
from laurel.training.task import Task

OPTIMIZER, ACTIONS, STATE = "optimizer.safetensors", "actions.safetensors", "state.json"
REPLAY = "replay.safetensors"
"""A replay buffer, of algorithms that have one."""
DIGESTED = (OPTIMIZER, ACTIONS, REPLAY)
"""Files of a checkpoint whose digests are in its state file; that of the weights is in the policy's config.json."""


@dataclass
class Progress:
    """Progress of training."""

    update: int = 0
    seconds: float = 0.0
    """Training time; the agent's share of it, where several are trained at once."""
    began: float = field(default_factory=time.time)
    """When training began, in seconds since 1970."""
    curve: list[dict[str, Any]] = field(default_factory=list)
    since: int = 0
    """The update at which environments were last recreated; 0 if never."""
    actions: list[Array] = field(default_factory=list)
    """(T, N) or (T, N, A) of each update since then."""
    backend: str | None = None
    """Backend of the environments that the actions were taken in; None where none were."""


def save(
    directory: Path,
    task: Task,
    learner: Learner,
    progress: Progress,
    reward: TrainingReward,
    curriculum: Curriculum | None,
    backend: str,
    accounts: Mapping[str, Mapping[str, Any]],
    features: FloatArray | None = None,
) -> None:
    """Write a checkpoint, and replace the last one by it atomically.

    Args:
        features: (N, F) on which another package's policy is tried.

    Raises:
        PluginError: another package's learner or policy cannot be resumed or evaluated from it.
    """
    with replaced(directory) as partial:
        finished = progress.update >= task.updates
        save_policy(partial, learner.policy, arm=task.arm, seed=task.seed, env=task.env.model_dump(mode="json"))
        if features is not None:
            check_stored(partial, learner.policy, features)
        (partial / OPTIMIZER).write_bytes(
            as_bytes(dict(state_of(learner)))
        )  # save_file creates files that only their owner can read
        if not finished:
            action_arrays = {f"{i:06d}": actions for i, actions in enumerate(progress.actions)}
            (partial / ACTIONS).write_bytes(arrays_as_bytes(action_arrays))
        known = {name for row in progress.curve for name, value in row.items() if value is not None}
        curve = pa.Table.from_pylist(progress.curve, schema=curve_schema(known))
        pq.write_table(curve, partial / CURVE, compression="zstd")
        if (credit := reward.credit) is not None:
            pq.write_table(credit, partial / CREDIT, compression="zstd")
        if curriculum is not None:
            pq.write_table(curriculum.table, partial / CURRICULUM, compression="zstd")
        for part in reward.learned:
            part.keep(own_reward(partial, part.name))
        state = {
            "update": progress.update,
            **({"since": progress.since} if progress.since else {}),
            "env_steps": progress.update * task.steps_per_update,
            "finished": finished,
            "unseen": reward.unseen,
            **({"unpaid": reward.unpaid} if reward.unpaid else {}),
            "backend": backend,
            "rng": learner.rng.bit_generator.state,
        }
        write_state(partial, state)
        write_json(partial / RUN, run_of(progress.seconds, progress.began, accounts, directory))


@contextmanager
def replaced(directory: Path) -> Iterator[Path]:
    """Yield a directory for a checkpoint, which replaces the last one atomically if the block succeeds."""
    partial = directory.with_name(f".{directory.name}.writing")
    shutil.rmtree(partial, ignore_errors=True)  # left over from a killed run
    partial.mkdir(parents=True)
    yield partial
    replace_directory(partial, directory)


def write_state(partial: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint's STATE, with the digests of its other files, which must be there."""
    digests = {file.name: digest_file(file) for file in sorted(partial.iterdir()) if file.name in DIGESTED}
    write_json(partial / STATE, {"digests": digests, **state})


def incomplete(directory: Path, error: Exception) -> DataError:
    """Return the error for a checkpoint that cannot be used."""
    reason = first_line(error)
    return DataError(f"{directory}: not a complete checkpoint ({reason}). Delete it to train this agent again.")


def checked_state(directory: Path) -> dict[str, Any]:
    """Return a checkpoint's STATE.

    Raises:
        DataError: a file is missing, damaged, or not as it was written.
    """
    try:
        state: dict[str, Any] = json.loads((directory / STATE).read_text(encoding="utf-8"))
        config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
        if not is_as_written(directory, state) or not is_as_written(directory, config):
            raise ValueError("a file was changed since")
        if not isinstance(state["finished"], bool):
            raise ValueError(f"{STATE} does not say whether training is finished")
        read_rows(directory)
        run = read_run(directory)
        if not isinstance(run["seconds"], int | float) or not isinstance(run["wall"][0], int | float):
            raise ValueError(f"{RUN} has no times")
        return state
    except (OSError, pa.ArrowInvalid, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise incomplete(directory, error) from None


def restore(directory: Path, learner: Learner) -> Progress:
    """Load a checkpoint into a learner.

    Raises:
        DataError: it is damaged or of another network.
    """
    state = checked_state(directory)
    try:
        learner.policy.load_state_dict(load_policy(directory).state_dict())
        curve = read_rows(directory)
        learner.restore(load_file(directory / OPTIMIZER))
        learner.rng.bit_generator.state = state["rng"]
        actions = {} if state["finished"] else load_arrays(directory / ACTIONS)
        since = state.get("since", 0)
        if not state["finished"] and len(actions) != state["update"] - since:
            raise ValueError(f"actions of {len(actions)} updates, but {state['update'] - since} were made")
        action_arrays = [actions[key] for key in sorted(actions)]
        run = read_run(directory)
        return Progress(state["update"], run["seconds"], run["wall"][0], curve, since, action_arrays, state["backend"])
    except (DataError, OSError, SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise incomplete(directory, error) from None


def run_of(seconds: float, began: float, accounts: Mapping[str, Mapping[str, Any]], directory: Path) -> dict[str, Any]:
    """Return an agent's RUN: the duration, start and current time of its training.

    Args:
        accounts: purpose -> usage of language models by this process (`laurel.feedback.chooser.Chooser.account`).
        directory: of the last checkpoint, if there is one, which names the usage of stopped processes.
    """
    usage = resumed_usage(used_by(directory), by_asker(accounts.values()))
    merged = _of_any_process(accounts, directory)
    extra = {"accounts": merged} if merged else {}
    return {"seconds": seconds, "wall": [began, time.time()], **extra, **({USAGE: usage} if usage else {})}


def _of_any_process(accounts: Mapping[str, Mapping[str, Any]], directory: Path) -> dict[str, Mapping[str, Any]]:
    """Return for each purpose this process's account, or that of a stopped process that asked about more states, as one
    did that is resumed after its hints have ended.
    """
    before: dict[str, Mapping[str, Any]] = {}
    with suppress(DataError):  # missing or damaged, as in `used_by`
        before = read_json(directory / RUN).get("accounts", {})
    by_purpose = {
        purpose: [source[purpose] for source in (accounts, before) if purpose in source]
        for purpose in {**before, **accounts}
    }
    return {
        purpose: max(versions, key=lambda account: account.get("states", 0)) for purpose, versions in by_purpose.items()
    }


def used_by(directory: Path) -> dict[str, Usage]:
    """Return what the processes that trained an agent asked of language models, by asker, as far as files tell."""
    usages: list[dict[str, Usage]] = []
    with suppress(DataError):  # missing or damaged; resuming reports damage
        usages.append(read_json(directory / RUN).get(USAGE, {}))
    usages.append(UsageNote(_note_of(directory)).read())
    return latest(usages)


def _note_of(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.usage.json")


def usage_note(directory: Path) -> UsageNote:
    """Return the note of usage beside an agent's checkpoint, which has the usage until it was written."""
    return UsageNote(_note_of(directory), lambda: used_by(directory))


def read_run(directory: Path) -> dict[str, Any]:
    """Read an agent's `run_of`; without that file, as in data pulled by DVC, return 0 seconds at the state's date."""
    try:
        return dict(json.loads((directory / RUN).read_text(encoding="utf-8")))
    except FileNotFoundError:
        written = (directory / STATE).stat().st_mtime
        return {"seconds": 0.0, "wall": [written, written]}


def is_finished(directory: Path, until: int | None = None) -> bool:
    """Whether an agent's directory holds the end of its training, or of its training until an update.

    Raises:
        DataError: its checkpoint is not complete.
    """
    recover(directory)
    if not directory.exists():
        return False
    state = checked_state(directory)
    return bool(state["finished"]) or (until is not None and state["update"] >= until)

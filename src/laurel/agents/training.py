"""Training of one agent: an arm with a seed, from the first step to the last, resumable anywhere.

The agent's directory is always a whole checkpoint: policy, optimiser, random state, learning curve, and the
actions taken so far. Environments cannot be saved, but they are deterministic: a resumed run plays its
actions again, without learning, and is then the run that it was. Knows how to mix rewards; knows nothing
about where they come from.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
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

from laurel.agents.algorithms import initial_policy, make_learner
from laurel.agents.checkpoint import load_policy, save_policy
from laurel.agents.learner import METRICS, Learner, Rollout
from laurel.data.directory import read_json, recover, replace_directory, write_json
from laurel.device import torch_device
from laurel.envs.base import Array, FloatArray, Room
from laurel.envs.captioner import Captioner
from laurel.envs.vector import VectorEnv, make_vector
from laurel.errors import DataError, TrainingError
from laurel.params import EnvParams
from laurel.params.training import AlgorithmParams, ShapingParams
from laurel.rewards.functions import RewardFunction
from laurel.rewards.shaping import EpisodeCounts, shape
from laurel.seeding import derive_seed, generator

OPTIMIZER, ACTIONS, STATE, CURVE = "optimizer.safetensors", "actions.safetensors", "state.json", "curve.parquet"

CURVE_SCHEMA = pa.schema(
    [
        ("env_steps", pa.int64()),
        ("seconds", pa.float64()),
        ("episodes", pa.int64()),  # finished in this update
        ("return_mean", pa.float64()),  # of those; null where none finished, as the two below
        ("success_rate", pa.float64()),
        ("length_mean", pa.float64()),
        ("raw_reward", pa.float64()),  # mean normalised learned reward a step
        ("shaped_reward", pa.float64()),  # mean learned reward paid a step, before its weight
        ("share_paid", pa.float64()),  # share of steps that were paid anything
        *[(name, pa.float64()) for name in METRICS],  # null where the algorithm does not say
    ]
)


@dataclass(frozen=True)
class Task:
    """What is trained: everything but the reward function."""

    arm: str
    seed: int
    """Of the agent; arms with the same seed share initial weights and environments."""
    run_seed: int
    """Of the whole run."""
    env: EnvParams
    settings: AlgorithmParams
    """Of the algorithm, which they also name."""
    shaping: ShapingParams
    """With the arm's own weights."""
    steps: int
    checkpoint_steps: int
    device: str = "cpu"
    """cpu, cuda or auto."""

    @property
    def steps_per_update(self) -> int:
        return self.settings.n_envs * self.settings.n_steps

    @property
    def updates(self) -> int:
        """Updates until at least `steps` are done."""
        return -(-self.steps // self.steps_per_update)

    @property
    def total_steps(self) -> int:
        """Environment steps that are done in the end: whole updates."""
        return self.updates * self.steps_per_update

    @property
    def updates_per_checkpoint(self) -> int:
        return max(1, self.checkpoint_steps // self.steps_per_update)


@dataclass
class Progress:
    """How far training is."""

    update: int = 0
    seconds: float = 0.0
    curve: list[dict[str, Any]] = field(default_factory=list)
    actions: list[Array] = field(default_factory=list)
    """(T, N) or (T, N, A) of each update."""


def train(
    task: Task, room: Room, reward: RewardFunction | None, directory: Path, advance: Callable[[int], None]
) -> None:
    """Train until `task.steps`, going on from the checkpoint in `directory` if there is one.

    Args:
        task: what to train.
        room: the environment's room.
        reward: the learned part of the reward; None trains on the environment's alone.
        directory: where checkpoints and, in the end, the agent are.
        advance: told how many environment steps are done, those of the checkpoint included.
    """
    recover(directory)
    policy = initial_policy(room, task.settings, task.run_seed, task.seed)
    policy.to(torch_device(task.device, "agent.device"))
    learner = make_learner(policy, task.settings, generator(task.run_seed, "agent", task.seed, "actions"))
    progress = _restore(directory, learner) if directory.exists() else Progress()
    envs = make_vector(task.env, room, task.settings.n_envs, derive_seed(task.run_seed, "agent", task.seed, "envs"))
    signal = _Signal(task.shaping, room, reward, task.settings.n_envs)
    episodes = _Episodes(room, task.settings.n_envs)
    rollout = learner.rollout(envs)
    observation = envs.reset()
    for actions in progress.actions:
        observation = _replay(envs, observation, rollout, actions)
        signal.mix_into(rollout)
        learner.replayed(rollout)
        episodes.finished(rollout)
    advance(progress.update * task.steps_per_update)
    while progress.update < task.updates:
        started = time.perf_counter()
        learner.schedule(progress.update / task.updates)
        observation = learner.collect(envs, observation, rollout)
        rewarded = signal.mix_into(rollout)
        metrics = learner.learn(rollout)
        if rollout.valid.any() and not math.isfinite(metrics[learner.telling]):
            raise TrainingError(
                f"{task.arm} seed {task.seed}: training diverged after {progress.update * task.steps_per_update:,} "
                f"steps (its loss is no number). Lower agent.{learner.name}.learning_rate, or the reward's weights "
                "(shaping)."
            )
        progress.update += 1
        progress.seconds += time.perf_counter() - started
        progress.actions.append(_compact(rollout.action))
        row = {"env_steps": progress.update * task.steps_per_update, "seconds": round(progress.seconds, 3)}
        progress.curve.append({**row, **episodes.finished(rollout), **rewarded, **metrics})
        if progress.update % task.updates_per_checkpoint == 0 or progress.update == task.updates:
            _save(directory, task, learner, progress, signal.unseen)
        advance(task.steps_per_update)
    envs.close()


def _replay(envs: VectorEnv, observation: Array, rollout: Rollout, actions: Array) -> Array:
    """Take the actions of an update again, so that environments and rollout are as they were after it."""
    rollout.observation[0] = observation
    for t, action in enumerate(actions):
        rollout.record(t, action, envs.step(action.astype(rollout.action.dtype)))
    return rollout.observation[-1].copy()


def _compact(actions: Array) -> Array:
    """Copy actions, in a byte each where they are few."""
    small = actions.dtype.kind == "i" and actions.min() >= 0 and actions.max() <= 255
    return actions.astype(np.uint8) if small else actions.copy()


class _Signal:
    """The reward that is learned from: the environment's and the shaped learned one, weighed."""

    def __init__(self, shaping: ShapingParams, room: Room, reward: RewardFunction | None, n_envs: int) -> None:
        self._shaping = shaping
        self._captioner = Captioner(room)
        self._counts = EpisodeCounts(n_envs)
        self._reward = reward

    @property
    def unseen(self) -> int:
        """Captions met that the reward's table did not hold."""
        return self._reward.unseen if self._reward else 0

    def mix_into(self, rollout: Rollout) -> dict[str, float | None]:
        """Write `rollout.reward`; return what the curve keeps of its learned part."""
        if self._reward is None:
            rollout.reward[:] = self._shaping.extrinsic * rollout.extrinsic
            return {"raw_reward": None, "shaped_reward": None, "share_paid": None}
        transitions = rollout.transitions
        flat_ids = self._captioner.ids_of(transitions, rollout.valid.reshape(-1))
        ids = flat_ids.reshape(rollout.valid.shape)
        counts = self._counts.update(ids, rollout.valid, rollout.terminated | rollout.truncated)
        raw = self._reward(transitions, flat_ids, self._captioner.texts).reshape(ids.shape)
        shaped = shape(raw, counts, threshold=self._reward.threshold, beta=self._shaping.beta) * rollout.valid
        rollout.reward[:] = self._shaping.extrinsic * rollout.extrinsic + self._shaping.intrinsic * shaped
        said = rollout.valid & (ids >= 0)
        steps = int(rollout.valid.sum())  # none where all environments only reset
        return {
            "raw_reward": float(raw[said].mean()) if said.any() else None,
            "shaped_reward": float(shaped.sum()) / steps if steps else None,
            "share_paid": float((shaped != 0).sum()) / steps if steps else None,
        }


class _Episodes:
    """Returns, lengths and successes of the episodes that end in each rollout."""

    def __init__(self, room: Room, n_envs: int) -> None:
        self._room = room
        self._returns = np.zeros(n_envs, dtype=np.float32)
        self._lengths = np.zeros(n_envs, dtype=np.int64)

    def finished(self, rollout: Rollout) -> dict[str, float | None]:
        returns: list[FloatArray] = []
        lengths, terminated = [], []
        for t in range(len(rollout.valid)):
            self._returns += rollout.extrinsic[t] * rollout.valid[t]
            self._lengths += rollout.valid[t]
            ended = rollout.terminated[t] | rollout.truncated[t]
            if ended.any():
                returns.append(self._returns[ended])
                lengths.append(self._lengths[ended])
                terminated.append(rollout.terminated[t][ended])
                self._returns[ended] = 0
                self._lengths[ended] = 0
        if not returns:
            return {"episodes": 0, "return_mean": None, "success_rate": None, "length_mean": None}
        all_returns = np.concatenate(returns)
        success = self._room.succeeded(all_returns, np.concatenate(terminated))
        return {
            "episodes": len(all_returns),
            "return_mean": float(all_returns.mean()),
            "success_rate": None if success is None else float(success.mean()),
            "length_mean": float(np.concatenate(lengths).mean()),
        }


def _save(directory: Path, task: Task, learner: Learner, progress: Progress, unseen: int) -> None:
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
    write_json(
        partial / STATE,
        {
            "update": progress.update,
            "env_steps": progress.update * task.steps_per_update,
            "finished": finished,
            "seconds": progress.seconds,
            "unseen": unseen,
            "rng": learner.rng.bit_generator.state,
        },
    )
    pq.write_table(pa.Table.from_pylist(progress.curve, schema=CURVE_SCHEMA), partial / CURVE, compression="zstd")
    replace_directory(partial, directory)


def _restore(directory: Path, learner: Learner) -> Progress:
    """Load a checkpoint into a learner.

    Raises:
        DataError: it is damaged or of another network.
    """
    state = read_json(directory / STATE)
    try:
        learner.policy.load_state_dict(load_policy(directory).state_dict())
        curve = pq.read_table(directory / CURVE, schema=CURVE_SCHEMA).to_pylist()
        learner.restore(load_file(directory / OPTIMIZER))
        learner.rng.bit_generator.state = state["rng"]
        actions = {} if state["finished"] else load_arrays(directory / ACTIONS)
        if not state["finished"] and len(actions) != state["update"]:
            raise ValueError(f"actions of {len(actions)} updates, but {state['update']} were made")
        return Progress(state["update"], state["seconds"], curve, [actions[key] for key in sorted(actions)])
    except (OSError, SafetensorError, pa.ArrowInvalid, RuntimeError, KeyError, TypeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"{directory}: not a whole checkpoint ({reason}). Delete it to train this agent anew."
        ) from None


def is_finished(directory: Path) -> bool:
    """Whether an agent's directory holds the end of its training."""
    recover(directory)
    return directory.exists() and bool(read_json(directory / STATE)["finished"])

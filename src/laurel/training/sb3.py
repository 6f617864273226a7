"""Training of one agent with an algorithm of Stable-Baselines3; writes what Laurel's own training writes, but for
the credit of captions.

Checkpoints hold weights, optimisers, replay buffer, random states and the actions so far. On resumption, the actions
are replayed, which restores the environments and episode counts. Imports Stable-Baselines3.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from stable_baselines3.common.callbacks import BaseCallback

from laurel.agents.checkpoint import load_policy, save_policy
from laurel.agents.episodes import LEAST
from laurel.agents.sb3.env import LearnedRewardEnvs
from laurel.agents.sb3.model import make_algorithm, make_envs
from laurel.agents.sb3.policy import SB3Policy
from laurel.data.json_file import write_json
from laurel.data.manifest import RUN
from laurel.envs.base import EnvAdapter
from laurel.errors import TrainingError
from laurel.rewards.base import Reward
from laurel.training.checkpoint import checked_state, is_finished, read_run, replaced, run_of, usage_note, write_state
from laurel.training.curve import CURVE, CURVE_SCHEMA, read_rows
from laurel.training.pay import TrainingReward
from laurel.training.sb3_state import restore_state, save_state
from laurel.training.task import Task

CURVE_STEPS = 2048
"""Environment steps, at least, between two points of a learning curve."""
METRIC_OF = {
    "policy": ("train/policy_gradient_loss", "train/policy_loss", "train/policy_objective", "train/actor_loss"),
    "value": ("train/value_loss", "train/critic_loss", "train/loss"),
    "entropy": ("train/entropy_loss",),
    "approx_kl": ("train/approx_kl", "train/kl_divergence_loss"),
    "clip_fraction": ("train/clip_fraction",),
    "explained_variance": ("train/explained_variance",),
}
"""Column of a curve -> what Stable-Baselines3's algorithms call it."""
NEGATED = ("train/policy_objective", "train/entropy_loss")
"""What they log with the opposite sign of a curve's: what TRPO maximises, and minus the entropy."""


def train_sb3(
    task: Task, adapter: EnvAdapter, reward: Reward | None, directory: Path, advance: Callable[[int], None]
) -> None:
    """Train until `task.steps`, resuming from the checkpoint in `directory` if there is one.

    Args:
        task: what to train; an algorithm that learns from whole rollouts may take a few more than `task.steps`.
        reward: the learned part of the reward; None trains on the environment's alone.
        directory: of checkpoints and, finally, the agent.
        advance: called with the number of environment steps done, steps of the checkpoint included.

    Raises:
        ParamsError: the algorithm is not installed, or does not fit its arguments or the action space.
        DataError: the checkpoint is damaged or of another agent.
        TrainingError: training diverged.
    """
    if is_finished(directory):
        load_policy(directory)  # raises if it is damaged
        advance(task.steps)
        return
    model, envs = make_model(task, adapter, reward)
    with closing(envs):
        callback = _CheckpointCallback(task, directory, envs, advance)
        if directory.exists():
            callback.restore(model)
        left = task.steps - model.num_timesteps
        try:
            if left > 0:
                model.learn(left, callback=callback, log_interval=None, reset_num_timesteps=model.num_timesteps == 0)
        except BaseException as error:  # also Ctrl-C: what was asked is paid
            with suppress(OSError):
                callback.note_usage()
            if not isinstance(error, ValueError) or _finite(model):  # torch's distributions refuse NaN
                raise
            raise _diverged(task, model) from None
        callback.finish(model)


def make_model(task: Task, adapter: EnvAdapter, reward: Reward | None) -> tuple[Any, LearnedRewardEnvs]:
    """Make the algorithm with its environments, before its first step.

    Raises:
        ParamsError: it does not fit its arguments or the action space.
    """
    packed = make_envs(task.env, adapter, task.settings, task.run_seed, task.seed)
    envs = LearnedRewardEnvs(packed, adapter, TrainingReward(task.shaping, adapter, reward, task.settings.n_envs))
    model = make_algorithm(
        task.settings,
        envs,
        adapter,
        run_seed=task.run_seed,
        seed=task.seed,
        steps=task.steps,
        device=task.device,
    )
    return model, envs


def _finite(model: Any) -> bool:
    return all(bool(torch.isfinite(weights).all()) for weights in model.policy.parameters())


def _diverged(task: Task, model: Any) -> TrainingError:
    return TrainingError(
        f"{task.arm} seed {task.seed}: training diverged after {model.num_timesteps:,} steps (a weight is NaN or "
        "infinite). Lower agent.sb3.kwargs.learning_rate, or the reward's weights (shaping)."
    )


class _CheckpointCallback(BaseCallback):
    """Writes the learning curve and checkpoints before a rollout, when no update is under way."""

    def __init__(self, task: Task, directory: Path, envs: LearnedRewardEnvs, advance: Callable[[int], None]) -> None:
        super().__init__()
        self._task, self._directory, self._envs, self._advance = task, directory, envs, advance
        self._curve: list[dict[str, Any]] = []
        self._reported = self._saved = 0
        self._used = usage_note(directory)
        envs.reward.when_answered(self._note_if_due)
        self._spent, self._started = 0.0, time.perf_counter()
        self._began = time.time()

    @property
    def _seconds(self) -> float:
        return self._spent + time.perf_counter() - self._started

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        steps = self.model.num_timesteps
        self._tell(steps)
        if steps - (self._curve[-1]["env_steps"] if self._curve else 0) >= CURVE_STEPS:
            self._add_point(self.model)
        if steps - self._saved >= self._task.checkpoint_steps:
            self._save(self.model, finished=False)
        else:
            self._note_if_due()

    def _note_if_due(self) -> None:
        self._used.write_if_due(lambda: self._envs.reward.accounts.values())

    def note_usage(self) -> None:
        """Note what was asked, where training is stopped."""
        self._used.write(self._envs.reward.accounts.values())

    def finish(self, model: Any) -> None:
        """Save the last point of the curve and the agent."""
        if not self._curve or self._curve[-1]["env_steps"] < model.num_timesteps:
            self._add_point(model, at_least=1)  # a short run has few episodes
        self._save(model, finished=True)
        self._tell(self._task.steps)

    def _tell(self, steps: int) -> None:
        done = min(steps, self._task.steps)
        self._advance(done - self._reported)
        self._reported = done

    def _add_point(self, model: Any, *, at_least: int = LEAST) -> None:
        if not _finite(model):
            raise _diverged(self._task, model)
        logged = model.logger.name_to_value
        logged = {name: -value if name in NEGATED else value for name, value in logged.items()}
        metrics = {
            column: next((float(logged[name]) for name in names if name in logged), None)
            for column, names in METRIC_OF.items()
        }
        point = {"env_steps": model.num_timesteps}
        self._curve.append({**point, **self._envs.figures(at_least=at_least), **metrics})

    def _save(self, model: Any, *, finished: bool) -> None:
        """Write a checkpoint, and replace the last one by it atomically."""
        task = self._task
        with replaced(self._directory) as partial:
            policy = SB3Policy.of(model, task.settings.algorithm, task.settings.policy)
            save_policy(partial, policy, arm=task.arm, seed=task.seed, env=task.env.model_dump(mode="json"))
            state = {
                "engine": "sb3",
                "env_steps": model.num_timesteps,
                "finished": finished,
                "unseen": self._envs.reward.unseen,
                **({"unpaid": unpaid} if (unpaid := self._envs.reward.unpaid) else {}),
                **save_state(partial, model, self._envs.actions, finished=finished),
            }
            write_state(partial, state)
            write_json(partial / RUN, run_of(self._seconds, self._began, self._envs.reward.accounts, self._directory))
            pq.write_table(pa.Table.from_pylist(self._curve, schema=CURVE_SCHEMA), partial / CURVE, compression="zstd")
        self._saved = model.num_timesteps

    def restore(self, model: Any) -> None:
        """Resume from the checkpoint.

        Raises:
            DataError: it is damaged or of another agent.
        """
        actions = restore_state(self._directory, model, checked_state(self._directory))
        self._curve, run = read_rows(self._directory), read_run(self._directory)
        self._spent, self._began = float(run["seconds"]), float(run["wall"][0])
        points = {point["env_steps"] for point in self._curve}
        env = model.get_env()
        observation, done = env.reset(), None
        for number, action in enumerate(actions, start=1):
            observation, _, done, _ = env.step(action)
            if number * env.num_envs in points:
                self._envs.figures()  # they are already in the curve
        model._last_obs, model._last_episode_starts = observation, done
        self._saved = model.num_timesteps
        self._started = time.perf_counter()

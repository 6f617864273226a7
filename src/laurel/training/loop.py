"""Training of agents, each an arm with a seed, from the first step to the last, resumable anywhere.

Several agents are trained in lockstep, so that an algorithm may batch their computation. An agent's directory is
always a complete checkpoint: policy, optimiser, random state, learning curve, and the actions taken so far.
Environments cannot be saved, but they are deterministic: a resumed run replays its actions, without learning, and is
then in the same state as before. If the learner and the reward need no older steps, training restarts from its own
checkpoint in new environments every ENV_LIFETIME steps; this bounds the memory and the time to resume, even for
billions of steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.agents.actor import Actor, Advisor
from laurel.agents.algorithms import initial_policy, make_learner
from laurel.agents.episodes import LEAST, Episodes
from laurel.agents.hints import Hints, make_helper
from laurel.agents.learner import LearnerGroup
from laurel.arrays import Array, BoolArray, compact
from laurel.data.replacing import recover
from laurel.device import torch_device
from laurel.envs.base import EnvAdapter
from laurel.envs.tasks import tasks_of
from laurel.errors import DataError, TrainingError
from laurel.feedback.interest import boring
from laurel.plugins import is_ours
from laurel.rewards.base import Reward
from laurel.rewards.stored import own_reward
from laurel.seeding import derive_seed, generator
from laurel.training.checkpoint import Progress, restore, save, usage_note
from laurel.training.curriculum import KEY as CURRICULUM_KEY
from laurel.training.curriculum import Curriculum
from laurel.training.curve import joined
from laurel.training.lockstep import group_of, make_envs, make_rollout, on_device
from laurel.training.pay import TrainingReward
from laurel.training.stored_agents import finite
from laurel.training.task import Assignment, Task

if TYPE_CHECKING:
    from laurel.agents.language_model.shards import SampledShard


def train(
    task: Task, adapter: EnvAdapter, reward: Reward | None, directory: Path, advance: Callable[[int], None]
) -> None:
    """Train one agent, as `train_together` trains many."""
    train_together([Assignment(task, reward, directory)], adapter, advance)


def train_together(
    agents: Sequence[Assignment], adapter: EnvAdapter, advance: Callable[[int], None], *, tensors: bool | None = None
) -> None:
    """Train agents in lockstep until `task.steps`, resuming each from its checkpoint if there is one.

    The result is the same as if each were trained alone. Agents at different updates are trained in separate groups.

    Args:
        agents: to train; their tasks differ only in arm, seed and shaping.
        advance: called with the number of environment steps done, steps of the checkpoints included.
        tensors: whether environments are tensors on the device; None: as `lockstep.on_device` decides.
    """
    if tensors is None:
        tensors = on_device(agents[0].task.env, adapter, agents[0].task.settings, agents[0].task.device)
    opened: list[_Run] = []
    helper, interest = _helper(agents[0].task, adapter, opened), _interest(agents[0], adapter)

    def start(agent: Assignment, *interest: Any) -> _Run:
        opened.append(_Run(agent, adapter, tensors, helper, *interest))
        return opened[-1]

    def again(run: _Run) -> _Run:
        """Resume from the checkpoint that was just written, in new environments."""
        end(run)
        return start(run.agent)

    def end(run: _Run) -> None:
        opened.remove(run)
        run.envs.close()

    try:
        runs = [start(agent, interest) for agent in agents]
        advance(sum(run.progress.update * run.task.steps_per_update for run in runs))
        reached = sorted({run.progress.update for run in runs})
        for cohort in [[run for run in runs if run.progress.update == update] for update in reached]:
            group = _caught_up(cohort)
            while cohort[0].progress.update < cohort[0].agent.last:
                if any(run.ends_here for run in cohort):
                    cohort = [again(run) if run.ends_here else run for run in cohort]
                    group = _group(cohort)
                _update(cohort, group)
                advance(sum(run.task.steps_per_update for run in cohort))
            for run in cohort:
                end(run)
    except BaseException:  # also Ctrl-C: what was asked is paid
        for run in opened:
            with suppress(OSError):
                run.used.write(run.accounts().values())
        raise
    finally:  # where one fails, the others' environments must not stay open, with their processes
        for run in opened:
            run.envs.close()


def sample_shard(agent: Assignment, adapter: EnvAdapter, shard: int) -> SampledShard:
    """Sample a shard of the proposals that an agent's next update will learn from, without changing its checkpoint."""
    run = _Run(agent, adapter, tensors=False, helper=None)
    with closing(run.envs):
        _caught_up([run])
        sharded: Any = run.learner  # a LanguageModelLearner
        sampled: SampledShard = sharded.sample(run.envs, run.observation, run.rollout, shard)
    return sampled


def _group(runs: Sequence[_Run]) -> LearnerGroup:
    return group_of([run.learner for run in runs], [run.envs for run in runs], [run.rollout for run in runs])


def _helper(task: Task, adapter: EnvAdapter, runs: Sequence[_Run]) -> Actor | None:
    """Return the actor that gives hints or subgoals, one for all agents of a process; None without any.

    Args:
        runs: of these agents, which note what it asks.
    """
    if task.settings.helper is None:
        return None

    def note() -> None:
        for run in runs:
            run.note_if_due()

    helper = make_helper(task.settings.helper, adapter, task.annotate)
    helper.when_answered(note)
    return helper


def _interest(agent: Assignment, adapter: EnvAdapter) -> tuple[BoolArray | None, dict[str, Any]]:
    """Return (K, K) which tasks the judge calls boring given another, and the cost of asking; None if not asked."""
    task = agent.task
    if task.curriculum is None or task.curriculum.interest is None:
        return None, {}
    assert task.annotate is not None
    tasks, note = tasks_of(adapter, CURRICULUM_KEY), usage_note(agent.directory)
    return boring(tasks, task.annotate, task.curriculum.interest, note)


def _caught_up(runs: Sequence[_Run]) -> LearnerGroup:
    """Replay the actions of checkpoints, without learning; return the group that resumes."""
    if len({run.progress.since for run in runs}) > 1:  # they replay different updates
        for run in runs:
            _caught_up([run])
        return _group(runs)
    group = _group(runs)
    for update, actions in enumerate(zip(*[run.progress.actions for run in runs], strict=True), runs[0].progress.since):
        places = [run.envs for run in runs], [run.observation for run in runs], [run.rollout for run in runs]
        _move_on(runs, group.replay(*places, actions))
        for run in runs:
            run.reward.mix_into(run.rollout, update / run.task.updates)
            run.learner.replayed(run.rollout)
            run.follow()
            run.episodes.figures()  # they are already in the curve
    return group


def _update(runs: Sequence[_Run], group: LearnerGroup) -> None:
    """Collect a rollout each and learn from them."""
    started = time.perf_counter()
    for run in runs:
        run.learner.schedule(run.progress.update / run.task.updates)
    rollouts = [run.rollout for run in runs]
    _move_on(runs, group.collect([run.envs for run in runs], [run.observation for run in runs], rollouts))
    rewarded = [run.reward.mix_into(run.rollout, run.progress.update / run.task.updates) for run in runs]
    try:
        learned = group.learn(rollouts)
    except TrainingError as error:
        names = " or ".join(f"{run.task.arm} seed {run.task.seed}" for run in runs)
        raise TrainingError(f"{names}: {error}") from error
    seconds = (time.perf_counter() - started) / len(runs)
    for run, its_reward, metrics in zip(runs, rewarded, learned, strict=True):
        run.account(its_reward, metrics, seconds)


def _move_on(runs: Sequence[_Run], observations: Sequence[Array]) -> None:
    """Set the observations with which the next rollouts begin."""
    for run, observation in zip(runs, observations, strict=True):
        run.observation = observation


class _Run:
    """The state of one agent's training."""

    def __init__(
        self,
        agent: Assignment,
        adapter: EnvAdapter,
        tensors: bool,
        helper: Actor | None,
        interest: tuple[BoolArray | None, dict[str, Any]] = (None, {}),
    ) -> None:
        """Start training, or resume from the checkpoint, whose actions are replayed later."""
        self.agent, self.task, self.directory = agent, agent.task, agent.directory
        task = agent.task
        recover(agent.directory)
        policy = initial_policy(adapter, task.settings, task.run_seed, task.seed)
        policy.to(torch_device(task.device, "agent.device"))
        self.learner = make_learner(policy, task.settings, generator(task.run_seed, "agent", task.seed, "actions"))
        self.helper = helper
        if isinstance(helper, Advisor) and self.learner.takes_hints:
            its_own = derive_seed(task.run_seed, "agent", task.seed, "hints")
            self.learner.hints = Hints(helper, task.settings.hints, its_own)
        elif helper is not None:
            self.learner.take_help(helper)
        self.progress = restore(agent.directory, self.learner) if agent.directory.exists() else Progress()
        if agent.sampled:
            sharded: Any = self.learner  # a LanguageModelLearner
            sharded.sampled = agent.sampled
        since = self.progress.since
        seed = derive_seed(task.run_seed, "agent", task.seed, "envs", *([since] if since else []))
        n_envs, shards = task.settings.n_envs, task.settings.sampled_in
        self.envs = make_envs(task.env, adapter, n_envs, seed, policy.device if tensors else None, shards)
        with ExitStack() as failing:
            failing.callback(self.envs.close)
            if self.progress.actions and self.progress.backend != self.envs.backend:
                raise DataError(
                    f"{agent.directory}: its training began with the environment backend {self.progress.backend}, but "
                    f"here the backend is {self.envs.backend}, whose episodes differ. Resume it where "
                    f"{self.progress.backend} is used, or delete it to train from scratch."
                )
            self.reward = TrainingReward(task.shaping, adapter, agent.reward, task.settings.n_envs)
            if since:
                self.reward.restore(agent.directory)
            for part in self.reward.learned if self.progress.update else ():
                part.resume(own_reward(agent.directory, part.name), self.progress.update * task.steps_per_update)
            self.used = usage_note(agent.directory)
            self.reward.when_answered(self.note_if_due)
            self.rows: list[dict[str, Any]] = []
            """Rows of the updates since the curve's last row."""
            self.ends_here = False
            """Whether this object is done: training resumes from the checkpoint, in new environments."""
            remembers = tensors or helper is not None or task.curriculum is not None
            self.needs_no_history = not remembers and self.learner.needs_no_history and self.reward.needs_no_history
            self.episodes = Episodes(adapter, task.settings.n_envs)
            self.rollout = make_rollout(self.learner, self.envs, self.reward.rewarded)
            self.curriculum, self._interest = None, interest[1]
            if task.curriculum is not None:
                self.curriculum = Curriculum(task.curriculum, tasks_of(adapter, CURRICULUM_KEY), self.envs, interest[0])
            self.observation = self.envs.reset()
            failing.pop_all()

    def follow(self) -> None:
        """Take in the episodes of the last rollout."""
        self.episodes.follow(self.rollout)
        if self.curriculum is not None:
            self.curriculum.follow(self.rollout)

    def account(self, rewarded: Mapping[str, float | None], metrics: Mapping[str, float], seconds: float) -> None:
        """Record an update, and save a checkpoint if due; raise TrainingError for a NaN or infinite loss or weight."""
        task, progress = self.task, self.progress
        lost = not math.isfinite(metrics.get(self.learner.main_loss, 0.0)) or any(map(math.isinf, metrics.values()))
        if self.rollout.valid.any() and lost:
            raise self._diverged("its loss")
        progress.update += 1
        progress.seconds += seconds
        progress.actions.append(compact(self.rollout.action))
        row = {"env_steps": progress.update * task.steps_per_update}
        self.follow()
        at_least = LEAST if progress.update < task.updates else 1  # a short run has few episodes
        self.rows.append({**row, **self.episodes.figures(at_least=at_least), **rewarded, **metrics})
        if len(self.rows) == task.updates_per_row or progress.update == task.updates:
            progress.curve.append(joined(self.rows))
            self.rows = []
        if (
            self.needs_no_history
            and progress.update % task.updates_per_env_lifetime == 0
            and progress.update < task.updates
        ):
            self.ends_here = True
            self.learner.begin()
            progress.since, progress.actions = progress.update, []
        if progress.update % task.updates_per_checkpoint == 0 or progress.update == self.agent.last:
            policy = self.learner.policy
            if not finite(policy):
                raise self._diverged("a weight")
            tried = None if is_ours(type(policy)) else self.envs.adapter.features(self.observation)
            backend, curriculum = self.envs.backend, self.curriculum
            save(self.directory, task, self.learner, progress, self.reward, curriculum, backend, self.accounts(), tried)
        else:
            self.note_if_due()

    def _diverged(self, what: str) -> TrainingError:
        task = self.task
        lower = f"agent.{self.learner.name}.learning_rate, or " if hasattr(task.settings, "learning_rate") else ""
        return TrainingError(
            f"{task.arm} seed {task.seed}: training diverged after "
            f"{self.progress.update * task.steps_per_update:,} steps ({what} is NaN or infinite). Lower {lower}the "
            "reward's weights (shaping)."
        )

    def note_if_due(self) -> None:
        """Note what was asked, which a killed process would lose."""
        self.used.write_if_due(lambda: self.accounts().values())

    def accounts(self) -> dict[str, Mapping[str, Any]]:
        """Return the usage of language models by this process, by purpose."""
        helper = self.task.settings.helper
        hints = {helper.what: dict(self.helper.account)} if helper and self.helper else {}
        asked = {**hints, "its interest in tasks": self._interest}
        return {**{name: account for name, account in asked.items() if account}, **self.reward.accounts}

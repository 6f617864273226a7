"""The interface between training loop and algorithms: collect a rollout, learn from its rewards, save and restore."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from laurel.adam import MOMENTS, Adam
from laurel.agents.actor import Acted, Actor, View
from laurel.agents.figures import METRICS
from laurel.arrays import Array, BoolArray, FloatArray
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.joined import joined
from laurel.envs.vector import Step, VectorEnv
from laurel.plugins import in_short, returned_wrongly

if TYPE_CHECKING:
    from laurel.agents.hints import Hints
    from laurel.params.annotation import AnnotateParams


class PolicyNetwork(nn.Module, ABC):
    """A network that acts; saved and evaluated as an agent."""

    kind: ClassVar[str]
    """Name of the class in `config.json`; another package's has the name of the algorithm that trains it."""
    n_features: int
    n_actions: int
    continuous: bool

    @abstractmethod
    def act(
        self, features: FloatArray, rng: np.random.Generator, *, greedy: bool = False
    ) -> tuple[Array, FloatArray, FloatArray]:
        """Draw actions for features (N, F): actions (N,) or (N, A), their log-probabilities and values (N,)."""

    @abstractmethod
    def log_prob(self, features: FloatArray, action: Array) -> FloatArray:
        """Return the log-probabilities (N,) of given actions."""

    def as_actor(self, *, greedy: bool = False) -> Actor:
        """Return an actor that acts by this policy; greedy: it takes the likeliest action instead of a sample."""
        return PolicyActor(self, greedy=greedy)

    def actor_in(self, adapter: EnvAdapter, *, greedy: bool = False, annotate: AnnotateParams | None = None) -> Actor:
        """Return the actor for an environment, as `as_actor` does; for policies that need more than observations.

        Args:
            annotate: the section of the run, for policies that act with a chat model.

        Raises:
            LaurelError: it cannot act there.
        """
        return self.as_actor(greedy=greedy)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments, which are attributes of the same names."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def write_beside(self, folder: Path) -> None:
        """Write files into an agent's directory from which other programs can load the policy."""

    @property
    def device(self) -> torch.device:
        """Device of the weights; arrays are NumPy arrays on any device."""
        return next(chain(self.parameters(), self.buffers())).device

    @property
    def action_shape(self) -> tuple[int, ...]:
        return (self.n_actions,) if self.continuous else ()

    @property
    def action_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.continuous else np.int64)


class PolicyActor(Actor):
    """Acts with a memoryless policy."""

    def __init__(self, policy: PolicyNetwork, *, greedy: bool) -> None:
        self._policy, self._greedy = policy, greedy

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        returned: Any = self._policy.act(view.features, rng, greedy=self._greedy)
        if isinstance(returned, tuple | list) and 1 <= len(returned) <= len(Acted._fields):
            return Acted(*returned)
        needed = "a tuple of actions, their log-probabilities and values is required"
        raise returned_wrongly("policy", self._policy, "act", in_short(returned), needed)

    def log_prob(self, view: View, action: Array) -> FloatArray:
        return self._policy.log_prob(view.features, action)


@dataclass
class Rollout:
    """T steps of N environments; allocated once and reused."""

    observation: Array
    """(T + 1, N, D) packed observations; row T is where the next rollout begins."""
    action: Array
    """(T, N) or (T, N, A)."""
    extrinsic: FloatArray
    """(T, N) the environment's reward."""
    reward: FloatArray
    """(T, N) the reward for learning; `collect` writes the environment's, to which the caller may add others."""
    terminated: BoolArray
    truncated: BoolArray
    valid: BoolArray
    """(T, N) False where the step was a reset."""
    info: dict[str, Array] = field(default_factory=dict, kw_only=True)
    """Name -> (T, N) the fields of the environment's `info` that its adapter names."""

    @staticmethod
    def shapes(n_steps: int, envs: VectorEnv, policy: PolicyNetwork) -> dict[str, Any]:
        """Allocate the arrays of a rollout."""
        adapter, shape = envs.adapter, (n_steps, envs.n_envs)
        return {
            "observation": np.zeros(
                (n_steps + 1, envs.n_envs, adapter.observation_size), dtype=adapter.observation_dtype
            ),
            "action": np.zeros((*shape, *policy.action_shape), dtype=policy.action_dtype),
            **{name: np.zeros(shape, dtype=np.float32) for name in ("extrinsic", "reward")},
            **{name: np.zeros(shape, dtype=np.bool_) for name in ("terminated", "truncated", "valid")},
            "info": {name: np.zeros(shape, dtype=dtype) for name, dtype in adapter.info_fields.items()},
        }

    def record(self, t: int, action: Array, step: Step) -> None:
        """Record an action at step t and the environments' response."""
        self.action[t] = action
        self.observation[t + 1] = step.observation
        self.extrinsic[t] = step.reward
        self.terminated[t], self.truncated[t], self.valid[t] = step.terminated, step.truncated, step.valid
        for name, values in step.info.items():
            self.info[name][t] = values

    def rows(self, array: Array) -> Array:
        """Flatten time and environments of an array (T, N, ...) and keep the valid rows."""
        return array.reshape(-1, *array.shape[2:])[self.valid.reshape(-1)]

    @property
    def transitions(self) -> Transitions:
        """All T * N steps as a batch, row (t, n) at t * N + n; those not `valid` are not transitions.

        Continuous actions are as drawn, maybe beyond their bounds: see `EnvAdapter.taken`.
        """
        flat = self.action.shape[0] * self.action.shape[1]
        return Transitions(
            self.observation[:-1].reshape(flat, -1),
            self.action.reshape(flat, *self.action.shape[2:]),
            self.extrinsic.reshape(flat),
            self.observation[1:].reshape(flat, -1),
            self.terminated.reshape(flat),
            self.truncated.reshape(flat),
            {name: values.reshape(flat) for name, values in self.info.items()},
        )


class Learner(ABC):
    """A policy in training, with its random generator and all other state of a checkpoint.

    The caller alternates between filling rollouts with `collect`, computing `rollout.reward`, and learning:

        observation = learner.collect(envs, observation, rollout)
        metrics = learner.learn(rollout)
    """

    name: ClassVar[str]
    """Name of its section in params.yaml."""
    main_loss: ClassVar[str] = "policy"
    """The metric that is NaN or infinite once training has diverged."""
    takes_hints: ClassVar[bool] = False
    """Whether it adds `hints` to its network's logits."""
    hints: Hints | None = None

    def __init__(self, policy: Any, params: Any, rng: np.random.Generator) -> None:
        """Take a PolicyNetwork, the algorithm's section of params, and the generator of all random numbers."""
        self.policy = policy
        self.params = params
        self.rng = rng

    @abstractmethod
    def rollout(self, envs: VectorEnv) -> Any:
        """Allocate a rollout for these environments."""

    @abstractmethod
    def collect(self, envs: VectorEnv, observation: Array, rollout: Any) -> Array:
        """Fill the rollout, starting from `observation` (N, D); return where the next one begins."""

    @abstractmethod
    def learn(self, rollout: Any) -> Mapping[str, float]:
        """Improve the policy on `rollout.reward`, without modifying the rollout.

        Rows that are not `valid` are ignored; without any valid row, nothing is learned.

        Returns:
            Means over the update of some of METRICS; NaN or left out if there was nothing to learn from.
        """

    def take_help(self, helper: Actor) -> None:  # noqa: B027 - most take none
        """Take the actor of `LearnerParams.helper` that does not give hints; it is shared with other learners."""

    @property
    def needs_no_history(self) -> bool:
        """Whether it learns from each rollout alone, so that earlier ones need not be replayed."""
        return type(self).replayed is Learner.replayed

    def begin(self) -> None:  # noqa: B027 - most remember nothing
        """Reset: the next rollout begins with new episodes."""

    def replayed(self, rollout: Any) -> None:  # noqa: B027 - most keep nothing of a rollout
        """Process a replayed rollout from before a checkpoint, with its original rewards; nothing is learned from
        it.
        """

    def schedule(self, done: float) -> None:  # noqa: B027 - most change nothing on the way
        """Update schedules; `done` is the fraction of the run's updates so far."""

    def grouped(self, others: Sequence[Any]) -> LearnerGroup:
        """Group this learner with others of the same kind and settings; each learns as if alone."""
        return LearnerGroup([self, *others])

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return the state that a checkpoint holds besides the policy's weights and the random generator."""

    @abstractmethod
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a `state`.

        Raises:
            KeyError: something is missing.
        """


class LearnerGroup:
    """Learners in lockstep, updated one after another; an algorithm that can batch its updates has its own group."""

    def __init__(self, learners: Sequence[Any]) -> None:
        self.learners = list(learners)

    def collect(self, envs: Sequence[VectorEnv], observations: Sequence[Array], rollouts: Sequence[Any]) -> list[Array]:
        """Fill each learner's rollout; return the observations with which the next ones begin."""
        return [
            learner.collect(vector, observation, rollout)
            for learner, vector, observation, rollout in zip(self.learners, envs, observations, rollouts, strict=True)
        ]

    def replay(
        self,
        envs: Sequence[VectorEnv],
        observations: Sequence[Array],
        rollouts: Sequence[Any],
        actions: Sequence[Array],
    ) -> list[Array]:
        """Take the actions (T, N) of an update again, so that environments and rollouts are as they were after it."""
        for rollout, observation in zip(rollouts, observations, strict=True):
            rollout.observation[0] = observation
        with joined(envs) as vector:
            for t, step_actions in enumerate(zip(*actions, strict=True)):
                step = vector.step(np.concatenate(step_actions).astype(rollouts[0].action.dtype))
                for s, (rollout, action) in enumerate(zip(rollouts, step_actions, strict=True)):
                    rows = slice(s * len(action), (s + 1) * len(action))
                    rollout.record(t, action, step.rows(rows))
        return [rollout.observation[-1].copy() for rollout in rollouts]

    def learn(self, rollouts: Sequence[Any]) -> Sequence[Mapping[str, float]]:
        """Let each learner learn from its rollout.

        Raises:
            PluginError: another package's learner returned something else than its metrics.
        """
        return [
            _metrics(learner, learner.learn(rollout)) for learner, rollout in zip(self.learners, rollouts, strict=True)
        ]


def _metrics(learner: Learner, returned: Any) -> Mapping[str, float]:
    if isinstance(returned, Mapping) and all(map(_is_number, returned.values())):
        return returned
    needed = f"a mapping of metrics to numbers is required; their names are some of {', '.join(METRICS)}"
    raise returned_wrongly("learner", learner, "learn", in_short(returned), needed)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating)


class AdamLearner(Learner):
    """A learner that takes gradient steps by Adam; `params` has learning_rate, max_grad_norm and maybe anneal."""

    def __init__(self, policy: Any, params: Any, rng: np.random.Generator, *, eps: float = 1e-5) -> None:
        super().__init__(policy, params, rng)
        self.device: torch.device = policy.device
        self.optimizer = Adam(policy.parameters(), params.learning_rate, eps=eps)

    def descend(self, loss: Tensor) -> None:
        """Take a gradient step on a loss; the gradient's norm is clipped to `max_grad_norm`."""
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.policy.parameters(), self.params.max_grad_norm)
        self.optimizer.step()

    def tensor(self, array: Array) -> Tensor:
        """Copy an array to the device of the weights."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def schedule(self, done: float) -> None:
        """Lower the learning rate if it is annealed."""
        if getattr(self.params, "anneal", False):
            self.optimizer.learning_rate = self.params.learning_rate * (1 - done)

    def state(self) -> dict[str, Tensor]:
        """Return Adam's moments and step counts under the names of the weights."""
        state = self.optimizer.state()
        tensors: dict[str, Tensor] = {}
        for i, (name, _) in enumerate(self.policy.named_parameters()):
            tensors |= {f"{name}.{key}": value.cpu().contiguous() for key, value in state.get(i, {}).items()}
        return tensors

    def restore(self, state: Mapping[str, Tensor]) -> None:
        names = [name for name, _ in self.policy.named_parameters()]
        if not any(f"{name}.step" in state for name in names):  # Adam has no moments before its first step
            return
        parts = ("step", *MOMENTS)
        self.optimizer.restore({i: {key: state[f"{name}.{key}"] for key in parts} for i, name in enumerate(names)})

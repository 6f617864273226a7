"""Actors: an actor sees a view of N environments and returns an action for each.

A network, a table, a uniform policy, a rule, another library's model: each is an `Actor`, the only interface that
collection, evaluation, films and `laurel play` use. The kinds that params can name are in
`laurel.agents.actors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from laurel.agents.choice import sample
from laurel.arrays import Array, BoolArray, FloatArray
from laurel.envs.base import MOST_REMEMBERED, EnvAdapter
from laurel.errors import ActorError, EnvError
from laurel.params import EnvParams
from laurel.params.kinds import Role
from laurel.plugins import in_short, is_ours, returned_wrongly

Made = TypeVar("Made", bound=Callable[..., Any])


class View:
    """The observations of N environments in several forms, each computed on first use.

    Args:
        packed: (N, D) packed observations.
        acting: (N,) False where an episode has ended, so that the action has no effect and an actor that asks a
            language model need not ask; None: all act.
    """

    def __init__(self, adapter: EnvAdapter, packed: Array, acting: BoolArray | None = None) -> None:
        self.adapter = adapter
        self.packed = packed
        self.acting = np.ones(len(packed), dtype=np.bool_) if acting is None else acting

    def __len__(self) -> int:
        return len(self.packed)

    @cached_property
    def features(self) -> FloatArray:
        """(N, F) input of a network."""
        return self.adapter.features(self.packed)

    @cached_property
    def observation(self) -> tuple[Any, ...]:
        """N observations as the environment gives them: an int, an array, a tuple or a dict each."""
        return tuple(self.adapter.unpack(row) for row in self.packed)

    @cached_property
    def text(self) -> tuple[str, ...]:
        """N observations in words; equal ones are described once.

        Raises:
            EnvError: the adapter has no words for its observations.
        """
        states = [row.tobytes() for row in self.packed]
        distinct = {state: self._described(row) for state, row in dict(zip(states, self.packed, strict=True)).items()}
        return tuple(distinct[state] for state in states)

    def _described(self, row: Array) -> str:
        text = self.adapter.describe_observation(self.adapter.unpack(row))
        if text is None:
            raise EnvError(
                f"{self.adapter.env_id}: an actor that reads text cannot act here, because the environment's "
                f"adapter ({type(self.adapter).__name__}) does not define describe_observation."
            )
        return text


def initial_observations(env: EnvParams, adapter: EnvAdapter, n: int = 16, seed: int = 0) -> View:
    """Return the first states of n episodes."""
    from laurel.envs.vector import make_vector

    with closing(make_vector(env, adapter, n, seed, reference=True)) as envs:
        return View(adapter, envs.reset().copy())


class Acted(NamedTuple):
    """Actions for N environments, with their log-probabilities and values where an actor has them."""

    action: Array
    """(N,) integers, or (N, A) floats."""
    log_prob: FloatArray | None = None
    """(N,) under the policy that drew the actions; None where it is unknown."""
    value: FloatArray | None = None
    """(N,) the policy's estimate of the return; None without one."""


class Actor(ABC):
    """Acts in N environments, always the same ones in the same order. A memoryless actor defines only `act`."""

    role: ClassVar[Role] = "baseline"
    """Role of its arms in the report: control if it has no information about the task, bound if it has more than a
    method may use, such as the optimal policy; an arm may override it. A function that makes actors declares it by
    `actor_kind`."""
    imports: ClassVar[tuple[str, ...]] = ()
    """Further modules that take seconds to import, as `Algorithm.imports`."""
    replays_agent: ClassVar[bool] = False
    """Whether its kind replays a trained agent from the directory `path`; such a kind cannot be an arm."""

    memory: Array | None = None
    """(N, M) recurrent state after the last view; None for other actors."""

    def begin(self, which: BoolArray) -> None:  # noqa: B027 - most have nothing to forget
        """Reset the memory of environments (N,) whose next view begins an episode; also called before the first
        view.
        """

    @abstractmethod
    def act(self, view: View, rng: np.random.Generator) -> Acted:
        """Choose an action for each environment of the view; draw only from `rng`, for reproducibility."""

    def log_prob(self, view: View, action: Array) -> FloatArray:
        """Return the log-probabilities (N,) of given actions in the view of the last `act`; NaN if unknown."""
        return np.full(len(view), np.nan, dtype=np.float32)

    @property
    def account(self) -> Mapping[str, Any]:
        """The usage so far of what acting asks, by the names of `laurel.data.usage.RESOURCES`, and maybe the model and
        the number of distinct states that it was asked about; empty for most.
        """
        return {}

    def when_answered(self, call: Callable[[], None]) -> None:  # noqa: B027 - most ask no model
        """Call a function after each answer of a language model, when `account` has it."""

    def estimate(self, view: View) -> str | None:
        """Estimate in a line the language-model usage of acting, from a sample of states; None if it uses none."""
        return None


def actor_kind(
    role: Role | Callable[[Mapping[str, Any]], Role] = Actor.role,
    *,
    replays_agent: bool = False,
    asks: Callable[[Mapping[str, Any]], bool] | None = None,
    imports: tuple[str, ...] = (),
) -> Callable[[Made], Made]:
    """Decorate a function that makes actors with what classes declare as `Actor.role` and `Actor.replays_agent`.

    Args:
        role: the role, or a function of the options that the actor is made with.
        asks: a function of the same options: whether the judge named by the parameter `judge` is asked; None: always.
        imports: further modules that take seconds to import, as `Algorithm.imports`.

    >>> @actor_kind("control")
    ... def lazy(adapter):
    ...     return Rule(lambda observation: 0)
    >>> lazy.role
    'control'
    """

    def declare(make: Made) -> Made:
        make.role, make.replays_agent = role, replays_agent  # type: ignore[attr-defined]
        make.asks, make.imports = asks, imports  # type: ignore[attr-defined]
        return make

    return declare


class Advisor(Actor):
    """An actor with a probability for each of K discrete actions, which can also serve as hints for a learner.

    Each distinct row of observations is evaluated once.

    Args:
        n_actions: K.
        start: the first action.
        greedy: take the likeliest action instead of a sample.
    """

    def __init__(self, n_actions: int, start: int = 0, *, greedy: bool = False) -> None:
        self.n_actions, self._start, self._greedy = n_actions, start, greedy
        self._known: dict[bytes, FloatArray] = {}

    @abstractmethod
    def advise(self, view: View) -> FloatArray:
        """Return the log-probabilities (N, K) of all actions in each environment of the view; none is NaN."""

    def log_probs(self, view: View) -> FloatArray:
        """Return the results of `advise` (N, K), cached per distinct observation; uniform ones for observations that
        no episode acts on.
        """
        keys = [row.tobytes() for row in view.packed]
        wanted = {keys[place]: place for place in np.flatnonzero(view.acting).tolist()}
        new = {key: place for key, place in wanted.items() if key not in self._known}
        if new:
            if len(self._known) > MOST_REMEMBERED:  # continuous observations are all distinct
                self._known.clear()
                new = wanted
            advice = self._checked(self.advise(View(view.adapter, view.packed[list(new.values())])), len(new))
            self._known.update(zip(new, advice, strict=True))
        uniform = np.full(self.n_actions, -np.log(self.n_actions), dtype=np.float32)
        return np.stack([self._known.get(key, uniform) for key in keys])

    def _checked(self, advice: Any, n: int) -> FloatArray:
        """Check what another package's `advise` returned for n states.

        Raises:
            PluginError: it is something else than log-probabilities.
        """
        if is_ours(type(self)):
            return advice
        found, shape = in_short(advice), (n, self.n_actions)
        if np.shape(advice) == shape and (log_probs := np.asarray(advice)).dtype.kind in "iuf":
            sums = np.exp(log_probs.astype(np.float64)).sum(axis=1)
            if np.allclose(sums, 1, atol=1e-3):
                return log_probs.astype(np.float32)
            found = f"numbers whose exponentials sum to {sums[~np.isclose(sums, 1, atol=1e-3)][0]:.3g} in a state"
        needed = f"an array of log-probabilities of the shape {shape} is required"
        raise returned_wrongly("actor", self, "advise", found, needed)

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        log_probs = self.log_probs(view)
        choice = log_probs.argmax(axis=1) if self._greedy else sample(np.exp(log_probs).astype(np.float64), rng)
        return Acted(choice + self._start, log_probs[np.arange(len(choice)), choice])

    def log_prob(self, view: View, action: Array) -> FloatArray:
        log_probs: FloatArray = self.log_probs(view)[np.arange(len(view)), action - self._start]
        return log_probs


class Rule(Actor):
    """An actor that applies a function to the observation of each environment.

    >>> from laurel.envs import adapter_for
    >>> from laurel.params import EnvParams
    >>> adapter = adapter_for(EnvParams(id="Blackjack-v1"))
    >>> careful = Rule(lambda observation: int(observation[0] < 17))
    >>> view = View(adapter, np.array([[16, 10, 0], [17, 10, 0]], dtype=np.int32))
    >>> careful.act(view, np.random.default_rng(0)).action.tolist()
    [1, 0]

    Args:
        rule: observation -> action; with `of="text"`, the observation in words -> action.
        of: "observation" or "text".

    Raises:
        ActorError: `of` is something else.
    """

    def __init__(self, rule: Callable[[Any], Any], *, of: str = "observation") -> None:
        if of not in ("observation", "text"):
            raise ActorError(f'Rule: of is {of!r:.60}, but must be "observation" or "text".')
        self._rule = rule
        self._of = of

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        shown: tuple[Any, ...] = view.text if self._of == "text" else view.observation
        return Acted(np.array([self._rule(item) for item in shown]))

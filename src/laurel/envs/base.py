"""Environment adapters, and the batch of transitions that they describe.

An adapter is for one family of environments: it packs observations into rows of numbers, puts transitions in words, and
describes the task to a language model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.guard import named

if TYPE_CHECKING:
    import gymnasium as gym


PROGRESSION = "progression"
"""The measure of BALROG (Paglieri et al. 2024, arXiv 2411.13543), from 0 to 1."""
MOST_REMEMBERED = 200_000
"""Distinct transitions whose captions an environment adapter that defines only `caption` remembers at a time."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A single transition with observations as the environment gives them."""

    observation: Any
    action: Any
    reward: float
    next_observation: Any
    terminated: bool
    truncated: bool
    info: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the environment's `info` that its adapter names."""


@dataclass(frozen=True, slots=True)
class Transitions:
    """N transitions, a row each; arrays share their first axis.

    Batches of a running agent may hold reset rows, which pair the end of one episode with the start of the next: their
    captions are thrown away, but making them must not fail.
    """

    observation: Array
    """(N, D) packed observations before the action."""
    action: Array
    """(N,) integers, or (N, A) floats for continuous actions."""
    reward: FloatArray
    """(N,) the environment's own reward."""
    next_observation: Array
    """(N, D) packed observations after the action; of the same episode, also where it ended."""
    terminated: BoolArray
    """(N,) the episode ended by the task's own rules."""
    truncated: BoolArray
    """(N,) the episode was cut, e.g. by a time limit."""
    info: Mapping[str, Array] = field(default_factory=dict)
    """Name -> (N,) the fields of the environment's `info` that its adapter names."""

    def __len__(self) -> int:
        return len(self.reward)

    def __getitem__(self, rows: Any) -> Transitions:
        return Transitions(
            self.observation[rows],
            self.action[rows],
            self.reward[rows],
            self.next_observation[rows],
            self.terminated[rows],
            self.truncated[rows],
            {name: values[rows] for name, values in self.info.items()},
        )


@dataclass(frozen=True, slots=True)
class Example:
    """Two captions, one clearly better than the other, as an example for a language model."""

    better: str
    worse: str
    why: str
    """The reason, in a sentence."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A number that an observation holds, in words, for a language model that writes code."""

    name: str
    """An identifier."""
    meaning: str
    """What it is, with its unit and its range."""
    whole: bool = False
    """Whether it is a whole number."""


class EnvAdapter:
    """One family of environments: packing, captions, and the words that describe the task.

    A subclass sets `ids`, `description` and `goal` and overrides `caption`. Where captions have few kinds,
    overriding `encode` and `describe` instead does the work on whole arrays; `events` then lists captions that
    collection may never meet.
    """

    ids: ClassVar[tuple[str, ...]] = ()
    """Gymnasium ids of this adapter's environments, with `*` for any text."""
    version: ClassVar[int] = 1
    """Increased when a caption or the packing changes, so that steps and captions of earlier versions are refused."""
    description: str
    """The task in a sentence or two, for a language model."""
    goal: str | None
    """How captions of good behaviour read; None where no useful goal is known, e.g. with the generic adapter."""
    anti_goal: str = "Nothing useful happens."
    """How captions of useless behaviour read."""
    goals: Mapping[str, str] = MappingProxyType({})
    """Name -> another goal that a language model can judge by, to steer agents."""
    success_words: tuple[str, ...] = ()
    """Words that captions of solving the task hold, and no others, e.g. ("reach the goal",); () where none says so."""
    example: Example | None = None
    """An example of how captions compare, for prompts; not one of the questions with known answers."""
    action_names: tuple[str, ...] = ()
    """What discrete actions are called, in order, to show them to a person; numbers where it is empty."""
    max_moves: int = 1
    """Moves that one action holds at most; above 1, actions are the numbers of lists (`laurel.envs.sequences`)."""
    table: Any = None
    """What each move of a finite environment leads to, as `laurel.envs.builtin.model.table_of` reads it; else None."""
    observation_features: tuple[Feature, ...] = ()
    """The numbers of `feature_values`, to which code refers by name; () where only the space is known: code then sees
    packed observations."""
    generic: ClassVar[bool] = False
    """True where captions are made from the observation space alone."""
    left_out: str = ""
    """Sentences on what such captions leave out; empty where they leave nothing out."""
    max_episode_steps: ClassVar[int | None] = None
    """Limit for environments that do not set one."""
    info_fields: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Name in the environment's `info` -> NumPy dtype ("int64", "float32", "bool"): what transitions and trajectories
    keep of it, a number a step."""
    agents_in_lockstep: ClassVar[int] = 8
    """Most agents that a process trains at once: more would gain little, and all wait for the slowest."""
    limit_argument: ClassVar[str] = "max_episode_steps"
    """Argument of the environment that sets its limit."""
    tasks: tuple[str, ...] = ()
    """Names of the tasks, by the last number of a packed observation; () where all episodes are of one task."""
    texts: ClassVar[bool] = False
    """Whether observations and actions are texts, as `laurel.envs.builtin.completions` packs them."""

    def __init__(
        self, env_id: str, observation_space: gym.Space[Any], action_space: gym.Space[Any], *, with_action: bool = False
    ) -> None:
        from laurel.envs.spaces import PackedSpace

        self.env_id = env_id
        self.packed = PackedSpace(observation_space)
        self.action_space = action_space
        self.with_action = with_action
        self._texts: list[str] = []
        self._index: dict[str, int] = {}
        self._seen: dict[bytes, int] = {}

    @classmethod
    def described_by(cls, kwargs: Mapping[str, Any]) -> str:
        """Return the name and version by which its steps and captions are told from others.

        Args:
            kwargs: arguments of the environment.
        """
        return f"{cls.__name__} {cls.version}"

    def inspect(self, env: gym.Env[Any, Any]) -> None:
        """Read from the environment what its spaces do not show, e.g. a map; called once by `adapter_for`."""

    @staticmethod
    def prepare(env: gym.Env[Any, Any]) -> None:
        """Speed up an environment that was just made, without changing its behaviour."""

    # -- observations: the defaults fit every Discrete, Box, Tuple or Dict space -----------------
    @property
    def observation_size(self) -> int:
        """Length D of a packed observation."""
        return self.packed.size

    @property
    def observation_dtype(self) -> np.dtype[Any]:
        return self.packed.dtype

    @property
    def row_space(self) -> gym.spaces.Box:
        """The space of packed observations (D,): all that their dtype can hold."""
        from gymnasium.spaces import Box

        shape, dtype = (self.observation_size,), self.observation_dtype
        limits = np.iinfo(dtype) if dtype.kind in "iu" else None
        low, high = (limits.min, limits.max) if limits else (0, 1) if dtype.kind == "b" else (-np.inf, np.inf)
        return Box(np.full(shape, low, dtype), np.full(shape, high, dtype), dtype=dtype.type)

    def pack(self, observation: Any) -> Array:
        """Turn a batch of raw observations, as EnvPool or Gymnasium give them, into rows (N, D)."""
        return self.packed.pack(observation)

    def pack_one(self, observation: Any) -> Array:
        """Turn one raw observation into a row (D,)."""
        return self.packed.pack_one(observation)

    def unpack(self, row: Array) -> Any:
        """Turn a row (D,) back into the observation that `pack_one` took."""
        return self.packed.unpack(row)

    def features(self, observation: Array) -> FloatArray:
        """Turn packed observations (N, D) into what a network sees (N, F)."""
        return self.packed.features(observation)

    def feature_values(self, observation: Array) -> Array:
        """Return what `observation_features` name (N, F) of packed observations (N, D): their columns, by default."""
        return observation

    def action_name(self, action: Any) -> str:
        """Return what to call an action, () or (A,)."""
        if np.ndim(action):
            return ", ".join(f"{value:+.2f}" for value in np.asarray(action).tolist())
        if np.issubdtype(np.asarray(action).dtype, np.integer) and 0 <= int(action) < len(self.action_names):
            return self.action_names[int(action)]
        return f"action {action}"

    def describe_observation(self, observation: Any) -> str | None:
        """Describe an observation, as the environment gives it, for actors that read text; None where it cannot.

        A pure function of the observation. Its text is part of the keys of answers about it, so that another wording
        asks anew.
        """
        return None

    def caption_of_arrival(self, observation: Any) -> str:
        """Return the caption of a step that ends in an observation, without the action.

        It describes the observation, provided that captions of steps that end no episode depend on nothing else.
        """
        silent = copy.copy(self)
        silent.with_action = False
        row, no = self.pack_one(observation)[None], np.zeros(1, dtype=np.bool_)
        info = {name: np.zeros(1, dtype=dtype) for name, dtype in self.info_fields.items()}
        step = Transitions(row, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.float32), row, no, no, info)
        return silent.describe(int(silent.encode(step)[0]))

    # -- captions -------------------------------------------------------------------------------
    def caption(self, transition: Transition) -> str:
        """Return the caption of a transition; an empty string if it has none."""
        raise NotImplementedError(f"{type(self).__name__} defines neither `caption` nor `encode` and `describe`")

    def encode(self, transitions: Transitions) -> IntArray:
        """Return an event number for each transition (N,); equal numbers have the same caption.

        This default calls `caption` once for each distinct transition.
        """
        columns = (
            transitions.observation,
            transitions.action,
            transitions.reward,
            transitions.next_observation,
            transitions.terminated,
            transitions.truncated,
            *transitions.info.values(),
        )
        events = np.empty(len(transitions), dtype=np.int64)
        for i in range(len(transitions)):
            key = b"".join([column[i].tobytes() for column in columns])
            if len(self._seen) > MOST_REMEMBERED:  # where observations are continuous, all are distinct
                self._seen.clear()
            if key not in self._seen:
                transition = self._unpack(transitions, i)
                with named(self.env_id, "caption"):
                    caption = self.caption(transition)
                self._seen[key] = self._intern(caption)
            events[i] = self._seen[key]
        return events

    def describe(self, event: int) -> str:
        """Return the caption of an event."""
        return self._texts[event]

    def events(self) -> Iterable[int]:
        """List the events that can happen, where they can be listed."""
        return ()

    def says_success(self, caption: str) -> bool:
        """Whether a caption, or one of a segment's, says that the task is solved."""
        return any(words in caption for words in self.success_words)

    def success_captions(self) -> tuple[str, ...]:
        """List the captions that say that the task is solved, as far as `events` lists them.

        An annotator that judges by the adapter's goal should prefer each of them to any caption for which
        `says_success` is false: these are questions with known answers. A subclass that defines `caption` alone, and so
        lists no events, may override this.
        """
        return tuple(dict.fromkeys(filter(self.says_success, map(self.describe, self.events()))))

    def _intern(self, text: str) -> int:
        if text not in self._index:
            self._index[text] = len(self._texts)
            self._texts.append(text)
        return self._index[text]

    def _unpack(self, transitions: Transitions, i: int) -> Transition:
        return Transition(
            self.unpack(transitions.observation[i]),
            transitions.action[i],
            float(transitions.reward[i]),
            self.unpack(transitions.next_observation[i]),
            bool(transitions.terminated[i]),
            bool(transitions.truncated[i]),
            {name: values[i].item() for name, values in transitions.info.items()},
        )

    # -- the task -------------------------------------------------------------------------------
    def succeeded(self, returns: FloatArray, terminated: BoolArray) -> BoolArray | None:
        """Return which finished episodes (N,) solved the task; None where success has no meaning."""
        return None

    def further_measures(self, transitions: Transitions) -> Mapping[str, FloatArray]:
        """Return how far steps have come by other measures than the return, name -> (N,) from 0 on: an episode has the
        largest of its steps. Evaluation reports them; PROGRESSION is that of BALROG.
        """
        return {}

    def oracle(self, caption: str) -> float | None:
        """Return hand-written progress for a caption, the reward of the arm oracle; None without it."""
        return None

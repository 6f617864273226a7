"""The environment adapter base class, and the batch of transitions that adapters describe.

An adapter handles one family of environments: it packs observations into rows of numbers, captions transitions, and
    describes the task to a language model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.checked import check_methods
from laurel.envs.guard import NOT_OURS, failure, not_text
from laurel.errors import LaurelError

if TYPE_CHECKING:
    import gymnasium as gym


PROGRESSION = "progression"
"""Name of BALROG's progression metric (Paglieri et al. 2024, arXiv 2411.13543), from 0 to 1."""
_defined: list[type] = []
"""All adapters: Python itself would forget one that a function defined, as a class knows its subclasses only weakly."""
MOST_REMEMBERED = 200_000
"""Size of the caption cache, in distinct transitions, of an adapter that defines only `caption`."""


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
    """N transitions, one per row; all arrays share their first axis.

    Batches from a running agent may contain reset rows, which pair the end of one episode with the start of the next:
        their captions are discarded, but computing them must not fail.
    """

    observation: Array
    """(N, D) packed observations before the action."""
    action: Array
    """(N,) integers, or (N, A) floats for continuous actions."""
    reward: FloatArray
    """(N,) the environment's own reward."""
    next_observation: Array
    """(N, D) packed observations after the action, of the same episode even if it ended there."""
    terminated: BoolArray
    """(N,) the episode terminated."""
    truncated: BoolArray
    """(N,) the episode was truncated, e.g. by a time limit."""
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
    """A few-shot example for a language model: two captions, one clearly better."""

    better: str
    worse: str
    why: str
    """Why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One number of the observation, described to a language model that writes code."""

    name: str
    """An identifier."""
    meaning: str
    """Meaning, unit and range."""
    whole: bool = False
    """Whether it is an integer."""


class EnvAdapter:
    """One family of environments: packing, captions and task description.

    A subclass sets `ids`, `description` and `goal` and overrides `caption`. If there are few distinct captions,
    override `encode` and `describe` instead, which work on whole arrays; `events` can then also list captions that
    never occur in collected data.
    """

    ids: ClassVar[tuple[str, ...]] = ()
    """Gymnasium ids of this adapter's environments; `*` matches any text."""
    version: ClassVar[int] = 1
    """Increase when a caption or the packing changes, so that data of earlier versions is rejected."""
    description: str
    """One or two sentences about the task, for a language model."""
    goal: str | None
    """What good behaviour is, in the captions' words; None if no useful goal is known, as in the generic adapter."""
    encoder_goal: str | None = None
    """A text that captions of good behaviour resemble, for a sentence encoder, which only measures
    how similar texts are; None: `goal`."""
    anti_goal: str = "Nothing useful happens."
    """A text that captions of useless behaviour resemble."""
    goals: Mapping[str, str] = MappingProxyType({})
    """Name -> alternative goal for the judge, to steer agents."""
    success_words: tuple[str, ...] = ()
    """Phrases that occur only in captions of solving the task, e.g. ("reach the goal",); () if there are none."""
    example: Example | None = None
    """A few-shot example for prompts; not one of the questions with known answers."""
    action_names: tuple[str, ...] = ()
    """Names of the discrete actions, in order, for display; if empty, actions are shown as numbers."""
    max_moves: int = 1
    """Maximum number of moves per action; above 1, an action is the index of a list of moves
    (`laurel.envs.sequences`)."""
    table: Any = None
    """Transition table of a finite environment, as `laurel.envs.builtin.model.table_of` reads it; else None."""
    observation_features: tuple[Feature, ...] = ()
    """The numbers of `feature_values`, which generated code refers to by name; () if only the space is known: code then
    gets packed observations."""
    generic: ClassVar[bool] = False
    """Whether captions are made from the observation space alone."""
    left_out: str = ""
    """Sentences on what such captions leave out; empty if they leave nothing out."""
    max_episode_steps: ClassVar[int | None] = None
    """Episode length limit for environments that do not set one."""
    info_fields: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Field of the environment's `info` -> NumPy dtype ("int64", "float32", "bool"): fields kept in transitions and
    trajectories, one number per step."""
    agents_in_lockstep: ClassVar[int] = 8
    """Maximum number of agents trained together in one process: more would gain little, and all wait for the
    slowest."""
    limit_argument: ClassVar[str] = "max_episode_steps"
    """Constructor argument of the environment that sets its episode length limit."""
    tasks: tuple[str, ...] = ()
    """Task names, indexed by the last number of a packed observation; () if there is only one task."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Python packages of the environment that images contain only if built with them."""
    texts: ClassVar[bool] = False
    """Whether observations and actions are texts, packed as in `laurel.envs.builtin.completions`."""

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

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_methods(cls)
        _defined.append(cls)

    @classmethod
    def described_by(cls, kwargs: Mapping[str, Any]) -> str:
        """Return the adapter name and version that identify its steps and captions.

        Args:
            kwargs: arguments of the environment.
        """
        return f"{cls.__name__} {cls.version}"

    def inspect(self, env: gym.Env[Any, Any]) -> None:
        """Read what the spaces do not contain from the environment, e.g. a map; called once by `adapter_for`."""

    @staticmethod
    def prepare(env: gym.Env[Any, Any]) -> None:
        """Speed up a newly made environment without changing its behaviour."""

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
        """The space of packed observations (D,), with the bounds of their dtype."""
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
        """Unpack a row (D,): the inverse of `pack_one`."""
        return self.packed.unpack(row)

    def features(self, observation: Array) -> FloatArray:
        """Turn packed observations (N, D) into network input (N, F)."""
        return self.packed.features(observation)

    def blank(self) -> Array:
        """Return a packed observation (1, D) of zeros."""
        return np.zeros((1, self.observation_size), dtype=self.observation_dtype)

    @property
    def n_features(self) -> int:
        """F, of `features`."""
        return int(self.features(self.blank()).shape[1])

    def feature_values(self, observation: Array) -> Array:
        """Return the values (N, F) of `observation_features` for packed observations (N, D); by default their
        columns.
        """
        return observation

    def action_name(self, action: Any) -> str:
        """Return the name of an action, () or (A,)."""
        if np.ndim(action):
            return ", ".join(f"{value:+.2f}" for value in np.asarray(action).tolist())
        if np.issubdtype(np.asarray(action).dtype, np.integer) and 0 <= int(action) < len(self.action_names):
            return self.action_names[int(action)]
        return f"action {action}"

    def taken(self, actions: Array) -> Array:
        """Return the actions, (N,) or (..., N, A), as the environment takes them: continuous ones within its bounds.

        A policy may draw continuous actions beyond them, and learns from those that it drew.
        """
        low = getattr(self.action_space, "low", None)
        return actions if low is None else actions.clip(low, self.action_space.high)  # type: ignore[attr-defined]

    def describe_observation(self, observation: Any) -> str | None:
        """Describe a raw observation for actors that read text; None if the adapter cannot.

        A pure function of the observation. Its text is part of the cache keys of answers, so that a changed wording is
        asked again.
        """
        return None

    def caption_of_arrival(self, observation: Any) -> str:
        """Return the caption of a step that ends in an observation, without the action.

        It describes the observation, provided that captions of steps within an episode depend on nothing else.
        """
        silent = copy.copy(self)
        silent.with_action = False
        return silent.describe(int(silent.encode(self._standing(self.pack_one(observation)[None]))[0]))

    def _standing(self, row: Array) -> Transitions:
        """Return a step that stays at a packed observation (1, D), without reward."""
        unset = np.zeros(1, dtype=np.bool_)
        info = {name: np.zeros(1, dtype=dtype) for name, dtype in self.info_fields.items()}
        action = np.zeros((1, *(self.action_space.shape or ())), dtype=self.action_space.dtype)
        return Transitions(row, action, np.zeros(1, dtype=np.float32), row, unset, unset, info)

    # -- captions -------------------------------------------------------------------------------
    def caption(self, transition: Transition) -> str:
        """Return the caption of a transition, or an empty string."""
        raise NotImplementedError(f"{type(self).__name__} defines neither `caption` nor `encode`")

    def encode(self, transitions: Transitions) -> IntArray:
        """Return the event number of each transition (N,); equal numbers mean equal captions.

        This default calls `caption` once for each distinct transition.
        """
        rows = transitions
        before_and_after = rows.observation, rows.action, rows.reward, rows.next_observation
        columns = (*before_and_after, rows.terminated, rows.truncated, *rows.info.values())
        events = np.empty(len(transitions), dtype=np.int64)
        for i in range(len(transitions)):
            key = b"".join([column[i].tobytes() for column in columns])
            if len(self._seen) > MOST_REMEMBERED:  # where observations are continuous, all are distinct
                self._seen.clear()
            if key not in self._seen:
                transition = self._unpack(transitions, i)
                try:
                    caption = self.caption(transition)
                except LaurelError:
                    raise
                except NOT_OURS as error:
                    raise failure(self.env_id, "adapter's caption", error) from error
                if not isinstance(caption, str | None):
                    raise not_text(self.env_id, caption)
                self._seen[key] = self._intern(caption or "")
            events[i] = self._seen[key]
        return events

    def describe(self, event: int) -> str:
        """Return the caption of an event."""
        return self._texts[event]

    def events(self) -> Iterable[int]:
        """List the possible events, if they can be enumerated."""
        return ()

    def possible(self, events: Iterable[int]) -> Iterator[int]:
        """Yield those of the events that some step has, according to the environment's table; all if it has none."""
        if self.table is None:
            yield from events
            return
        states, actions, nexts, rewards, ends = self.table.steps()
        steps = Transitions(
            observation=states[:, None],
            action=actions,
            reward=rewards.astype(np.float32),
            next_observation=nexts[:, None],
            terminated=ends,
            truncated=np.zeros_like(ends),
        )
        happen = set(self.encode(steps).tolist())
        yield from (event for event in events if event in happen)

    def says_success(self, caption: str) -> bool:
        """Whether a caption, or one of a segment's, says that the task is solved."""
        return any(words in caption for words in self.success_words)

    def success_captions(self) -> tuple[str, ...]:
        """List the captions among `events` that say that the task is solved.

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
    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray | None:
        """Return which finished episodes (N,) solved the task, by their returns (N,), sums of the environment's reward,
        and last transitions (N), with the fields of `info` that `info_fields` names; None if success is undefined.
        """
        return None

    def defines_success(self) -> bool:
        """Whether it says of finished episodes which ones solved the task."""
        return self.succeeded(np.zeros(1, np.float32), self._standing(self.blank())) is not None

    def further_measures(self, transitions: Transitions) -> Mapping[str, FloatArray]:
        """Return progress metrics other than the return, name -> (N,), at least 0: an episode's value is the maximum
        over its steps. Evaluation reports them; PROGRESSION is BALROG's.
        """
        return {}

    def oracle(self, caption: str) -> float | None:
        """Return the hand-written progress of a caption, the reward of the arm oracle; None if not defined."""
        return None

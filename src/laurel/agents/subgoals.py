"""Subgoals in MiniGrid: the planner that chooses them, and the reporter that returns the results to it.

After "Collaborating with language models for embodied reasoning" (Dasgupta et al. 2023, arXiv 2302.00763): planner,
actor and reporter. The subgoals are captions of the environment: objects to pick up, unlock, open or reach. The
reporter is the environment's captions of the last steps. The planner is asked again when a subgoal was reached, failed
or took too long. Two kinds of actors follow subgoals: a script (`laurel.agents.actors.planner`), and an agent that
learns to reach them (`laurel.agents.subgoal_ppo`).
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from laurel.agents.actor import Acted, Actor, View
from laurel.agents.choice import sample
from laurel.agents.grid_navigator import Navigator
from laurel.arrays import Array, BoolArray, IntArray
from laurel.envs import minigrid_codes as grid
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.minigrid import MiniGridAdapter
from laurel.errors import EnvError

if TYPE_CHECKING:
    from laurel.feedback.chooser import Chooser

Plan = Literal["model", "random", "progress"]
USES: Mapping[int, int | None] = {
    grid.PICK_UP: grid.PICKUP,
    grid.UNLOCK: grid.TOGGLE,
    grid.OPEN_DOOR: grid.TOGGLE,
    grid.OPEN_BOX: grid.TOGGLE,
    grid.REACH_GOAL: None,
}
"""Event of a subgoal -> the action that causes it in front of the object; None: step onto the object."""
REPORTED = (*USES, grid.PUT_DOWN, grid.TRY_LOCKED, grid.PASS_DOOR)
"""Events that trigger another question to the planner."""
LAST = 3
"""Number of recent reports in the prompt."""


class Subgoal(NamedTuple):
    """A caption that one can try to cause; `event` 0 means exploration."""

    text: str
    event: int = 0
    thing: tuple[int, int] = (0, 0)
    """Object and colour."""


EXPLORE = Subgoal("You see something new.")


@dataclass
class Episode:
    """An environment's episode, as planner and reporter know it."""

    map: Navigator = field(default_factory=Navigator)
    reports: list[str] = field(default_factory=list)
    subgoal: Subgoal | None = None
    steps: int = 0
    """Steps since the subgoal was chosen."""
    known: int = 0
    """Number of kinds of objects that the episode had seen when the subgoal was chosen."""
    begun: bool = False
    """Whether its first observation is on the map."""


class Subgoals:
    """The subgoals that N environments follow.

    Args:
        adapter: MiniGrid's, whose captions are the reports.
        known: all possible subgoals, including EXPLORE.
        plan: how they are chosen: by the model, at random, or by the environment's hand-written progress.
        model: the chat model, if it chooses them.
        patience: steps after which a subgoal is given up.
        greedy: take the model's likeliest subgoal instead of a sample.
    """

    def __init__(
        self,
        adapter: EnvAdapter,
        known: tuple[Subgoal, ...],
        plan: Plan,
        model: Chooser | None,
        patience: int,
        *,
        greedy: bool,
    ) -> None:
        self.known = known
        self.episodes: list[Episode] = []
        self.adapter, self._plan, self._model = adapter, plan, model
        self._patience, self._greedy = patience, greedy
        self._numbers = {subgoal: number for number, subgoal in enumerate(known)}

    def for_other_envs(self) -> Subgoals:
        """Return subgoals for other environments, chosen in the same way; a model counts its usage for both."""
        return Subgoals(self.adapter, self.known, self._plan, self._model, self._patience, greedy=self._greedy)

    def begin(self, which: BoolArray) -> None:
        """Begin episodes in environments (N,)."""
        if len(which) != len(self.episodes):
            self.episodes = [Episode() for _ in which]
        for i in np.flatnonzero(which).tolist():
            self.episodes[i] = Episode()

    def choose(self, view: View, rng: np.random.Generator) -> None:
        """Choose a subgoal in each acting environment of the view whose last one has ended."""
        waiting = []
        for i in np.flatnonzero(view.acting).tolist():
            episode = self.episodes[i]
            if not episode.begun:
                episode.begun = True
                episode.map.see(self.adapter.unpack(view.packed[i]))
            if episode.subgoal is None or episode.steps >= self._patience:
                waiting.append(i)
        episodes = [self.episodes[i] for i in waiting]
        for episode, subgoal in zip(
            episodes, self._chosen(episodes, View(view.adapter, view.packed[waiting]), rng), strict=True
        ):
            episode.subgoal, episode.steps, episode.known = subgoal, 0, len(episode.map.things)

    def record(self, rows: IntArray, steps: Transitions) -> BoolArray:
        """Record steps of environments with these numbers (K,); return whether they reached the subgoals (K,)."""
        events = self.adapter.encode(steps)
        reached = np.zeros(len(rows), dtype=np.bool_)
        base, verbs, *_ = _without_mission(events)
        facts = zip(rows.tolist(), events.tolist(), base.tolist(), verbs.tolist(), strict=True)
        for place, (i, event, base_event, verb) in enumerate(facts):
            episode = self.episodes[i]
            episode.steps += 1
            episode.map.took(int(steps.action[place]))
            episode.map.see(self.adapter.unpack(steps.next_observation[place]))
            if episode.subgoal == EXPLORE:
                reached[place] = len(episode.map.things) > episode.known
            if verb in REPORTED:
                report = self.adapter.describe(event)
                named = episode.subgoal
                reached[place] |= named is not None and named.text == self.adapter.describe(base_event)
                if episode.reports[-1:] != [report]:  # an attempt that fails repeatedly is reported once
                    episode.reports.append(report)
            if reached[place] or verb in REPORTED:
                episode.subgoal = None
        return reached

    @property
    def numbers(self) -> IntArray:
        """(N,) the index of each environment's subgoal in `known`; that of EXPLORE if there is none yet."""
        return np.array([self._numbers[episode.subgoal or EXPLORE] for episode in self.episodes], dtype=np.int64)

    @property
    def account(self) -> Mapping[str, Any]:
        """Usage of the language model; empty without one."""
        return {} if self._model is None else self._model.account

    def when_answered(self, call: Callable[[], None]) -> None:
        """Call a function after each answer of the model, if there is one."""
        if self._model is not None:
            self._model.answered = call

    def estimate(self, view: View) -> str | None:
        """Estimate in a line what asking will take; None without a model."""
        if self._model is None:
            return None
        return self._model.estimate([situation((), text) for text in view.text])

    def _chosen(self, episodes: list[Episode], view: View, rng: np.random.Generator) -> list[Subgoal]:
        """Choose subgoals for episodes; the view has their observations."""
        if not episodes:
            return []
        if self._model is not None:
            pairs = zip(episodes, view.text, strict=True)
            chances = self._model.probabilities([situation(episode.reports, text) for episode, text in pairs])
            draws = chances.argmax(axis=1) if self._greedy else sample(chances, rng)
            return [self.known[int(draw)] for draw in draws]
        if self._plan == "random":
            return [self.known[int(draw)] for draw in rng.integers(0, len(self.known), len(episodes))]
        return [self._progress(episode) for episode in episodes]

    def _progress(self, episode: Episode) -> Subgoal:
        """Return the first reachable subgoal that counts as progress."""
        done = set(episode.reports)
        for subgoal in self.known:
            progress = (self.adapter.oracle(subgoal.text) or 0.0) > 0 and subgoal.text not in done
            if subgoal.event == grid.UNLOCK and episode.map.carried != (grid.KEY, subgoal.thing[1]):
                continue
            if progress and subgoal != EXPLORE and towards(episode.map, subgoal) is not None:
                return subgoal
        return EXPLORE


class Follower(Actor):
    """An actor that follows subgoals."""

    def __init__(self, subgoals: Subgoals) -> None:
        self.subgoals = subgoals
        self._before: Array = np.zeros((0, 0))
        self._action: Array = np.zeros(0)
        self._acted: BoolArray = np.zeros(0, dtype=np.bool_)

    def begin(self, which: BoolArray) -> None:
        self.subgoals.begin(which)
        self._acted = self._acted & ~which if len(self._acted) == len(which) else np.zeros(len(which), dtype=np.bool_)

    @property
    def memory(self) -> Array | None:
        """(N, 1) of objects: the episode so far with its last step; None before the first view."""
        if not len(self._before):
            return None
        states = np.empty((len(self._before), 1), dtype=np.object_)
        for i, episode in enumerate(self.subgoals.episodes):
            states[i, 0] = copy.deepcopy((episode, self._before[i], self._action[i], self._acted[i]))
        return states

    @memory.setter
    def memory(self, memory: Array | None) -> None:
        assert memory is not None
        episodes, before, action, acted = zip(*copy.deepcopy(memory[:, 0].tolist()), strict=True)
        self.subgoals.episodes = list(episodes)
        self._before, self._action, self._acted = np.stack(before), np.array(action), np.array(acted)

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        rows = np.flatnonzero(self._acted & view.acting)
        if len(rows):
            no_flags, no_reward = np.zeros(len(rows), dtype=np.bool_), np.zeros(len(rows), dtype=np.float32)
            taken = self._before[rows], self._action[rows]  # the episodes go on, and no event depends on the reward
            self.subgoals.record(rows, Transitions(*taken, no_reward, view.packed[rows], no_flags, no_flags))
        self.subgoals.choose(view, rng)
        acted = self.pursue(view, rng)
        self._before, self._action, self._acted = view.packed.copy(), acted.action, view.acting.copy()
        return acted

    @abstractmethod
    def pursue(self, view: View, rng: np.random.Generator) -> Acted:
        """Act towards the subgoals."""

    @property
    def account(self) -> Mapping[str, Any]:
        return self.subgoals.account

    def when_answered(self, call: Callable[[], None]) -> None:
        self.subgoals.when_answered(call)

    def estimate(self, view: View) -> str | None:
        return self.subgoals.estimate(view)


def planned_in(adapter: EnvAdapter) -> tuple[EnvAdapter, tuple[Subgoal, ...]]:
    """Return the adapter whose captions are reports and subgoals, without the actions' names, and all subgoals.

    Raises:
        EnvError: the environment is not of MiniGrid's family.
    """
    if not isinstance(adapter, MiniGridAdapter):
        raise EnvError(
            f"planner: subgoals exist only in MiniGrid's tasks, and {adapter.env_id} is not one of them. Choose a "
            "MiniGrid task (env.id), or another actor, such as llm_policy."
        )
    silent = copy.copy(adapter)
    silent.with_action = False
    return silent, subgoals_of(silent)


def subgoals_of(adapter: EnvAdapter) -> tuple[Subgoal, ...]:
    """Return the captions of a MiniGrid environment that one can try to cause, EXPLORE first."""
    by_text = {EXPLORE.text: EXPLORE}
    events = np.fromiter(adapter.events(), np.int64)
    base, verbs, things, colors = _without_mission(events)
    alone_first = np.argsort(base != events, kind="stable")  # some are only listed with the mission that they end
    for i in alone_first[np.isin(verbs[alone_first], list(USES))].tolist():
        verb = int(verbs[i])
        thing = (grid.GOAL, grid.COLORS.index("green")) if verb == grid.REACH_GOAL else (int(things[i]), int(colors[i]))
        by_text.setdefault(text := adapter.describe(int(base[i])), Subgoal(text, verb, thing))
    return tuple(by_text.values())


def _without_mission(events: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return the same events without what they mean for a mission, their verbs, objects and colours.

    A subgoal is also reached where the caption adds that the mission names the object, or ends.
    """
    _, verbs, _, things, colors, _ = np.unravel_index(events, grid.SHAPE)
    base = np.ravel_multi_index((0 * verbs, verbs, 0 * verbs, things, colors, 0 * verbs), grid.SHAPE)
    return base, verbs, things, colors


def towards(navigator: Navigator, subgoal: Subgoal) -> int | None:
    """Return the next action towards a subgoal; None where the map shows no path, or nothing is left to do."""
    if subgoal.event in (grid.UNLOCK, grid.OPEN_DOOR) and navigator.door_is(subgoal.thing) == grid.OPEN:
        return None  # nothing is left to do
    if subgoal.event == grid.PICK_UP and navigator.carried and navigator.is_beside(subgoal.thing):
        return grid.DROP if navigator.can_drop else grid.LEFT  # only one object can be carried at a time
    return navigator.towards(subgoal.thing, USES[subgoal.event])


def situation(reports: Sequence[str], text: str) -> str:
    """Return what the planner is asked about: the last reports of an episode, and the state in words."""
    return f"Reports: {' '.join(reports[-LAST:]) or 'Nothing happened yet.'} Now: {text}"

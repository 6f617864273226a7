"""planner: a chat model chooses subgoals in MiniGrid, a scripted controller reaches them, and captions report progress.

After "Collaborating with language models for embodied reasoning" (Dasgupta et al. 2023, arXiv 2302.00763): planner,
actor and reporter. The subgoals are captions of the environment: objects to pick up, unlock, open or reach.
The actor is `laurel.agents.grid_navigator`, which learns nothing, so that success depends on the planner alone; the
reporter is the environment's captions of the actor's last steps. The model is asked again when a subgoal was reached,
failed or took too long. `plan: random` is a control that draws subgoals at random; `plan: progress` is an upper bound
that uses the environment's hand-written progress.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from laurel.agents.actor import Acted, Actor, View, actor_kind
from laurel.agents.choice import sample
from laurel.agents.grid_navigator import Navigator
from laurel.arrays import Array, BoolArray
from laurel.envs import minigrid_codes as grid
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.minigrid import MiniGridAdapter
from laurel.errors import EnvError, ParamsError
from laurel.params.annotation import AnnotateParams
from laurel.params.kinds import Role

if TYPE_CHECKING:
    from laurel.feedback.chooser import Chooser

KEY = "planner"
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
    """A caption that the script can cause; `event` 0 means exploration."""

    text: str
    event: int = 0
    thing: tuple[int, int] = (0, 0)
    """Object and colour."""


EXPLORE = Subgoal("You see something new.")


@dataclass
class _Episode:
    """The planner's state in an environment's episode."""

    map: Navigator = field(default_factory=Navigator)
    reports: list[str] = field(default_factory=list)
    subgoal: Subgoal | None = None
    steps: int = 0
    """Steps since the subgoal was chosen."""
    before: Array | None = None
    """The packed observation that was acted on last."""
    action: int = 0
    """The action that was taken then."""
    known: int = 0
    """Kinds of objects on the map when the subgoal was chosen."""


class Planner(Actor):
    """Follows subgoals.

    Args:
        adapter: MiniGrid's, whose captions are the reports.
        subgoals: all possible ones, including EXPLORE.
        plan: how they are chosen.
        model: the chat model, if it chooses them.
        patience: steps after which a subgoal is given up.
        greedy: take the model's likeliest subgoal instead of a sample.
    """

    def __init__(
        self,
        adapter: EnvAdapter,
        subgoals: tuple[Subgoal, ...],
        plan: Plan,
        model: Chooser | None,
        patience: int,
        *,
        greedy: bool,
    ) -> None:
        self._adapter, self._subgoals, self._plan, self._model = adapter, subgoals, plan, model
        self._patience, self._greedy = patience, greedy
        self._episodes: list[_Episode] = []

    def begin(self, which: BoolArray) -> None:
        if len(which) != len(self._episodes):
            self._episodes = [_Episode() for _ in which]
        for i in np.flatnonzero(which):
            self._episodes[i] = _Episode()

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        acting = [(i, self._episodes[i]) for i in np.flatnonzero(view.acting).tolist()]
        for i, episode in acting:
            self._report(episode, view.packed[i])
            episode.map.see(view.observation[i])
        waiting = [(episode, view.text[i]) for i, episode in acting if self._is_over(episode)]
        for (episode, _), subgoal in zip(waiting, self._named(waiting, rng), strict=True):
            episode.subgoal, episode.steps, episode.known = subgoal, 0, len(episode.map.things)
        action = np.zeros(len(self._episodes), dtype=np.int64)
        for i, episode in acting:
            action[i] = self._next(episode, rng)
            episode.before, episode.action, episode.steps = view.packed[i].copy(), int(action[i]), episode.steps + 1
            episode.map.took(episode.action)
        return Acted(action)

    @property
    def account(self) -> Mapping[str, Any]:
        return {} if self._model is None else self._model.account

    def estimate(self, view: View) -> str | None:
        if self._model is None:
            return None
        return self._model.estimate([self._situation(_Episode(), text) for text in view.text])

    # -- reporter -----------------------------------------------------------------------------------
    def _report(self, episode: _Episode, row: Array) -> None:
        """Record the caption of the last action if it is relevant to the planner."""
        if episode.before is None:
            return
        no, nothing = np.zeros(1, dtype=np.bool_), np.zeros(1, dtype=np.float32)
        step = Transitions(episode.before[None], np.array([episode.action]), nothing, row[None], no, no)
        event = int(self._adapter.encode(step)[0])
        if np.unravel_index(event, grid.SHAPE)[1] in REPORTED:
            report = self._adapter.describe(event)
            if episode.reports[-1:] != [report]:  # an attempt that fails repeatedly is reported once
                episode.reports.append(report)
            episode.subgoal = None

    # -- planner ------------------------------------------------------------------------------------
    def _is_over(self, episode: _Episode) -> bool:
        """Whether the subgoal has ended, so that the planner must choose another."""
        if episode.subgoal is None or episode.steps >= self._patience:
            return True
        return episode.subgoal is EXPLORE and len(episode.map.things) > episode.known

    def _named(self, asked: list[tuple[_Episode, str]], rng: np.random.Generator) -> list[Subgoal]:
        if not asked:
            return []
        if self._model is not None:
            chances = self._model.probabilities([self._situation(episode, text) for episode, text in asked])
            draws = chances.argmax(axis=1) if self._greedy else sample(chances, rng)
            return [self._subgoals[int(draw)] for draw in draws]
        if self._plan == "random":
            return [self._subgoals[int(draw)] for draw in rng.integers(0, len(self._subgoals), len(asked))]
        return [self._wanted(episode) for episode, _ in asked]

    def _situation(self, episode: _Episode, text: str) -> str:
        reports = " ".join(episode.reports[-LAST:]) or "Nothing happened yet."
        return f"Reports: {reports} Now: {text}"

    def _wanted(self, episode: _Episode) -> Subgoal:
        """Return the first reachable subgoal that counts as progress."""
        done = set(episode.reports)
        for subgoal in self._subgoals:
            progress = (self._adapter.oracle(subgoal.text) or 0.0) > 0 and subgoal.text not in done
            if subgoal.event == grid.UNLOCK and episode.map.carried != (grid.KEY, subgoal.thing[1]):
                continue
            if progress and subgoal is not EXPLORE and self._towards(episode.map, subgoal) is not None:
                return subgoal
        return EXPLORE

    # -- actor --------------------------------------------------------------------------------------
    def _next(self, episode: _Episode, rng: np.random.Generator) -> int:
        """Return the next action towards the subgoal; without a known path, an exploring or random one."""
        assert episode.subgoal is not None
        action = None if episode.subgoal is EXPLORE else self._towards(episode.map, episode.subgoal)
        if action is None:
            action = episode.map.explore()
        return int(rng.integers(0, grid.FORWARD + 1)) if action is None else action

    def _towards(self, seen: Navigator, subgoal: Subgoal) -> int | None:
        if subgoal.event in (grid.UNLOCK, grid.OPEN_DOOR) and seen.door_is(subgoal.thing) == grid.OPEN:
            return None  # nothing is left to do
        if subgoal.event == grid.PICK_UP and seen.carried and seen.is_beside(subgoal.thing):
            return grid.DROP if seen.can_drop else grid.LEFT  # only one object can be carried at a time
        return seen.towards(subgoal.thing, USES[subgoal.event])


def subgoals_of(adapter: EnvAdapter) -> tuple[Subgoal, ...]:
    """Return the captions of the environment that the script can cause, EXPLORE first."""
    found = {EXPLORE.text: EXPLORE}
    for event in adapter.events():
        relation, verb, mission, thing, color, _ = (int(digit) for digit in np.unravel_index(event, grid.SHAPE))
        if relation == grid.Relation.NONE and verb in USES and mission == grid.GOES_ON:
            about = (grid.GOAL, grid.COLORS.index("green")) if verb == grid.REACH_GOAL else (thing, color)
            found.setdefault(text := adapter.describe(event), Subgoal(text, verb, about))
    return tuple(found.values())


def _role(options: Mapping[str, Any]) -> Role:
    """Return the role of an arm with this `plan`."""
    plan = options.get("plan")  # unvalidated user input: may not be a string
    return "control" if plan == "random" else "bound" if plan == "progress" else "method"


def _asks(options: Mapping[str, Any]) -> bool:
    """Whether an arm with this `plan` asks a judge."""
    return _role(options) == "method"


@actor_kind(_role, asks=_asks)
def make_planner(
    adapter: EnvAdapter,
    *,
    annotate: AnnotateParams | None = None,
    plan: Plan = "model",
    judge: str = "main",
    prompt: str | None = None,
    goal: str | None = None,
    greedy: bool = False,
    per_token: bool = True,
    patience: int = 40,
) -> Planner:
    """Make the planner; loads and asks no model before it acts.

    Args:
        adapter: of a MiniGrid environment.
        plan: how subgoals are chosen: `model`, `random` (a control), or `progress` (an upper bound).
        judge: the judge whose chat model is asked: `main`, the section annotate itself, or one of annotate.judges.
        prompt: a prompt of the kind `subgoal`, by name or file; None: the packaged one that fits the model.
        goal: the goal in the prompt; None: the environment's own goal.
        greedy: take the likeliest subgoal instead of a sample.
        per_token: for likelihoods, compare means over the tokens of the subgoals' texts.
        patience: steps after which a subgoal is given up.

    Raises:
        EnvError: the environment is not of MiniGrid's family.
        ParamsError: the judge is not a chat model, or an option is not allowed.
    """
    if not isinstance(adapter, MiniGridAdapter):
        raise EnvError(f"{KEY}: its script works in MiniGrid only, and {adapter.env_id} is not one of its tasks.")
    if plan not in get_args(Plan):
        raise ParamsError(f"{KEY}: plan is {plan!r}, but must be one of {', '.join(get_args(Plan))}.")
    if not (isinstance(patience, int) and patience > 0):
        raise ParamsError(f"{KEY}: patience is {patience!r}, but must be a number of steps.")
    silent = copy.copy(adapter)
    silent.with_action = False
    subgoals = subgoals_of(silent)
    model = None
    if plan == "model":
        from laurel.feedback.chooser import Asking, chat_of, chooser
        from laurel.feedback.questions.subgoal import SubgoalQuestion

        asking = Asking(KEY, judge, prompt, goal)
        kind, texts = chat_of(annotate, asking), [subgoal.text for subgoal in subgoals]
        scores = per_token and not kind.writes(SubgoalQuestion.load_for("likeliest", texts))
        model = chooser(kind, SubgoalQuestion, silent, texts, replace(asking, per_token=scores))
    return Planner(silent, subgoals, plan, model, patience, greedy=greedy)


ACTOR = make_planner

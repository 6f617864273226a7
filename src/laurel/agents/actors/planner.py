"""planner: a chat model names subgoals in MiniGrid (`laurel.agents.subgoals`), which a scripted controller reaches.

The controller (`laurel.agents.grid_navigator`) learns nothing, so that success depends on the planner alone; agents of
the algorithm `subgoals` learn to reach the same subgoals. `plan: random` is a control that draws subgoals at random;
`plan: progress` is an upper bound that uses the environment's hand-written progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from laurel.agents.actor import Acted, View, actor_kind
from laurel.agents.subgoals import EXPLORE, Episode, Follower, Plan, Subgoals, planned_in, towards
from laurel.envs import minigrid_codes as grid
from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.params.annotation import AnnotateParams
from laurel.params.kinds import Role

KEY = "planner"


class Planner(Follower):
    """Reaches subgoals by a script."""

    def pursue(self, view: View, rng: np.random.Generator) -> Acted:
        action = np.zeros(len(view), dtype=np.int64)
        for i in np.flatnonzero(view.acting).tolist():
            action[i] = _next(self.subgoals.episodes[i], rng)
        return Acted(action)


def _next(episode: Episode, rng: np.random.Generator) -> int:
    """Return the next action towards the subgoal; without a known path, an exploring or random one."""
    assert episode.subgoal is not None
    action = None if episode.subgoal == EXPLORE else towards(episode.map, episode.subgoal)
    if action is None:
        action = episode.map.explore()
    return int(rng.integers(0, grid.FORWARD + 1)) if action is None else action


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
    silent, subgoals = planned_in(adapter)
    if plan not in get_args(Plan):
        raise ParamsError(f"{KEY}: plan is {plan!r}, but must be one of {', '.join(get_args(Plan))}.")
    if not (isinstance(patience, int) and patience > 0):
        raise ParamsError(f"{KEY}: patience is {patience!r}, but must be a number of steps.")
    model = None
    if plan == "model":
        from laurel.feedback.chooser import Asking, chat_of, chooser
        from laurel.feedback.questions.subgoal import SubgoalQuestion

        asking = Asking(KEY, judge, prompt, goal)
        kind, texts = chat_of(annotate, asking), [subgoal.text for subgoal in subgoals]
        scores = per_token and not kind.writes(SubgoalQuestion.load_for("likeliest", texts))
        model = chooser(kind, SubgoalQuestion, silent, texts, replace(asking, per_token=scores))
    return Planner(Subgoals(silent, subgoals, plan, model, patience, greedy=greedy))


ACTOR = make_planner

"""An arm as readers see it: its role and its description, from the reward kinds and actors that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laurel.params.algorithms import Helper
from laurel.params.annotation import MAIN
from laurel.params.arms import ArmParams
from laurel.params.fields import as_text
from laurel.params.kinds import Role, check_role, role_of_actor
from laurel.params.rewards import RewardParams, judge_of, method_of
from laurel.params.training import AgentParams


@dataclass(frozen=True, slots=True)
class ArmInfo:
    """An arm as the report, the figures and MLflow see it."""

    name: str
    role: Role
    label: str
    """Description for readers of the report."""
    rewards: tuple[str, ...] = ()
    """Names of its rewards besides the environment's."""
    trained: bool = True
    draws_tasks: bool = False
    """Whether a curriculum chooses its tasks while it is trained: its learning curve is then over these, and cannot be
    compared with others'."""


def arm_infos(
    arms: Sequence[ArmParams], rewards: Mapping[str, RewardParams], agent: AgentParams
) -> tuple[ArmInfo, ...]:
    """Return the arms of a run, in order; `agent` is the section from which they may differ."""
    return tuple(_info(arm, rewards, agent) for arm in arms)


def _in_words(key: str, values: Mapping[str, Any]) -> list[str]:
    """Format each value with its dotted key, sorted by key; a section without values is on, with its defaults."""
    return [
        words
        for name, value in sorted(values.items())
        for words in (
            _in_words(f"{key}.{name}", value) or [f"{key}.{name} with its defaults"]
            if isinstance(value, dict)
            else [f"{key}.{name} {as_text(value)}"]
        )
    ]


def _info(arm: ArmParams, rewards: Mapping[str, RewardParams], agent: AgentParams) -> ArmInfo:
    methods = {name: method_of(rewards[name]) for name in arm.reward}
    for name, method in methods.items():
        check_role(f'The reward kind "{rewards[name].kind}"', method.role)
    roles = [method.role for method in methods.values()]
    hinted, planner = _own_hints(arm), _own_planner(arm, agent)
    role: Role
    if arm.role is not None:
        role = arm.role
    elif hinted and hinted.get("shuffled"):
        role = "control"
    elif roles:
        role = next((role for role in ("bound", "method") if role in roles), "control")
    elif arm.actor is not None:
        role = role_of_actor(arm.actor, arm.actor_options)
    elif planner is not None:
        role = role_of_actor(planner.actor, planner.options)
    else:
        role = "baseline" if hinted is None else "method"
    if arm.label is not None:
        label = arm.label
    elif arm.actor is not None:
        label = "; ".join([f"the actor {arm.actor}, never trained", *_in_words("agent.options", arm.actor_options)])
    else:
        weights = [
            ("" if weight == 1.0 else f"{weight:g} of ") + methods[name].summary + _by_judge(name, rewards)
            for name, weight in arm.reward.items()
        ]
        differs = [f"shaping.{key} {value}" for key, value in sorted(arm.shaping.items())]
        differs += [] if arm.extrinsic is None else [f"shaping.extrinsic {arm.extrinsic:g}"]
        differs += _in_words("agent", arm.agent) if isinstance(arm.agent, dict) else []
        pays = arm.agent_of(agent).settings.pays
        unrewarded = "the environment's reward, and for subgoals" if pays else "the environment's reward alone"
        label = "; ".join([" + ".join(weights) or unrewarded, *differs])
    return ArmInfo(arm.name, role, label, tuple(arm.reward), arm.trained)


def _own_hints(arm: ArmParams) -> Mapping[str, Any] | None:
    """Return the hints that an arm itself sets, which distinguish it from others; None if it sets none."""
    ppo = arm.agent.get("ppo") if isinstance(arm.agent, dict) else None
    hints = ppo.get("hints") if isinstance(ppo, dict) else None
    return hints if isinstance(hints, dict) else None


def _own_planner(arm: ArmParams, agent: AgentParams) -> Helper | None:
    """Return the planner whose subgoals an arm's agents learn, if the arm itself sets it; None otherwise."""
    settings = arm.agent if arm.trained and isinstance(arm.agent, dict) else {}
    subgoals = settings.get("subgoals")
    if settings.get("algorithm") != "subgoals" and not (isinstance(subgoals, dict) and "options" in subgoals):
        return None
    return arm.agent_of(agent).settings.planner


def _by_judge(name: str, rewards: Mapping[str, RewardParams]) -> str:
    """Name the judge whose preferences a reward is learned from, unless it is the main one."""
    judge = judge_of(name, rewards)
    return "" if judge in (None, MAIN) else f" (judge {judge})"

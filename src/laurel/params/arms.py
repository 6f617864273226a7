"""The section `arms`: which arms are compared. An arm is data: its rewards, their shaping, and the agent that learns.

`arms` is a list of well-known names, `full` for all of them, or a mapping of names to arms, for example
`{preference: {}, no_counts: {reward: preference, shaping: {beta: 0}}}`, or with a weighted sum and another algorithm
`mixed: {reward: {preference: 1.0, oracle: 0.5}, agent: {algorithm: dqn}}`, or with an actor that is not trained
`rule: {reward: null, agent: my_rule}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from laurel.errors import closest
from laurel.params.fields import NonNegative, Section, distinct, dumped, merged
from laurel.params.file import NAME, refusal, refusals, shown
from laurel.params.kinds import ALGORITHMS, Role, known_actor, replays_agent
from laurel.params.rewards import RewardParams, chain, judge_of
from laurel.params.training import AgentParams, ShapingParams

RANDOM = "random"
"""The actor of an arm that acts at random and is not trained."""


class ArmParams(Section):
    """An arm as written in params."""

    name: str
    """Name of the arm and of its agents' folder."""
    reward: dict[str, Annotated[float, Field(allow_inf_nan=False)]]
    """Rewards that are summed, each with its weight; empty: only the environment's reward."""
    shaping: dict[str, JsonValue] = Field(default_factory=dict)
    """Keys that differ from the section `shaping`."""
    agent: dict[str, JsonValue] | str = Field(default_factory=dict)
    """Keys that differ from the section `agent`; or the name of an actor that is not trained (random, or another
    package's), or {actor: NAME, options: {...}} with its arguments."""
    extrinsic: NonNegative | None = None
    """Weight of the environment's reward; null: shaping.extrinsic."""
    role: Role | None = None
    """Its role in the report; null: that of its rewards' methods, or of its actor if it is not trained."""
    label: str | None = None
    """Description for readers of the report; null: its rewards and the settings that differ."""

    @field_validator("name")
    @classmethod
    def _is_a_folder(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError(f"is {shown(name)}, but must be made of letters, digits, _ and -.")
        return name

    @field_validator("reward", mode="before")
    @classmethod
    def _weighted(cls, reward: Any) -> Any:
        if reward is None:
            return {}
        if isinstance(reward, list | tuple):
            weights = ", ".join(f"{name}: 1" for name in reward if isinstance(name, str))
            raise ValueError(f"is {shown(reward)}, but must be a name or a weighted sum: {{{weights}}}.")
        return {reward: 1.0} if isinstance(reward, str) else reward

    @field_validator("reward")
    @classmethod
    def _in_order(cls, reward: dict[str, float]) -> dict[str, float]:
        """Put the largest weight first: in structures of Kubeflow Pipelines the order that was written is lost."""
        return dict(sorted(reward.items(), key=lambda entry: (-entry[1], entry[0])))

    @field_validator("agent")
    @classmethod
    def _may_differ(cls, agent: Any) -> Any:
        if isinstance(agent, str):
            if replays_agent(known_actor(agent)):
                raise ValueError(
                    f"is {agent}, which replays a trained agent: an arm without training needs another actor."
                )
            return agent
        # seeds and steps are the same for all arms
        settable = ("algorithm", "engine", "curriculum", *ALGORITHMS.kinds(), "sb3")
        if "actor" in agent:
            if not isinstance(agent["actor"], str):
                raise ValueError(f"has actor {shown(agent['actor'])}, but must name an actor.")
            if not isinstance(agent.get("options", {}), dict):
                raise ValueError(f"has options {shown(agent['options'])}, but must be a mapping of arguments.")
            cls._may_differ(agent["actor"])
            settable = ("actor", "options")
        for name in agent:
            if name not in settable:
                if name == agent.get("algorithm"):  # whose package may not be installed
                    raise ValueError(
                        f"has algorithm {shown(name)}, but must name one of {', '.join(ALGORITHMS.kinds())}; another "
                        f'package can add one by an entry point of the group "{ALGORITHMS.group}".'
                    )
                raise ValueError(f"names {shown(name)}, but an arm may only set {', '.join(settable)}.")
        return agent

    @model_validator(mode="after")
    def _without_effect(self) -> Self:
        """Refuse what only matters in training; a reward would also make an actor look like a method."""
        ignored = {"reward": self.reward, "shaping": self.shaping, "extrinsic": self.extrinsic is not None}
        if not self.trained and (named := [key for key, given in ignored.items() if given]):
            raise refusal(
                ("agent",),
                f"is the actor {self.actor}, which is not trained, so {' and '.join(named)} would have no effect. "
                "Set reward and extrinsic to null, and leave out shaping.",
                self.agent,
            )
        return self

    @property
    def trained(self) -> bool:
        return self.actor is None

    @property
    def actor(self) -> str | None:
        """Kind of the actor of an arm that is not trained."""
        name = self.agent if isinstance(self.agent, str) else self.agent.get("actor")
        return name if isinstance(name, str) else None

    @property
    def actor_options(self) -> dict[str, Any]:
        """Arguments of that actor."""
        options = {} if isinstance(self.agent, str) else self.agent.get("options")
        return options if isinstance(options, dict) else {}

    def shaping_of(self, base: ShapingParams) -> ShapingParams:
        """Return the section `shaping` with the arm's own settings."""
        weight = {} if self.extrinsic is None else {"extrinsic": self.extrinsic}
        return _merged(base, {**self.shaping, **weight}, "shaping")

    def agent_of(self, base: AgentParams) -> AgentParams:
        """Return the section `agent` with the arm's own settings."""
        return _merged(base, self.agent if self.trained and isinstance(self.agent, dict) else {}, "agent")


def _merged(base: Any, changes: Mapping[str, JsonValue], key: str) -> Any:
    if not changes:
        return base
    try:
        return type(base).model_validate(merged(base.model_dump(), changes, replaced=("kwargs",)))
    except ValidationError as error:
        raise refusals(type(base), error, (key,)) from None


WELL_KNOWN: dict[str, dict[str, Any]] = {
    "extrinsic": {"reward": None, "label": "the environment's reward alone"},
    "preference": {"reward": "preference", "label": "the learned reward and the environment's"},
    "intrinsic_only": {"reward": "preference", "extrinsic": 0.0, "label": "the learned reward alone"},
    "random_reward": {"reward": "random_reward"},
    "shuffled_labels": {"reward": "shuffled_labels"},
    "similarity": {"reward": "similarity"},
    "oracle": {"reward": "oracle"},
    "random_policy": {
        "reward": None,
        "agent": RANDOM,
        "role": "control",
        "label": "random actions, never trained",
    },
}
"""Name -> arm, as an entry of `arms` writes it."""


def arm_of(name: str) -> ArmParams:
    """Return a well-known arm."""
    return ArmParams.model_validate({"name": name, **WELL_KNOWN[name]})


def _read(value: Any) -> Any:
    """Read `full`, a list of well-known names, or a mapping of names to arms."""
    allowed = ", ".join(WELL_KNOWN)
    if value == "full":
        return tuple(map(arm_of, WELL_KNOWN))
    if isinstance(value, str):
        hint = f" Write [{value}]." if value in WELL_KNOWN else closest(value, ("full", *WELL_KNOWN))
        raise ValueError(f"is {shown(value)}, but must be full or a list of {allowed}.{hint}")
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise ValueError(f"has an arm named {shown(name)}, but names must be text; write it in quotes.")
        return tuple(_entry((name,), name, content) for name, content in value.items())
    if not isinstance(value, list | tuple):
        raise ValueError(f"is {shown(value)}, but must be full, a list of arms, or a mapping of names to arms.")
    entries = []
    for number, item in enumerate(value):
        if isinstance(item, ArmParams):
            entries.append(item)
        elif isinstance(item, Mapping):
            name = str(item.get("name"))
            entries.append(_entry((number,), name, {key: part for key, part in item.items() if key != "name"}))
        elif isinstance(item, str) and item in WELL_KNOWN:
            entries.append(arm_of(item))
        else:
            hint = closest(item, WELL_KNOWN) if isinstance(item, str) else ""
            example = " Or name an arm's reward, as in {name: mine, reward: score}."
            raise refusal((number,), f"is {shown(item)}, but must be one of {allowed}.{hint}{example}", item)
    return tuple(entries)


def _entry(loc: tuple[str | int, ...], name: str, content: Any) -> ArmParams:
    if content is None and name in WELL_KNOWN:
        return arm_of(name)
    if not isinstance(content, Mapping):
        raise refusal(loc, f"is {shown(content)}, but must be a mapping such as {{reward: preference}}.", content)
    try:
        return ArmParams.model_validate({**WELL_KNOWN.get(name, {}), **content, "name": name})
    except ValidationError as error:
        raise refusals(ArmParams, error, loc) from None


def _named_once(arms: tuple[ArmParams, ...]) -> tuple[ArmParams, ...]:
    distinct(tuple(arm.name for arm in arms))
    return arms


Arms = Annotated[tuple[ArmParams, ...], Field(strict=False), BeforeValidator(_read), AfterValidator(_named_once)]


def judges_of(arms: Sequence[ArmParams], rewards: Mapping[str, RewardParams]) -> tuple[str, ...]:
    """Return the judges whose preferences the arms' rewards are learned from; () where no annotator is asked."""
    wanted = chain(rewards, [name for arm in arms if arm.trained for name in arm.reward])
    return tuple(sorted({judge for name in wanted if (judge := judge_of(name, rewards))}))


def used(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of some sections that can affect results, as JSON: no tracking, no workers, no settings of
    unused algorithms.

    Here arms are a mapping by name, each with the settings of its own algorithm if that differs.
    """
    content = dumped({name: section for name, section in sections.items() if name != "tracking"})
    agent: AgentParams | None = sections.get("agent")
    if agent is not None:
        content["agent"] = _used_agent(agent)
    if "arms" in content:
        content["arms"] = {arm["name"]: arm for arm in content["arms"]}
        for arm in sections["arms"] if agent is not None else ():
            if (merged_agent := arm.agent_of(agent)) != agent:
                content["arms"][arm.name]["agent"] = _used_agent(merged_agent)
    return content


def _used_agent(agent: AgentParams) -> dict[str, Any]:
    unused = {"workers", "algorithm", "sb3", *ALGORITHMS.kinds()} - {agent.section}
    if agent.engine == "laurel":
        unused.discard("algorithm")
    return {key: value for key, value in agent.model_dump(mode="json").items() if key not in unused}

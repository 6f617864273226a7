"""Arms with their complete settings, as training and evaluation use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laurel.errors import ParamsError
from laurel.params.arm_infos import arm_infos
from laurel.params.arms import ArmParams
from laurel.params.kinds import Role
from laurel.params.language_actor import LanguageActorParams
from laurel.params.rewards import RewardParams
from laurel.params.training import AgentParams, ShapingParams


@dataclass(frozen=True, slots=True)
class Arm:
    """An arm with its complete settings, as used in training and evaluation."""

    name: str
    role: Role
    reward: Mapping[str, float]
    """Name -> weight; empty: only the environment's reward."""
    shaping: ShapingParams
    agent: AgentParams
    actor: str | None
    """Kind of the actor of an arm that is not trained."""
    actor_options: Mapping[str, Any]

    @property
    def trained(self) -> bool:
        return self.actor is None

    @property
    def draws_tasks(self) -> bool:
        """Whether a curriculum chooses its tasks while it is trained."""
        return self.trained and self.agent.curriculum is not None


def resolve_arms(
    arms: Sequence[ArmParams], rewards: Mapping[str, RewardParams], shaping: ShapingParams, agent: AgentParams
) -> dict[str, Arm]:
    """Return the arms by name, in order, each with its own versions of the sections `shaping` and `agent`."""
    infos = arm_infos(arms, rewards, agent)
    return {arm.name: _resolved(arm, info.role, shaping, agent) for arm, info in zip(arms, infos, strict=True)}


def _resolved(arm: ArmParams, role: Role, shaping: ShapingParams, agent: AgentParams) -> Arm:
    resolved = arm.agent_of(agent)
    shaped = arm.shaping_of(shaping).of_agent(resolved.gamma)
    return Arm(arm.name, role, arm.reward, shaped, resolved, arm.actor, arm.actor_options)


def served_actors(arms: Iterable[Arm]) -> dict[str, LanguageActorParams]:
    """Return the settings of the arms whose proposals a server samples, by the arm's name."""
    return {name: settings for name, settings in _language_actors(arms) if settings.serve}


def tuned_together(arms: Iterable[Arm]) -> bool:
    """Whether any arm's model is tuned by several processes on GPUs."""
    return any(
        settings.processes > 1 for _, settings in _language_actors(arm for arm in arms if arm.agent.device != "cpu")
    )


def _language_actors(arms: Iterable[Arm]) -> Iterator[tuple[str, LanguageActorParams]]:
    for arm in arms:
        settings = arm.agent.settings if arm.trained else None
        if isinstance(settings, LanguageActorParams):
            yield arm.name, settings


def check_servers(arms: Iterable[Arm]) -> None:
    """Raise ParamsError for arms that need different servers at one address."""
    first: dict[str, tuple[str, tuple[Any, ...]]] = {}
    for name, settings in served_actors(arms).items():
        assert settings.serve is not None
        address, server = settings.serve.base_url, (settings.model, settings.rank, settings.dtype, settings.serve)
        owner, served = first.setdefault(address, (name, server))
        if served != server:
            raise ParamsError(
                f"The arms {owner} and {name} need different servers at {address}, as their model, lora_rank, dtype or "
                "serve differ: give one of them another port in agent.language_model.serve.base_url."
            )

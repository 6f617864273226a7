"""Groups of plug-ins whose kinds parameters name; each kind is defined in its own package."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

from laurel.errors import ParamsError, closest
from laurel.params.fields import Section
from laurel.plugins import Plugins

ANNOTATORS = Plugins[Any](
    "annotator", group="laurel.annotators", package="laurel.feedback.annotators", section=("Params", Section)
)
ALGORITHMS = Plugins[Any](
    "algorithm", group="laurel.algorithms", package="laurel.agents.algorithms", section=("Params", Section)
)
ACTORS = Plugins[Any]("actor", group="laurel.actors", package="laurel.agents.actors")

Role = Literal["baseline", "method", "control", "bound"]
"""baseline: the environment's reward alone or an untrained actor, which a learned reward must beat; method: a reward
made from feedback, or a language model that acts, plans or hints; control: has no information about the task; bound:
has more information than a method may use, for reference."""


def known_actor(kind: str) -> str:
    """Refuse an actor that neither Laurel nor another package provides."""
    if kind not in ACTORS.kinds():
        known = ACTORS.kinds()
        raise ValueError(f'is "{kind}", but must be one of {", ".join(known)}.{closest(kind, known)}')
    return kind


def role_of_actor(kind: str, options: Mapping[str, Any] = MappingProxyType({})) -> Role:
    """Return the role of arms of an actor, which its kind declares; see `laurel.agents.actor.Actor.role`.

    Args:
        options: the actor's arguments; the role of some kinds depends on them.

    Raises:
        ParamsError: there is no such role, or another package's function that computes it fails.
    """
    declared: Any = getattr(_actor(kind), "role", "baseline")
    try:
        role: Role = declared(options) if callable(declared) else declared
    except Exception as error:  # another package's code may raise anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")
        raise ParamsError(f'The actor "{kind}": its role for the options {dict(options)} raised {reason}.') from error
    check_role(f'The actor "{kind}"', role)
    return role


def check_role(subject: str, role: object) -> None:
    """Refuse a role that another package's plug-in declares, if it is none.

    Raises:
        ParamsError: there is no such role.
    """
    if role not in get_args(Role):
        raise ParamsError(f"{subject} declares the role {role!r}, but it must be one of {', '.join(get_args(Role))}.")


def replays_agent(kind: str) -> bool:
    """Whether an actor replays a trained agent, and so needs its directory; see
    `laurel.agents.actor.Actor.replays_agent`.
    """
    return bool(getattr(_actor(kind), "replays_agent", False))


def options_of_actor(kind: str) -> Mapping[str, inspect.Parameter]:
    """Return the constructor arguments of an actor."""
    return inspect.signature(_actor(kind)).parameters


def _actor(kind: str) -> Any:
    return ACTORS.load(kind, "actor")

"""The actors that params can name, one module per kind: `collect.policies: [{kind: NAME}]`, `laurel play NAME`.

Another package adds a kind by an entry point of the group "laurel.actors"; see `laurel.plugins`. It names a function or
a class that is called as `ACTOR(adapter, **options)` and returns a `laurel.agents.actor.Actor`. Its `role`
(`Actor.role`, `actor_kind`) is that of its arms. Reading params imports a kind's module, so it imports nothing
heavy at its top.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.agents.actor import Acted, Actor, View
from laurel.arrays import Array, BoolArray, FloatArray
from laurel.data.usage import ASKER, RESOURCES, is_amount, new_asker, own_number
from laurel.envs.base import EnvAdapter
from laurel.envs.guard import in_a_line
from laurel.errors import ActorError, LaurelError, ParamsError
from laurel.params.annotation import AnnotateParams
from laurel.params.kinds import ACTORS
from laurel.plugins import in_short

_TYPES = {
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "float": (int | float, "a number"),
    "str": (str, "text"),
    "str | None": (str | None, "text or null"),
    "Path": (str | Path, "a path"),
}
"""Annotations of options that are checked here -> their type, in words."""
_AMOUNTS = ("states", "answers", "unread", "tokens", *RESOURCES)
"""Amounts in an actor's account: distinct states that it asked about, answers and those that could not be read, tokens
of the answers, and the usage."""


def make_actor(
    kind: str,
    adapter: EnvAdapter,
    key: str,
    *,
    annotate: AnnotateParams | None = None,
    initial: int | None = None,
    likeliest: bool | None = None,
    **options: Any,
) -> Actor:
    """Make an actor of a kind.

    Args:
        kind: a module of this package, or an entry point.
        adapter: of the environment in which it acts.
        key: the parameter that names the actor, for messages.
        annotate: the run's section of that name, passed to kinds that have an argument `annotate`.
        initial: seed of an agent's initial weights, passed to kinds that have an argument `weights_seed`; None: their
            default.
        likeliest: whether to take the likeliest action instead of a sample, for kinds that have an argument `greedy`
            where the options do not say it; None: their default.

    Raises:
        ParamsError: there is no such kind, or it does not take these options.
        ActorError: another package's actor cannot be made.
        LaurelError: raised by the kind itself, e.g. DataError if a trained agent is missing.
    """
    factory: Callable[..., Actor] = ACTORS.load(kind, key)
    signature = inspect.signature(factory)
    try:
        signature.bind(adapter, **options)
    except TypeError as error:
        option_names = [name for name in [*signature.parameters][1:] if name not in ("annotate", "weights_seed")]
        raise ParamsError(
            f'{key}: the actor "{kind}" cannot be made with options {options}: {error}. Its options are: '
            f"{', '.join(option_names) or 'none'}."
        ) from error
    if kind in ACTORS.builtin():
        _check_types(kind, signature.parameters, options, key)
    if "annotate" in signature.parameters:
        options["annotate"] = annotate
    if initial is not None and "weights_seed" in signature.parameters:
        options["weights_seed"] = initial
    if likeliest is not None and "greedy" in signature.parameters:
        options.setdefault("greedy", likeliest)
    if kind in ACTORS.builtin():
        return factory(adapter, **options)
    try:
        actor = factory(adapter, **options)
    except LaurelError:
        raise
    except Exception as error:  # another package's code may raise anything
        raise ActorError(f'The actor "{kind}" cannot be made: {in_a_line(error)}. --debug shows where.') from error
    if not isinstance(actor, Actor):
        raise ActorError(f'The actor "{kind}" is a {type(actor).__name__}, not a laurel.agents.actor.Actor.')
    return Checked(actor, kind, adapter.action_space)


def _check_types(kind: str, parameters: Mapping[str, inspect.Parameter], options: Mapping[str, Any], key: str) -> None:
    """Raise ParamsError for an option that is not of the type that its annotation says."""
    for name, value in options.items():
        annotation = str(parameters[name].annotation) if name in parameters else ""
        expected, type_name = _TYPES.get(annotation, (object, ""))
        if not isinstance(value, expected) or (type_name and isinstance(value, bool) and annotation != "bool"):
            raise ParamsError(
                f"{key}: the option {name} of the actor {kind} is {value!r:.60}, but must be {type_name}."
            )


def judge_asked(kind: str, options: Mapping[str, Any]) -> str | None:
    """Return the judge whose chat model an actor of a kind asks with these options; None if it asks none.

    Raises:
        ParamsError: there is no such kind.
    """
    factory = ACTORS.load(kind, "actor")
    asks, parameters = getattr(factory, "asks", None), inspect.signature(factory).parameters
    if asks is not None and not asks(options):
        return None
    return (
        str(options.get("judge", parameters["judge"].default)) if {"annotate", "judge"} <= parameters.keys() else None
    )


class Checked(Actor):
    """Another package's actor, whose exceptions and wrong actions become an `ActorError` that names it."""

    def __init__(self, actor: Actor, kind: str, space: gym.Space[Any]) -> None:
        self.actor, self._kind, self._space = actor, kind, space
        self._asker = new_asker()

    def begin(self, which: BoolArray) -> None:
        self._guarded(self.actor.begin, which)

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        acted: object = self._guarded(self.actor.act, view, rng)
        if not isinstance(acted, Acted):
            raise ActorError(f'The actor "{self._kind}": its act returned {acted!r:.60}, but an Acted is required.')
        n = len(view)
        return Acted(
            self._actions(acted.action, n),
            None if acted.log_prob is None else self._log_probs(acted.log_prob, n),
            None if acted.value is None else self._numbers(acted.value, n, "value"),
        )

    def log_prob(self, view: View, action: Array) -> FloatArray:
        return self._log_probs(self._guarded(self.actor.log_prob, view, action), len(view))

    @property
    def account(self) -> Mapping[str, Any]:
        """Usage of the actor as Python's own numbers; the model and asker default to its kind and a new id."""
        account: Any = self.actor.account
        amounts = [account.get(name) for name in _AMOUNTS] if isinstance(account, Mapping) else [""]
        if not all(map(is_amount, amounts)):
            raise ActorError(
                f'The actor "{self._kind}" has the account {in_short(account)}, but it must map each of '
                f"{', '.join(_AMOUNTS)} that it has to a number from 0, or to None where that is unknown."
            )
        known = {name: own_number(account[name]) for name in _AMOUNTS if name in account}
        return {"model": self._kind, ASKER: self._asker, **account, **known} if account else {}

    def when_answered(self, call: Callable[[], None]) -> None:
        self._guarded(self.actor.when_answered, call)

    def estimate(self, view: View) -> str | None:
        estimate: str | None = self._guarded(self.actor.estimate, view)
        return estimate

    def _guarded(self, method: Callable[..., Any], *given: Any) -> Any:
        try:
            return method(*given)
        except LaurelError:
            raise
        except (Exception, SystemExit) as error:  # another package's code may raise anything, or call sys.exit()
            name = getattr(method, "__name__", "method")
            raise ActorError(
                f'The actor "{self._kind}": its {name} raised {in_a_line(error)}. --debug shows where.'
            ) from error

    def _log_probs(self, log_probs: Any, n: int) -> FloatArray:
        """Check log-probabilities; NaN is unknown, and only a density may be above 1."""
        checked = self._numbers(log_probs, n, "log_prob")
        if isinstance(self._space, gym.spaces.Discrete) and (checked > 1e-4).any():
            raise ActorError(
                f'The actor "{self._kind}" returned the log-probability {np.nanmax(checked):g}, which is above 0.'
            )
        return checked

    def _numbers(self, returned: Any, n: int, name: str) -> FloatArray:
        numbers = np.asarray(returned)
        if numbers.shape != (n,) or numbers.dtype.kind not in "iuf":
            raise ActorError(
                f'The actor "{self._kind}" returned a {name} of shape {numbers.shape} and type {numbers.dtype}, but '
                f"{n} numbers are required."
            )
        return numbers.astype(np.float32)

    def _actions(self, action: Any, n: int) -> Array:
        """Check actions and convert them to the space's dtype."""
        actions = np.asarray(action)
        if isinstance(self._space, gym.spaces.Discrete):
            low, high = int(self._space.start), int(self._space.start) + int(self._space.n)
            integers = actions.shape == (n,) and actions.dtype.kind in "iu"
            if integers and (actions >= low).all() and (actions < high).all():
                return actions.astype(np.int64)
            wanted = f"{n} integers from {low} to {high - 1}"
        else:
            assert self._space.shape is not None
            shape = (n, *self._space.shape)
            if actions.shape == shape and actions.dtype.kind in "iuf" and np.isfinite(actions).all():
                return actions.astype(np.float32)
            wanted = f"finite numbers of the shape {shape}"
        bounds = f" between {actions.min()} and {actions.max()}" if actions.size and actions.dtype.kind in "iuf" else ""
        raise ActorError(
            f'The actor "{self._kind}" returned actions of shape {actions.shape} and type {actions.dtype}{bounds}, '
            f"but {self._space} needs {wanted}."
        )

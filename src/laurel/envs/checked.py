"""Checks of what adapters of the user return: each fault is an `EnvError` that names the adapter's method."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from laurel.envs.guard import NOT_OURS, failure
from laurel.errors import EnvError, LaurelError
from laurel.plugins import in_short, wrap_methods

Check = Callable[[Any, tuple[Any, ...]], str | None]
"""Takes what a method returned and its arguments; returns what it must be if it is something else."""


def check_methods(adapter: type) -> None:
    """Check what the methods of an adapter class return, if it is not one of Laurel's own; done once per class."""
    wrap_methods(adapter, {name: functools.partial(_checked, name, check) for name, check in _CHECKS.items()})


def _checked(name: str, check: Check, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(self: Any, *args: Any, **named: Any) -> Any:
        try:
            returned = method(self, *args, **named)
        except LaurelError:
            raise
        except NOT_OURS as error:
            raise failure(self.env_id, f"adapter's {name}", error) from error
        if due := check(returned, (*args, *named.values())):
            raise EnvError(
                f"{self.env_id}: the adapter's {name} returned {in_short(returned)}, but it must return {due}. Fix its "
                "adapter."
            )
        return _listed(self.env_id, returned) if name == "events" else returned

    return checked


def _listed(env_id: str, events: Iterable[Any]) -> Iterator[int]:
    """Yield events; a generator's faults come only now."""
    try:
        for event in events:
            if not isinstance(event, int | np.integer):
                raise EnvError(
                    f"{env_id}: the adapter's events has {event!r:.60}, which is not a whole number. Fix it."
                )
            yield int(event)
    except LaurelError:
        raise
    except NOT_OURS as error:
        raise failure(env_id, "adapter's events", error) from error


def _progress(value: Any, _: tuple[Any, ...]) -> str | None:
    number = isinstance(value, float | int | np.number) and bool(np.isfinite(value))
    return None if value is None or number else "a finite number, or None"


def _which(value: Any, args: tuple[Any, ...]) -> str | None:
    shape = np.shape(args[0])
    right = value is None or (isinstance(value, np.ndarray) and value.shape == shape and value.dtype == np.bool_)
    return None if right else f"an array of shape {shape} and type bool, or None"


def _measures(value: Any, args: tuple[Any, ...]) -> str | None:
    shape = (len(args[0]),)
    right = isinstance(value, Mapping) and all(
        isinstance(values, np.ndarray) and values.shape == shape and values.dtype.kind in "biuf"
        and np.isfinite(values).all() for values in value.values()
    )  # fmt: skip
    return None if right else f"a mapping of names to arrays of shape {shape} of finite numbers"


def _rows(value: Any, args: tuple[Any, ...]) -> str | None:
    rows = len(args[0])
    right = isinstance(value, np.ndarray) and value.ndim == 2 and len(value) == rows and np.isfinite(value).all()
    return None if right else f"an array of shape ({rows}, F) of finite numbers"


def _text(value: Any, _: tuple[Any, ...]) -> str | None:
    return None if value is None or isinstance(value, str) else "a text, or None"


def _many(value: Any, _: tuple[Any, ...]) -> str | None:
    return None if isinstance(value, Iterable) else "whole numbers, such as range(3)"


_CHECKS: Mapping[str, Check] = {
    "oracle": _progress,
    "succeeded": _which,
    "further_measures": _measures,
    "features": _rows,
    "describe_observation": _text,
    "events": _many,
}
"""Method -> its check; `laurel.envs.captioner` checks those that make captions."""

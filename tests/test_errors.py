"""Errors: one family, and a hint only where a name is near."""

from __future__ import annotations

import inspect

import pytest

from laurel import errors
from laurel.errors import LaurelError, closest


def test_every_error_is_laurels_and_says_when_it_is_raised() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    assert len(kinds) > 1
    for kind in kinds:
        assert issubclass(kind, LaurelError)
        assert kind.__doc__
        with pytest.raises(LaurelError, match="^what is wrong$"):
            raise kind("what is wrong")


def test_errors_are_siblings() -> None:
    """Catching one kind must not catch another."""
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind is not LaurelError]
    assert all(kind.__bases__ == (LaurelError,) for kind in kinds)


@pytest.mark.parametrize(
    ("name", "allowed", "hint"),
    [
        ("agnet", ("agent", "annotate"), ' Did you mean "agent"?'),
        ("gama", ["clip_range", "gamma", "gae_lambda"], ' Did you mean "gamma"?'),
        ("MiniGrid-DoorKey-8x8", {"MiniGrid-DoorKey-8x8-v0": 1}, ' Did you mean "MiniGrid-DoorKey-8x8-v0"?'),
        ("agent", ("agents", "agent"), ' Did you mean "agent"?'),
        ("zzz", ("agent", "annotate"), ""),
        ("agent", (), ""),
        ("", ("agent",), ""),
    ],
)
def test_the_nearest_name_is_offered(name: str, allowed: object, hint: str) -> None:
    assert closest(name, allowed) == hint  # type: ignore[arg-type]

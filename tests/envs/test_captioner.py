"""Captions by number: what an environment adapter says must be text."""

from __future__ import annotations

import numpy as np
import pytest

from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.captioner import Captioner
from laurel.errors import EnvError
from laurel.params import EnvParams


def test_half_a_surrogate_pair_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = adapter_for(EnvParams(id="FrozenLake-v1"))
    monkeypatch.setattr(type(adapter), "describe", lambda self, event: "You \ud83d smile.")
    with pytest.raises(
        EnvError, match=r"FrozenLake-v1: a caption is not text, 'You \\ud83d smile\.': .* character 4\."
    ):
        Captioner(adapter, enumerate_events=True)


def test_captions_with_emoji_and_nul_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = adapter_for(EnvParams(id="FrozenLake-v1"))
    monkeypatch.setattr(type(adapter), "describe", lambda self, event: "You \U0001f600 smile.\0")
    assert Captioner(adapter, enumerate_events=True).texts == ["You \U0001f600 smile.\0"]


@pytest.mark.parametrize("method", ["encode", "describe"])
def test_an_adapter_that_fails_is_named(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = adapter_for(EnvParams(id="FrozenLake-v1"))

    def fails(self: EnvAdapter, _: object) -> None:
        raise KeyError("left")

    monkeypatch.setattr(type(adapter), method, fails)
    row, number = np.zeros((1, 1), dtype=np.int32), np.zeros(1)
    steps = Transitions(row, number.astype(np.int64), number.astype(np.float32), row, number > 0, number > 0)
    with pytest.raises(EnvError, match=rf"FrozenLake-v1: the adapter's {method} raised KeyError: 'left'\."):
        Captioner(adapter).ids(steps)

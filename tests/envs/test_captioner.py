"""Captions by number: what an environment adapter says must be text."""

from __future__ import annotations

import pytest

from laurel.envs import adapter_for
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


def test_whole_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = adapter_for(EnvParams(id="FrozenLake-v1"))
    monkeypatch.setattr(type(adapter), "describe", lambda self, event: "You \U0001f600 smile.\0")
    assert Captioner(adapter, enumerate_events=True).texts == ["You \U0001f600 smile.\0"]

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


def test_what_is_no_text_or_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = adapter_for(EnvParams(id="FrozenLake-v1"))
    row, no = np.zeros((2, 1), dtype=np.int32), np.zeros(2, dtype=bool)
    steps = Transitions(row, np.zeros(2, np.int64), np.zeros(2, np.float32), row, no, no)
    encoded: dict[str, object] = {
        r"an array of shape \(1,\) and type int64 for 2": np.zeros(1, np.int64),
        r"an array of shape \(2, 1\) and type int64 for 2": np.zeros((2, 1), np.int64),
        r"an array of shape \(2,\) and type float64 for 2": np.zeros(2),
        r"\[0, 1\] for 2": [0, 1],
    }
    for said, events in encoded.items():
        monkeypatch.setattr(type(adapter), "encode", lambda self, _, events=events: events)
        with pytest.raises(EnvError, match=f"FrozenLake-v1: the adapter's encode returned {said} transitions, but an"):
            Captioner(adapter).ids(steps)
    for caption in (["a"], 5):
        monkeypatch.setattr(type(adapter), "caption", lambda self, _, caption=caption: caption)
        monkeypatch.setattr(type(adapter), "encode", EnvAdapter.encode)
        with pytest.raises(EnvError, match=r"FrozenLake-v1: a caption is .*, which is not text"):
            Captioner(adapter).ids(steps)
    monkeypatch.setattr(type(adapter), "describe", lambda self, event: 5)
    with pytest.raises(EnvError, match="FrozenLake-v1: a caption is 5, which is not text"):
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

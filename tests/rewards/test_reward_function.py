"""What a text reward scores of the messages that TRL's trainers give, and with which encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laurel.data.preference_rows import PreferenceRows, Row
from laurel.errors import DataError
from laurel.llm.encoder import CharacterEncoder
from laurel.rewards.reward_function import reward_function
from laurel.rewards.text import TextReward, fit_rows


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the texts that the reward was asked about, in order."""
    seen: list[str] = []

    class Recorder:
        def score(self, texts: list[str]) -> Any:
            seen.extend(texts)
            return np.zeros(len(texts))

    monkeypatch.setattr(TextReward, "load", lambda _: Recorder())
    return seen


def test_parts_of_a_message_are_read_as_its_text(scored: list[str]) -> None:
    parts = [{"type": "text", "text": "You open "}, {"type": "text", "text": "the door."}]
    called = [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "assistant"}]
    answer = {"role": "assistant", "content": parts}
    reward_function(Path("reward"))(prompts=["", ""], completions=[[answer], [*called, answer]])
    assert scored == ["You open the door.", "You open the door."]


@pytest.mark.parametrize("content", [3, None, [{"content": [{"type": "image"}]}], [{"content": 3}], ["text"]])
def test_what_is_no_text_is_not_scored_as_its_python_form(scored: list[str], content: Any) -> None:
    with pytest.raises(DataError, match="is neither a text nor messages with texts"):
        reward_function(Path("reward"))(prompts=[""], completions=[content])
    assert not scored


def test_a_head_is_refused_on_another_encoder_than_it_was_fitted_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = CharacterEncoder()
    rows = PreferenceRows.of([Row("", f"You open door {i}.", f"You hit wall {i}.", 1.0) for i in range(6)], "rows")
    fit_rows(rows, "characters", seed=0, place=tmp_path, encode=encoder.encode)
    texts = ["You open a gate.", "You hit a tree."]
    opened, hit = reward_function(tmp_path)(prompts=["", ""], completions=texts)
    assert opened > hit
    monkeypatch.setattr(encoder, "encode", lambda texts: CharacterEncoder().encode([text[::-1] for text in texts]))
    monkeypatch.setattr("laurel.rewards.text.load_encoder", lambda name: encoder)
    with pytest.raises(DataError, match='different version of the sentence encoder "characters"'):
        reward_function(tmp_path)(prompts=["", ""], completions=texts)

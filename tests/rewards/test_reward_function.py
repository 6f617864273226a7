"""What a text reward scores of the messages that TRL's trainers give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laurel.errors import DataError
from laurel.rewards.reward_function import reward_function
from laurel.rewards.text import TextReward


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

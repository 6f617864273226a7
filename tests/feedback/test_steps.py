"""Segments read back: whatever was joined comes apart again."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laurel.envs import adapter_for
from laurel.envs.captioner import collapse
from laurel.feedback.annotators.scripted import StepReader
from laurel.params import EnvParams

CAPTIONS = ("You turn.", "You stop. You wait.", "You wait.", "Wall (x2)", "no full stop", "no", "é 🔑")


def flat(parts: tuple[tuple[str, int], ...]) -> list[str]:
    return [caption for caption, times in parts for _ in range(times)]


@given(st.lists(st.sampled_from(CAPTIONS), max_size=12))
@example(["You stop. You wait."])
@example(["You stop. You wait.", "You wait.", "You wait."])
@example(["Wall (x2)", "Wall (x2)", "no", "no full stop"])
def test_joined_steps_are_split_again(steps: list[str]) -> None:
    assert flat(StepReader(CAPTIONS).steps(collapse(steps))) == steps


@pytest.mark.parametrize("env_id", ["MiniGrid-DoorKey-5x5-v0", "Blackjack-v1", "MountainCar-v0", "Taxi-v3"])
@given(data=st.data())
def test_joined_captions_of_all_adapters_are_split_again(env_id: str, data: st.DataObject) -> None:
    adapter = adapter_for(EnvParams(id=env_id))
    captions = sorted({adapter.describe(event) for event in adapter.events()} - {""})
    steps = data.draw(st.lists(st.sampled_from(captions), min_size=1, max_size=10))
    assert flat(StepReader(captions).steps(collapse(steps))) == steps


def test_an_ambiguous_text_is_split_into_the_fewest_captions() -> None:
    assert StepReader(["a", "b", "a b"]).steps("a b a (x2)") == (("a b", 1), ("a", 2))
    assert StepReader(["a b", "a", "b c"]).steps("a b c") == (("a", 1), ("b c", 1)), "not the longest beginning"


@pytest.mark.parametrize("text", ["Who knows?", "You turn. Who knows?", "You turn. (x0)", "You turn. (xx)", "(x2)"])
def test_a_text_that_is_not_made_of_captions_is_one_step(text: str) -> None:
    assert StepReader(CAPTIONS).steps(text) == ((text, 1),)
    assert StepReader([]).steps(text) == ((text, 1),)


def test_an_empty_text_has_no_steps() -> None:
    assert StepReader(CAPTIONS).steps("") == ()


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert StepReader(CAPTIONS).steps(text)[:1] != (("", 1),)

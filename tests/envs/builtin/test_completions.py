"""Texts as observations and actions: packed and back, prompts kept from training, the reward by its formula."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurel.envs import adapter_for
from laurel.envs.base import Transitions
from laurel.envs.builtin.completions import PROMPTS, Completions, packed_text, text_of
from laurel.envs.vector import make_vector
from laurel.errors import EnvError
from laurel.feedback.annotators.embedding import EmbeddingAnnotator
from laurel.params import EnvParams
from laurel.params.judges import EmbeddingParams

TEXTS = "laurel/Completions-v0"
TWO: dict[str, Any] = {"prompts": ["The film was", "The very long film was"], "part": "all", "length": 32}


@given(st.text(st.characters(categories=("L", "N", "P")), max_size=40), st.integers(1, 64))
def test_a_text_is_restored_whole_or_cut_between_characters(text: str, size: int) -> None:
    row = packed_text(text, size)
    assert row.shape == (size,)
    assert text.startswith(text_of(row))
    if len(text.encode()) <= size:
        assert text_of(row.astype(np.float32)) == text


def test_bytes_that_are_not_text_are_left_out() -> None:
    assert text_of(np.array([255, 72, 27, 105, 0, 0], dtype=np.uint8)) == "Hi"  # 27 would reach the terminal


@pytest.mark.parametrize("space", ["\t", "\r\n", "\u00a0", "\u202f", "\u3000", "\u2028"])
def test_words_stay_apart_whatever_space_is_between_them(space: str) -> None:
    """The caption is the text that the environment pays for, also if a prompt has a character that is not shown."""
    env = EnvParams(id=TEXTS, kwargs={**TWO, "prompts": [f"The{space}fi\u00adlm was"]})
    adapter, envs = adapter_for(env), make_vector(env, adapter_for(env), 1, seed=3)
    before, said = envs.reset().copy(), packed_text(f"{space}a joy.", 32)[None].astype(np.float32)
    step = envs.step(said)
    rows = Transitions(before, said, step.reward, step.observation, step.terminated, step.truncated)
    caption = adapter.describe(int(adapter.encode(rows)[0]))
    assert caption == "The film was a joy."
    judge = EmbeddingAnnotator.load(EmbeddingParams(), adapter)
    np.testing.assert_allclose(step.reward, judge.utility([caption]), atol=1e-6)


def test_parts_have_no_prompt_in_common() -> None:
    parts = {part: set(Completions(part=part).prompts) for part in ("train", "fresh", "all")}
    assert parts["train"] | parts["fresh"] == parts["all"] == set(PROMPTS["films"])
    assert not parts["train"] & parts["fresh"]
    assert len(parts["fresh"]) >= 20
    sizes = {Completions(part=part).observation_space.shape for part in ("train", "fresh")}
    assert len(sizes) == 1, "agents of one part act in the other"


def test_the_reward_is_the_judges_utility_alone_and_in_a_batch() -> None:
    env = EnvParams(id=TEXTS, kwargs=TWO)
    adapter = adapter_for(env)
    said = [" a joy.", " a bore.", "", " a joy."]
    envs = make_vector(env, adapter, len(said), seed=3)
    shown = [text_of(row) for row in envs.reset()]
    step = envs.step(np.stack([packed_text(text, 32) for text in said]).astype(np.float32))
    assert step.terminated.all()
    judge = EmbeddingAnnotator.load(EmbeddingParams(), adapter)
    whole = [prompt + text for prompt, text in zip(shown, said, strict=True)]
    np.testing.assert_allclose(step.reward, judge.utility(whole), atol=1e-6)
    assert step.reward[0] > step.reward[1] or shown[0] != shown[1]
    assert not step.observation.any(), "nothing is left to be completed"
    again = envs.step(np.zeros((4, 32), dtype=np.float32))
    assert not again.valid.any()
    assert {text_of(row) for row in again.observation} <= set(TWO["prompts"])
    single = gym.make("laurel.envs.builtin:" + TEXTS, **TWO)
    prompt = text_of(single.reset(seed=0)[0])
    reward = single.step(packed_text(" a joy.", 32).astype(np.float32))[1]
    assert reward == pytest.approx(float(judge.utility([prompt + " a joy."])[0]), abs=1e-6)


def test_the_caption_is_the_text_in_a_line() -> None:
    adapter = adapter_for(EnvParams(id=TEXTS, kwargs=TWO))
    prompt, said = packed_text("The film was", adapter.observation_size)[None], packed_text(" a\njoy.", 32)[None]
    no = np.zeros(1, dtype=np.bool_)
    rows = Transitions(prompt, said.astype(np.float32), np.zeros(1, dtype=np.float32), prompt * 0, ~no, no)
    assert adapter.describe(int(adapter.encode(rows)[0])) == "The film was a joy."
    assert adapter.describe_observation(prompt[0]) == "The film was"


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"prompts": "film"}, "no list of prompts"),
        ({"prompts": []}, "none of them empty"),
        ({"prompts": ["  "]}, "none of them empty"),
        ({"prompts": ["\u200b\x07"]}, "none of them empty"),
        ({"part": "test"}, '"train", "fresh" and "all"'),
        ({"prompts": ["It was"], "part": "fresh"}, "none of 1 prompts"),
        ({"length": 0}, "from 1 to 4096"),
    ],
)
def test_refusals(kwargs: dict[str, Any], says: str) -> None:
    with pytest.raises(EnvError, match=says):
        Completions(**kwargs)

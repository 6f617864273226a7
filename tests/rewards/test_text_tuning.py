"""Scores of a tuned model, with a tokenizer and a model in its place; what is said of how one was trained."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from laurel.rewards.text_tuning import BATCH, Tuned
from laurel.stages import fit_text


class Padded(dict[str, Any]):
    def to(self, _: Any) -> Padded:
        return self


class Letters:
    """A token is a letter's place in the alphabet; 30 ends a text."""

    eos_token_id, sep_token_id = 30, None

    def __call__(self, texts: list[str], *, truncation: bool, max_length: int) -> dict[str, list[list[int]]]:
        assert truncation
        return {"input_ids": [[ord(letter) - 96 for letter in text][:max_length] for text in texts]}

    def pad(self, ids: dict[str, list[list[int]]], **_: Any) -> Padded:
        rows = [torch.tensor(row) for row in ids["input_ids"]]
        return Padded(input_ids=torch.nn.utils.rnn.pad_sequence(rows, batch_first=True))


class Sum:
    device = "cpu"

    def __call__(self, input_ids: torch.Tensor) -> Any:
        return SimpleNamespace(logits=input_ids.sum(dim=1, keepdim=True))


def test_each_text_has_its_own_score_in_whatever_batch_it_is() -> None:
    texts = ["c" * (1 + 7 * i % 40) for i in range(BATCH + 8)]
    found = Tuned(Sum(), Letters(), 50).score(texts)
    assert found.tolist() == [3 * len(text) + 30 for text in texts]


def test_a_long_text_is_cut_at_the_limit_and_ended() -> None:
    assert Tuned(Sum(), Letters(), 3).ids(["ab", "abcd"]) == [[1, 2, 30], [1, 2, 30]]


def test_ties_are_said_to_teach_only_a_head() -> None:
    quality: dict[str, Any] = {"pairs": 12, "ties": 2, "contradicted": 0, "heldout_agreement": None}
    counts = {"rows": 12, "unlabelled": 0, "identical": 0}
    assert "12 pairs, 2 of them ties" in fit_text.described(quality, counts, [], Path("out"))
    assert "12 pairs, 1 of them a tie" in fit_text.described({**quality, "ties": 1}, counts, [], Path("out"))
    tuned = fit_text.described({**quality, "trained_pairs": 7}, counts, [], Path("out"))
    assert re.search("2 ties, left out\nlearned from +7 pairs\n", tuned)

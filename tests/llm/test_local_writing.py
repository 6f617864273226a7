"""Answers that are written: the same as the slow obvious way, and draws that hang on their request alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from local_asking import OWN, SETS, prompt_tokens, replies, request, scores, written_slowly

from laurel.llm.chat import Failure
from laurel.llm.local_chat import LocalChat, load_local
from laurel.llm.local_prompts import PromptReader
from laurel.llm.local_writing import Draw
from laurel.params.judges import HuggingFaceParams


def test_greedy_answers_are_those_of_the_slow_obvious_way(fresh: Callable[..., LocalChat]) -> None:
    """Of different lengths, and finished at different times, so that rows leave the batch."""
    requests = [request(text, (), max_tokens=limit) for text, limit in zip(OWN, (12, 3, 12, 12, 1, 12), strict=True)]
    local = fresh()._local
    stop = written_slowly(local, requests[0])[4]  # so that some answers end
    chat = fresh(stops=local.stops | {stop})
    reasons = set()
    for asked, reply in zip(requests, replies(chat, requests), strict=True):
        tokens = written_slowly(chat._local, asked)
        stopped = tokens[-1] in chat._local.stops
        assert reply.text == local.tokenizer.decode(tokens[: len(tokens) - stopped], skip_special_tokens=True)
        assert reply.output_tokens == len(tokens)
        assert reply.finish_reason == ("stop" if stopped else "length")
        assert reply.input_tokens == len(prompt_tokens(local, asked))
        assert reply.logprobs is None
        reasons.add(reply.finish_reason)
    assert reasons == {"stop", "length"}


def test_a_draw_depends_only_on_its_request(fresh: Callable[..., LocalChat]) -> None:
    requests = [
        request(text, (), temperature=0.9, top_p=0.9, seed=seed, max_tokens=8) for text in OWN for seed in (0, 1, None)
    ]
    together = [reply.text for reply in replies(fresh(), requests)]
    assert [reply.text for reply in replies(fresh(), requests)] == together
    assert [reply.text for reply in replies(fresh(1), requests[::-1])][::-1] == together
    assert all(first != second for first, second in zip(together[::3], together[1::3], strict=True))


def test_one_seed_gives_each_prompt_its_own_draws(chat: LocalChat) -> None:
    reader, flat = PromptReader(chat._local), torch.zeros(1000)
    first, second = (reader.read(0, request(text, (), temperature=1.0, seed=1)) for text in OWN[:2])
    assert not isinstance(first, Failure)
    assert not isinstance(second, Failure)
    assert Draw(first).token(flat) != Draw(second).token(flat)


def test_draws_follow_the_probabilities_of_the_nucleus(chat: LocalChat) -> None:
    p = torch.tensor([0.1, 0.4, 0.0, 0.3, 0.2])
    logits = p.log()

    def shares(**sampling: Any) -> dict[int, float]:
        reader, n = PromptReader(chat._local), 2000
        prompt = reader.read(0, request("x", (), **sampling))
        assert not isinstance(prompt, Failure)
        draw = Draw(prompt)
        return {token: count / n for token, count in Counter(draw.token(logits) for _ in range(n)).items()}

    assert shares(temperature=1.0) == pytest.approx({0: 0.1, 1: 0.4, 3: 0.3, 4: 0.2}, abs=0.04)
    assert shares(temperature=1.0, top_p=0.65) == pytest.approx({1: 4 / 7, 3: 3 / 7}, abs=0.04)
    assert shares(temperature=0.5) == pytest.approx({0: 1 / 30, 1: 16 / 30, 3: 9 / 30, 4: 4 / 30}, abs=0.04)
    assert shares(temperature=1.0, top_p=1e-9) == {1: 1.0}
    assert shares(temperature=0.0) == {1: 1.0}
    assert shares(temperature=1e-6) == {1: 1.0}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here")
def test_a_gpu_gives_the_same(tiny_llama: Path, chat: LocalChat) -> None:
    there = load_local(HuggingFaceParams(model=str(tiny_llama), device="cuda"))
    for score, wanted in zip(scores(there, SETS["mixed"]), scores(chat, SETS["mixed"]), strict=True):
        assert score == pytest.approx(wanted, abs=1e-3)
    asked = [request(text, (), max_tokens=6) for text in OWN]
    assert [reply.text for reply in replies(there, asked)] == [reply.text for reply in replies(chat, asked)]

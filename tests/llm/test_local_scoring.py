"""Answers that are scored: the same as the slow obvious way, whatever the batch, the order and the kind of model."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from local_asking import (
    DIGITS,
    OWN,
    SETS,
    SHARED,
    WORDS,
    answers,
    next_logprobs,
    prompt_tokens,
    replies,
    request,
    scored_slowly,
    scores,
    shapes_seen,
    written_slowly,
)
from tiny_llama import TEMPLATE, make_tokenizer

from laurel.llm.chat import Failure, Reply, Sampling
from laurel.llm.local_chat import CPU_TOKENS, LocalChat, load_local
from laurel.llm.local_model import load_model
from laurel.llm.local_prompts import PromptReader
from laurel.llm.local_scoring import Row
from laurel.params.judges import HuggingFaceParams


@pytest.mark.parametrize("name", SETS)
def test_scores_are_those_of_the_slow_obvious_way(chat: LocalChat, name: str) -> None:
    found = scores(chat, SETS[name])
    for asked, logprobs in zip(SETS[name], found, strict=True):
        assert logprobs == pytest.approx(scored_slowly(chat._local, asked), abs=1e-4)
        assert sum(math.exp(value) for value in logprobs.values()) == pytest.approx(1)


@pytest.mark.parametrize("resumes", [True, False])
def test_means_over_tokens(fresh: Callable[..., LocalChat], resumes: bool) -> None:
    """Of a text that is longer, the sum is lower; what the prompt has of its own is computed once for all texts."""
    chat = fresh(resumes=resumes)
    words = ("the first", "the second of the two", "turn")
    asked = [replace(request(text, words), per_token=True) for text in OWN]
    for question, logprobs in zip(asked, scores(chat, asked), strict=True):
        prompt = PromptReader(chat._local).read(0, question)
        assert not isinstance(prompt, Failure)
        means = []
        for word in words:
            tokens, total = list(prompt.tokens), 0.0
            for token in prompt.answers[word]:
                total += float(next_logprobs(chat._local, tokens)[token])
                tokens.append(token)
            means.append(total / len(prompt.answers[word]))
        expected = torch.tensor(means).log_softmax(0).tolist()
        assert list(logprobs.values()) == pytest.approx(expected, abs=1e-4)


def test_the_model_distinguishes_prompts(chat: LocalChat) -> None:
    """Else equal scores would mean nothing."""
    first = [scores["1"] for scores in scores(chat, SHARED)]
    assert min(abs(a - b) for a, b in itertools.combinations(first, 2)) > 1e-3


@pytest.mark.parametrize("kind", ["sliding", "gpt2", "hybrid"])
def test_scores_of_models_of_another_kind(kind: str, tmp_path: Path) -> None:
    """One that sees the last tokens alone, one with a vector for each position, one with a state in some layers."""
    from transformers import AutoModelForCausalLM, GPT2Config, MistralConfig, Qwen3NextConfig

    tokenizer = make_tokenizer()
    ends = {"vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 1, "initializer_range": 0.3}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    linear = {"linear_num_value_heads": 4, "linear_num_key_heads": 2}
    linear |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
    types = ["linear_attention", "full_attention"]
    config: Any = {
        "sliding": MistralConfig(**ends, **sizes, sliding_window=8),
        "gpt2": GPT2Config(**ends, n_embd=32, n_layer=2, n_head=4, n_positions=256),
        "hybrid": Qwen3NextConfig(**ends, **sizes, **linear, layer_types=types, mlp_only_layers=[0, 1]),
    }[kind]
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    chat = load_local(HuggingFaceParams(model=str(tmp_path), device="cpu"))
    requests = SETS["mixed"]
    for asked, logprobs in zip(requests, scores(chat, requests), strict=True):
        assert logprobs == pytest.approx(scored_slowly(chat._local, asked), abs=1e-4)
    asked = [request(text, (), max_tokens=6) for text in OWN]
    for question, reply in zip(asked, replies(chat, asked), strict=True):
        expected = chat._local.tokenizer.decode(written_slowly(chat._local, question), skip_special_tokens=True)
        assert reply.text == expected


@pytest.mark.parametrize("batch_tokens", [1, 60, 200, 100_000])
def test_scores_depend_on_neither_batch_nor_order(fresh: Callable[..., LocalChat], batch_tokens: int) -> None:
    requests = SETS["mixed"]
    together = scores(fresh(), requests)
    others = scores(fresh(batch_tokens), requests[::-1])[::-1]
    for score, wanted in zip(together, others, strict=True):
        assert score == pytest.approx(wanted, abs=1e-4)


def test_a_model_that_computes_all_logits(fresh: Callable[..., LocalChat]) -> None:
    requests = [*SETS["mixed"], *(request(text, (), max_tokens=3) for text in OWN)]
    for reply, wanted in zip(replies(fresh(picks_logits=False), requests), replies(fresh(), requests), strict=True):
        assert reply.text == wanted.text
        assert (reply.logprobs or {}) == pytest.approx(wanted.logprobs or {}, abs=1e-4)


def test_shared_prefixes_are_computed_once_without_generation(chat: LocalChat, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = shapes_seen(chat, monkeypatch)
    local = LocalChat(replace(chat._local, trees=False), 60)
    found = replies(local, SHARED)
    tokens = [prompt_tokens(chat._local, asked) for asked in SHARED]
    common = next(i for i, column in enumerate(zip(*tokens, strict=False)) if len(set(column)) > 1)
    assert shapes[0] == (1, common)
    assert len(shapes) > 2
    assert sum(rows for rows, _ in shapes[1:]) == len(SHARED)
    assert max(width for _, width in shapes[1:]) == max(map(len, tokens)) - common
    assert all(rows == 1 or rows * width <= 60 for rows, width in shapes[1:])
    assert {(reply.text, reply.output_tokens, reply.finish_reason) for reply in found} == {("", 0, "stop")}
    assert [reply.input_tokens for reply in found] == [len(row) for row in tokens]
    assert all(reply.seconds > 0 for reply in found)


@pytest.mark.parametrize("choices", [DIGITS, WORDS])
def test_what_some_prompts_begin_with_is_computed_once_for_a_batch(
    chat: LocalChat, choices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the first of two texts, and what comes before answers of several tokens: each token stands in its row
    once, and sees what it follows.
    """
    firsts = [f"{text} Text 2: " for text in OWN if len(text) > 20]
    asked = [request(first + second, choices) for first in firsts for second in OWN]
    plain = scores(LocalChat(replace(chat._local, trees=False), 8192), asked)
    shapes = shapes_seen(chat, monkeypatch)
    for score, wanted in zip(scores(chat, asked), plain, strict=True):
        assert score == pytest.approx(wanted, abs=1e-4)
    tokens = [prompt_tokens(chat._local, question) for question in asked]
    rows = len(asked) * (1 if choices == DIGITS else len(choices))
    assert sum(rows * width for rows, width in shapes) < 0.4 * rows * sum(map(len, tokens)) / len(tokens)
    assert all(rows == 1 or rows * width <= CPU_TOKENS for rows, width in shapes)


PATHS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1, max_size=9)


@given(PATHS)
def test_a_row_has_each_token_once_and_leads_back_to_each_path(paths: list[list[int]]) -> None:
    row, ends = Row(), []
    for path in sorted(paths):
        row = row.with_path(path)
        ends.append(row.line[-1])
    assert len(row.tokens) == len({tuple(path[:n]) for path in paths for n in range(1, len(path) + 1)})
    for path, end in zip(sorted(paths), ends, strict=True):
        back, place = [], end
        while place >= 0:
            back.append(row.tokens[place])
            place = row.parents[place]
        assert back[::-1] == path
        assert row.depths()[end] == len(path) - 1


def test_the_likeliest_choice_is_the_token_that_would_be_written(chat: LocalChat) -> None:
    likeliest = set()
    for asked, logprobs in zip(SHARED, scores(chat, SHARED), strict=True):
        best = max(logprobs, key=lambda choice: logprobs[choice])
        likeliest.add(best)
        tokens = {chat._local.tokenizer(choice)["input_ids"][0] for choice in DIGITS}

        others = [i for i in range(len(chat._local.tokenizer)) if i not in tokens]

        def only_choices(module: Any, args: Any, output: Any, others: list[int] = others) -> Any:
            output.logits[..., others] = -math.inf
            return output

        hook = chat._local.model.register_forward_hook(only_choices)
        (reply,) = replies(chat, [replace(asked, choices=(), sampling=Sampling(max_tokens=1))])
        hook.remove()
        assert reply.text == best
    assert likeliest == set(DIGITS)


@pytest.mark.parametrize(
    ("choices", "said"),
    [(("1", "1 2"), '"1" are a prefix of those of the answer "1 2"'), (("", "2"), '"" are a prefix')],
)
def test_indistinguishable_choices_fail(chat: LocalChat, choices: tuple[str, ...], said: str) -> None:
    (failure, fine) = answers(chat, [request("x", choices), SHARED[0]])
    assert isinstance(failure, Failure)
    assert said in failure.reason
    assert isinstance(fine, Reply)


def test_choices_have_the_tokens_that_they_have_after_the_prompt(copied: Path) -> None:
    """A tokenizer may write a blank or a special token before a text, but not after a line's end."""
    file = copied / "tokenizer.json"
    content = json.loads(file.read_text())
    content["pre_tokenizer"]["add_prefix_space"] = True
    begin = {"SpecialToken": {"id": "<|begin|>", "type_id": 0}}
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [0], "tokens": ["<|begin|>"]}},
    }
    file.write_text(json.dumps(content))
    other = load_local(HuggingFaceParams(model=str(copied), device="cpu"))
    tokenizer = other._local.tokenizer
    tokenizer.chat_template = TEMPLATE + "{{ '\\n' }}"
    assert tokenizer.convert_ids_to_tokens(tokenizer("1")["input_ids"]) == ["<|begin|>", "Ġ1"]
    prompt = PromptReader(other._local).read(0, request("x"))
    assert not isinstance(prompt, Failure)
    assert prompt.tokens.count(0) == 1
    assert prompt.answers == {digit: [tokenizer.convert_tokens_to_ids(digit)] for digit in DIGITS}


def test_choices_that_would_merge_with_the_prompt_are_encoded_separately(chat: LocalChat) -> None:
    tokenizer = chat._local.tokenizer
    (k,) = tokenizer("k")["input_ids"]
    assert len(tokenizer("key")["input_ids"]) == 1
    assert PromptReader(chat._local)._tokens_of_answers(k, ("ey",)) == {"ey": tokenizer("ey")["input_ids"]}


def test_half_precision_distinguishes_choices(tiny_llama: Path) -> None:
    """Logits in bfloat16 would have steps of 1/8, and pairs be ties that are none."""
    local = load_model(HuggingFaceParams(model=str(tiny_llama), device="cpu", dtype="bfloat16"))
    logits = local.logits(torch.tensor([[1, 2, 3]]), torch.tensor([[2]]))
    assert local.model.dtype == torch.bfloat16
    assert (logits != logits.bfloat16()).float().mean() > 0.9

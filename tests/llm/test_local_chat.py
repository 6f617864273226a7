from __future__ import annotations

import itertools
import json
import logging
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_llama import TEMPLATE, make_tiny_llama, make_tokenizer

from laurel.errors import LaurelError, ParamsError
from laurel.llm import local_chat, local_model
from laurel.llm.chat import ChatRequest, Failure, Message, RefusedError, Reply, Sampling
from laurel.llm.local_chat import LocalChat, load_local
from laurel.llm.local_model import LocalModel, weights_revision
from laurel.llm.local_prompts import PromptReader
from laurel.llm.local_writing import Draw
from laurel.params.judges import HuggingFaceParams

torch.set_num_threads(1)
SYSTEM = "Which of the two is better for someone who wants to reach the goal?"
OWN = [
    "You open the door.",
    "You bump into a wall, and turn around.",
    "",
    "You open the door. " * 5,
    "日本語 🎉 naïve",
    "You turn. You bump into a wall with the key.",
]
DIGITS = ("1", "2")
WORDS = ("the first", "the second", "the same")  # more than a token each, with a common beginning


def request(own: str, choices: Sequence[str] = DIGITS, system: str | None = SYSTEM, **sampling: Any) -> ChatRequest:
    messages = ((Message("system", system),) if system is not None else ()) + (Message("user", own),)
    return ChatRequest(messages, Sampling(**sampling), tuple(choices))


SHARED = [request(own) for own in OWN]
UNSHARED = [request(own, system=None) for own in OWN] + [
    replace(request(own), messages=(Message("user", "a"), Message("assistant", own), Message("user", "b")))
    for own in OWN
]
SETS = {
    "shared": SHARED,
    "unshared": UNSHARED,
    "words": [request(own, WORDS) for own in OWN],
    "mixed": [*SHARED, *(request(own, WORDS) for own in OWN), *UNSHARED, request("third", ["1", "2", "the same"])],
    "one": SHARED[:1],
    "identical": SHARED[:1] * 3,
}


@pytest.fixture(scope="module")
def chat(tiny_llama: Path) -> LocalChat:
    return load_local(HuggingFaceParams(model=str(tiny_llama), device="cpu"))


@pytest.fixture
def fresh(chat: LocalChat) -> Callable[..., LocalChat]:
    """The same model with other settings."""

    def make(batch_tokens: int = 8192, **changes: Any) -> LocalChat:
        return LocalChat(replace(chat._local, **changes), batch_tokens)

    return make


def answers(chat: LocalChat, requests: Sequence[ChatRequest]) -> list[Reply | Failure]:
    found = dict(chat.ask(requests))
    assert sorted(found) == list(range(len(requests)))
    return [found[i] for i in range(len(requests))]


def replies(chat: LocalChat, requests: Sequence[ChatRequest]) -> list[Reply]:
    found = answers(chat, requests)
    assert not [answer for answer in found if isinstance(answer, Failure)]
    return found  # type: ignore[return-value]


def scores(chat: LocalChat, requests: Sequence[ChatRequest]) -> list[dict[str, float]]:
    return [reply.logprobs or {} for reply in replies(chat, requests)]


# -- the slow obvious way ---------------------------------------------------------------------------------------
def prompt_tokens(local: LocalModel, asked: ChatRequest) -> list[int]:
    messages = [{"role": message.role, "content": message.content} for message in asked.messages]
    return local.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)


def next_logprobs(local: LocalModel, tokens: list[int]) -> torch.Tensor:
    """Without cache, batch, padding or mask."""
    with torch.no_grad():
        return local.model(torch.tensor([tokens]), use_cache=False).logits[0, -1].double().log_softmax(-1)


def scored_slowly(local: LocalModel, asked: ChatRequest) -> dict[str, float]:
    tokens = prompt_tokens(local, asked)
    of_choices = {choice: local.tokenizer(choice)["input_ids"] for choice in asked.choices}
    if len({of_choice[0] for of_choice in of_choices.values()}) == len(of_choices):
        of_choices = {choice: of_choice[:1] for choice, of_choice in of_choices.items()}
    total = {
        choice: sum(next_logprobs(local, tokens + of_choice[:i])[token].item() for i, token in enumerate(of_choice))
        for choice, of_choice in of_choices.items()
    }
    norm = math.log(sum(math.exp(value) for value in total.values()))
    return {choice: value - norm for choice, value in total.items()}


def written_slowly(local: LocalModel, asked: ChatRequest) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < asked.sampling.max_tokens and not (tokens and tokens[-1] in local.stops):
        tokens.append(int(next_logprobs(local, prompt_tokens(local, asked) + tokens).argmax()))
    return tokens


# -- scores -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SETS)
def test_scores_are_those_of_the_slow_obvious_way(chat: LocalChat, name: str) -> None:
    found = scores(chat, SETS[name])
    for asked, logprobs in zip(SETS[name], found, strict=True):
        assert logprobs == pytest.approx(scored_slowly(chat._local, asked), abs=1e-4)
        assert sum(math.exp(value) for value in logprobs.values()) == pytest.approx(1)


def test_the_model_tells_prompts_apart(chat: LocalChat) -> None:
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
    asked = [request(own, (), max_tokens=6) for own in OWN]
    for one, reply in zip(asked, replies(chat, asked), strict=True):
        expected = chat._local.tokenizer.decode(written_slowly(chat._local, one), skip_special_tokens=True)
        assert reply.text == expected


@pytest.mark.parametrize("batch_tokens", [1, 60, 200, 100_000])
def test_scores_depend_on_neither_batch_nor_order(fresh: Callable[..., LocalChat], batch_tokens: int) -> None:
    requests = SETS["mixed"]
    together = scores(fresh(), requests)
    others = scores(fresh(batch_tokens), requests[::-1])[::-1]
    for one, other in zip(together, others, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_a_model_that_computes_all_logits(fresh: Callable[..., LocalChat]) -> None:
    requests = [*SETS["mixed"], *(request(own, (), max_tokens=3) for own in OWN)]
    for one, other in zip(replies(fresh(picks_logits=False), requests), replies(fresh(), requests), strict=True):
        assert one.text == other.text
        assert (one.logprobs or {}) == pytest.approx(other.logprobs or {}, abs=1e-4)


def test_what_is_shared_is_computed_once_and_nothing_is_written(
    chat: LocalChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = shapes_seen(chat, monkeypatch)
    local = LocalChat(chat._local, 60)
    found = replies(local, SHARED)
    tokens = [prompt_tokens(chat._local, asked) for asked in SHARED]
    common = next(i for i, column in enumerate(zip(*tokens, strict=False)) if len(set(column)) > 1)
    assert shapes[0] == (1, common)
    assert len(shapes) > 2
    assert sum(rows for rows, _ in shapes[1:]) == len(SHARED)
    assert max(width for _, width in shapes[1:]) == max(map(len, tokens)) - common
    assert all(rows == 1 or rows * width <= 60 for rows, width in shapes[1:])
    assert {(reply.text, reply.output_tokens, reply.finish_reason) for reply in found} == {("", 0, "stop")}
    assert [reply.input_tokens for reply in found] == [len(own) for own in tokens]
    assert all(reply.seconds > 0 for reply in found)


def shapes_seen(chat: LocalChat, monkeypatch: pytest.MonkeyPatch, most: int | None = None) -> list[tuple[int, int]]:
    """Note what the model is run on, or should have been; more than `most` rows are too much for its memory."""
    shapes: list[tuple[int, int]] = []
    forward = chat._local.model.forward

    def noting(input_ids: torch.Tensor, **kwargs: Any) -> Any:
        shapes.append((input_ids.shape[0], input_ids.shape[1]))
        if most is not None and len(input_ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(input_ids=input_ids, **kwargs)

    monkeypatch.setattr(chat._local.model, "forward", noting)
    return shapes


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


@pytest.mark.parametrize(("choices", "said"), [(("1", "1 2"), '"1" and "1 2"'), (("", "2"), '"" and "2"')])
def test_choices_that_cannot_be_told_apart(chat: LocalChat, choices: tuple[str, ...], said: str) -> None:
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


def test_choices_that_would_join_the_prompt_stand_alone(chat: LocalChat) -> None:
    tokenizer = chat._local.tokenizer
    (k,) = tokenizer("k")["input_ids"]
    assert len(tokenizer("key")["input_ids"]) == 1
    assert PromptReader(chat._local)._tokens_of_answers(k, ("ey",)) == {"ey": tokenizer("ey")["input_ids"]}


# -- requests come, answers go ----------------------------------------------------------------------------------
@pytest.mark.parametrize("choices", [DIGITS, ()])
def test_requests_are_drawn_as_they_are_answered(
    fresh: Callable[..., LocalChat], monkeypatch: pytest.MonkeyPatch, choices: tuple[str, ...]
) -> None:
    monkeypatch.setattr(local_chat, "WINDOW", 4)
    drawn = 0

    def endless() -> Iterator[ChatRequest]:
        nonlocal drawn
        while True:
            drawn += 1
            yield request(f"number {drawn}", choices, max_tokens=2)

    chat = fresh(1)  # batches of one
    shapes = shapes_seen(chat, monkeypatch)
    stream = chat.ask(endless())
    assert drawn == 0
    first = [next(stream)[0]]
    ran = len(shapes)
    first += [next(stream)[0] for _ in range(3)]
    assert drawn == 4
    assert sorted(first) == [0, 1, 2, 3]
    assert len(shapes) > ran  # the first answer came before the others were computed
    assert next(stream)[0] in range(4, 8)
    assert drawn == 8
    assert list(chat.ask([])) == []


@pytest.mark.parametrize("choices", [DIGITS, ()])
def test_a_prompt_that_is_too_long(chat: LocalChat, choices: tuple[str, ...]) -> None:
    long = request("door " * 300, choices, max_tokens=2)
    found = answers(chat, [request("x", choices, max_tokens=2), long, request("y", choices, max_tokens=2)])
    assert [type(answer) for answer in found] == [Reply, Failure, Reply]
    n = len(prompt_tokens(chat._local, long))
    limit = 256 if choices else 255
    assert found[1] == Failure(f"the prompt has {n} tokens, but the model takes {limit}")


def test_a_prompt_that_is_no_text(chat: LocalChat) -> None:
    failure, fine = answers(chat, [request("half a \ud83d character"), SHARED[0]])
    assert isinstance(failure, Failure)
    assert failure.reason.startswith("the prompt is no text: surrogates not allowed at character ")
    assert isinstance(fine, Reply)


def test_a_prompt_that_just_fits(fresh: Callable[..., LocalChat]) -> None:
    n = len(prompt_tokens(fresh()._local, SHARED[0]))
    assert isinstance(answers(fresh(context=n), SHARED[:1])[0], Reply)
    assert isinstance(answers(fresh(context=n - 1), SHARED[:1])[0], Failure)
    writing = replace(SHARED[0], choices=())
    assert isinstance(answers(fresh(context=n), [writing])[0], Failure)
    (reply,) = replies(fresh(context=n + 3), [writing])
    assert (reply.output_tokens, reply.finish_reason) == (3, "length")


def test_a_template_that_takes_no_system_message(fresh: Callable[..., LocalChat]) -> None:
    chat = fresh()
    before = chat._local.tokenizer.chat_template
    chat._local.tokenizer.chat_template = "{{ raise_exception('System role not supported.') }}"
    try:
        with pytest.raises(RefusedError) as caught:
            list(chat.ask(SHARED))
    finally:
        chat._local.tokenizer.chat_template = before
    assert str(caught.value) == (
        f'The chat template of "{chat.identity.model}" does not take this conversation: System role not supported. '
        "Change the prompt, or take another model."
    )


def test_a_model_that_thinks_first_is_told_not_to_where_its_answer_is_scored(fresh: Callable[..., LocalChat]) -> None:
    chat = fresh()
    before = chat._local.tokenizer.chat_template
    thinking = "{% if enable_thinking is not defined or enable_thinking %}let me think{% endif %}"
    chat._local.tokenizer.chat_template = TEMPLATE + thinking
    try:
        scored, written = (PromptReader(chat._local).read(0, request("x", choices)) for choices in (DIGITS, ()))
    finally:
        chat._local.tokenizer.chat_template = before
    assert not isinstance(scored, Failure)
    assert not isinstance(written, Failure)
    assert written.text == scored.text + "let me think"


# -- memory -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("choices", [DIGITS, WORDS, ()])
def test_smaller_batches_where_memory_runs_out(
    fresh: Callable[..., LocalChat],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    choices: tuple[str, ...],
) -> None:
    requests = [request(own, choices, max_tokens=3) for own in OWN * 2]
    expected = replies(fresh(), requests)
    chat = fresh()
    shapes = shapes_seen(chat, monkeypatch, most=3)
    with caplog.at_level(logging.WARNING):
        found = replies(chat, requests)
    for one, other in zip(found, expected, strict=True):
        assert one.text == other.text
        assert (one.logprobs or {}) == pytest.approx(other.logprobs or {}, abs=1e-4)
    assert 1 <= sum(rows > 3 for rows, _ in shapes) <= 8
    assert len(caplog.records) == 1
    assert "does not fit into the memory of the GPU" in caplog.text


def test_a_prompt_too_large_for_memory_alone(fresh: Callable[..., LocalChat], monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices with a common beginning take a row each."""
    chat = fresh()
    shapes_seen(chat, monkeypatch, most=2)
    found = answers(chat, [SHARED[0], request("x", WORDS), SHARED[1]])
    assert [type(answer) for answer in found] == [Reply, Failure, Reply]
    assert found[1] == Failure("the memory of the GPU is too small for this prompt alone")


def test_no_memory_for_what_prompts_begin_with(
    fresh: Callable[..., LocalChat], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = fresh()
    shapes_seen(chat, monkeypatch, most=0)
    with pytest.raises(RefusedError, match="The memory of the GPU is too small for the prompts"):
        list(chat.ask(SHARED))


# -- answers in words -------------------------------------------------------------------------------------------
def test_greedy_answers_are_those_of_the_slow_obvious_way(fresh: Callable[..., LocalChat]) -> None:
    """Of different lengths, and ended at different times, so that rows leave the batch."""
    requests = [request(own, (), max_tokens=limit) for own, limit in zip(OWN, (12, 3, 12, 12, 1, 12), strict=True)]
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


def test_a_draw_depends_on_its_request_alone(fresh: Callable[..., LocalChat]) -> None:
    requests = [
        request(own, (), temperature=0.9, top_p=0.9, seed=seed, max_tokens=8) for own in OWN for seed in (0, 1, None)
    ]
    together = [reply.text for reply in replies(fresh(), requests)]
    assert [reply.text for reply in replies(fresh(), requests)] == together
    assert [reply.text for reply in replies(fresh(1), requests[::-1])][::-1] == together
    assert all(first != second for first, second in zip(together[::3], together[1::3], strict=True))


def test_one_seed_gives_each_prompt_draws_of_its_own(chat: LocalChat) -> None:
    reader, flat = PromptReader(chat._local), torch.zeros(1000)
    first, second = (reader.read(0, request(own, (), temperature=1.0, seed=1)) for own in OWN[:2])
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
    for one, other in zip(scores(there, SETS["mixed"]), scores(chat, SETS["mixed"]), strict=True):
        assert one == pytest.approx(other, abs=1e-3)
    asked = [request(own, (), max_tokens=6) for own in OWN]
    assert [reply.text for reply in replies(there, asked)] == [reply.text for reply in replies(chat, asked)]


# -- loading ----------------------------------------------------------------------------------------------------
@pytest.fixture
def copied(tiny_llama: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_llama, tmp_path / "llama"))


def refusal(kind: type[LaurelError] = RefusedError, **params: Any) -> str:
    with pytest.raises(kind) as caught:
        load_local(HuggingFaceParams(**{"device": "cpu", **params}))
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return sentence


def test_a_directory_that_is_not_there() -> None:
    assert refusal(model="/no/such/model") == (
        'Language model "/no/such/model" cannot be loaded: there is no such directory. Give a directory with a causal '
        "language model that has a chat template, or a name on the Hugging Face hub."
    )


def test_a_name_that_the_hub_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # nobody is to be asked
    assert 'Language model "nobody/has-this-model" cannot be loaded: ' in refusal(model="nobody/has-this-model")


def test_a_tokenizer_that_is_not_there(copied: Path) -> None:
    for file in copied.glob("tokenizer*"):
        file.unlink()
    assert "cannot be loaded: " in refusal(model=str(copied))


def test_a_model_without_chat_template(copied: Path) -> None:
    (copied / "chat_template.jinja").unlink()
    assert "its tokenizer has no chat template, so it cannot hold a conversation" in refusal(model=str(copied))


@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM"])
def test_a_model_that_writes_nothing(kind: str, tmp_path: Path) -> None:
    import transformers

    config = transformers.BertConfig(
        vocab_size=400, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    getattr(transformers, kind)(config).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    assert f"it is not a causal language model, but {kind}." in refusal(model=str(tmp_path))


def test_a_model_that_cannot_go_on_from_keys_and_values(tmp_path: Path) -> None:
    from transformers import MambaConfig, MambaForCausalLM

    MambaForCausalLM(MambaConfig(vocab_size=400, hidden_size=16, num_hidden_layers=1)).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    assert "MambaForCausalLM has no cache of keys and values." in refusal(model=str(tmp_path))


def test_weights_that_are_not_there(copied: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(copied / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, copied / "model.safetensors", {"format": "pt"})
    assert "its weights lack model.norm.weight." in refusal(model=str(copied))


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 100])
def test_damaged_files(copied: Path, file: str, content: bytes) -> None:
    (copied / file).write_bytes(content)
    assert "cannot be loaded: " in refusal(model=str(copied))


def test_quantization_on_the_cpu(tiny_llama: Path) -> None:
    assert refusal(ParamsError, model=str(tiny_llama), quantization="4bit") == (
        'annotate.huggingface.quantization is "4bit", which needs a GPU, but the model is to run on the CPU. '
        "Set it to none, or run where PyTorch finds a GPU."
    )


def test_packages_that_are_not_there(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "find_spec", lambda name: None)
    assert refusal(model=str(tiny_llama), adapter="some/adapter") == (
        'annotate.huggingface.adapter is "some/adapter", which needs peft: run pip install peft, or leave it out.'
    )
    monkeypatch.setattr(local_model, "torch_device", lambda name, key: torch.device("cuda"))
    assert refusal(model=str(tiny_llama), quantization="8bit") == (
        'annotate.huggingface.quantization is "8bit", which needs bitsandbytes and accelerate: '
        "run pip install bitsandbytes accelerate, or leave it out."
    )


def test_a_model_too_large_for_memory(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import LlamaForCausalLM

    def refuse(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(LlamaForCausalLM, "to", refuse)
    assert "does not fit into the memory of the GPU: set annotate.huggingface.quantization" in refusal(
        model=str(tiny_llama)
    )


def test_dtype(tiny_llama: Path, chat: LocalChat) -> None:
    assert chat._local.model.dtype == torch.float32
    half = load_local(HuggingFaceParams(model=str(tiny_llama), device="cpu", dtype="bfloat16"))
    assert half._local.model.dtype == torch.bfloat16
    assert half.identity.revision == f"{chat.identity.revision} bfloat16"
    for one, other in zip(scores(half, SHARED), scores(chat, SHARED), strict=True):
        assert one == pytest.approx(other, abs=0.2)


@pytest.mark.parametrize("choices", [DIGITS, ()])
def test_logits_that_are_no_numbers(copied: Path, choices: tuple[str, ...]) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(copied / "model.safetensors")
    weights["model.norm.weight"][0] = math.nan
    save_file(weights, copied / "model.safetensors", {"format": "pt"})
    chat = load_local(HuggingFaceParams(model=str(copied), device="cpu"))
    with pytest.raises(
        RefusedError, match=r"computes in torch.float32 is not a number: set annotate.huggingface.dtype"
    ):
        list(chat.ask([request("x", choices), request("y", choices)]))


# -- who answers ------------------------------------------------------------------------------------------------
def test_the_revision_is_a_digest_of_the_weights(chat: LocalChat, copied: Path, tmp_path: Path) -> None:
    assert chat.identity.endpoint == ""
    assert Path(chat.identity.model).name == "llama"
    assert chat.identity.revision == weights_revision(copied)
    assert weights_revision(make_tiny_llama(tmp_path / "other", seed=1)) != weights_revision(copied)
    (copied / "chat_template.jinja").write_text("another")
    assert weights_revision(copied) != chat.identity.revision


def test_the_digest_of_large_files_sees_any_tensor_change(tmp_path: Path) -> None:
    import numpy as np

    size = 5 * local_model.WHOLE + 3
    content = np.zeros(size, dtype=np.uint8)
    seen = set()
    for part in range(20):
        changed = content.copy()
        changed[part * size // 20 : (part + 1) * size // 20] = 1
        (tmp_path / "model.safetensors").write_bytes(changed.tobytes())
        seen.add(weights_revision(tmp_path))
    last = content.copy()
    last[-1] = 1
    (tmp_path / "model.safetensors").write_bytes(last.tobytes())
    seen.add(weights_revision(tmp_path))
    assert len(seen) == 21


def test_the_revision_is_the_commit_in_the_cache_of_the_hub(tiny_llama: Path, tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = tmp_path / "models--some--model" / "snapshots" / commit
    shutil.copytree(tiny_llama, folder)
    assert load_local(HuggingFaceParams(model=str(folder), device="cpu")).identity.revision == commit


def test_stops_are_those_of_model_and_tokenizer(copied: Path) -> None:
    file = copied / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": [1, 7]}))
    assert load_local(HuggingFaceParams(model=str(copied), device="cpu"))._local.stops == {1, 7}

"""What tests of a language model in this process ask it, and the slow obvious way to its answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from laurel.llm.chat import ChatRequest, Failure, Message, Reply, Sampling
from laurel.llm.local_chat import LocalChat
from laurel.llm.local_model import LocalModel

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


def request(text: str, choices: Sequence[str] = DIGITS, system: str | None = SYSTEM, **sampling: Any) -> ChatRequest:
    messages = ((Message("system", system),) if system is not None else ()) + (Message("user", text),)
    return ChatRequest(messages, Sampling(**sampling), tuple(choices))


SHARED = [request(text) for text in OWN]
UNSHARED = [request(text, system=None) for text in OWN] + [
    replace(request(text), messages=(Message("user", "a"), Message("assistant", text), Message("user", "b")))
    for text in OWN
]
SETS = {
    "shared": SHARED,
    "unshared": UNSHARED,
    "words": [request(text, WORDS) for text in OWN],
    "begin differently": [request(text, ("turn left", "go on", "stop")) for text in OWN],
    "mixed": [*SHARED, *(request(text, WORDS) for text in OWN), *UNSHARED, request("third", ["1", "2", "the same"])],
    "one": SHARED[:1],
    "identical": SHARED[:1] * 3,
}


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


# -- what the model is run on -----------------------------------------------------------------------------------
def shapes_seen(
    chat: LocalChat, monkeypatch: pytest.MonkeyPatch, most: int | None = None, widest: int | None = None
) -> list[tuple[int, int]]:
    """Note what the model is run on, or should have been; more than `most` rows, or a row of more than `widest` tokens,
    are too much for its memory.
    """
    shapes: list[tuple[int, int]] = []
    forward = chat._local.model.forward

    def noting(input_ids: torch.Tensor, **kwargs: Any) -> Any:
        shapes.append((input_ids.shape[0], input_ids.shape[1]))
        if (most is not None and len(input_ids) > most) or (widest is not None and input_ids.shape[1] > widest):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(input_ids=input_ids, **kwargs)

    monkeypatch.setattr(chat._local.model, "forward", noting)
    return shapes

"""Conversations as tokens: a prompt in the model's chat template, and its possible answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

from laurel.llm.chat import ChatRequest, Failure
from laurel.llm.local_model import LocalModel

CUT = "\ue0c7\ue0d7\ue0c7"
"""Marks cuts within messages in a rendered conversation: private-use characters, which no caption contains."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request as the model reads it."""

    number: int
    request: ChatRequest
    text: str
    tokens: list[int]
    answers: dict[str, list[int]]
    """Choice -> tokens; empty if the model generates text."""


class Pack(NamedTuple):
    """Prompts that are answered together, and their size in a batch."""

    prompts: list[Prompt]
    width: int
    """Tokens of its longest row."""
    height: int = 1
    """Rows."""


class PromptReader:
    """Converts requests to prompts."""

    def __init__(self, local: LocalModel) -> None:
        self._local = local
        words = [word for word in local.tokenizer.get_added_vocab() if len(word) > 1]
        self._control = re.compile(f"(?=(?:{'|'.join(map(re.escape, words))}))(?s:.)") if words else None
        self._answers: dict[tuple[int, tuple[str, ...]], dict[str, list[int]]] = {}

    def read(self, number: int, request: ChatRequest) -> Prompt | Failure:
        """Return the prompt of a request, or why it cannot be answered.

        Raises:
            RefusedError: the chat template does not support such conversations.
        """
        marked = self._text(request)
        text = marked.replace(CUT, "")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return Failure(f"the prompt is not valid text: {error.reason} at character {error.start}")
        tokens = self._tokens(*marked.split(CUT))
        answers = self._tokens_of_answers(tokens[-1], request.choices)
        room = max((len(answer) - 1 for answer in answers.values()), default=1)
        if len(tokens) + room > self._local.context:
            return Failure(f"the prompt has {len(tokens)} tokens, but the model takes {self._local.context - room}")
        for first, second in permutations(answers, 2):
            if answers[second][: len(answers[first])] == answers[first]:
                return Failure(f'the tokens of the answer "{first}" are a prefix of those of the answer "{second}"')
        return Prompt(number, request, text, tokens, answers)

    def _text(self, request: ChatRequest) -> str:
        messages = [{"role": message.role, "content": self._plain(message.content)} for message in request.messages]
        # reasoning models' templates enable reasoning by default, so that the next token would not be the answer
        thinking = {"enable_thinking": False} if request.choices else {}
        return self._local.conversation(messages, **thinking)

    def _plain(self, content: str) -> str:
        """Return a message's text with a cut within each control token that it spells.

        Captions and answers are text: "<|im_end|>" in one of them must not end a turn. Text on either side of a cut is
        tokenised separately, so that no control token is found. Not all of these are special tokens (`<think>` is not),
        so the tokenizer's own split_special_tokens does not suffice.
        """
        content = content.replace(CUT, "")
        return self._control.sub(lambda found: found.group() + CUT, content) if self._control else content

    def _tokens(self, *pieces: str) -> list[int]:
        return [
            token
            for piece in pieces
            if piece
            for token in self._local.tokenizer(piece, add_special_tokens=False)["input_ids"]
        ]

    def _tokens_of_answers(self, last: int, choices: tuple[str, ...]) -> dict[str, list[int]]:
        """Return the tokens of each choice where it follows the last token of a prompt."""
        known = self._answers.get((last, choices))
        if known is None:
            tail = self._local.tokenizer.decode([last])
            before, known = self._tokens(tail), {}
            for choice in choices:
                tokens_of_both = self._tokens(tail + choice)
                # a choice that would merge with the token before is tokenised alone: the prompt's tokens are fixed
                joined = tokens_of_both[: len(before)] != before
                known[choice] = self._tokens(choice) if joined else tokens_of_both[len(before) :]
            self._answers[last, choices] = known
        return known

"""A text reward model as a function for TRL's trainers: an entry of `reward_funcs` of GRPOTrainer and RLOOTrainer.

from laurel.rewards.reward_function import reward_function

GRPOTrainer(..., reward_funcs=[reward_function("reward")])
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from laurel.errors import DataError

SECONDS = 300
"""Timeout of a server's answer, in seconds."""
AT_ONCE = 256
"""Maximum number of texts per request."""
MOST_BYTES = 1_000_000
"""Maximum size of a request's body; the server refuses larger ones."""
FRAME = len('{"texts": []}')
"""Bytes of a request beside its texts."""


def reward_function(source: str | Path) -> Callable[..., list[float]]:
    """Return a function that scores prompts and completions, given as plain text or messages.

    Args:
        source: a directory that `laurel reward fit` wrote, or train-reward for the method text; or the address of
            `laurel reward serve`, such as http://127.0.0.1:8000, with or without the /score that it prints.

    Raises:
        DataError: the directory has no text reward model; raised by the function: the server returns no scores, or a
            prompt or completion holds something other than text, such as an image.
    """
    url = str(source).rstrip("/").removesuffix("/score")
    if url.startswith(("http://", "https://")):

        def score(texts: Sequence[str]) -> list[float]:
            return [score for part in _requests(texts) for score in _asked(url, part)]

    else:
        from laurel.rewards.text import TextReward

        reward = TextReward.load(Path(source))

        def score(texts: Sequence[str]) -> list[float]:
            return [float(score) for score in reward.score(texts)]

    def laurel_reward(prompts: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float]:
        from laurel.rewards.text_pairs import joined

        texts = [(_text(prompt), _text(answer)) for prompt, answer in zip(prompts, completions, strict=True)]
        return score([joined(prompt, answer) for prompt, answer in texts])

    return laurel_reward


def _text(text: Any) -> str:
    """Return a text, or the texts of messages, a line each; a message that only calls a tool has none."""
    if isinstance(text, str):
        return text
    try:
        contents = [message.get("content") for message in text]
        return "\n".join(_content(content) for content in contents if content is not None)
    except (AttributeError, KeyError, TypeError):
        raise DataError(
            f"{text!r:.120}: is neither a text nor messages with texts, which is all that is scored."
        ) from None


def _content(content: Any) -> str:
    """Return a message's text; TRL divides it into parts for models that also see images."""
    return content if isinstance(content, str) else "".join([part["text"] for part in content])


def _requests(texts: Sequence[str]) -> Iterator[list[str]]:
    """Divide texts into requests of at most AT_ONCE texts and, unless a single text is longer, MOST_BYTES."""
    part: list[str] = []
    size = 0
    for text in texts:
        length = len(json.dumps(text)) + 2  # with a comma and a space
        if part and (len(part) == AT_ONCE or size + length > MOST_BYTES - FRAME):
            yield part
            part, size = [], 0
        part.append(text)
        size += length
    if part:
        yield part


def _asked(server: str, texts: Sequence[str]) -> list[float]:
    body = json.dumps({"texts": list(texts)}).encode()
    request = urllib.request.Request(  # noqa: S310 - http or https, as checked above
        f"{server}/score", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as reply:  # noqa: S310
            scores: list[float] = json.load(reply)["scores"]
    except urllib.error.HTTPError as error:
        raise DataError(
            f"{server}: refused to score ({error.code}: {error.read(500).decode(errors='replace')})."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{server}: gave no scores ({error}). Is `laurel reward serve` running there?") from None
    return scores

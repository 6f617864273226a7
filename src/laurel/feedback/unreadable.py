"""Why answers could not be read, as far as the way in which they ended tells.

Knows nothing about what they say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from laurel.data.missing import UNREAD, Missing, gather
from laurel.llm import replies
from laurel.llm.responses import ResponseStore

AT_ONCE = 4096
"""Answers that are looked up together."""


def why_unreadable(text: str, finish_reason: str) -> str:
    """Return the reason in words.

    >>> why_unreadable('{"analysis": "I', "length")
    'it was cut off after as many tokens as it may have (max_tokens)'
    """
    if len(text) >= replies.LONGEST_TEXT:
        return f"it is longer than {replies.LONGEST_TEXT:,} characters"
    match finish_reason:
        case replies.REASONING_CUT:
            return "it was cut off while the model was still reasoning (max_tokens, or a lower reasoning_effort)"
        case replies.REASONING:
            return "it holds reasoning alone, and no answer after it"
        case "length":
            return "it was cut off after as many tokens as it may have (max_tokens)"
        case "content_filter":
            return "the server's filter held it back (content_filter)"
    return "it says nothing of which is better" if text.strip() else "it is empty"


def unreadable(keys: Iterable[tuple[str, str]], store: ResponseStore) -> list[Missing]:
    """Count why answers could not be read.

    Args:
        keys: annotator and key of each.
        store: has the answers.
    """
    return gather(_reasons(keys, store))


def _reasons(keys: Iterable[tuple[str, str]], store: ResponseStore) -> Iterator[Missing]:
    stream = iter(keys)
    while some := list(islice(stream, AT_ONCE)):
        ended = {key: why_unreadable(text, how) for key, text, how in store.ended(list({key for _, key in some}))}
        found = Counter((annotator, ended[key]) for annotator, key in some if key in ended)
        yield from (Missing(annotator, UNREAD, reason, count) for (annotator, reason), count in found.items())

r"""Reading which of two captions a model's answer prefers. What cannot be read is None: never guessed, never a tie.

One rule: a verdict counts only as the last thing that an answer says, in one of three forms.

    {"analysis": "…", "best_description": 2}   the object that was asked for, with the verdict as its last key
    2                                          an option and nothing else; "Text 2" and "**2**" alike
    Answer: 2                                  a labelled option in the last line, also \boxed{2} and <answer>2</answer>

Whatever follows a verdict may take it back, and two verdicts that differ contradict each other, so such answers are
unreadable; so is one that was cut off, and one whose marked thoughts never end. The asker then asks once more. Prose
such as "Caption 2 is better" is not searched for verdicts: words deny, suppose and quote in too many ways.
Takes any string, in time that grows with its length alone.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Literal

Answer = Literal["first", "second", "tie", "abstain"]

KEY = "best_description"
_VERDICTS: dict[str, Answer] = {"1": "first", "2": "second", "null": "tie", "none": "tie"}

_MALFORMED = re.compile(rf"{KEY}[\"'”]? ?[:=] ?[\"'“]?(1|2|null|none)[\"'”]?,? ?\}}")
"""The end of an object that is not quite JSON: Python's quotes, a comma too many, quotation marks inside a text."""

_THOUGHT = re.compile(
    r"[<\[◁](/?)(think|thinking|thoughts?|reasoning|reflection|analysis|scratchpad)[>\]▷]", re.IGNORECASE
)
_FINAL_CHANNEL = re.compile(r"\s*final\s*(?:<\|constrain\|>\s*\w+\s*)?<\|message\|>")
_END_TOKENS = (
    *(f"<|{name}|>" for name in ("im_end", "eot_id", "return", "end", "endoftext", "end_of_text")),
    *("</s>", "<end_of_turn>", "<eos>"),
)
_MOST_END_TOKENS = 9
_WRAPPED = re.compile(r"<(answer|output|verdict|choice|final_answer|final|response|result)>([^<>]*)</\1>\Z", re.I)

_LONGEST_OPTION = 100
_UNMARKED = str.maketrans(dict.fromkeys("\"'*`$\\“”‘’"))
_BOXED = re.compile(r"\\boxed\{(?:\\text\{)?([^{}]*)\}{1,2}")
_NOUN = r"(?:text|caption|description|option|report|message|answer)"
_OPTION = re.compile(
    rf"(?P<label>(?:(?:so|thus|therefore|hence|in conclusion),? )?(?:(?:the|my|your) )?"
    rf"(?:(?:(?:final|best|better|correct) )?(?:answer|verdict|choice|decision)|(?:best|better)[ _]{_NOUN})"
    rf" ?(?:is\b|[:=])[:= ]*)?"
    rf"[(\[]{{0,2}}(?:(?:{_NOUN}[ _]?(?:number )?#?)?(?P<number>[12])"
    rf"|(?:the )?(?P<ordinal>first|second)(?: one| {_NOUN})?"
    r"|(?P<tie>null|none|neither(?: (?:text|caption|description))?(?: is better)?|both|(?:it is )?(?:a )?tie)"
    r"|(?P<abstain>abstain))[)\]]{0,2}"
)
_REFUSAL = re.compile(
    r"(?:i.?m sorry,? but |i am sorry,? but |sorry,? (?:but )?|i apologi[sz]e,? but )?"
    r"(?:i.?(?: a)?m )?(?:unfortunately,? )?(?:as an? (?:ai|artificial|(?:large )?language model)\b"
    r"|(?:i )?(?:cannot|can not|can.?t|won.?t|will not|unable to|not able to|refuse to|decline to|must decline)"
    r"(?: to)?(?: \w+ly)? (?:help|assist|answer|decide|determine|judge|choose|pick|compare|evaluate|rate|provide|comply"
    r"|engage|continue|respond|say|tell|give|make|do)\b"
    r"|(?:there is |there.?s )?(?:not enough|insufficient) (?:information|context)\b|i abstain\b)"
)
_NAMES_AN_OPTION = re.compile(rf"\b(?:[12]|first|second|{KEY})\b")
_LONGEST_REFUSAL = 1000
"""Characters; who writes more has not refused."""


class _Pairs(list[tuple[str, Any]]):
    """Keys and values of a JSON object in order, a key set twice kept twice."""


_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs, strict=False)


def parse_answer(text: str, *, cut: bool = False) -> Answer | None:
    r"""Return what an answer prefers; None where it cannot be read.

    Args:
        text: the whole answer.
        cut: whether it ended because it had become too long.

    >>> parse_answer('Text 1 opens the door.\n{"best_description": 2}')
    'second'
    >>> parse_answer('{"best_description": 1} Sorry, I meant the other.') is None
    True
    """
    text = text.strip()
    pairs = _json_object(text)  # its quotes hold whatever else looks like a mark, and its brace shows that it is whole
    if pairs is not None:
        return _verdict_of(pairs)
    return None if cut else _read(text)


def _read(text: str) -> Answer | None:
    """Read an answer that is more, or less, than the object that was asked for."""
    said = _without_thoughts(text)
    if not said or "<|" in said:  # tokens of another conversation, or of a channel that is not known
        return None
    before, verdict, marked = _last_said(said)
    if verdict.startswith("{"):
        pairs = _json_object(verdict)
        answer = _malformed(verdict) if pairs is None else _verdict_of(pairs)
    else:
        answer = _option(verdict, labelled=bool(before) and not marked)
    if answer is None:
        return "abstain" if _refuses(said) else None
    if KEY in before.casefold():
        return None
    others = {option for line in before.splitlines() if (option := _option(line)) is not None}
    return answer if others <= {answer} else None


def _without_thoughts(text: str) -> str | None:
    """Return what follows a model's marked thoughts; None where they never end, or end in disorder."""
    _, channel, last = text.rpartition("<|channel|>")
    if channel:
        head = _FINAL_CHANNEL.match(last)
        if head is None:
            return None
        text = last[head.end() :]
    text = text.strip()
    for _ in range(_MOST_END_TOKENS):
        if not text.endswith(_END_TOKENS):
            break
        text = text[: text.rindex("<")].rstrip()
    opened: list[str] = []
    end = 0
    for mark in _THOUGHT.finditer(text):
        closing, name = mark[1], mark[2].casefold()
        if not closing:
            opened.append(name)
        elif opened and opened.pop() != name:
            return None
        end = mark.end()  # a closing mark alone ends thoughts that the prompt has begun
    return None if opened else text[end:].strip()


def _last_said(said: str) -> tuple[str, str, bool]:
    """Split off what may be the verdict: (what stands before it, it, whether its form sets it apart)."""
    wrapped = _WRAPPED.search(said)
    if wrapped:
        before = said[: wrapped.start()]
        return before, "" if f"<{wrapped[1].casefold()}>" in before.casefold() else wrapped[2].strip(), True
    before, fence, fenced = said.removesuffix("```").rpartition("```")
    fenced = fenced.removeprefix("json").strip()
    if fence and fenced.startswith("{"):
        return before.strip(), fenced, True
    start = said.find("{")
    if start >= 0 and said.endswith("}"):
        before = said[:start].rstrip(" \t")
        if not before or before.endswith(("\n", ".", ":", "!")):
            return before.strip(), said[start:], True
    before, _, line = said.rpartition("\n")
    return before.strip(), line, False


def _json_object(text: str) -> _Pairs | None:
    """Parse a text that is one JSON object."""
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def _malformed(text: str) -> Answer | None:
    """Read an object that is not quite JSON, by its end."""
    plain = text.casefold()
    if plain.count(KEY) != 1:
        return None
    found = _MALFORMED.fullmatch(" ".join(plain[plain.index(KEY) :].split()))
    return _VERDICTS[found[1]] if found else None


def _verdict_of(pairs: _Pairs) -> Answer | None:
    """Return the verdict of an object, whose last key it must be: what stands behind it could take it back."""
    keys = [key for key, _ in pairs]
    if not keys or keys[-1] != KEY or keys.count(KEY) > 1:
        return None
    match pairs[-1][1]:
        case None:
            return "tie"
        case str(words):
            return _option(words)
        case bool():
            return None
        case 1:
            return "first"
        case 2:
            return "second"
    return None


def _option(text: str, *, labelled: bool = False) -> Answer | None:
    """Read a text that names an option and says nothing else, after a label or, unless that is asked for, without."""
    text = text.strip()
    if len(text) > _LONGEST_OPTION:
        return None
    unboxed, boxes = _BOXED.subn(r"\1", text)
    plain = " ".join(unicodedata.normalize("NFKC", unboxed.translate(_UNMARKED)).casefold().split())
    found = _OPTION.fullmatch(plain.lstrip("#([ ").rstrip(".,;!)] "))
    if found is None or (labelled and not found["label"] and not boxes):
        return None
    if found["tie"] or found["abstain"]:
        return "tie" if found["tie"] else "abstain"
    return "first" if found["number"] == "1" or found["ordinal"] == "first" else "second"


def _refuses(text: str) -> bool:
    """Say whether a text declines to answer, and names no option."""
    plain = text.casefold()
    return len(text) <= _LONGEST_REFUSAL and bool(_REFUSAL.match(plain)) and not _NAMES_AN_OPTION.search(plain)

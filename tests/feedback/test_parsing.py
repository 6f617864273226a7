"""Answers as models give them, read or refused, never guessed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from laurel.feedback import parsing
from laurel.feedback.parsing import parse_answer
from laurel.feedback.prompt import AnswerFormat

CORPUS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "answers.yaml").read_text(encoding="utf-8"))
FORMATS: tuple[AnswerFormat, ...] = ("json", "choice")
ANSWERS = {"first", "second", "tie", "abstain", None}
VALUES = {"first": 1, "second": 2, "tie": None}


@pytest.mark.parametrize(
    ("text", "answer_format", "means"),
    [
        pytest.param(entry["text"], answer_format, entry["means"], id=f"{number}-{answer_format}")
        for number, entry in enumerate(CORPUS)
        for answer_format in FORMATS
        if entry.get("format", answer_format) == answer_format
    ],
)
def test_the_corpus_is_read_as_it_is_meant(text: str, answer_format: AnswerFormat, means: str | None) -> None:
    assert parse_answer(text, answer_format) == means, text


def test_the_corpus_is_large_and_has_every_answer() -> None:
    assert len(CORPUS) >= 120
    for means in ANSWERS:
        assert sum(entry["means"] == means for entry in CORPUS) >= 10
    assert len({(entry["text"], entry.get("format")) for entry in CORPUS}) == len(CORPUS)


PIECES = st.sampled_from(
    [
        *(entry["text"] for entry in CORPUS),
        *'{}[]"\\\n:,*<>',
        "best_description",
        "not ",
        "caption 1 ",
        "is better",
        "2",
    ]
)


@given(
    st.one_of(st.text(), st.text(st.characters()), st.lists(PIECES, max_size=6).map("".join)),
    st.sampled_from([1, 2, None]),
    st.sampled_from([None, 0, 3]),
    st.booleans(),
)
@example("<think>", 1, None, False)
@example(r"\boxed{2}", 1, None, False)
@example('"best_description": 2}', 1, None, False)
@example("[INST]", 1, None, False)
def test_an_answer_as_asked_is_read_at_once_as_it_is_read_by_search(
    analysis: str, best: int | None, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps({"analysis": analysis, "best_description": best}, indent=indent, ensure_ascii=ascii_only)
    for answer_format in FORMATS:
        assert parse_answer(text, answer_format) == parsing._search(text, answer_format)


def test_an_answer_as_asked_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_search", None)
    for best, means in ((1, "first"), (2, "second"), (None, "tie")):
        said = {"analysis": 'Text 2, "ü",\nis better.', "best_description": best}
        assert parse_answer(f" {json.dumps(said, indent=1, ensure_ascii=False)}\n", "json") == means


@given(st.one_of(st.text(), st.text(st.characters()), st.lists(PIECES, max_size=6).map("".join)))
@example("\ud800")
@example("\x00" * 20)
@example('{"a":' * 5000)
@example("{" * 5000 + "}" * 5000)
@example('{"best_description": ' + "9" * 5000 + "}")
@example('{"best_description": ' + "[" * 5000 + "]" * 5000 + "}")
@example('{"a": {' * 20 + "]" * 50 + "[" * 5000)
@example('{"best_description": 1e999}')
@example('{"best_description": NaN}')
def test_no_text_is_too_much_for_it(text: str) -> None:
    for answer_format in FORMATS:
        assert parse_answer(text, answer_format) in ANSWERS


@pytest.mark.parametrize("means", VALUES)
@given(analysis=st.text())
def test_an_answer_in_json_counts_whatever_its_analysis_says(means: str, analysis: str) -> None:
    said = {"analysis": analysis, "best_description": VALUES[means]}
    for text in (json.dumps(said), json.dumps(said, ensure_ascii=False), f"```json\n{json.dumps(said, indent=2)}\n```"):
        assert parse_answer(text, "json") == means


@given(st.sampled_from([entry["text"] for entry in CORPUS if "think" not in entry["text"]]), st.sampled_from([1, 2]))
def test_the_last_json_wins_over_all_that_came_before(before: str, number: int) -> None:
    closed = before.replace("{", "(").replace("}", ")")
    answer = parse_answer(f'{closed}\n\n{{"best_description": {number}}}', "json")
    assert answer == ("first", "second")[number - 1]


@given(st.text(alphabet='abc{}"\\:, 12\n'), st.integers(0, 40))
def test_cutting_an_answer_never_turns_it_over(analysis: str, kept: int) -> None:
    whole = json.dumps({"analysis": analysis, "best_description": 1})
    assert parse_answer(whole[:kept], "json") in ("first", None)


HARD = (
    '{"a": ',
    "{",
    '"',
    '\\"',
    "caption 1 is ",
    "caption 1 is better ",
    "caption 1 is better or caption 2 ",
    "the the the ",
    "not caption 1 is better ",
    "best_description: ",
    'best_description": 1 | ',
    '{"best_description": 1} ',
    "<think>",
    "<answer>",
    "1",
    "1.\n",
    "\n",
    " ",
    "第二个比",
    "neither of them ",
    "as an ai ",
    "\\boxed{",
    "<|",
    "e\u0301\u0323",
)


@pytest.mark.parametrize("piece", HARD, ids=repr)
def test_time_grows_with_length_alone(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        start = time.process_time()
        parse_answer(text, "choice")
        return time.process_time() - start

    small, large = (min(seconds(size) for _ in range(2)) for size in (20_000, 160_000))
    assert large < 3 * 8 * max(small, 0.002), f"{small:.4f} s, then {large:.4f} s for eight times as much"
    # quadratic time would be 64 times as much


def test_who_writes_much_has_not_refused() -> None:
    refusal = "I cannot decide."
    assert parse_answer(refusal, "json") == "abstain"
    assert parse_answer(f"{refusal} {'The agent turns. ' * 100}", "json") is None


def test_a_megabyte_is_read() -> None:
    prose = "The agent turns, and nothing happens. " * 27_000
    assert parse_answer(f'{prose}{{"best_description": 2}}', "json") == "second"
    assert parse_answer(f"{prose}\n2", "choice") == "second"
    assert parse_answer(prose, "json") is None

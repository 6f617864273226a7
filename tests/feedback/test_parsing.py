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

from laurel.feedback.questions.pair import VERDICTS

CORPUS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "answers.yaml").read_text(encoding="utf-8"))
ANSWERS = {"first", "second", "tie", "abstain", None}
VALUES = {"first": 1, "second": 2, "tie": None}
COMPLETE = [e["text"] for e in CORPUS if e["means"] in ("first", "second") and not e.get("cut")]


def test_the_corpus_is_parsed_as_labelled() -> None:
    misread = [e for e in CORPUS if VERDICTS.read(e["text"], cut=e.get("cut", False)) != e["means"]]
    assert misread == []


def test_the_corpus_is_large_and_has_every_answer() -> None:
    assert len(CORPUS) >= 300
    for means in ANSWERS:
        assert sum(entry["means"] == means for entry in CORPUS) >= 10
    assert len({(entry["text"], entry.get("cut")) for entry in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize(
    "after",
    [
        " Sorry, I meant the other.",
        "\nCorrection: it should be {other}.",
        "\nActually, {other}.",
        " -> {other}",
        "\n{other}",
    ],
)
def test_a_later_contradiction_overrides_a_verdict(after: str) -> None:
    def stands(text: str) -> bool:
        means = VERDICTS.read(text)
        return VERDICTS.read(text + after.format(other=2 if means == "first" else 1)) == means

    assert [text for text in COMPLETE if stands(text)] == []


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
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    for cut in (False, True):
        assert VERDICTS.read(text, cut=cut) in ANSWERS


@pytest.mark.parametrize("means", VALUES)
@given(analysis=st.text())
def test_an_answer_in_json_counts_whatever_its_analysis_says(means: str, analysis: str) -> None:
    said = {"analysis": analysis, "best_description": VALUES[means]}
    for text in (json.dumps(said), json.dumps(said, ensure_ascii=False), f"```json\n{json.dumps(said, indent=2)}\n```"):
        assert VERDICTS.read(text) == means


@given(st.sampled_from([entry["text"] for entry in CORPUS]), st.sampled_from(["first", "second"]))
def test_json_at_the_end_is_never_misread(before: str, means: str) -> None:
    assert VERDICTS.read(f'{before}\n\n{{"best_description": {VALUES[means]}}}') in (means, None)


@given(st.text(alphabet='abc{}"\\:, 12\n'), st.integers(0, 40))
def test_a_cut_answer_is_never_read_as_the_opposite(analysis: str, kept: int) -> None:
    whole = json.dumps({"analysis": analysis, "best_description": 1})
    for cut in (False, True):
        assert VERDICTS.read(whole[:kept], cut=cut) in ("first", None)


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
    "</s>",
    "[THINK]",
    "</think>",
    "```",
    "<|channel|>",
    "best_description",
    "Answer: 2\n",
    "<|",
    "e\u0301\u0323",
)


@pytest.mark.parametrize("piece", HARD, ids=repr)
def test_time_grows_with_length_alone(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        start = time.process_time()
        VERDICTS.read(text)
        return time.process_time() - start

    small, large = (min(seconds(size) for _ in range(2)) for size in (20_000, 160_000))
    assert large < 3 * 8 * max(small, 0.002), f"{small:.4f} s, then {large:.4f} s for eight times as much"
    # quadratic time would be 64 times as much


def test_long_answers_are_not_refusals() -> None:
    refusal = "I cannot decide."
    assert VERDICTS.read(refusal) == "abstain"
    assert VERDICTS.read(f"{refusal} {'The agent turns. ' * 100}") is None


def test_a_megabyte_is_read() -> None:
    prose = "The agent turns, and nothing happens. " * 27_000
    assert VERDICTS.read(f'{prose}\n{{"best_description": 2}}') == "second"
    assert VERDICTS.read(f"{prose}\nAnswer: 2") == "second"
    assert VERDICTS.read(prose) is None

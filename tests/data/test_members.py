"""Votes of ensemble members: stored next to the labels, counted without a list of all pairs."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from laurel.data import members as module
from laurel.data.directory import output_directory
from laurel.data.labels import LabelWriter, join_labels
from laurel.data.members import read_members, tally_members
from laurel.data.preferences import read_answers
from laurel.feedback.annotator import TIE, Answer, Judgement

NAMES = ("members[0]: x", "members[1]: y", "members[2]: z")
LABELS = {"ok": (0.0, 0.7, 1.0), "tie": (0.5,), "abstain": (None,), "api_failed": (None,)}


def judgements(n: int) -> list[Judgement]:
    rng = random.Random(0)
    made = []
    for i in range(n):
        if i % 10 == 9:
            made.append(TIE)  # identical texts: no question was asked
            continue
        votes = []
        for name in NAMES:
            status = rng.choice(list(LABELS))
            said = (Answer(0, 0, status, None, f"{i} {name}", name),)
            votes.append((name, Judgement(status, rng.choice(LABELS[status]), 1, None, said)))  # type: ignore[arg-type]
        answers = tuple(answer for _, vote in votes for answer in vote.answers)
        made.append(Judgement("ok", 1.0, 3, None, answers, tuple(votes)))
    return made


def write(path: Path, said: list[Judgement], stage: str = "annotate") -> Path:
    with output_directory(path, stage=stage, params={}) as out, LabelWriter(out.path, "uniform", 7, "all") as labels:
        for i, judgement in enumerate(said):
            labels.add(i, i + 1, judgement)
    return path


def side(judgement: Judgement) -> str | None:
    p = judgement.p_first
    return None if p is None else "first" if p > 0.5 else "second" if p < 0.5 else "tie"


@pytest.mark.parametrize("at_once", [3, 7, 8192])
def test_votes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    said = judgements(200)
    tally = tally_members(write(tmp_path / "p", said))
    assert tally is not None
    asked = [j for j in said if j.members]
    assert tally.names == NAMES
    assert tally.patterns == Counter(tuple(side(vote) for _, vote in j.members) for j in asked)
    for k, statuses in enumerate(tally.statuses):
        expected = Counter(j.members[k][1].status for j in asked)
        assert {status: n for status, n in statuses.items() if n} == expected


def test_shares_are_joined(tmp_path: Path) -> None:
    said = judgements(50)
    whole = write(tmp_path / "whole", said)
    shares = [write(tmp_path / name, part, "s") for name, part in (("a", said[:20]), ("b", said[20:]))]
    with output_directory(tmp_path / "joined", stage="annotate", params={}) as out:
        join_labels(shares, out.path, "s")
    assert (tmp_path / "joined" / "members.parquet").read_bytes() == (whole / "members.parquet").read_bytes()
    table = read_members(whole)
    assert table is not None
    assert table["pair"].to_pylist() == [i for i, j in enumerate(said) for _ in j.members]
    answers = read_answers(whole)
    assert answers is not None
    assert answers["annotator"].to_pylist() == [answer.annotator for j in said for answer in j.answers]


def test_a_single_annotator_has_no_members_and_its_answers_say_whose_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "p", [Judgement("ok", 1.0, 1, None, (Answer(0, 0, "first", 1.0, "k"),))])
    assert tally_members(path) is None
    assert read_members(path) is None
    answers = read_answers(path)
    assert answers is not None
    assert answers["annotator"].to_pylist() == ["all"]

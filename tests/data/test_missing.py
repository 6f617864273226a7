"""Reasons for missing answers: distinguished by text, added up over shares, and reported."""

from __future__ import annotations

from pathlib import Path

from laurel.data.missing import MOST, OTHER, Missing, Reasons, gather, most_frequent, read_missing, write_missing


def counted(*texts: str) -> dict[str, int]:
    reasons = Reasons()
    for text in texts:
        reasons.add(text)
    return reasons.counts()


def test_reasons_that_differ_only_in_numbers_and_ids_are_merged() -> None:
    assert counted("status 500: a", "status 503: a", "status 503: a") == {"status 503: a": 2, "status 500: a": 1}
    assert counted("the prompt has 300 tokens", "the prompt has 4,711 tokens, not 5") == {
        "the prompt has 300 tokens": 1,
        "the prompt has 4,711 tokens, not 5": 1,
    }
    assert counted("request req_1ab broke", "request req_2cd broke") == {"request req_1ab broke": 2}


def test_only_a_few_distinct_reasons_are_kept() -> None:
    found = counted(*("x" * n for n in range(1, 100)), "x")
    assert len(found) == MOST + 1
    assert found[OTHER] == 99 - MOST
    assert found["x"] == 2


def test_shares_add_up_by_annotator_and_verdict() -> None:
    first = [Missing("m", "failed", "status 500: a 1", 2), Missing("m", "unread", "it is empty", 1)]
    second = [Missing("n", "failed", "status 500: a 1", 5), Missing("m", "failed", "status 500: a 2", 3)]
    assert gather([*first, *second]) == [
        Missing("m", "failed", "status 500: a 1", 5),
        Missing("m", "unread", "it is empty", 1),
        Missing("n", "failed", "status 500: a 1", 5),
    ]


def test_reasons_are_stored_and_reported(tmp_path: Path) -> None:
    write_missing(tmp_path, [])
    assert list(tmp_path.iterdir()) == []
    assert (read_missing(tmp_path), most_frequent([])) == ([], "")
    missing = [Missing("m", "failed", reason, n) for reason, n in (("a", 1), ("b", 2000), ("c", 3), ("d", 4))]
    write_missing(tmp_path, missing)
    assert read_missing(tmp_path) == missing
    assert most_frequent(missing, 2) == ("no answer, 2,000 times: b; no answer, 4 times: d; 4 for other reasons")

"""Preferences go to other libraries' formats and back without loss; what a format has no place for is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from laurel.cli.app import main
from laurel.data.captions import read_captions
from laurel.data.directory import output_directory
from laurel.data.manifest import read_manifest
from laurel.data.motif import write_motif
from laurel.data.own_preferences import import_rows, read_any
from laurel.data.preference_rows import LAYOUTS, PreferenceRows, Row, extras_of
from laurel.data.row_files import read_file, write_file
from laurel.errors import DataError
from laurel.stages import fit_text

JUDGED: dict[str, Any] = {"annotator": "judge", "sampler": "uniform", "seed": 3}
PROMPTED = [
    Row("Q\n", "a é", 'b,"x"\r\ny', 0.75, "ok", 4, True, **JUDGED),
    Row("Q2", "c", "d", 0.0, "ok", 1, None, **JUDGED),
    Row("Q2", "c", " ", 1.0, "ok", 1, False, **JUDGED),
]
UNPROMPTED = [
    Row("", "a é", "b", 0.25, "ok", 4, True, "judge"),
    Row("", "c", "d", 0.5, "tie", 2, False, "judge"),
    Row("", "e", "c", None, "abstain", 0, None, "judge"),
]


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        *((layout, f"rows.{suffix}") for layout in ("trl", "choice") for suffix in ("jsonl", "csv", "parquet")),
        ("gemini", "rows.jsonl"),
        ("trl", "directory"),
    ],
)
def test_rows_are_read_back_unchanged(layout: str, name: str, tmp_path: Path) -> None:
    if name == "directory":
        pytest.importorskip("datasets")
    write_file(PreferenceRows.of(PROMPTED, ""), LAYOUTS[layout], tmp_path / name)
    found = read_any(tmp_path / name)
    assert (found.rows(), found.left_out) == (PROMPTED, ())
    import_rows(found, tmp_path / "own")
    assert read_any(tmp_path / "own").rows() == PROMPTED


@pytest.mark.parametrize("kind", ["motif", "own", "own/preferences"])
def test_a_reward_is_fitted_to_rows_in_a_folder(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_text, "encode_cached", lambda model, texts, advance: np.eye(len(texts), dtype=np.float32))
    rows = PreferenceRows.of(UNPROMPTED, "")
    write_motif(rows, tmp_path / "motif")
    import_rows(rows, tmp_path / "own")
    fit_text.run(tmp_path / kind, tmp_path / "reward", model="encoder")
    manifest = read_manifest(tmp_path / "reward")
    assert (manifest["counts"]["rows"], manifest["counts"]["unlabelled"]) == (3, 1)
    assert "rows/data/message.npy" in manifest["inputs"] or kind != "motif"


def test_motif_keeps_ties_and_what_was_not_answered(tmp_path: Path) -> None:
    write_motif(PreferenceRows.of(UNPROMPTED, ""), tmp_path / "motif")
    assert np.load(tmp_path / "motif/preference/laurel.npy").tolist() == [1, 2, 3]
    message = np.load(tmp_path / "motif/data/message.npy")
    assert (message.shape, message.dtype) == ((3, 2, 1, 256), np.uint8)
    assert bytes(message[0, 0, 0]).rstrip(b"\0").decode() == "a é"
    import_rows(read_any(tmp_path / "motif"), tmp_path / "own")
    assert read_any(tmp_path / "own").rows() == UNPROMPTED
    np.save(tmp_path / "motif/preference/other.npy", np.array([0, 3, 1], dtype=np.int8))
    other = read_any(tmp_path / "motif/preference/other.npy")
    assert [row.p_first for row in other.rows()] == [1.0, None, 0.0], "not Laurel's labels of the same pairs"
    assert other.labels.annotator == "Motif other"
    (tmp_path / "motif/laurel.parquet").unlink()  # as Motif's own arrays are
    bare = read_any(tmp_path / "motif/preference/laurel.npy").rows()
    assert [(row.p_first, row.status) for row in bare] == [(0.0, "ok"), (0.5, "tie"), (None, "parse_failed")]


def test_further_fields_are_not_read_for_rows_in_another_order(tmp_path: Path) -> None:
    """Both rows prefer the second text, so that only the order shows whose probability each is."""
    rows = [Row("Q", "a", "b", 0.4, "ok", 2, True, "judge"), Row("Q", "c", "d", 0.1, "ok", 2, True, "judge")]
    file = tmp_path / "rows.jsonl"
    write_file(PreferenceRows.of(rows, ""), LAYOUTS["gemini"], file)
    file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    with pytest.raises(DataError, match=r"rows\.laurel\.parquet: does not belong to the rows of .*rows\.jsonl"):
        read_file(file)
    plain = [Row("", row.first, row.second, row.p_first, "ok", 2, True, "judge") for row in rows]
    write_motif(PreferenceRows.of(plain, ""), tmp_path / "motif")
    messages = tmp_path / "motif/data/message.npy"
    np.save(messages, np.load(messages)[::-1])
    with pytest.raises(DataError, match=r"laurel\.parquet: does not belong to the rows of .*message\.npy"):
        read_any(tmp_path / "motif")


def test_an_import_replaces_an_import_only(tmp_path: Path) -> None:
    rows = PreferenceRows.of([Row("", "a", "b", 1.0)], "rows")
    for _ in range(2):
        import_rows(rows, tmp_path)
    with output_directory(tmp_path / "preferences", stage="annotate", params={"seed": 0}):
        pass
    with pytest.raises(DataError, match=r'preferences: holds the output of the stage "annotate", which would'):
        import_rows(rows, tmp_path)


def test_trl_and_gemini_have_their_own_columns(tmp_path: Path) -> None:
    for layout in ("trl", "gemini"):
        write_file(PreferenceRows.of(PROMPTED, ""), LAYOUTS[layout], tmp_path / f"{layout}.jsonl")
    row = json.loads((tmp_path / "trl.jsonl").read_text().splitlines()[1])
    assert (row["prompt"], row["chosen"], row["rejected"]) == ("Q2", "d", "c")
    example = json.loads((tmp_path / "gemini.jsonl").read_text().splitlines()[1])
    assert {*example} == {"contents", "completions"}
    assert example["contents"] == [{"role": "user", "parts": [{"text": "Q2"}]}]
    assert [completion["score"] for completion in example["completions"]] == [0, 1]
    assert example["completions"][1]["completion"] == {"role": "model", "parts": [{"text": "d"}]}


def test_messages_of_a_question_and_an_answer_are_text(tmp_path: Path) -> None:
    asked, good, bad = ({"role": role, "content": text} for role, text in (("user", "Q"), ("a", "x"), ("a", "y")))
    rows = [
        {"prompt": [asked], "chosen": [good], "rejected": [bad]},
        {"chosen": [asked, good], "rejected": [asked, bad]},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = read_file(tmp_path / "rows.jsonl").rows()
    assert [(row.prompt, row.first, row.second, row.p_first) for row in found] == [("Q", "x", "y", 1.0)] * 2


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    for name, content in (("r.jsonl", '{"chosen": "a", "rejected": "b"}'), ("r.csv", "chosen,rejected\na,b")):
        (tmp_path / name).write_text(content, encoding="utf-8-sig")
        assert list(read_file(tmp_path / name).first) == ["a"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "r.jsonl",
            '{"chosen": "a", "rejected": "b"}\n{"chosen": "a", "rejected": 3}',
            "line 2, column rejected: is 3, ",
        ),
        ("r.jsonl", '{"chosen": "a", "rejected": "b", "margin": 2}', "line 1, column margin: is 2, which"),
        ("r.jsonl", '{"chosen": "a", "rejected": "\\ud800"}', "line 1, column rejected: holds an unpaired surrogate"),
        ("r.jsonl", '\n{"chosen"', "line 2 is not JSON"),
        ("r.jsonl", "[1]", "line 1 is not a JSON object"),
        ("r.jsonl", "", "holds no row."),
        ("r.jsonl", '{"prompt": "q", "chosen": "a"}', 'has the columns "prompt, chosen", which are not'),
        ("r.csv", "candidate_0,candidate_1,choice\na,b,0\na,b,2", 'line 3, column choice: is "2", but must be 0 or 1'),
        ("r.csv", "candidate_0,candidate_1,choice\na,b", "line 2 has 2 columns, but the first has 3."),
        ("r.csv", 'candidate_0,candidate_1,choice\n"a\nb",c,0\na,b,', 'line 4, column choice: is ""'),
        ("r.csv", "chosen,chosen,rejected\na,b,c", 'has two columns "chosen". Rename or remove one.'),
        ("r.txt", "a", "is not a file of rows."),
        ("missing.csv", None, "there is no such file or directory."),
    ],
)
def test_a_bad_row_is_named(
    name: str, content: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    assert main(["import", str(tmp_path / name), "--output", str(tmp_path / "own")]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / name}: {says}" in said.replace(": line", ": line")
    assert not (tmp_path / "own").exists()


def test_values_that_a_format_cannot_hold_are_refused(tmp_path: Path) -> None:
    undecided, prompted = PreferenceRows.of(UNPROMPTED, ""), PreferenceRows.of(PROMPTED, "")
    with pytest.raises(DataError, match="2 of 3 pairs are ties or have no label"):
        write_file(undecided, LAYOUTS["trl"], tmp_path / "rows.jsonl")
    with pytest.raises(DataError, match="pair 1, column contents: would be empty"):
        write_file(undecided.decided(), LAYOUTS["gemini"], tmp_path / "rows.jsonl")
    with pytest.raises(DataError, match="pair 0 has a prompt"):
        write_motif(prompted, tmp_path / "motif")
    with pytest.raises(DataError, match="257 bytes of at most 256"):
        write_motif(PreferenceRows.of([Row("", "x" * 257, "y", 1.0)], ""), tmp_path / "motif")
    assert not [*tmp_path.iterdir()]


PROMPTED_EXTRAS = extras_of(Row("", "a", "b", 1.0, "ok", 1, None, **JUDGED))


def test_rows_that_contradict_laurels_data_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    write_file(PreferenceRows.of(PROMPTED, ""), LAYOUTS["gemini"], file)
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:2]))
    with pytest.raises(DataError, match="does not belong to the rows"):
        read_file(file)
    beside = tmp_path / "rows.laurel.parquet"
    pq.write_table(pq.read_table(beside).replace_schema_metadata(), beside)  # of an earlier version
    file.write_text("\n".join([lines[1], *lines[1:]]))
    with pytest.raises(DataError, match=r"line 1, column laurel_p_first: is 0\.75, but the row names the other"):
        read_file(file)
    whole = {**PROMPTED_EXTRAS, "chosen": "a", "rejected": "b"}
    for change, why in (
        ({"laurel_p_first": 7}, "laurel_p_first: is 7, but must be a number from 0 to 1"),
        ({"laurel_p_first": math.nan}, "laurel_p_first: is nan, but must"),
        ({"laurel_votes": -1}, "laurel_votes: is -1, but must be from 0 to 2147483647"),
        (
            {"laurel_votes": 10**30},
            "laurel_votes: is 1000000000000000000000000000000, but must be from 0 to 2147483647",
        ),
        ({"laurel_seed": 10**30}, "laurel_seed: is 1000000000000000000000000000000, but must be from 0 to"),
        ({"laurel_seed": float("inf")}, "laurel_...: the columns that Laurel wrote are incomplete or were changed"),
        ({"laurel_status": ""}, "laurel_status: is missing, but laurel_p_first is present"),
    ):
        rows = tmp_path / "changed.jsonl"
        rows.write_text(json.dumps({**whole, **change}))
        with pytest.raises(DataError, match=why):
            read_file(rows)


def test_the_commands_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def laurel(*arguments: Any) -> str:
        assert main([*map(str, arguments)]) == 0
        return capsys.readouterr().out

    source, folder = tmp_path / "rows.csv", tmp_path / "own"
    source.write_text("id,input_text,candidate_0,candidate_1,choice\n7,,good,bad,0\n8,,bad,fair,1\n9,,fair,fine,tie\n")
    assert laurel("import", source, "--output", folder).endswith("columns left out: id\n")
    inputs = ["--preferences", folder / "preferences", "--captions", folder / "captions"]
    laurel("export", "motif", *inputs, "--output", tmp_path / "motif")
    out = tmp_path / "rows.jsonl"
    assert "1 without a preferred text left out" in laurel(
        *("export", "trl", "--rows", tmp_path / "motif", "--prompt", "Q", "--drop-undecided", "--output", out)
    )
    assert [json.loads(line)["chosen"] for line in out.read_text().splitlines()] == ["good", "fair"]
    assert main(["export", "choice", "--rows", str(out), "--output", str(out)]) == 2
    assert "is what the export reads, and would be replaced" in capsys.readouterr().err
    assert main(["export", "choice", "--rows", str(out), "--output", str(tmp_path / "rows.txt")]) == 2
    assert "name a file that ends with .jsonl" in capsys.readouterr().err


def rows_of(*more: Row, **drawn: Any) -> PreferenceRows:
    """Rows of good and bad texts, half of them with the wrong label, and more."""
    pairs = [Row("", f"good {i}", f"bad {i}", float(i % 2), **drawn) for i in range(16)]
    return PreferenceRows.of([*pairs, *more], "rows")


def test_shuffled_rows_have_the_same_answers_on_other_pairs() -> None:
    rows = rows_of(Row("", "a", "b", 0.5, **JUDGED), **JUDGED)
    shuffled = rows.shuffled(3)
    assert (shuffled.first, shuffled.second) == (rows.first, rows.second)
    assert sorted(shuffled.labels.p_first) == sorted(rows.labels.p_first)
    assert (shuffled.labels.status == "tie").sum() == 1
    assert shuffled.labels.p_first.tolist() == rows.shuffled(3).labels.p_first.tolist()
    assert (shuffled.labels.p_first != rows.labels.p_first).any()


def test_unlabelled_pairs_stay_unlabelled_when_labels_are_shuffled() -> None:
    unlabelled = [Row("", f"a{i}", f"b{i}", None, "abstain") for i in range(20)]
    rows = rows_of(*unlabelled)
    for seed in range(5):
        assert np.isnan(rows.shuffled(seed).labels.p_first).tolist() == np.isnan(rows.labels.p_first).tolist()


def test_rows_that_name_the_better_text_first_lose_their_labels_when_these_are_shuffled() -> None:
    """Each of these has the label of all others, so that the control would be the reward itself."""
    rows = [Row("", f"good {i}", f"bad {i}", 0.9) for i in range(400)]
    shuffled = PreferenceRows.of(rows, "trl").shuffled(0)
    pairs, p_first = list(zip(shuffled.first, shuffled.second, strict=True)), shuffled.labels.p_first.tolist()
    assert [{*pair} for pair in pairs] == [{row.first, row.second} for row in rows]
    better = [pair[p < 0.5] for pair, p in zip(pairs, p_first, strict=True)]
    assert sum(text.startswith("good") for text in better) == pytest.approx(200, abs=40)
    assert {round(p, 9) for p in p_first} == {0.1, 0.9}


def test_imported_captions_are_of_no_steps(tmp_path: Path) -> None:
    """So a reward that needs those is refused; it ended with a traceback."""
    import_rows(rows_of(), tmp_path)
    with pytest.raises(DataError, match="was imported, and has no captions of an environment's steps"):
        next(read_captions(tmp_path / "captions"))

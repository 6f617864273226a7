"""`forget` drops exactly the selected stored answers; the next run asks for them again."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from laurel.cli.app import main
from laurel.feedback.forget import Status, Wanted, forget
from laurel.feedback.keys import QuestionKeys
from laurel.llm.chat import ChatRequest, Identity, Message, Reply
from laurel.llm.mirror import mirrored
from laurel.llm.responses import Exchange, ResponseStore

HELD = {
    "yes": Reply('{"best_description": 1}', None, 100, 10),
    "no": Reply("I cannot answer that.", None, 100, 10),
    "cut": Reply('{"analysis": "The', None, 100, 512, "length"),
    "empty": Reply("", None, 100, 0),
    "fixed": Reply("Hm.", None, 100, 10),
    "scored": Reply("", {"1": -0.1, "2": -2.4}, 100, 0),
    "odd": Reply("", {"1": -0.1, "2": -2.4}, 100, 0),
}
FOLLOW_UP = QuestionKeys.follow_up("fixed", "Hm.")


def fill(path: Path, model: str = "m", prompt: str = "motif") -> None:
    held = {**HELD, FOLLOW_UP: HELD["yes"]}
    with ResponseStore(path) as store:
        for key, reply in held.items():
            name = key if (model, prompt) == ("m", "motif") else f"{model} {prompt} {key}"
            request = ChatRequest((Message("user", key),), key=name)
            store.put(Exchange(name, Identity(model, "", "http://h"), request, reply, prompt, "abcd1234", 0.25))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("""UPDATE responses SET logprobs = '{"1": NaN}' WHERE key LIKE '%odd'""")


def keys(path: Path) -> set[str]:
    with ResponseStore(path, read_only=True) as store:
        return {row["key"] for row in store.rows()}


@pytest.mark.parametrize(
    ("status", "dropped"),
    [
        ("unreadable", {"cut", "empty"}),
        ("damaged", {"odd"}),
        ("abstain", {"no"}),
        ("readable", {"yes", "fixed", "scored", FOLLOW_UP}),
    ],
)
def test_only_selected_answers_are_dropped(tmp_path: Path, status: Status, dropped: set[str]) -> None:
    path = tmp_path / "r.db"
    fill(path)
    fill(path, "other")
    before, content = keys(path), path.read_bytes()
    wanted = Wanted(status, "m", "motif")
    ((_, count, groups),) = forget(path, wanted, really=False)
    assert count == len(before)
    assert sum(group.answers for group in groups.values()) == len(dropped)
    assert path.read_bytes() == content, "said, and not done"
    list(forget(path, wanted, really=True))
    assert before - keys(path) == dropped
    ((_, _, groups),) = forget(path, wanted, really=True)
    assert not groups


@pytest.mark.parametrize("kind", ["action", "subgoal"])
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"analysis": "The door is left.", "choice": "turn left"}', "readable"),
        ("turn left", "readable"),
        ("I cannot choose between these actions.", "abstain"),
        ("I am not sure yet.\nLet me look again, and think about what the agent has seen.", "unreadable"),
        ("", "unreadable"),
    ],
)
def test_the_options_of_an_action_are_not_needed(tmp_path: Path, kind: str, text: str, status: Status) -> None:
    with ResponseStore(tmp_path / "r.db") as store:
        request = ChatRequest((Message("user", "?"),), key="k")
        store.put(Exchange("k", Identity("m", "", "http://h"), request, Reply(text), f"{kind}/x", "abcd1234", 0.25))
    ((_, _, groups),) = forget(tmp_path / "r.db", Wanted(), really=False)
    assert [found for _, _, found, _ in groups] == [status]


def test_models_and_prompts_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    for model, prompt in (("m", "motif"), ("n", "motif"), ("m", "other")):
        fill(path, model, prompt)
    ((_, _, groups),) = forget(path, Wanted(prompt="other"), really=True)
    assert {model_prompt[:2] for model_prompt in groups} == {("m", "other")}
    ((_, _, groups),) = forget(path, Wanted(prompt="abcd"), really=False)
    assert {model_prompt[:2] for model_prompt in groups} == {("m", "motif"), ("n", "motif")}
    list(forget(path, Wanted(model="n"), really=True))
    assert keys(path) == {*HELD, FOLLOW_UP}


def test_stores_that_steps_left_in_a_folder_do_not_bring_them_back(tmp_path: Path) -> None:
    folder = tmp_path / "bucket"
    with mirrored(tmp_path / "a.db", folder):
        fill(tmp_path / "a.db")
    assert len(list(forget(folder, Wanted("unreadable"), really=True))) == 1
    with mirrored(tmp_path / "b.db", folder):
        assert keys(tmp_path / "b.db") == {*HELD, FOLLOW_UP} - {"cut", "empty"}
    assert not [file for file in folder.iterdir() if file.suffix != ".db"], "nothing beside the stores"


def test_the_command_lists_answers_and_drops_them_on_confirmation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "r.db")
    command = ["annotate", "forget", "--store", "r.db", "--status", "unreadable"]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "r.db: 2 of 8 answers\n" in told
    assert "cut off at its token limit" in told
    assert "$0.25" in told
    assert "Nothing was dropped." in told
    assert len(keys(tmp_path / "r.db")) == 8
    assert main([*command, "--yes"]) == 0
    assert "2 of 8 answers dropped" in capsys.readouterr().out
    assert len(keys(tmp_path / "r.db")) == 6


@pytest.mark.parametrize(
    ("counted", "told"), [(2, ["220", "$0.50"]), (1, ["at least 110", "at least $0.25"]), (0, ["unknown", "unknown"])]
)
def test_answers_without_a_token_count_make_tokens_and_cost_lower_bounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], counted: int, told: list[str]
) -> None:
    path = tmp_path / "r.db"
    with ResponseStore(path) as store:
        for key in range(2):
            reply = Reply("", None, 100, 10) if key < counted else Reply("", None, None, None)
            request = ChatRequest((Message("user", "?"),), key=str(key))
            cost = 0.25 if key < counted else None
            store.put(Exchange(str(key), Identity("m", "", "http://h"), request, reply, "motif", "abcd1234", cost))
    assert main(["annotate", "forget", "--store", str(path), "--model", "m"]) == 0
    _, _, row, _ = capsys.readouterr().out.splitlines()
    assert re.split(r"  +", row.strip())[4:6] == told


@pytest.mark.parametrize(
    ("options", "words"), [([], "select answers with --status"), (["--model", "m"], "no such store of answers")]
)
def test_missing_or_unknown_options_of_forget_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["annotate", "forget", "--store", "r.db", *options]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "r.db").exists()


def test_an_answer_about_actions_is_read_by_the_options_that_its_prompt_lists(tmp_path: Path) -> None:
    """Any short text counted as readable, so that nonsense could not be forgotten."""
    path, asked = tmp_path / "r.db", "The actions:\n- turn left\n- move forward\n\nThe state: ..."
    answers = {"named": "Turn left.", "json": '{"choice": "move forward"}', "other": "fly", "nonsense": "Hm, well."}
    with ResponseStore(path) as store:
        for key, text in answers.items():
            request = ChatRequest((Message("user", asked),), key=key)
            reply = Reply(text, None, 100, 10)
            store.put(Exchange(key, Identity("m", "", "http://h"), request, reply, "action/choose", "abcd1234", 0.25))
        request = ChatRequest((Message("user", "Which way?"),), key="unlisted")
        reply = Reply("Left.", None, 100, 10)
        store.put(Exchange("unlisted", Identity("m", "", "http://h"), request, reply, "action/mine", "abcd1234", 0.25))
    list(forget(path, Wanted("unreadable"), really=True))
    assert keys(path) == {"named", "json", "unlisted"}

"""`laurel prompt` as a user meets it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from laurel.cli.app import main
from laurel.data.captions import read_segments
from laurel.envs import adapter_for
from laurel.feedback.questions.pair import FORM, load_prompt
from laurel.params import EnvParams
from tiny_project import UNTRACKED, Project

EMPTY = "MiniGrid-Empty-5x5-v0"
ADAPTER = adapter_for(EnvParams(id=EMPTY), with_action=True)
CAPTIONS = {ADAPTER.describe(event) for event in ADAPTER.events()} - {""}
SMALL = (
    "---\nanswer: choice\n---\n{% block user %}{{ goal }} {{ first }} or {{ second }}?{% endblock %}"
    "{% block follow_up %}Well?{% endblock %}"
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = Project.create(tmp_path / "p", {**UNTRACKED, "env.backend": "gymnasium", "collect.steps": 60})
    monkeypatch.chdir(project.path)
    return project


def test_list_names_each_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prompt", "list"]) == 0
    told = capsys.readouterr().out
    assert all(len(line) <= 100 for line in told.splitlines())
    for name in FORM.packaged:
        (line,) = [line for line in told.splitlines() if line.startswith(f"{name} ")]
        assert load_prompt(name).digest[:12] in line
        assert load_prompt(name).answer in line


def test_show_asks_about_what_was_captioned(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.run("collect", "caption")
    segments = read_segments(project.path / "data" / "captions")
    often = sorted(range(len(segments)), key=lambda i: -segments.counts[i])[:2]
    capsys.readouterr()
    assert main(["prompt", "show", "chain_of_thought"]) == 0
    told = capsys.readouterr().out
    assert "the two most frequent in data/captions" in told
    assert all(f': "{segments.texts[i]}"\n' in told for i in often)
    order = [told.index(part) for part in ("--- system ---", "--- user ---", "--- user, once more")]
    assert order == sorted(order)


def test_show_without_captions_says_where_its_own_are_from(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prompt", "show", "--captions", "nowhere"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"prompt:   motif ({load_prompt('motif').digest[:12]})")
    assert "item:     two captions of MiniGrid-Empty-5x5-v0, as nowhere does not exist" in told
    Project.create(project.path, {**UNTRACKED, "env.id": "Pendulum-v1"})
    assert main(["prompt", "show"]) == 0
    assert "item:     made up, as data/captions does not exist" in capsys.readouterr().out


def test_show_steers_ones_own_prompt(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    (project.path / "mine.jinja").write_text(SMALL)
    assert main(["prompt", "show", "mine.jinja", "--goal", "Turn all the time."]) == 0
    told = capsys.readouterr().out
    assert "--- user ---\nTurn all the time. " in told
    assert "--- system ---" not in told
    assert "answer:   1 or 2" in told


def test_show_knows_what_each_prompt_is_about(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """Captions stand in it whole, two where it is about two; a prompt for code has the environment's numbers."""
    project.change({"caption.with_action": True})
    assert main(["prompt", "list"]) == 0
    labels = re.findall(r"(?m)^([a-z_/]+) ", capsys.readouterr().out)
    assert {"motif", "code/write", "sensible/yes_no"} <= set(labels)
    for label in labels:
        assert main(["prompt", "show", label]) == 0, label
        told = capsys.readouterr().out
        kind = label.partition("/")[0] if "/" in label else "pair"
        texts = {text for text in re.findall(r'"([^"\n]+)"', told) if text in CAPTIONS}
        of_two = kind in {"pair", "score", "interesting", "sensible"}
        assert len(texts) == (0 if kind in {"code", "action", "subgoal"} else 1 + of_two), label
        assert (f"made up for {EMPTY}" in told) == (kind == "code")


def test_show_offers_the_subgoals_that_the_planner_does(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """It listed the actions' names as subgoals, also where there is no planner."""
    assert main(["prompt", "show", "subgoal/likeliest"]) == 0
    told = capsys.readouterr().out
    assert "The subgoals:\n- You see something new.\n- You reach the goal.\n\n" in told
    assert '"Reports: Nothing happened yet. Now: You face ' in told
    project.change({"env.id": "FrozenLake-v1", "env.backend": "auto"})
    assert main(["prompt", "show", "subgoal/likeliest"]) == 2
    assert "subgoals exist only in MiniGrid's tasks, and FrozenLake-v1 is not" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["motiv"], 'prompt: "motiv" is unknown. Did you mean "motif"?'),
        (["gone.jinja"], "gone.jinja: no such file."),
        (["--goal", "explor"], 'Did you mean "explore"?'),
        (["with_action"], "Set caption.with_action: true"),
        (["--params", "none.yaml"], "none.yaml: no such file."),
        (["--captions", "."], "manifest.json: no such file, so . is not the whole output"),
    ],
)
def test_mistakes_are_a_sentence(
    project: Project, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(["prompt", "show", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("laurel: ")
    assert told.err.count("\n") == 1
    assert sentence in told.err

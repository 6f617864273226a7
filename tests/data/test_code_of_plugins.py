"""The code of other packages, whose kinds params name: it changes under the same name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from installed import install
from laurel.data.own_files import code_of_plugins, contents_named

FORWARD = {"arms": [{"name": "ahead", "reward": {"forward": 1.0}}], "rewards": {"forward": {"kind": "forward"}}}


def test_a_change_of_a_method_or_of_what_lies_beside_it_is_seen(examples: Path) -> None:
    link = examples / "laurel_examples"
    copied = link.resolve()
    link.unlink()
    shutil.copytree(copied, link)
    before = code_of_plugins(FORWARD)
    assert {"laurel_examples/forward.py", "laurel_examples/zero_to_ten.jinja"} <= before.keys()
    for name in ("forward.py", "zero_to_ten.jinja"):
        file = link / name
        file.write_text(f"{file.read_text()}\n")
        after = code_of_plugins(FORWARD)
        assert {name for name in after if after[name] != before[name]} == {f"laurel_examples/{name}"}
        before = after
    assert contents_named(FORWARD) == before


@pytest.mark.usefixtures("examples")
def test_others_do_not_count() -> None:
    assert code_of_plugins({"arms": [{"name": "a", "reward": {"preference": 1.0}}], "seed": 3}) == {}


@pytest.mark.usefixtures("examples")
def test_questions_of_a_further_package_count_where_a_plug_in_may_ask_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_questions.py").touch()
    install(tmp_path, "theirs", {"laurel.questions": {"kindness": "their_questions"}})
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"laurel_examples/forward.py", "their_questions.py"} <= code_of_plugins(FORWARD).keys()
    assert code_of_plugins({"rewards": {"preference": {}}}) == {}, "built-in methods ask built-in questions"


@pytest.mark.usefixtures("examples")
def test_an_adapter_counts_where_it_describes_the_environment() -> None:
    """Its id finds it, not the name of its entry point."""
    assert "laurel_examples/pendulum.py" in code_of_plugins({"env": {"id": "Pendulum-v1"}})
    assert code_of_plugins({"env": {"id": "CartPole-v1"}}) == {}
    assert code_of_plugins({"env": {"id": "gone:Away-v0"}}) == {}, "whoever makes it says so"


@pytest.mark.parametrize(
    ("files", "entry", "seen"),
    [
        (("mine.py",), "mine", {"mine.py"}),
        (
            ("mine/__init__.py", "mine/a/reward.py", "mine/a/__pycache__/reward.pyc"),
            "mine.a.reward:Mine",
            {"mine/__init__.py", "mine/a/reward.py"},
        ),
        (
            ("space/mine.py", "space/b.py", "space/c/d.py"),
            "space.mine",
            {"space/mine.py", "space/b.py"},
        ),
        (
            ("space/mine/__init__.py", "space/mine/a/b.py", "space/other.py"),
            "space.mine",
            {"space/mine/__init__.py", "space/mine/a/b.py"},
        ),
        (("other.py",), "gone.away", set()),
    ],
)
def test_which_files_are_of_a_plug_in(
    files: tuple[str, ...], entry: str, seen: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in files:
        file = tmp_path / "site" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    install(tmp_path / "site", "own", {"laurel.rewards": {"mine": entry}})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    content: Any = {"rewards": {"own": {"kind": "mine"}}}
    assert code_of_plugins(content).keys() == seen

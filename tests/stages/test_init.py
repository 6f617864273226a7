"""A project of one's own: complete, refused where it would overwrite, and the same for DVC as the repository's."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from laurel.cli.app import main
from laurel.errors import DataError
from laurel.params import load_params
from laurel.stages.init import OWN, OWN_PROMPT, contents, dvc_graph, init
from laurel.stages.preflight import check_run
from tiny_project import REPOSITORY


def test_a_new_project_fits_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my-study"]) == 0
    monkeypatch.chdir(tmp_path / "my-study")
    assert {path.name for path in Path().iterdir()} == set(contents())
    assert check_run(load_params(Path("params.yaml"))).goal == "You walk right and reach the end of the corridor."
    assert main(["prompt", "show", "prompt.jinja"]) == 0
    for key in (part for stage in dvc_graph()["stages"].values() for part in stage["params"]):
        content = yaml.safe_load(Path("params.yaml").read_text())
        for part in key.split("."):
            assert part in content, "DVC refuses parameters that the file does not have"
            content = content[part]


def test_a_project_has_the_stages_of_the_repository(tmp_path: Path) -> None:
    ours = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())["stages"]
    for stage in ours.values():
        stage["params"] = set(stage["params"])
        stage["deps"] = {name for name in stage["deps"] if not name.startswith("src/")}
    theirs = yaml.safe_load(contents()["dvc.yaml"])["stages"]
    for stage in theirs.values():
        stage["params"] = set(stage["params"])
        stage["deps"] = set(stage.get("deps", ())) - {OWN, OWN_PROMPT}
    assert theirs == ours
    assert contents()[".dvcignore"].splitlines() == [
        line for line in (REPOSITORY / ".dvcignore").read_text().splitlines() if line not in ("*.pyc", "*.egg-info")
    ]


def test_files_that_dvc_does_not_see_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], examples: Path
) -> None:
    """After editing such a file, or another package's reward method, `dvc repro` has nothing to do."""
    init(tmp_path / "study")
    monkeypatch.chdir(tmp_path / "study")
    params = Path("params.yaml")
    params.write_text(params.read_text().replace("prompt: motif ", "prompt: prompt.jinja "))
    assert main(["check"]) == 0
    assert "dvc repro" not in capsys.readouterr().err, "dvc.yaml names all files of the template"
    Path("prompt.jinja").rename("mine.jinja")
    params.write_text(params.read_text().replace("prompt: prompt.jinja", "prompt: mine.jinja"))
    assert main(["check"]) == 0
    assert "dvc repro does not see changes of mine.jinja: name it in dvc.yaml, as one of the deps of annotate, " in (
        capsys.readouterr().err
    )
    params.write_text(params.read_text().replace("arms: [extrinsic, ", "arms: [{name: ahead, reward: forward}, "))
    assert main(["check"]) == 0
    package = examples / "laurel_examples"
    assert (
        f"dvc repro does not see changes of {package}: name it in dvc.yaml, as one of the deps of train-reward, "
        in (capsys.readouterr().err)
    )


def test_no_file_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="is not empty, and was not changed"):
        init(mine)
    assert [path.name for path in mine.iterdir()] == ["notes.txt"]
    with pytest.raises(DataError, match="is a file"):
        init(mine / "notes.txt")
    for name in ("a b", "-x", "käse"):
        with pytest.raises(DataError, match="is not a name for a project"):
            init(tmp_path / name)
    with pytest.raises(DataError, match="there is no directory"):
        init(tmp_path / "none/study")
    monkeypatch.setattr("laurel.stages.init.dvc_graph", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        init(tmp_path / "half")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"], "whole or not at all"
    monkeypatch.undo()
    (mine / "notes.txt").unlink()
    init(mine)
    assert (mine / OWN).exists()

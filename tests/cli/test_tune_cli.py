from __future__ import annotations

from pathlib import Path

import pytest

from laurel.cli.app import main
from laurel.params import load_params
from tiny_project import Project

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def project(rewarded: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = rewarded.copy(tmp_path / "p")
    monkeypatch.chdir(project.path)
    return project


def test_a_search(project: Project, capsys: Captured) -> None:
    arguments = ["--trials", "2", "--steps", "512", "--seeds", "5", "--search", "shaping.beta=1,2", "--sampler", "grid"]
    assert main(["tune", *arguments, "--study", "b"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 trials of the arm preference (2 complete); score: area under the learning curve\n")
    assert "evaluate: cp data/tune/best.yaml params.yaml && laurel run" in said
    assert load_params(Path("data/tune/best.yaml")).shaping.beta in (1.0, 2.0)
    assert Path("data/studies.db").exists()
    assert sorted(path.name for path in Path("data").glob(".*")) == [
        f".{name}.lock"
        for name in ("captions", "preferences", "reward", "studies.b", "studies", "trajectories", "tune")
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--search", "shaping.bet=0:1"], '--search: shaping.bet is unknown. Did you mean "beta"?'),
        (["--arm", "none"], '--arm is "none", but must be one of '),
        (["--study", "../x"], '--study is "../x", but must be made of letters'),
        (["--seeds", "0"], "--seeds names 0, which is one of agent.seeds"),
        (["--seeds", "5", "7", "5"], "--seeds names 5 twice"),
        (["--output", "."], ".: holds files that Laurel did not write. Choose another --output"),
        (["--sampler", "grid"], "--sampler grid needs choices, but shaping.intrinsic is a range"),
        (["--reward", "nowhere"], "nowhere: no such directory."),
    ],
)
def test_mistakes(project: Project, arguments: list[str], sentence: str, capsys: Captured) -> None:
    assert main(["tune", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"laurel: {sentence}")
    assert err.count("\n") == 1
    assert not Path("data/tune").exists()


def test_params_that_no_trial_could_train_are_refused_first(
    project: Project, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laurel.stages.tune.run", lambda *_, **__: pytest.fail("the search began"))
    project.change({"agent.ppo.network": "cnn"})
    assert main(["tune"]) == 2
    assert "agent.ppo.network is cnn, but the features of FrozenLake-v1 contain no image" in capsys.readouterr().err
    project.change({"agent.ppo.network": "auto", "agent.algorithm": "grpo"})
    assert main(["tune", "--search", "agent.algorithm=ppo,dqn,grpo"]) == 2
    assert "texts" in capsys.readouterr().err


def test_params_need_not_fit_where_a_search_replaces_them(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.stages.tune.run", lambda *_, **__: "searched")
    project.change({"agent.algorithm": "grpo"})
    assert main(["tune", "--search", "agent.algorithm=ppo,dqn"]) == 0


@pytest.mark.parametrize("arguments", [["--trials", "0"], ["--seeds", "x"], ["--sampler", "best"], ["--steps", "-1"]])
def test_wrong_usage(project: Project, arguments: list[str], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as end:
        main(["tune", *arguments])
    assert end.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_options_of_a_sweep_need_one(project: Project, capsys: Captured) -> None:
    assert main(["pipeline", "compile", "-o", "p.yaml", "--steps", "5", "--arm", "oracle"]) == 2
    assert "--arm, --steps only applies to a sweep: add --sweep N" in capsys.readouterr().err
    assert main(["pipeline", "compile", "-o", "p.yaml", "--sampler", "grid"]) == 2
    assert "--sampler only applies to a sweep: add --sweep N" in capsys.readouterr().err
    assert main(["pipeline", "compile", "-o", "p.yaml", "--sweep", "101"]) == 2
    assert "--sweep is 101, but at most 100 branches can be collected." in capsys.readouterr().err

"""The command line as a user meets it: help, exit codes, one sentence for each mistake."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from laurel import __version__
from laurel.cli.app import main
from laurel.console import REASON_FILE
from laurel.data.lineage import PRODUCERS
from laurel.stages.pipeline import PLACES, STAGES, Stage
from tiny_project import STAGE, UNTRACKED, Project

COMMANDS = [
    [],
    *([stage.name] for stage in STAGES),
    ["check"],
    ["params"],
    ["show"],
    ["table"],
    ["ui"],
    ["play"],
    ["export"],
    ["export", "minari"],
    ["export", "responses"],
    ["tune"],
]
COMMANDS += [["pipeline", action] for action in ("compile", "run", "submit", "status", "cancel")]
COMMANDS += [
    ["prompt", "list"],
    ["prompt", "show"],
    ["annotate", "probe"],
    ["annotate", "compare"],
    ["annotate", "forget"],
    ["annotate", "review"],
]
HEAVY = {"torch", "numpy", "pydantic", "mlflow", "transformers", "gymnasium", "pandas", "matplotlib", "pyarrow", "yaml"}
HEAVY |= {"jinja2"}


Refused = Callable[..., str]


@pytest.fixture
def refused(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that must fail with one sentence; return the sentence."""

    def refused(*arguments: str | Path) -> str:
        monkeypatch.chdir(project.path)
        assert main([str(argument) for argument in arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        err = re.sub(r"(?m)^[a-z-]+: [\d,]+/[\d,]+ .*\n", "", err)  # progress, where the machine is slow
        assert err.startswith("laurel: ")
        assert err.count("\n") == 1, "one line"
        assert err.rstrip()[-1] in ".?"
        return err.removeprefix("laurel: ").rstrip()

    return refused


def test_inputs_are_made_by_the_stages_that_manifests_name() -> None:
    assert {name: STAGE[producer].output for name, producer in PRODUCERS.items()} == PLACES


# -- help -----------------------------------------------------------------------------------------
HELP = """
import contextlib, io, json, sys
from laurel.cli.app import main

found = []
for command in json.loads(sys.argv[1]):
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    found.append((command, told.getvalue(), sorted(sys.modules)))
print(json.dumps(found))
"""


def heavy(modules: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules} & HEAVY


def test_help_is_light_and_has_an_example(tmp_path: Path) -> None:
    """Of each command, in one process: what one imports, the later ones have as well, so the first is named."""
    done = subprocess.run(
        [sys.executable, "-c", HELP, json.dumps(COMMANDS)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    for command, told, modules in json.loads(done.stdout):
        assert "laurel.cli.app" in modules
        assert heavy(modules) == set(), command
        assert f"\n  laurel {' '.join(command)}" in told if command else "laurel collect --help" in told
    assert list(tmp_path.iterdir()) == []


def test_a_process_of_the_command_line_is_light() -> None:
    """From its first import; that of `laurel.params` shows that heavy ones are seen."""

    def imported(*command: str) -> set[str]:
        python = [sys.executable, "-X", "importtime", *command]
        done = subprocess.run(python, capture_output=True, text=True, check=True)
        return heavy(line.rpartition("|")[2].strip() for line in done.stderr.splitlines())

    assert imported("-m", "laurel", "--help") == set()
    assert {"pydantic", "yaml"} <= imported("-c", "import laurel.params")


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_every_option_of_a_stage_is_explained(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([stage.name, "--help"])
    assert end.value.code == 0
    told = capsys.readouterr().out
    assert stage.summary in told
    for option in ("params", "output", "debug", *stage.inputs):
        (line,) = [line for line in told.splitlines() if line.strip().startswith(f"--{option} ")]
        assert len(line.split()) > 2, f"--{option} says what it is"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"laurel {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "laurel: the following arguments are required: COMMAND. laurel --help lists what is allowed."),
        (["colect"], 'laurel: argument COMMAND: invalid choice: "colect". Did you mean "collect"? laurel --help'),
        (["collect", "--otput=x"], 'laurel collect: unrecognized arguments: --otput=x. Did you mean "--output"?'),
        (
            ["pipeline", "compile", "-o", "x", "--in-imaje"],
            "laurel pipeline compile: unrecognized arguments: --in-imaje.",
        ),
        (["annotate", "comapre"], 'invalid choice: "comapre". Did you mean "compare"? laurel annotate --help lists'),
        (["collect", "--stepz", "3"], "laurel collect: unrecognized arguments: --stepz 3. laurel collect --help lists"),
        (["tune", "--trials", "0"], "laurel tune: argument --trials: "),
        (["show"], "laurel show: the following arguments are required: "),
        (["export"], "laurel export: the following arguments are required: "),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


# -- what a user can fix -------------------------------------------------------------------------
def test_missing_params(refused: Refused) -> None:
    assert refused("collect", "--params", "nope.yaml").startswith("nope.yaml: no such file.")
    assert refused("collect", "--params", ".").startswith(".: cannot be read")


def test_wrong_params(project: Project, refused: Refused) -> None:
    for changes, sentence in (
        ({"agent.stepz": 3}, 'params.yaml: agent.stepz is unknown. Did you mean "steps"?'),
        ({"arms": ["extrinsik"]}, 'Did you mean "extrinsic"?'),
        ({"arms": "ful"}, 'Did you mean "full"?'),
        ({"agent.steps": "many"}, 'params.yaml: agent.steps is "many", but must be a whole number.'),
        ({"env.id": "MiniGrid-Emty-5x5-v0"}, 'Did you mean "MiniGrid-Empty-5x5-v0"?'),
        ({"env.id": "FrozenLak-v1"}, 'Did you mean "FrozenLake-v1"?'),
        ({"env.kwargs": {"sise": 5}}, "env.kwargs: MiniGrid-Empty-5x5-v0 cannot be made with"),
        ({"collect.policies": [{"kind": "checkpoint", "path": "none"}]}, "none: no such directory"),
    ):
        Project.create(project.path, {**UNTRACKED, **changes})
        assert sentence in refused("collect")
        assert not project.output("collect").parent.exists()


def test_a_params_file_cannot_control_the_terminal(project: Project, refused: Refused) -> None:
    Project.create(project.path, {**UNTRACKED, "env.id": "Cart\x1b[31mPole-v1"})
    said = refused("collect")
    assert r"Cart\x1b[31mPole-v1" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage.inputs], ids=lambda stage: stage.name)
def test_missing_and_foreign_inputs(refused: Refused, project: Project, finished: Project, stage: Stage) -> None:
    assert f"{PLACES[stage.inputs[0]]}: no such directory. Run laurel run or laurel" in refused(stage.name)
    for name in stage.inputs:
        given = {other: finished.inputs("evaluate")[other] for other in stage.inputs}
        options = [str(part) for key, place in given.items() for part in (f"--{key}", place) if key != name]
        assert 'reports: holds the output of "evaluate", but that of' in refused(
            stage.name, *options, f"--{name}", finished.output("evaluate")
        )
    assert not project.output(stage.name).exists()


@pytest.mark.parametrize(
    ("stage", "file"),
    [
        ("caption", "data/trajectories/shard-00001.parquet"),
        ("annotate", "data/captions/segments.parquet"),
        ("train-reward", "data/captions/captions-00001.parquet"),
        ("train-reward", "data/preferences/preferences.parquet"),
        ("train-reward", "data/trajectories/shard-00001.parquet"),
        ("train-agents", "data/reward/preference/vocabulary.parquet"),
        ("train-agents", "data/reward/preference/config.json"),
        ("evaluate", "data/reward/preference/quality.json"),
        ("evaluate", "data/agents/preference/seed-1/curve.parquet"),
        ("evaluate", "data/agents/preference/seed-1/model.safetensors"),
        ("evaluate", "data/agents/manifest.json"),
    ],
)
def test_truncated_inputs(refused: Refused, project: Project, finished: Project, stage: str, file: str) -> None:
    finished.copy(project.path, UNTRACKED)
    damaged = project.path / file
    os.truncate(damaged, damaged.stat().st_size // 2)
    before = finished.output(stage) / "manifest.json"
    sentence = refused(stage)
    assert str(Path(file)) in sentence
    assert (project.output(stage) / "manifest.json").read_bytes() == before.read_bytes(), "the old output stays"


def test_outputs_that_cannot_be_written(refused: Refused, project: Project) -> None:
    assert "params.yaml: cannot be written" in refused("collect", "--output", "params.yaml/data")
    assert "params.yaml: is a file" in refused("collect", "--output", "params.yaml")
    assert "holds files that Laurel did not write" in refused("collect", "--output", ".")
    assert [path.name for path in project.path.iterdir() if not path.name.startswith(".")] == ["params.yaml"]


def test_a_list_of_judges_that_cannot_be_written(refused: Refused, project: Project) -> None:
    (labels := project.path / "labels").mkdir()
    (labels / "manifest.json").write_text('{"stage": "annotate", "digest": ""}')
    assert "params.yaml/x: cannot be written" in refused("judges", "--output", "params.yaml/x")
    assert "which would then count as changed" in refused("judges", "--output", "labels/judges.json")
    assert [path.name for path in labels.iterdir()] == ["manifest.json"]


def test_an_output_without_rights(refused: Refused, project: Project) -> None:
    place = project.path / "locked"
    place.mkdir()
    if os.geteuid() == 0:  # rights do not bind root, a read-only disk does
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place], capture_output=True, check=False)
        if mounted.returncode:
            pytest.skip("mount is not allowed here")
    else:
        place.chmod(0o500)
    try:
        assert "not writable" in refused("collect", "--output", "locked/data")
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", "-l", place], check=True)


def test_debug_shows_the_traceback(project: Project) -> None:
    plain = project.laurel("collect", "--params", "none.yaml")
    assert (plain.returncode, plain.stdout) == (2, "")
    assert plain.stderr == "laurel: none.yaml: no such file. laurel init creates a project with a params file.\n"
    debug = project.laurel("collect", "--params", "none.yaml", "--debug")
    assert debug.returncode == 1
    assert "Traceback" in debug.stderr
    assert plain.stderr.removeprefix("laurel: ") in debug.stderr


def test_a_defect_keeps_its_traceback(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.path)
    monkeypatch.setattr("laurel.stages.collect.run", lambda **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["collect"])


# -- what is there --------------------------------------------------------------------------------
def test_show(finished: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(finished.path)
    for stage in STAGES:
        assert main(["show", stage.output]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"{stage.output}: output of laurel {stage.name}\n")
        assert err == ""
        assert max(map(len, out.splitlines())) <= 100
    assert "extrinsic" in out


def test_table(finished: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(finished.path)
    assert main(["table"]) == 0
    plain = capsys.readouterr().out
    assert [line.split()[0] for line in plain.splitlines()[2:5]] == ["extrinsic", "preference", "random_policy"]
    assert main(["table", "reports", "--markdown"]) == 0
    markdown = capsys.readouterr().out.splitlines()
    assert markdown[0].startswith("| arm | return |")
    assert [line.split("|")[1].strip(" *") for line in markdown[2:5]] == ["extrinsic", "preference", "random_policy"]
    assert "| preference > extrinsic |" in "\n".join(markdown)
    assert "There are too few seeds to tell" in plain
    for number in json.loads((finished.path / "reports/metrics.json").read_text())["arms"]["preference"]["return"][
        "ci95"
    ]:
        assert f"{number:.2f}" in plain
        assert f"{number:.2f}" in markdown[3]


def test_a_table_of_changed_metrics_is_refused(
    finished: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((finished.path / "reports/metrics.json").read_text())
    (tmp_path / "metrics.json").write_text(json.dumps({**content, "order": None}))
    assert main(["table", str(tmp_path)]) == 2
    assert "metrics.json: does not hold the metrics of a report (TypeError" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "", "[]", '{"arms": 3}', '{"env": "x"}', '{"arms": {}}'])
def test_table_of_something_else(refused: Refused, project: Project, content: str | None) -> None:
    if content is not None:
        (project.path / "metrics.json").write_text(content)
    assert "metrics.json" in refused("table", ".")
    assert ".: is not the output of a stage, which has a manifest.json." in refused("show", ".")


def test_export_minari(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.chdir(tmp_path)
    trajectories = str(finished.output("collect"))
    assert main(["export", "minari", "tiny/random-v0", "--trajectories", trajectories, "--output", "sets"]) == 0
    manifest = json.loads((finished.output("collect") / "manifest.json").read_text())
    counts = manifest["counts"]
    out, err = capsys.readouterr()
    assert out == f"{counts['episodes']} episodes, {counts['transitions']} steps in sets/tiny/random-v0\n"
    assert all(line.startswith("export: ") for line in err.splitlines()), "only progress, after a second"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    dataset = minari.load_dataset("tiny/random-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (counts["episodes"], counts["transitions"])


@pytest.mark.parametrize("command", [["show", "data/agents"], ["table"], ["collect", "--help"]], ids=" ".join)
def test_a_closed_pipe_is_no_error(finished: Project, command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = finished.laurel(*command, capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert done.stderr == ""
    assert done.returncode in (0, 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_behind_standard_output(finished: Project) -> None:
    with Path("/dev/full").open("w") as full:
        done = finished.laurel("show", "data/agents", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == "laurel: standard output cannot be written (No space left on device).\n"


def test_a_project_elsewhere(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    params = project.path / "params.yaml"
    assert main(["collect", "--params", str(params), "--output", "here/t"]) == 0
    assert main(["caption", "--params", str(params), "--trajectories", "here/t", "--output", "here/c"]) == 0
    assert sorted(path.name for path in (tmp_path / "here").iterdir() if not path.name.startswith(".")) == ["c", "t"]
    assert not STAGE["collect"].output.startswith("/")
    shutil.rmtree(tmp_path / "here")


@pytest.mark.parametrize(
    "command", [("show", "{}"), ("import", "{}.jsonl"), ("reward", "score", "{}", "text"), ("transfer", "{}", "b")]
)
def test_a_name_that_no_file_can_have(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word.format("x" * 300) for word in command]) == 2
    assert re.search(r"^laurel: x{200}.*: cannot be (used|read) \(File name too long\)", capsys.readouterr().err)


@pytest.mark.parametrize("command", [("show", "{}"), ("compare", "{}", "{}"), ("pipeline", "run", "--output", "{}")])
def test_a_link_to_itself(command: tuple[str, ...], project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    (project.path / "loop").symlink_to("loop")
    params = ["--params", str(project.path / "params.yaml")] if "run" in command else []
    assert main([word.format(project.path / "loop") for word in command] + params) == 2
    assert re.search(r"loop: cannot be (used|written) \(Too many levels of symbolic links\)", capsys.readouterr().err)


def test_why_a_command_fails_is_written_for_whoever_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an unexpected error only the type is shown: its text may be anything, and pages show reasons."""
    reason = tmp_path / "reason"
    monkeypatch.setenv(REASON_FILE, str(reason))
    assert main(["show", str(tmp_path / "nothing")]) == 2
    assert f"laurel: {reason.read_text()}\n" in capsys.readouterr().err
    monkeypatch.setattr("laurel.data.show.describe_directory", lambda *_, **__: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        main(["show", str(tmp_path)])
    assert reason.read_text() == "an unexpected ZeroDivisionError, whose traceback was printed"

"""The scripts, records and table of `make bench`, without measuring."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import time
import tracemalloc
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sayings import Sayings, rollout_of

from laurel.agents.episodes import Episodes
from laurel.evaluation.reward_curves import moving_average
from laurel.evaluation.statistics import steps_to_threshold
from tiny_project import REPOSITORY

BENCHMARKS = REPOSITORY / "benchmarks"
SCRIPTS = sorted(
    file.stem for file in BENCHMARKS.glob("*.py") if file.stem not in ("held", "record", "sampled", "table")
)
RECORDS = sorted((BENCHMARKS / "results").glob("*.json"))
KEYS = {
    *("benchmark", "value", "unit", "target", "met", "peer", "peer_value"),
    *("command", "machine", "versions", "date"),
}


def test_make_bench_runs_every_script() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    lists = re.findall(r"^(?:GPU_)?BENCHMARKS = ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    assert sorted(" ".join(lists).replace("\\\n", " ").split()) == SCRIPTS


def test_make_bench_continues_after_a_benchmark_that_needs_a_gpu(tmp_path: Path) -> None:
    bench = (REPOSITORY / "Makefile").read_text().partition("\nbench:")[2].partition("\n\n")[0]
    (tmp_path / "Makefile").write_text(
        "BENCHMARKS = first\nGPU_BENCHMARKS = second third\nREADY = Makefile\nbench:" + bench
    )
    (tmp_path / "python").write_text(
        "#!/bin/sh\necho $1\ncase $1 in *second.py) exit 2;; *third.py) exit $THIRD;; esac\n"
    )
    (tmp_path / "python").chmod(0o755)
    for code, told in ((2, ["first", "second", "third", "table"]), (1, ["first", "second", "third"])):
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "THIRD": str(code)}
        done = subprocess.run(
            ["make", "--no-print-directory", "bench"], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert [Path(line).stem for line in done.stdout.splitlines()] == told, done.stderr
        assert (done.returncode == 0) == (code == 2)


def test_the_page_matches_the_records() -> None:
    table = importlib.import_module("table")
    assert (BENCHMARKS / "README.md").read_text(encoding="utf-8") == table.table()


def test_readme_says_in_three_lines_what_the_records_say_about_speed() -> None:
    speed = importlib.import_module("table").speed()
    assert len(speed.splitlines()) == 3
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert f"\n\n{speed}\n" in readme, "run: python benchmarks/table.py"
    assert readme.count("**Speed**") == 1


def test_writing_the_page_replaces_readmes_paragraph_on_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = importlib.import_module("table")
    told = table.speed()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "results").symlink_to(BENCHMARKS / "results")
    monkeypatch.setattr(table, "HERE", tmp_path / "benchmarks")
    (tmp_path / "README.md").write_text("a\n\n**Speed**, once:\nslow.\n\n## b\n")
    table.main()
    assert (tmp_path / "README.md").read_text() == f"a\n\n{told}\n## b\n"
    assert (tmp_path / "benchmarks" / "README.md").read_text() == table.table()


def test_every_script_has_a_record_or_the_page_says_why_not() -> None:
    """What a machine lacked is named, with what to run elsewhere."""
    table = importlib.import_module("table")
    records = [json.loads(file.read_text()) for file in RECORDS]
    measured = {script for record in records for script in re.findall(r"benchmarks/(\w+)\.py", record["command"])}
    assert set(SCRIPTS) - measured <= set(table.NOT_MEASURED) <= set(SCRIPTS)
    judged = {record["benchmark"] for record in records if record["met"] is not None}
    for name, why in table.NOT_MEASURED.items():
        assert (f"\n**{name}.** {why}\n" in table.table()) == (name not in judged)


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
def test_a_record_with_a_target_has_a_bound_or_a_peer(file: Path) -> None:
    record: dict[str, Any] = json.loads(file.read_text())
    if record["met"] is not None:
        lacks = record["peer"] in (None, "", "-") or record["peer_value"] in (None, "", [])
        assert not lacks, "a target alone does not say how far one could get"


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
def test_a_record_is_complete(file: Path) -> None:
    record: dict[str, Any] = json.loads(file.read_text())
    assert set(record) >= KEYS
    assert record["benchmark"] == file.stem
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", record["date"])
    script = re.fullmatch(r"python benchmarks/(\w+)\.py( .*)?", record["command"])
    assert script, "a command that can be typed"
    assert script[1] in SCRIPTS
    assert record["met"] is not False or len(record["why"]) > 40, "a missed target is explained"
    for parts in record.get("profile", {}).values():
        assert parts
        assert all(isinstance(number, float) for numbers in parts.values() for number in numbers)


def test_a_record_is_written_whole_under_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = importlib.import_module("record")
    found = {"value": 1.5, "unit": "s", "target": "<= 2", "met": True, "peer": "a clock", "peer_value": 2}
    record.write("of_mine", found, record.about("laurel-rl", remarks=("idle",)), tmp_path / "of_mine.json")
    written = json.loads((tmp_path / "of_mine.json").read_text())
    assert set(written) == KEYS
    assert json.loads(capsys.readouterr().out) == written
    assert [file.name for file in tmp_path.iterdir()] == ["of_mine.json"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_says_what_a_script_measures_without_measuring(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = importlib.import_module(name)
    assert script.__doc__
    for arguments, code in (["--help"], 0), (["--no-such-option"], 2):
        monkeypatch.setattr(sys, "argv", [f"benchmarks/{name}.py", *arguments])
        with pytest.raises(SystemExit) as exit_:
            script.main()
        assert exit_.value.code == code
        if code == 0:
            assert script.__doc__.splitlines()[0] in capsys.readouterr().out


def test_the_clock_takes_episodes_in_the_order_in_which_they_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """As learning curves do; the other sides of the benchmarks do not have Laurel."""
    monkeypatch.syspath_prepend(str(BENCHMARKS / "peers"))
    clock, episodes = importlib.import_module("reaching").Clock(3), Episodes(Sayings(), 3)
    rng = np.random.default_rng(0)
    running = np.zeros(3)
    for _ in range(200):
        reward, over = rng.normal(size=(1, 3)), rng.random((1, 3)) < [[0.9, 0.3, 0.02]]
        running += reward[0]
        clock.reached((i, running[i]) for i in np.flatnonzero(over[0]))
        running[over[0]] = 0
        episodes.follow(rollout_of(np.zeros((1, 3)), extrinsic=reward, terminated=over))
        mean = episodes.figures(at_least=1)["return_mean"]
        assert clock.mean == pytest.approx(mean or 0.0, abs=1e-5)


def test_steps_of_cartpole_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stable-Baselines3 has no rows in which an environment only resets."""
    monkeypatch.syspath_prepend(str(BENCHMARKS / "peers"))
    script, reaching = importlib.import_module("cartpole_ppo"), importlib.import_module("reaching")
    ends: list[int] = []
    reached = reaching.Clock.reached

    def counted(clock: Any, ended: Any) -> Any:
        ended = [*ended]
        ends.append(len(ended))
        return reached(clock, ended)

    monkeypatch.setattr(reaching.Clock, "reached", counted)
    monkeypatch.setattr(script, "STEPS", 1)
    _, steps = script.ours(0)
    assert len(ends) == 32
    assert sum(ends[:-1]) > 50
    assert steps == 64 * 32 - sum(ends[:-1]), "after the end of an episode comes a row that resets"


def test_steps_of_crafting_leave_out_rows_that_only_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    script = importlib.import_module("crafting_steps")
    over = np.zeros(script.N_ENVS, np.bool_)
    over[:3] = True

    class Worlds:
        def reset(self, seed: int) -> None:
            pass

        def step(self, _: Any) -> Any:
            return None, None, over, ~over & False, {}

    monkeypatch.setattr(script.gym, "make_vec", lambda *_, **__: Worlds())
    monkeypatch.setattr(script.time, "perf_counter", iter((0.0, 2.0)).__next__)
    assert script._rate(5) == (5 * script.N_ENVS - 4 * 3) / 2


def test_steps_of_online_agents_are_those_that_a_report_compares_them_with(tmp_path: Path) -> None:
    """A curve begins with means over fewer than 100 episodes."""
    rows = [{"env_steps": 2048 * n, "window": 40 + 20 * n, "success_rate": 0.95 if n < 4 else n / 8} for n in range(9)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "curve.parquet")
    script = importlib.import_module("online_annotation")
    runs = pd.DataFrame(rows).assign(seed=0)
    assert script.steps_to_threshold(tmp_path) == 2048 * 3
    assert steps_to_threshold(runs, "success_rate", script.SOLVED)["per_seed"] == [2048 * 3]


def _busy(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(100))


def test_a_profile_attributes_time_to_the_innermost_part_and_covers_threads() -> None:
    sampling = importlib.import_module("sampled")

    def outer(seconds: float) -> None:
        _busy(seconds)

    both = {"outer": ("test_benchmarks.py", {"outer"}), "inner": ("test_benchmarks.py", {"_busy"})}
    with sampling.sampled() as found:
        outer(0.3)
        _busy(0.1)
    whole = sum(found.values())
    assert sampling.parts_of(found, both)["inner"] > 0.8 * whole
    assert 0.5 * whole < sampling.parts_of(found, {"outer": both["outer"]})["outer"] < 0.9 * whole
    with sampling.sampled(threads=True) as found:
        thread = Thread(target=outer, args=(0.4,))
        thread.start()
        thread.join()
    assert sampling.parts_of(found, {"outer": both["outer"]})["outer"] > 0.2, "the time after its last look is lost"


def test_consecutive_threads_with_a_reused_id_are_distinct() -> None:
    sampling = importlib.import_module("sampled")

    numbers: list[int | None] = []
    began = time.process_time()
    with sampling.sampled(threads=True) as found:
        while len(numbers) < 8 and len(set(numbers)) == len(numbers):  # until one has the number of another
            thread = Thread(target=_busy, args=(0.1,))
            thread.start()
            numbers.append(thread.ident)
            thread.join()
    busy = sampling.parts_of(found, {"busy": ("test_benchmarks.py", {"_busy"})})["busy"]
    assert busy > 0.065 * len(numbers), "two that are counted as one have 0.05 each"
    assert sum(found.values()) < time.process_time() - began + 0.05, "what the first had spent counts once"


def test_memory_is_attributed_to_the_module_that_allocated_it() -> None:
    held = importlib.import_module("held")
    tracemalloc.start(held.FRAMES)
    try:
        kept = moving_average(np.ones(200_000), 3)
        found = held.attributed()
    finally:
        tracemalloc.stop()
    assert kept.nbytes <= found["evaluation.reward_curves"] < 1.1 * kept.nbytes
    assert found[held.ELSE] > 0


@pytest.mark.parametrize("most", [None, "1e12"], ids=["its own peak", "a peak that no poll sees"])
def test_memory_of_a_command_is_attributed(most: str | None, tmp_path: Path) -> None:
    into = tmp_path / "held.json"
    peak = {} if most is None else {importlib.import_module("held").MOST: most}
    command = [sys.executable, BENCHMARKS / "held.py", into, "--version"]
    subprocess.run(command, env={**os.environ, **peak}, check=True, capture_output=True)
    found = json.loads(into.read_text())
    assert 1e5 < sum(found.values()) < 1e9
    if most is not None:  # otherwise a poll may reach 95% of the peak while modules are imported
        assert found["cli.app"] > 1e3


@pytest.mark.parametrize("script", ["limits", "run_time", "seed_batch", "text_reward"])
def test_a_profiles_parts_are_files_and_functions_that_there_are(script: str) -> None:
    """A renamed one would be counted as all else."""
    module = importlib.import_module(script)
    trees = {file.as_posix(): ast.parse(file.read_text()) for file in (REPOSITORY / "src").rglob("*.py")}
    defined = {
        file: {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for file, tree in trees.items()
    }
    divisions = module.PARTS_OF.values() if hasattr(module, "PARTS_OF") else [module.PARTS]
    for part, (place, functions) in (item for division in divisions for item in division.items()):
        files = [file for file in defined if place in file]
        assert files or place == "importlib", f"{part}: no file {place}"
        assert functions <= {name for file in files for name in defined[file]}, part


def test_the_cost_of_the_reward_takes_each_updates_shortest_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a run which is interrupted once counts but for that update; and the work of a seed is counted."""
    doorkey = importlib.import_module("doorkey_ppo")
    assert doorkey.shortest([[1.0, 9.0, 1.0], [1.5, 1.0, 9.0]]) == 3.0
    monkeypatch.syspath_prepend(str(BENCHMARKS / "peers"))
    took: list[float] = []
    clock = doorkey.run(0, True, 0.0, steps=3 * 2048, took=took)
    assert len(took) == 3
    assert 0 < sum(took) <= clock.worked
    monkeypatch.setattr(doorkey, "run", partial(doorkey.run, steps=2048))
    work = doorkey._work(0)
    assert 5 < work["captions"] < 30
    assert 20 < work["sights"] < 2048
    assert work["resets"] == 0


def test_the_profile_of_a_stage_says_how_long_cores_were_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("run_time")
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    seconds = {"parent": (100.0, 112.0, "laurel/pool.py", "run_jobs", 1.0), "worker": (103.0, 111.0, "x.py", "f", 7.5)}
    for name, (began, ended, file, function, cpu) in seconds.items():
        stacks = [[[[file, function]], cpu]]
        found = {"stage": "train-agents", "stacks": stacks, "began": began, "ended": ended}
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
    spent = module.core_seconds(tmp_path, "train-agents", {"waiting": ("laurel/pool.py", {"run_jobs"})})
    assert spent == {"waiting": 1.0, "all else": 7.5, "idle cores": 2 * 12 - 8.5}


def test_processes_of_a_command_write_their_cpu_time(tmp_path: Path) -> None:
    sampling = importlib.import_module("sampled")
    began = time.time()
    code = "import time\nwhile time.process_time() < 0.6: pass\n"
    script = tmp_path / "a_command.py"
    script.write_text(code)
    stacks = tmp_path / "stacks"
    stacks.mkdir()
    environment = sampling.everywhere(stacks, ["busy"])
    for word in ("busy", "other"):
        subprocess.run([sys.executable, script, word], check=True, env=environment)
    (spent,) = sampling.written(stacks).items()
    assert spent[0] == "busy"
    assert 0.3 < sum(spent[1].values()) < 0.7
    assert 0.3 < sampling.spans(stacks)["busy"] < time.time() - began


@pytest.mark.usefixtures("database")
def test_the_limit_of_mlflow_writes_what_an_agents_run_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    scale = importlib.import_module("scale")
    monkeypatch.setattr(scale, "MOST_METRICS", 3)
    client = MlflowClient()
    experiment = client.create_experiment("e", (tmp_path / "artifacts").as_uri())
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "weights").write_text("0")
    run_id = client.create_run(experiment, tags={"arm": "a"}, run_name="a seed 0").info.run_id
    curve = [Metric(name, step / 2, 1000 + step, step) for step in range(4) for name in ("return", "loss")]
    client.log_batch(run_id, metrics=curve, params=[Param("lr", "0.1")])
    scale.log_bare(client, run_id, tmp_path / "agent", 2)
    runs = client.search_runs([experiment])
    assert len(runs) == 3
    for run in runs:
        assert run.data.params == {"lr": "0.1"}
        assert run.data.tags["arm"] == "a"
        for name in ("return", "loss"):
            history = client.get_metric_history(run.info.run_id, name)
            assert [(point.step, point.value) for point in history] == [(step, step / 2) for step in range(4)]
    assert len(list((tmp_path / "artifacts").rglob("weights"))) == 2
    assert len(client.search_model_versions("name = 'bare'")) == 2


def test_the_limit_of_a_report_draws_the_same_figures(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2])
    importlib.import_module("scale").draw_bare({"curve": figure}, "<html></html>", tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"curve.png", "curve.svg", "page.html"}


def test_the_time_left_is_compared_at_the_first_line_after_each_share_of_the_steps() -> None:
    lines = [
        (0.0, "train-agents: 90/1,000 steps (9/s, 500 s left)\n"),  # before a tenth of the way: not looked at
        (10.0, "train-agents: 120/1,000 steps (9/s, 99 s left)\n"),
        (40.0, "train-agents: 450/1,000 steps (9/s, 60 s left)\n"),
        (41.0, "evaluate: 500/1,000 episodes (9/s, 9 s left)\n"),
        (50.0, "train-agents: 500/1,000 steps (9/s, 60 s left)\n"),
        (100.0, "train-agents: 1,000/1,000 steps (9/s, 100 s)\n"),
    ]
    told = importlib.import_module("run_time").time_left(lines)
    assert told["peer_value"] == [[0.12, 99, 90], [0.45, 60, 60], [0.5, 60, 50]]
    assert told["value"] == [0.1, 0.0, 0.2]
    assert told["met"]
    lines[1] = (10.0, "train-agents: 120/1,000 steps (9/s, 70 s left)\n")
    assert not importlib.import_module("run_time").time_left(lines)["met"]

"""A killed stage leaves no half-written file and no process, and does not affect later results."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from laurel.data.replacing import recover
from tiny_project import UNTRACKED, Changes, Project, lasting_content, read_json

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow  # kills and runs again, minutes in all


@pytest.mark.parametrize(
    ("stage", "changes", "every"),
    [
        ("caption", {"caption.with_action": True}, 5),
        pytest.param("collect", {"collect.steps": 700, "collect.shard_steps": 400}, 4),
        pytest.param("annotate", {"annotate.n_pairs": 7}, 5),
        pytest.param("train-reward", {"rewards.preference.max_epochs": 2}, 5),
    ],
)
def test_killed_at_its_steps(finished: Project, tmp_path: Path, stage: str, changes: Changes, every: int) -> None:
    project = finished.copy(tmp_path / "p", {**UNTRACKED, **changes})
    script = [sys.executable, str(HERE / "kill_stages.py"), str(project.path), stage, str(every)]
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**project.environment(), "PYTHONPATH": path}
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("killed up to step")


# -- the command line, at random moments ------------------------------------------------
def kill(project: Project, stage: str, begun: Callable[[], bool], within: float, *, group: bool = True) -> float:
    """Start a stage, kill it within some seconds of its beginning; return after how many.

    Where it was done by then, since the machine is quick or was busy with others, all is put back and it is killed
    earlier.
    """
    kept = shutil.copytree(project.path, project.path.with_name("kept"), symlinks=True)
    for divisor in (1, 2, 4, 8, 16):
        process = project.start(stage)
        deadline = time.monotonic() + 300
        while not begun() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        delay = random.random() * within / divisor
        time.sleep(delay)
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGKILL) if group else process.kill()
        process.communicate(timeout=120)
        project.wait_until_left()
        if partial(project, stage):
            break
        shutil.rmtree(project.path)
        shutil.copytree(kept, project.path, symlinks=True)
    shutil.rmtree(kept)
    return delay


def partial(project: Project, stage: str) -> list[Path]:
    place = project.output(stage)
    return list(place.parent.glob(f".{place.name}.*.partial"))


def test_a_killed_command_leaves_the_old_output(finished: Project, tmp_path: Path) -> None:
    """One of the four whose functions are killed at each of their steps above."""
    stage = "train-reward"
    project = finished.copy(tmp_path / "p", UNTRACKED)
    before = lasting_content(project.output(stage))
    delay = kill(project, stage, lambda: bool(partial(project, stage)), 0.5)
    recover(project.output(stage))  # as the next run does
    assert lasting_content(project.output(stage)) == before, delay
    project.run(stage)
    assert lasting_content(project.output(stage)) == before, delay
    assert partial(project, stage) == []


def began(place: Path) -> dict[str, float]:
    """Return agent -> when its training began, which a checkpoint keeps."""
    found = {}
    for file in sorted(place.glob("*/*/.run.json")):  # .seed-0.previous comes first, and counts if it is alone
        arm, seed = file.parent.parent.name, file.parent.name.removeprefix(".").removesuffix(".previous")
        if not seed.endswith(".writing"):
            found[f"{arm}/{seed}"] = float(read_json(file)["wall"][0])
    return found


def test_killed_agents_are_trained_on(finished: Project, tmp_path: Path) -> None:
    changes = {**UNTRACKED, "agent.steps": 24576, "agent.workers": 2}
    project = finished.copy(tmp_path / "p", changes)
    undisturbed = project.copy(tmp_path / "q")
    undisturbed.run("train-agents")
    place = project.output("train-agents")
    old = lasting_content(place)
    known: dict[str, float] = {}
    killed = time.time_ns()
    for group in (True, False):

        def further(since: int = killed) -> bool:
            states = [file for path in partial(project, "train-agents") for file in path.glob("*/seed-*/state.json")]
            with suppress(FileNotFoundError):  # just replaced
                return any(file.stat().st_mtime_ns > since for file in states)
            return False

        delay = kill(project, "train-agents", further, 0.5, group=group)
        killed = time.time_ns()
        assert lasting_content(place) == old, delay
        now = began(partial(project, "train-agents")[0])
        assert now, "there is something to go on from"
        assert {agent: now[agent] for agent in known} == known, f"trained anew ({delay})"
        known = now
    project.run("train-agents")
    final = began(place)
    assert {agent: final[agent] for agent in known} == known, "trained anew"
    assert lasting_content(place) == lasting_content(undisturbed.output("train-agents"))
    assert partial(project, "train-agents") == []


def test_a_killed_evaluation_resumes(finished: Project, tmp_path: Path) -> None:
    project = finished.copy(tmp_path / "p", {**UNTRACKED, "evaluate.episodes": 8})
    undisturbed = project.copy(tmp_path / "q")
    undisturbed.run("evaluate")
    old = lasting_content(project.output("evaluate"))
    agents = len(list(project.output("train-agents").glob("*/seed-*")))
    played: dict[Path, int] = {}
    for _ in range(2):
        awaited = min(len(played) + 1, agents)  # when all were played, the report is what is killed

        def further(awaited: int = awaited) -> bool:
            return any(len(list(place.glob("episodes/*.parquet"))) >= awaited for place in partial(project, "evaluate"))

        delay = kill(project, "evaluate", further, 0.4)
        assert lasting_content(project.output("evaluate")) == old, delay
        (place,) = partial(project, "evaluate")
        tables = {table: table.stat().st_mtime_ns for table in place.glob("episodes/*.parquet")}
        assert tables
        assert {table: tables[table] for table in played} == played, "what was played is not played again"
        played = tables
    project.run("evaluate")
    assert lasting_content(project.output("evaluate")) == lasting_content(undisturbed.output("evaluate"))
    assert partial(project, "evaluate") == []

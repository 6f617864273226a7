"""A stage that is killed leaves nothing half-written, no process, and no trace in what is done afterwards."""

import subprocess
import sys
from pathlib import Path

import pytest

from tiny_project import UNTRACKED, Changes, Project

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("stage", "changes", "every"),
    [
        ("collect", {"collect.steps": 700, "collect.shard_steps": 400}, 2),
        ("caption", {"caption.with_action": True}, 1),
        pytest.param("annotate", {"annotate.n_pairs": 7}, 3, marks=pytest.mark.slow),
        pytest.param("train-reward", {"reward.max_epochs": 2}, 3, marks=pytest.mark.slow),
    ],
)
def test_killed_at_its_steps(finished: Project, tmp_path: Path, stage: str, changes: Changes, every: int) -> None:
    project = finished.copy(tmp_path / "p", {**UNTRACKED, **changes})
    script = [sys.executable, str(HERE / "kill_stages.py"), str(project.path), stage, str(every)]
    done = subprocess.run(
        script,
        env={**project.environment(), "PYTHONPATH": str(HERE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("killed up to step")

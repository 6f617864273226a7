"""What a pipeline on this machine shows of the lines that its steps print."""

from __future__ import annotations

import io
import threading
from pathlib import Path

from laurel.pipelines.local import _Listener


def test_a_step_that_was_done_at_the_second_attempt_did_not_fail(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        listener = _Listener(log, io.StringIO(), everything=False)
        for line in ("caption: begun", "caption: begun", "caption: done (0.1 s)", "train-reward: begun"):
            listener.write(f"laurel step {line}\n")
    assert listener.unfinished == ["train-reward"]


def test_lines_of_parallel_steps_name_their_branch(tmp_path: Path) -> None:
    """KFP runs each step in a thread of its own, which prints the step's lines."""
    screen, turn = io.StringIO(), threading.Barrier(2)

    def run(branch: str) -> None:
        listener.write(f"laurel step train-agents {branch}: begun\n")
        turn.wait()  # both have begun
        listener.write("train-agents: 1,024/1,024 steps (131/s, 8 s)\n")
        listener.write(f"[KFP Executor 2026-11-29 08:00:00,000 WARNING]: about {branch}\n")

    with (tmp_path / "log").open("w") as log:
        listener = _Listener(log, screen, everything=False)
        threads = [threading.Thread(target=run, args=(branch,)) for branch in ("extrinsic 0,1", "oracle 0,1")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    shown = screen.getvalue().splitlines()
    for branch in ("extrinsic 0,1", "oracle 0,1"):
        assert f"train-agents {branch}: 1,024/1,024 steps (131/s, 8 s)" in shown
        assert f"WARNING: train-agents {branch}: about {branch}" in shown
    assert len(shown) == 6

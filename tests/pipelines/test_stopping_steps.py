"""How the steps of a stopped pipeline end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from laurel.pipelines.stopping import EXECUTOR, StepProcesses, ended_once_interrupted


def test_a_step_that_begins_after_ctrl_c_is_ended() -> None:
    """KFP forgets a thread that it was starting when Ctrl-C was pressed."""
    steps, codes = StepProcesses(), []

    def branch() -> None:
        time.sleep(0.3)
        step = subprocess.run([sys.executable, "-c", "import time; time.sleep(60)", EXECUTOR], check=False)
        codes.append(step.returncode)

    def stopped() -> None:
        with ended_once_interrupted(steps.end, threading.Event()):
            threading.Thread(target=branch).start()
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert codes == [-signal.SIGTERM]

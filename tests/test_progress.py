from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import pytest

from laurel import progress as module
from laurel.progress import progress

Clock = Callable[[float], None]


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let time pass at a word."""
    now = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def wait(seconds: float) -> None:
        now[0] += seconds

    return wait


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == "", "standard output is for results"
    return captured.err.splitlines()


def test_work_under_a_second_has_no_progress_line(wait: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(1000, "collect", "steps") as advance:
        for _ in range(10):
            wait(0.09)
            advance(100)
    assert lines(capsys) == []


def test_a_line_at_the_end_says_how_fast_it_was(wait: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(20_000, "collect", "steps") as advance:
        wait(4)
        advance(20_000)
    assert lines(capsys) == ["collect: 20,000/20,000 steps (5,000/s, 4 s)"]


def test_progress_is_printed_every_ten_seconds(wait: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(3000, "train-agents", "steps") as advance:
        for _ in range(6):
            wait(5)
            advance(500)
    assert lines(capsys) == [
        "train-agents: 1,000/3,000 steps (100/s, 20 s left)",
        "train-agents: 2,000/3,000 steps (100/s, 10 s left)",
        "train-agents: 3,000/3,000 steps (100/s, 30 s)",
    ]


def test_work_of_which_nothing_is_done_has_not_just_begun(wait: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(50, "evaluate", "episodes") as advance:
        wait(90)
        advance(0)
    assert lines(capsys)[0] == "evaluate: 0/50 episodes (0/s, none in 90 s)"


def test_time_before_the_first_unit_counts(wait: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(50, "evaluate", "episodes") as advance:
        wait(11)
        advance(0)
        wait(11)
        advance(25)
    assert lines(capsys) == [
        "evaluate: 0/50 episodes (0/s, just begun)",
        "evaluate: 25/50 episodes (1.1/s, 22 s left)",
        "evaluate: 25/50 episodes (1.1/s, 22 s)",
    ], "it ended early"


def test_slow_work_has_a_fractional_rate(wait: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(4, "tune", "trials") as advance:
        wait(40)
        advance(1)
        wait(40)
        advance(3)
    assert lines(capsys) == ["tune: 1/4 trials (0.025/s, 120 s left)", "tune: 4/4 trials (0.05/s, 80 s)"]


@pytest.mark.parametrize("pauses", [[0.0], [25.0], [2.0, 0.05]], ids=["at once", "after a slow start", "in bursts"])
def test_the_time_left_is_right_within_a_fifth_from_a_tenth_of_the_way(
    wait: Clock, capsys: pytest.CaptureFixture[str], pauses: list[float]
) -> None:
    """Processes start, which takes time once; then each step takes as long, a little more or a little less."""
    took, now = [1.0 + 0.3 * (-1) ** i + (i % 7) / 10 for i in range(200)], 0.0
    with progress(200_000, "train-agents", "steps") as advance:
        wait(pauses[0])
        now += pauses[0]
        begins = [now := now + seconds for seconds in took]
        for i, seconds in enumerate(took):
            wait(seconds)
            advance(1000 if len(pauses) == 1 else 2000 * (i % 2))
            for line in lines(capsys):
                done = int(line.partition(": ")[2].partition("/")[0].replace(",", ""))
                if line.endswith("s left)") and 20_000 <= done < 190_000:
                    left = float(line.rpartition(", ")[2].partition(" ")[0])
                    assert left == pytest.approx(begins[-1] - begins[i], rel=0.2)


A_UNIT = {"quick": 1.0, "usual": 2.0, "slow": 4.0}
"""Seconds that a worker takes for one, by kind of job."""
ORDERS = {
    "the last job alone": [("usual", 70)] * 7 + [("usual", 10)],
    "fewer jobs than make two rounds": [("usual", 100)] * 3,
    "one quick and one slow": [("quick", 100), ("slow", 100)],
    "kinds in turns": [("quick", 20), ("usual", 20), ("slow", 20)] * 10,
    "kinds in turns, the slow first": [("slow", 20), ("usual", 20), ("quick", 20)] * 10,
    "of unequal size": [("quick", 10), ("slow", 30), ("usual", 20), ("slow", 10), ("quick", 40)] * 6,
    "the longest at the end": [("quick", 20), ("slow", 10)] * 10 + [("quick", 20), ("slow", 60)],
}


@pytest.mark.parametrize("step", [1, 4], ids=["unit by unit", "four at a time"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_time_that_jobs_will_take_is_right_within_a_fifth_from_a_tenth_of_the_way(
    wait: Clock, order: str, step: int
) -> None:
    """Two workers do the jobs; each starts for two seconds, and its units take a little more or a little less."""
    jobs = ORDERS[order]
    schedule, waiting, running = module.Schedule(jobs, 2), deque(range(len(jobs))), dict[int, list[float]]()
    now, said = 0.0, []
    while waiting or running:
        while waiting and len(running) < 2:
            schedule.begin(job := waiting.popleft())
            kind, units = jobs[job]
            took = [A_UNIT[kind] * (0.7 + 0.6 * (i % 2)) for i in range(units)]
            running[job] = [now + 2.0 + sum(took[: i + 1]) for i in range(units)]
        wait(0.5)
        now += 0.5
        for job, moments in list(running.items()):
            done = sum(moment <= now for moment in moments)
            if done >= step or done == len(moments):
                schedule.add(job, done, ended=done == len(moments))
                running[job] = moments[done:]
        running = {job: moments for job, moments in running.items() if moments}
        said.append((now, schedule.seconds_left()))
    for moment, left in said:
        if moment >= now / 10:
            assert left == pytest.approx(now - moment, rel=0.2, abs=4)


def test_a_job_that_outruns_others_of_its_kind_is_not_nearly_done(wait: Clock) -> None:
    schedule = module.Schedule([("quick", 1), ("slow", 1)], 1)
    schedule.begin(0)
    wait(1.0)
    schedule.add(0, 1, ended=True)
    schedule.begin(1)
    left = []
    for _ in range(3):
        wait(20.0)
        left.append(schedule.seconds_left())
    assert left == [20.0, 40.0, 60.0], "as long again"


def test_the_first_answers_give_no_estimate_of_the_time_left(wait: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """A server answers after 25 s; the window opens from 4 pairs at once to 32."""
    with progress(2000, "annotate", "pairs") as advance:
        for at_once in (4, 16, 32, 32, 32, 32):
            wait(25)
            for _ in range(at_once):
                advance(1)
    lefts = [line.rpartition(", ")[2].rstrip(")") for line in lines(capsys)]
    assert lefts[:3] == ["just begun"] * 3, "2000 pairs of which one took 25 s are not 50,000 s"
    assert all(1200 < float(left.removesuffix(" s left")) < 2400 for left in lefts[3:-1])


def test_failed_work_is_not_reported_as_finished(wait: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with progress(10, "collect", "steps") as advance:
            wait(5)
            advance(10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert lines(capsys) == []


def test_a_bar_on_a_terminal() -> None:
    code = (
        "from laurel.progress import progress\n"
        "with progress(2000, 'collect', 'steps') as advance:\n"
        "    [advance(1000) for _ in range(2)]\n"
    )
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    done = subprocess.run([sys.executable, "-c", code], stderr=child, stdout=subprocess.PIPE, timeout=300, check=True)
    os.close(child)
    said = ""
    with suppress(OSError), os.fdopen(parent) as stream:  # the end of a terminal is an error
        while character := stream.read(1):
            said += character
    assert done.stdout == b""
    assert "collect" in said
    assert "100%" in said
    assert "2.00k/2.00k" in said
    assert "steps" in said


def test_a_given_estimate_overrides_the_time_left(wait: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(1000, "train-agents", "steps") as advance:
        wait(10)
        advance(100, left=42.0)
    assert lines(capsys)[0] == "train-agents: 100/1,000 steps (10/s, 42 s left)"


def test_earlier_work_does_not_affect_the_time_left(wait: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(1000, "annotate", "pairs") as advance:
        advance(900, free=True)
        for _ in range(2):
            wait(10)
            advance(10)
    assert lines(capsys)[:2] == [
        "annotate: 910/1,000 pairs (1/s, 90 s left)",
        "annotate: 920/1,000 pairs (1/s, 80 s left)",
    ]

"""Ctrl-C takes effect, and neither within an import nor within the start of a process."""

import os
import shlex
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laurel.envs import vector
from laurel.interrupt import HANGUP, PARENT, ctrl_c_held_back, ctrl_c_noted, terminated_like_ctrl_c
from tiny_project import UNTRACKED, Project

STOPPING = [sent for sent in (signal.SIGTERM, HANGUP) if sent is not None]
"""What stops a command besides Ctrl-C."""


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_takes_effect_after_the_block() -> None:
    done = []

    def work() -> None:
        with ctrl_c_held_back():
            press()
            done.append("the rest")
        done.append("more")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the rest"]
    with pytest.raises(KeyboardInterrupt):
        press()


def test_an_error_in_the_block_does_not_swallow_it() -> None:
    def fail() -> None:
        with ctrl_c_held_back():
            press()
            raise ValueError("of a library")

    with pytest.raises(KeyboardInterrupt) as caught:
        fail()
    assert isinstance(caught.value.__context__, ValueError)


def test_a_child_process_of_the_block_ignores_ctrl_c() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('alive')"
    with ctrl_c_held_back():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "alive\n"


def test_envpool_is_imported_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its compiled parts would lose the key, or make an error of their own of it."""
    (tmp_path / "envpool.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nlist_all_envs = list\n"
    )
    for name in [name for name in sys.modules if name.split(".")[0] == "envpool"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        vector._envpool_id("CartPole-v1")
    assert sys.modules.pop("envpool").list_all_envs() == []


def terminate(by: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), by)


@pytest.fixture
def own_terminal() -> Iterator[None]:
    """A terminal that may close: these tests, too, may have been started with nohup."""
    assert HANGUP is not None
    before = signal.signal(HANGUP, signal.SIG_DFL)
    yield
    signal.signal(HANGUP, before)


@pytest.mark.usefixtures("own_terminal")
@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"])
@pytest.mark.parametrize("sent", STOPPING)
def test_sigterm_and_a_closed_terminal_are_like_ctrl_c(sent: signal.Signals, ctrl_c: Any) -> None:
    done = []
    before = signal.signal(signal.SIGINT, ctrl_c)

    def work() -> None:
        with terminated_like_ctrl_c():
            with ctrl_c_held_back():
                terminate(sent)
                done.append("the rest")
            done.append("more")

    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["the rest"]
    assert signal.getsignal(sent) == signal.SIG_DFL


@pytest.mark.usefixtures("own_terminal")
def test_nohup_is_respected() -> None:
    assert HANGUP is not None
    signal.signal(HANGUP, signal.SIG_IGN)
    with terminated_like_ctrl_c():
        terminate(HANGUP)
    assert signal.getsignal(HANGUP) == signal.SIG_IGN


def test_sigterm_stops_a_process_that_ignores_ctrl_c() -> None:
    """A shell lets what runs in its background ignore Ctrl-C."""
    done = []

    def work() -> None:
        with terminated_like_ctrl_c():
            with ctrl_c_held_back():
                press()
                done.append("Ctrl-C is ignored")
            with ctrl_c_noted(lambda: done.append("woken")) as pressed:
                press()
                assert not pressed()
                terminate()
                assert pressed()
                done.append("what was on its way")
            done.append("more")

    def start() -> None:
        with terminated_like_ctrl_c():
            with ctrl_c_held_back():
                terminate()
                done.append("started")
            done.append("more")

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for each in (work, start):
            with pytest.raises(KeyboardInterrupt):
                each()
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["Ctrl-C is ignored", "woken", "what was on its way", "started"]


@pytest.mark.usefixtures("own_terminal")
@pytest.mark.parametrize("sent", STOPPING)
def test_a_terminated_command_leaves_no_files(tmp_path: Path, sent: signal.Signals) -> None:
    project = Project.create(tmp_path / "p", {**UNTRACKED, "collect.steps": 10_000_000})
    process = project.start("collect")
    place = project.output("collect")
    while not list(place.parent.glob(".*.partial")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(sent)
    _, said = process.communicate(timeout=120)
    ended = (130, -signal.SIGINT)  # the second where it came within exec(), which CPython passes on; 130 in a shell
    assert process.returncode in ended, said
    assert said.endswith("laurel: stopped. Run the same command again to resume.\n")
    assert [path.name for path in place.parent.iterdir()] == [".trajectories.lock"]
    project.wait_until_left()


class Watched:
    """What a weak reference can point to."""


def test_ctrl_c_where_python_ignores_exceptions_takes_effect_a_moment_later(capsys: pytest.CaptureFixture[str]) -> None:
    """As in the callbacks of the import system, while modules are imported."""
    watched = Watched()
    ended = weakref.ref(watched, lambda _: press())
    done = []

    def work() -> None:
        nonlocal watched
        with terminated_like_ctrl_c():
            del watched
            done.append("ignored")
            time.sleep(20)
            done.append("lost")

    hook = sys.unraisablehook
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        work()
    assert time.monotonic() - started < 15, "it did not wake the main thread"
    assert done == ["ignored"]
    assert ended() is None
    assert sys.unraisablehook is hook
    assert "Traceback" not in capsys.readouterr().err


def test_other_errors_that_python_ignores_are_shown_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: shown.append(ignored.exc_type))
    watched = Watched()
    ended = weakref.ref(watched, lambda _: 1 // 0)
    with terminated_like_ctrl_c():
        del watched
    assert ended() is None
    assert shown == [ZeroDivisionError]


def test_a_step_stops_once_its_pipeline_is_killed(tmp_path: Path) -> None:
    """KFP starts steps by a shell, which goes on."""
    step = (
        "import pathlib, time\n"
        "from laurel.components.step import step\n"
        "with step('annotate', tracking={'enabled': False}):\n"
        f"    try: pathlib.Path({str(tmp_path)!r}, 'begun').touch(); time.sleep(120)\n"
        f"    except KeyboardInterrupt: pathlib.Path({str(tmp_path)!r}, 'stopped').touch()\n"
    )
    shell = f"{shlex.quote(sys.executable)} -c {shlex.quote(step)}; true"
    pipeline = (
        f"import os, subprocess\nos.environ[{PARENT!r}] = str(os.getpid())\nsubprocess.run(['sh', '-c', {shell!r}])"
    )
    with subprocess.Popen([sys.executable, "-c", pipeline], stderr=subprocess.DEVNULL) as process:
        for name in ("begun", "stopped"):
            until = time.monotonic() + 60
            while not (tmp_path / name).exists():
                assert time.monotonic() < until, name
                time.sleep(0.01)
            process.kill()

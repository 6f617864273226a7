"""Games of NetHack in several processes: the same ones as in one, and what becomes of processes that end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from laurel.envs.builtin.nethack import Games
from laurel.errors import EnvError

pytest.importorskip("nle")
PROGRAM = """
import os, signal
from laurel.envs.builtin.nethack import Games
games = Games(2, processes=2)
print(games._games._processes[0]._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_games_are_the_same_ones_in_one_process_or_many() -> None:
    """Over the ends of episodes, whose next ones are drawn in turns."""

    def played(processes: int) -> list[bytes]:
        env = gym.make_vec(
            "laurel/NetHack-v0", num_envs=5, vectorization_mode="vector_entry_point", max_episode_steps=12,
            processes=processes,
        )  # fmt: skip
        found = [env.reset(seed=3)[0].tobytes()]
        for action in np.random.default_rng(0).integers(23, size=(40, 5)):
            rows, rewards, ended, cut, info = env.step(action)
            found += [array.tobytes() for array in (rows, rewards, ended, cut, info["stairs"], info["target"])]
        env.close()
        return found

    alone = played(1)
    assert played(2) == alone
    assert played(9) == alone, "one each: there are no more than games"


def test_a_process_that_is_killed_is_reported_and_the_others_end() -> None:
    games = Games(3, processes=3)
    games.begin([True] * 3, np.random.default_rng(0))
    first, second = (game._process for game in games._games._processes)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    with pytest.raises(
        EnvError, match=r"the process of games 1 to 1 ended \(killed by signal 9 \(out of memory\?\)\)\."
    ):
        games.step([1, 1, 1])
    games.close()
    assert second.poll() == 0


def test_processes_end_with_their_parent() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    process = Path("/proc", done.stdout.strip())
    until = time.monotonic() + 20
    while process.exists() and process.joinpath("stat").read_text().rpartition(") ")[2][0] != "Z":
        assert time.monotonic() < until
        time.sleep(0.05)


def test_wrong_numbers_of_processes() -> None:
    with pytest.raises(EnvError, match="processes is 0; it must be at least 1"):
        Games(2, processes=0)
    with pytest.raises(EnvError, match="crop is 4"):
        Games(2, processes=2, crop=4)

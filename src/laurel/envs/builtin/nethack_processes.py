"""Games of NetHack in separate processes, which write observations into shared memory.

The caller draws all seeds, so the number of processes does not change the games.
"""

from __future__ import annotations

import mmap
import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import numpy as np

from laurel.envs.builtin.nethack_game import Game, arrays, draw_game, memory_of, views
from laurel.errors import EnvError
from laurel.interrupt import ignore_terminal

STOP_SECONDS = 5.0
"""Seconds that a process has to end its games."""


@dataclass(frozen=True, slots=True)
class OtherGame:
    """A game that runs in another process."""

    place: int
    process: GamesProcess

    def begin(self, rng: np.random.Generator) -> None:
        """As `Game.begin`."""
        draw_game(lambda *seeds: bool(self.process.ask("start", self.place, *seeds)), rng, self.process.drawn_from)


class GamesProcess:
    """A process that runs some of N games; it ends when it is closed or its parent ends."""

    def __init__(self, memory: IO[bytes], number: int, places: range, options: Mapping[str, Any]) -> None:
        self.places, self.drawn_from = places, options.get("games")
        self._pipe, child_end = multiprocessing.Pipe()
        files = child_end.fileno(), memory.fileno()
        # not a multiprocessing.Process: agents train in daemonic processes, which may not have children
        self._process = subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-m", __name__, *map(str, files)], pass_fds=files, stdin=subprocess.DEVNULL
        )
        child_end.close()
        self.send(number, places, options)

    def ask(self, *request: Any) -> Any:
        """Send a request, and return its answer; errors as in `answer`."""
        self.send(*request)
        return self.answer()

    def send(self, *request: Any) -> None:
        """Send a request; errors as in `answer`."""
        try:
            self._pipe.send(request)
        except OSError:
            raise self._ended() from None

    def answer(self) -> Any:
        """Wait for the answer to a request.

        Raises:
            EnvError: an argument of the game is not allowed, or the process has ended.
        """
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if isinstance(answer, EnvError):
            raise answer
        return answer

    def _ended(self) -> EnvError:
        code = self._process.wait()
        cause = f"killed by signal {-code} (out of memory?)" if code < 0 else f"exit code {code}"
        return EnvError(
            f"NetHack: the process of games {self.places[0]} to {self.places[-1]} ended ({cause}). Run it again, with "
            "fewer processes or n_envs where memory was short."
        )

    def close(self) -> None:
        self._pipe.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Divided:
    """N games divided among this process, which runs the first share, and others."""

    def __init__(self, number: int, processes: int, options: Mapping[str, Any]) -> None:
        first, *rest = np.array_split(np.arange(number), min(processes, number))
        folder = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - memory, where there is such a folder
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(memory_of(number))
            self.seen = arrays(number, mmap.mmap(file.fileno(), 0))
            self.here = [Game(**options, seen=view) for view in views(self.seen)[: len(first)]]
            self._processes = [GamesProcess(file, number, range(part[0], part[-1] + 1), options) for part in rest]
        for process in self._processes:
            process.answer()
        others = [OtherGame(place, process) for process in self._processes for place in process.places]
        self.games: list[Game | OtherGame] = [*self.here, *others]

    def step(self, actions: Sequence[int | None]) -> list[tuple[float, bool]]:
        """Take actions (N,) where there are any; return what each paid, and whether the game or the task ended."""
        for process in self._processes:
            process.send("step", actions[process.places.start : process.places.stop])
        answers = step_each(self.here, actions[: len(self.here)])
        for process in self._processes:
            answers += process.answer()
        return answers

    def close(self) -> None:
        """End all games, and the processes."""
        for game in self.here:
            game.close()
        for process in self._processes:
            process.close()


def step_each(games: Iterable[Game], actions: Sequence[int | None]) -> list[tuple[float, bool]]:
    """Take actions in games of this process, as in `Divided.step`."""
    turns = zip(games, actions, strict=True)
    return [(0.0, False) if action is None else game.step(action) for game, action in turns]


def _serve(pipe: Connection, memory: int) -> None:
    """Play games until the pipe is closed."""
    ignore_terminal()  # the parent decides when to stop
    number, places, options = pipe.recv()
    try:
        seen = views(arrays(number, mmap.mmap(memory, 0)))
        games = {place: Game(**options, seen=seen[place]) for place in places}
    except EnvError as error:
        pipe.send(error)
        return
    pipe.send(None)
    while True:
        try:
            request, *arguments = pipe.recv()
            if request == "start":
                place, core, disp = arguments
                pipe.send(games[place].start(core, disp))
            else:
                pipe.send(step_each(games.values(), *arguments))
        except (EOFError, OSError):  # the parent has closed it, or is gone
            break
    for game in games.values():
        game.close()


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])), int(sys.argv[2]))

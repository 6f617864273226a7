"""Shows episodes of an agent, with titles, at a frame rate: in a terminal, in a window or as a GIF or WebP."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from laurel.agents.actor import Actor
from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import Captioner
from laurel.errors import EnvError
from laurel.evaluation.episode import Moment, moments
from laurel.evaluation.film import draw, write_film
from laurel.evaluation.rendering import Mode, NotRenderedError, metadata, rendering
from laurel.evaluation.rollout import LearnedReward
from laurel.evaluation.terminal import HIDE_CURSOR, LEAST_COLUMNS, LEAST_LINES, SHOW_CURSOR, Screen, plain_line
from laurel.params import EnvParams
from laurel.seeding import derive_seed, generator

FASTEST = 10.0
"""Steps a second at most, unless more are asked for, so that captions can be read."""
Write = Callable[[str], int]
"""Writes text; returns 0, or an exit code once the reader has closed the pipe."""


@dataclass(frozen=True)
class Performance:
    """The episodes to show; the same settings always give the same moments."""

    env: EnvParams
    adapter: EnvAdapter
    player: str
    """Name of the actor."""
    actor: Actor
    learned: LearnedReward | None
    episodes: int
    steps: int
    """Maximum steps of an episode."""
    seed: int
    fps: float | None = None
    """Steps a second; None leaves it to the environment, up to FASTEST."""

    @property
    def pace(self) -> float:
        """Steps a second."""
        return self.fps or min(FASTEST, float(metadata(self.env).get("render_fps") or FASTEST))

    def moments(self, mode: Mode | None, *, headless: bool = True) -> Iterator[tuple[Moment, list[str]]]:
        """Play, and yield each moment with the lines of its title.

        Args:
            mode: how the environment renders; None: not at all.
            headless: let pygame draw without a display.

        Raises:
            EnvError: the environment does not render so.
        """
        captioner, rng = Captioner(self.adapter), generator(self.seed, "actions")
        try:
            with rendering(self.env, mode, headless=headless) as reference:
                for episode in range(self.episodes):
                    title = [self.player, self.env.id]
                    title += [f"episode {episode + 1} of {self.episodes}"] if self.episodes > 1 else []
                    begins = derive_seed(self.seed, "episode", episode)
                    played = (self.adapter, self.actor, rng, captioner, self.steps, begins, self.learned)
                    for moment in moments(reference, *played):
                        yield moment, title
        except NotRenderedError as error:
            raise EnvError(f"{error} Watch it in words: laurel play | cat") from None


def film(performance: Performance, path: Path) -> int:
    """Write a GIF or WebP; return how many steps it shows.

    Raises:
        EnvError: the environment renders no pictures.
        DataError: the place cannot be written.
    """
    return write_film(performance.moments("rgb_array"), path, performance.pace)


def show_in_window(performance: Performance) -> None:
    """Open a window, until it is closed.

    Raises:
        EnvError: there is no display, or the environment renders no pictures.
    """
    pace = performance.pace
    with window(f"laurel play: {performance.player}") as shown:
        for moment, title in performance.moments("rgb_array", headless=False):
            if not shown.show(draw(moment, title), pace):
                return
        shown.wait()


def show_in_terminal(performance: Performance, write: Write, remark: Callable[[str], None]) -> int:
    """Draw the moments over each other; return the exit code.

    Where the output is not a terminal, or one that cannot draw, each moment is a line.

    Args:
        write: writes to the terminal.
        remark: called with a sentence where pictures cannot be shown.
    """
    modes, unfit = metadata(performance.env).get("render_modes", ()), _why_unfit()
    if unfit is None and not {"ansi", "rgb_array"} & set(modes):
        unfit = f"{performance.env.id} renders neither pictures nor text"
    if unfit is not None:
        if unfit:
            remark(f"laurel: only text is shown, because {unfit}.")
        return _lines(performance, write)
    screen = Screen(true_color=os.environ.get("COLORTERM") in ("truecolor", "24bit"))
    pace, code = performance.pace, write(HIDE_CURSOR)
    try:
        for moment, title in performance.moments("ansi" if "ansi" in modes else "rgb_array"):
            if code:
                break
            size, started = shutil.get_terminal_size(), time.monotonic()
            code = write(screen.draw(moment, title, size.columns, size.lines))
            if moment.last:
                screen.keep()
                code = code or write("\n")
            time.sleep(max(0.0, 1 / pace - (time.monotonic() - started)))
    finally:
        write(SHOW_CURSOR)
    return code


def _why_unfit() -> str | None:
    """Return why standard output cannot show pictures: empty if it is not a terminal, None if it can."""
    if not sys.stdout.isatty():
        return ""
    size = shutil.get_terminal_size()
    if size.lines < LEAST_LINES or size.columns < LEAST_COLUMNS:
        return f"the terminal is smaller than {LEAST_COLUMNS} columns and {LEAST_LINES} lines"
    if os.environ.get("TERM", "dumb") == "dumb":
        return "the terminal is a dumb one (TERM)"
    if os.environ.get("NO_COLOR"):
        return "NO_COLOR is set"
    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        return f"the terminal's encoding is {sys.stdout.encoding}, which lacks block characters"
    return None


def _lines(performance: Performance, write: Write) -> int:
    for moment, title in performance.moments(None):
        head = f"{', '.join(title)}\n" if moment.step == 0 else ""
        code = write(f"{head}{plain_line(moment)}\n")
        if code:
            return code
    return 0


NO_DISPLAY = (
    "--as window needs a display{}. Use --as terminal, or --as gif -o play.gif and look at the file, "
    "or connect with `ssh -X`."
)
_LINUX_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
"""Variables that name a display to SDL; the last one names a driver."""


class Window:
    """A window that shows one picture after another, at a pace."""

    def __init__(self, pygame: Any, caption: str) -> None:
        self._pygame = pygame
        self._clock = pygame.time.Clock()
        self._surface: Any = None
        pygame.display.set_caption(caption)

    def show(self, image: Image.Image, fps: float) -> bool:
        """Show a picture for a frame's time; False once the user has closed the window."""
        pygame = self._pygame
        if self._surface is None:
            self._surface = pygame.display.set_mode(image.size)
        self._surface.blit(pygame.image.frombytes(image.tobytes(), image.size, "RGB"), (0, 0))
        pygame.display.flip()
        open_still = not any(event.type == pygame.QUIT for event in pygame.event.get())
        self._clock.tick(fps)
        return open_still

    def wait(self, fps: float = 20) -> None:
        """Keep the last picture until the user closes the window."""
        while not any(event.type == self._pygame.QUIT for event in self._pygame.event.get()):
            self._clock.tick(fps)


@contextmanager
def window(caption: str) -> Iterator[Window]:
    """Open a window.

    Raises:
        EnvError: there is no display, or no pygame.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError:
        raise EnvError("--as window needs the package pygame: pip install pygame-ce. Or use --as terminal.") from None
    if sys.platform == "linux" and not any(os.environ.get(name) for name in _LINUX_DISPLAYS):
        raise EnvError(NO_DISPLAY.format(", and neither DISPLAY nor WAYLAND_DISPLAY is set"))
    try:
        pygame.display.init()
    except pygame.error as error:
        raise EnvError(NO_DISPLAY.format(f" ({error})")) from None
    try:
        yield Window(pygame, caption)
    finally:
        pygame.display.quit()

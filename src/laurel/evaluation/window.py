"""A window of the desktop that shows an episode's pictures."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from PIL import Image

from laurel.errors import EnvError

NO_DISPLAY = (
    "--as window needs a display{}. Use --as terminal, or --as gif -o play.gif and look at the file, "
    "or connect with `ssh -X`."
)


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


_LINUX_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
"""Variables that name a display to SDL; the last one names a driver."""

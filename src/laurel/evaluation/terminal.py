"""Moments of an episode for a terminal: the picture in half blocks, or the environment's own text, with words."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from laurel.console import printable
from laurel.evaluation.episode import Moment, signed
from laurel.evaluation.rendering import Picture

PANEL, GUTTER = 36, 2
"""Columns of the words, and between them and the picture."""
WORDS = 14
"""Fewest lines of text below the picture, so that the picture keeps its size from step to step."""
LEAST_LINES, LEAST_COLUMNS = 10, 40
"""Smallest terminal in which a picture makes sense."""
MOST_LINES = 24
"""Most lines of a picture; larger ones flicker."""
ENDS_LINE = "\x1b[0m\x1b[K"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Screen:
    """Draws moments over each other, on the same lines of a terminal."""

    true_color: bool
    """Whether the terminal has 24-bit colours, or just 256."""
    drawn: int = 0
    """Lines that the last moment took."""
    widest: int = 0
    """Columns of the widest text so far: words stay where they are when a text is narrower."""

    def draw(self, moment: Moment, title: Sequence[str], columns: int, lines: int) -> str:
        """Return the text that draws a moment over the last one."""
        shown = self._lines(moment, title, columns, lines - 1)[: lines - 1]
        back = f"\x1b[{self.drawn}A" if self.drawn else ""
        self.drawn = len(shown)
        return f"{back}\r\x1b[J" + "".join(f"{line}{ENDS_LINE}\n" for line in shown)

    def keep(self) -> None:
        """Leave the last moment where it is; the next is drawn below it."""
        self.drawn = 0
        self.widest = 0

    def _lines(self, moment: Moment, title: Sequence[str], columns: int, lines: int) -> list[str]:
        has_panel = columns >= LEAST_COLUMNS + PANEL
        words = panel(moment, title, min(PANEL, columns) if has_panel else columns)
        space = (columns - PANEL - GUTTER, lines) if has_panel else (columns, lines - max(len(words), WORDS))
        if space[1] < 3:
            return words
        if isinstance(moment.view, str):
            self.widest = min(space[0], max(self.widest, text_width(moment.view)))
            picture, width = text_lines(moment.view, self.widest), self.widest
        else:
            picture, width = half_blocks(moment.view, space[0], min(space[1], MOST_LINES), true_color=self.true_color)
        if not has_panel:
            return [*picture, *words]
        height = max(len(picture), len(words))
        left = [*picture, *[" " * width] * (height - len(picture))]
        right = [*words, *[""] * (height - len(words))]
        return [f"{a}\x1b[0m{' ' * GUTTER}{b}" for a, b in zip(left, right, strict=True)]


def half_blocks(picture: Picture, columns: int, lines: int, *, true_color: bool) -> tuple[list[str], int]:
    """Draw a picture in upper half blocks, two pixels a character; return its lines and their width."""
    height, width = picture.shape[:2]
    factor = min(columns / width, 2 * lines / height)
    size = (max(1, int(width * factor)), max(2, 2 * int(height * factor / 2)))
    pixels = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BOX if factor < 1 else 0))
    drawn = []
    for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True):
        cells, last = [], None
        for pair in zip(upper, lower, strict=True):
            if pair != last:
                cells.append(f"\x1b[{_color(38, pair[0], true_color)};{_color(48, pair[1], true_color)}m")
                last = pair
            cells.append("▀")
        drawn.append("".join(cells) + "\x1b[0m")
    return drawn, size[0]


def _color(layer: int, rgb: Sequence[int], true_color: bool) -> str:
    """Return the parameters of a colour; `layer` is 38 (foreground) or 48 (background)."""
    if true_color:
        return f"{layer};2;{rgb[0]};{rgb[1]};{rgb[2]}"
    red, green, blue = (round(value / 255 * 5) for value in rgb)  # the 6 x 6 x 6 cube of xterm
    return f"{layer};5;{16 + 36 * red + 6 * green + blue}"


def text_lines(text: str, width: int) -> list[str]:
    """Return the lines of an environment's own text, cut or filled to a width; only its colours are kept."""
    return [_padded(line, width) for line in _clean_lines(text)]


def text_width(text: str) -> int:
    """Return the columns of an environment's own text."""
    return max(display_width(_COLORS.sub("", line)) for line in _clean_lines(text))


def _clean_lines(text: str) -> list[str]:
    return [_clean(line) for line in text.strip("\n").split("\n")]


def _clean(line: str) -> str:
    """Keep what is printable, and colours."""
    parts = re.split(f"({_COLORS.pattern})", line.expandtabs())
    return "".join(part if i % 2 else printable(_ESCAPES.sub("", part)) for i, part in enumerate(parts))


def _padded(line: str, width: int) -> str:
    """Cut or fill a line, colours aside."""
    kept, used = [], 0
    for i, part in enumerate(re.split(f"({_COLORS.pattern})", line)):
        if i % 2:
            kept.append(part)
            continue
        for char in part:
            if used + display_width(char) > width:
                break
            kept.append(char)
            used += display_width(char)
    return "".join(kept) + "\x1b[0m" + " " * (width - used)


def panel(moment: Moment, title: Sequence[str], width: int) -> list[str]:
    """Return the words that belong to a moment, in lines of a width."""
    heads = [_bold(line) if i == 0 else _dim(line) for i, text in enumerate(title) for line in wrapped(text, width)]
    rows = [_dim(f"{name:<9}") + line for name, text in figures(moment) for line in wrapped(text, width - 9)[:1]]
    caption = wrapped(moment.caption, width) or [_dim(moment.text)]
    end = ["", _bold(moment.outcome)] if moment.last else []
    return [*heads, "", *rows, "", *caption, *end]


def _dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[22m"


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[22m"


def figures(moment: Moment) -> list[tuple[str, str]]:
    """Return name and value of a moment's figures; "-" where one is missing."""
    return [
        ("step", str(moment.step)),
        ("action", moment.action or "-"),
        ("reward", signed(moment.reward if moment.step else None)),
        ("learned", signed(moment.learned)),
        ("shaped", signed(moment.shaped)),
        ("return", f"{moment.total:z.2f}"),
    ]


def plain_line(moment: Moment) -> str:
    """Write a moment in a line, without columns or colours, for output that is not a terminal."""
    if moment.step == 0:
        return "step 0: the episode begins"
    caption = f"{printable(moment.caption)} " if moment.caption else ""
    numbers = ", ".join(f"{name} {text}" for name, text in figures(moment)[2:] if text != "-")
    end = f"; {moment.outcome}" if moment.last else ""
    return f"step {moment.step}: {printable(moment.action)}. {caption}({numbers}){end}"


def wrapped(text: str, width: int) -> list[str]:
    """Break text into lines that fit a width; letters that take two columns count as two."""
    text = printable(text)
    if display_width(text) > len(text):
        width //= 2
    return textwrap.wrap(text, max(1, width))


def display_width(text: str) -> int:
    """Count the columns that text takes in a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )

"""Episodes as GIF or WebP, with captions and rewards beside each frame. Output is deterministic."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from laurel.data.written import written_whole
from laurel.evaluation.animation import HOLD, INK, LINE, MARGIN, MUTED, PAPER, font, tone, tone_of, write_webp
from laurel.evaluation.episode import Moment, signed
from laurel.evaluation.rendering import SIDE, scaled

SUFFIXES = (".gif", ".webp")
PANEL = 300
"""Width of the words, in pixels."""
LEAST_HEIGHT = 252
"""Height of the text, in pixels."""
CAPTION_LINES = 4


def write_film(moments: Iterable[tuple[Moment, Sequence[str]]], path: Path, fps: float) -> int:
    """Write moments, each with its title, as a looping picture; ends of episodes are held.

    Args:
        moments: of one environment, at least one.
        path: a .gif or .webp to write or replace; whole or not at all.

    Returns:
        How many steps there were.

    Raises:
        DataError: the place cannot be written.
    """
    frames, durations, steps = [], [], 0
    for moment, title in moments:
        steps += moment.step > 0
        frame = draw(moment, title)
        frames.append(_few_colors(frame) if path.suffix.lower() == ".gif" else frame)
        durations.append(HOLD if moment.last else max(20, round(100 / fps) * 10))  # GIF counts hundredths
    with written_whole(path, " Choose another --output.", parents=False) as partial:
        if path.suffix.lower() == ".gif":
            frames[0].save(
                partial, "GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=False
            )
        else:
            write_webp(frames, durations, partial)
    return steps


def _few_colors(frame: Image.Image) -> Image.Image:
    """Give a frame its own palette, without dithering noise."""
    return frame.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)


def draw(moment: Moment, title: Sequence[str]) -> Image.Image:
    """Draw a moment: the picture on the left, the words on the right."""
    picture = Image.fromarray(scaled(moment.picture))
    height = max(picture.height, LEAST_HEIGHT)
    image = Image.new("RGB", (SIDE + PANEL + 3 * MARGIN, height + 2 * MARGIN), PAPER)
    pen = ImageDraw.Draw(image)
    left, top = MARGIN + (SIDE - picture.width) // 2, MARGIN + (height - picture.height) // 2
    image.paste(picture, (left, top))
    pen.rectangle((left - 1, top - 1, left + picture.width, top + picture.height), outline=LINE)

    x, y, right = 2 * MARGIN + SIDE, MARGIN, 2 * MARGIN + SIDE + PANEL
    for i, line in enumerate(title):
        pen.text((x, y), _cut(line), fill=MUTED if i else INK, font=font(13 if i else 16, bold=i == 0))
        y += 18 if i else 24
    pen.text((right, MARGIN + 2), f"step {moment.step}", fill=MUTED, font=font(13), anchor="ra")
    y += 8
    for name, value, color in _rows(moment):
        pen.text((x, y), name, fill=MUTED, font=font(13))
        pen.text((x + 122, y), value, fill=color, font=font(13, bold=True))
        y += 20
    y += 10
    for line in textwrap.wrap(moment.text, 40, max_lines=CAPTION_LINES, placeholder=" …"):
        pen.text((x, y), line, fill=INK if moment.caption else MUTED, font=font(14))
        y += 19
    if moment.last:
        pen.text((right, height + MARGIN), moment.outcome, fill=tone_of(moment), font=font(14, bold=True), anchor="rs")
    return image


def _rows(moment: Moment) -> list[tuple[str, str, tuple[int, int, int]]]:
    """Return name, value and colour of the figures beside a picture."""
    rows = [("action", _cut(moment.action, 20) or "-", INK), ("reward", signed(moment.reward), tone(moment.reward))]
    rows += [
        (name, signed(value), tone(value))
        for name, value in (("learned reward", moment.learned), ("shaped", moment.shaped))
    ]
    return [*rows, ("return so far", f"{moment.total:z.2f}", INK)]


def _cut(text: str, limit: int = 36) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"

"""One episode before and one after training, as pictures with their captions, side by side in a small file."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from laurel.agents.actor import Actor
from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import Captioner
from laurel.evaluation.episode import Moment, moments, signed
from laurel.evaluation.rendering import SIDE, rendering, scaled
from laurel.evaluation.rollout import LearnedReward
from laurel.params import EnvParams
from laurel.seeding import generator

MAX_BYTES = 1_500_000
"""Largest size of a film: the report embeds it."""


def record(
    env: EnvParams,
    adapter: EnvAdapter,
    actor: Actor,
    captioner: Captioner,
    max_steps: int,
    seed: int,
    learned: LearnedReward | None,
) -> list[Moment]:
    """Play one episode and keep its moments, with pictures scaled to fit SIDE.

    The arguments are those of `moments`; the seed is that of the actions, too.

    Raises:
        NotRenderedError: this environment cannot be shown.
    """
    with rendering(env, "rgb_array") as reference:
        played = moments(reference, adapter, actor, generator(seed, "actions"), captioner, max_steps, seed, learned)
        return [replace(moment, view=scaled(moment.picture)) for moment in played]


# -- the file -------------------------------------------------------------------------------------
PAPER, INK, MUTED, LINE = (255, 255, 255), (38, 41, 46), (107, 114, 128), (226, 229, 233)
GOOD, BAD = (0, 114, 178), (201, 80, 0)
MARGIN, GAP, HEAD, FOOT = 14, 22, 34, 104
HOLD = 2500
"""Milliseconds for which the last picture stays."""


def side_by_side(before: Sequence[Moment], after: Sequence[Moment], path: Path) -> None:
    """Write both episodes as one looping WebP; the shorter one waits, and the end is held.

    Args:
        before: of the untrained policy, as `record` gives it.
        after: of the trained one.
    """
    length = max(len(before), len(after))
    duration = int(np.clip(14_000 / length, 70, 700))
    height = max(len(before[0].picture), len(after[0].picture))
    frames = [_frame(before, after, t, height) for t in range(length)]
    durations = [duration] * (length - 1) + [HOLD]
    write_webp(frames, durations, path)


PORTRAIT, PORTRAIT_FRAMES = 160, 60
"""Largest width and height of an arm's film, in pixels, and the most frames that it has."""


def portrait(episode: Sequence[Moment], path: Path) -> None:
    """Write an episode as a small looping WebP, thinned evenly where it is long; the end is held."""
    shown = np.unique(np.linspace(0, len(episode) - 1, min(len(episode), PORTRAIT_FRAMES)).astype(np.int64))
    frames = [Image.fromarray(scaled(episode[t].picture, PORTRAIT)) for t in shown]
    duration = int(np.clip(6_000 / len(frames), 70, 500))
    write_webp(frames, [duration] * (len(frames) - 1) + [HOLD], path)


def write_webp(frames: Sequence[Image.Image], durations: Sequence[int], path: Path) -> None:
    """Write pictures as a looping animation, each shown for its number of milliseconds.

    Lossless compression is tried first, and is also the smallest for flat colours; files above MAX_BYTES become lossy.
    """
    for options in ({"lossless": True, "quality": 20}, {"quality": 75}, {"quality": 40}, {"quality": 10}):
        frames[0].save(
            path,
            "WEBP",
            save_all=True,
            append_images=frames[1:],
            duration=list(durations),
            loop=0,
            method=2,
            **options,
        )
        if path.stat().st_size <= MAX_BYTES:
            return


def _frame(before: Sequence[Moment], after: Sequence[Moment], t: int, height: int) -> Image.Image:
    """Draw both episodes at step t; an episode that has ended by then shows its last moment."""
    image = Image.new("RGB", (2 * SIDE + GAP + 2 * MARGIN, HEAD + height + FOOT), PAPER)
    draw = ImageDraw.Draw(image)
    for x, label, episode in (
        (MARGIN, "before training", before),
        (MARGIN + SIDE + GAP, "after training", after),
    ):
        _episode(image, draw, x, label, episode, min(t, len(episode) - 1), height)
    return image


def _episode(
    image: Image.Image, draw: ImageDraw.ImageDraw, x: int, label: str, episode: Sequence[Moment], t: int, height: int
) -> None:
    moment = episode[t]
    picture = Image.fromarray(moment.picture)
    draw.text((x, 9), label, fill=INK, font=font(16, bold=True))
    if moment.last:
        draw.text((x + SIDE, 11), moment.outcome, fill=tone_of(moment), font=font(13, bold=True), anchor="ra")
    image.paste(picture, (x + (SIDE - picture.width) // 2, HEAD + (height - picture.height) // 2))
    draw.rectangle((x - 1, HEAD - 1, x + SIDE, HEAD + height), outline=LINE)

    y = HEAD + height + 10
    for line in textwrap.wrap(moment.text, 42, max_lines=2, placeholder=" …"):
        draw.text((x, y), line, fill=INK if moment.caption else MUTED, font=font(14))
        y += 19
    y = HEAD + height + 56
    if any(step.learned is not None for step in episode):
        draw.text((x, y), "learned reward", fill=MUTED, font=font(13))
        draw.text((x + 122, y), signed(moment.learned), fill=tone(moment.learned), font=font(13, bold=True))
    draw.text((x, y + 20), "return so far", fill=MUTED, font=font(13))
    draw.text((x + 122, y + 20), f"{moment.total:z.2f}", fill=INK, font=font(13, bold=True))
    draw.text((x + SIDE, y + 20), f"step {t} of {len(episode) - 1}", fill=MUTED, font=font(13), anchor="ra")


def tone(reward: float | None) -> tuple[int, int, int]:
    """Return the colour of a reward."""
    return MUTED if not reward else GOOD if reward > 0 else BAD


def tone_of(last: Moment) -> tuple[int, int, int]:
    """Return the colour of how an episode ended."""
    return MUTED if last.success is None else GOOD if last.success else BAD


@cache
def font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return matplotlib's copy of DejaVu Sans: the same on all machines, with the letters of most scripts."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(mpl.get_data_path()) / "fonts" / "ttf" / name, size)

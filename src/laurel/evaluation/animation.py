"""One episode before and one after training, as pictures with their captions, side by side in a small file.

Runs the reference Python environment; knows nothing about how the actions or the rewards come about.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from laurel.envs.base import Array, FloatArray, Room
from laurel.envs.captioner import Captioner
from laurel.evaluation.episode import Moment, moments
from laurel.evaluation.rendering import SIDE, NotRenderedError, Picture, rendering, scaled
from laurel.evaluation.rollout import LearnedReward
from laurel.params import EnvParams
from laurel.rewards.functions import RewardFunction

MAX_BYTES = 1_500_000


@dataclass(frozen=True, slots=True)
class Recording:
    """One episode in pictures. All lists have an entry for the first observation and one for each step."""

    pictures: list[Picture]
    """(H, W, 3) each, scaled to fit SIDE."""
    captions: list[str]
    """What happened in the step; empty at first and where there is nothing to say."""
    rewards: list[float | None]
    """The learned reward of the step; None where there is none, or nothing to say."""
    returns: list[float]
    """The environment's own return so far."""
    terminated: bool
    truncated: bool
    success: bool | None
    """None where success has no meaning, or the episode did not end within the recording."""

    @property
    def length(self) -> int:
        return len(self.pictures) - 1

    @property
    def outcome(self) -> str:
        """How the recording ended, in a few words."""
        if self.success is not None:
            return "solved" if self.success else "not solved"
        return "episode over" if self.terminated or self.truncated else "recording ends"


@dataclass(frozen=True, slots=True)
class NotRendered:
    """There is no animation; `reason` is a sentence for the notes."""

    reason: str


def record(
    env: EnvParams,
    room: Room,
    act: Callable[[FloatArray], Array],
    captioner: Captioner,
    max_steps: int,
    seed: int,
    reward: RewardFunction | None,
) -> Recording | NotRendered:
    """Play one episode and keep its pictures.

    Args:
        env: the environment.
        room: its room.
        act: features (1, F) -> actions (1,) or (1, A).
        captioner: of that room; the one that `reward` was asked with before, if it was.
        max_steps: cut the recording here.
        seed: of the episode; the same seed begins in the same state.
        reward: the learned reward; None where there is none.

    Returns:
        The recording, or why this environment cannot be shown.
    """
    try:
        with rendering(env, "rgb_array") as reference:
            return _recorded(moments(reference, room, act, captioner, max_steps, seed, _unshaped(reward)))
    except NotRenderedError as error:
        return NotRendered(f"There is no animation: {error}")


def _unshaped(reward: RewardFunction | None) -> LearnedReward | None:
    return None if reward is None else LearnedReward(reward, beta=0.0)


def _recorded(played: Iterator[Moment]) -> Recording:
    episode = list(played)
    last = episode[-1]
    return Recording(
        [scaled(moment.picture) for moment in episode],
        [moment.caption for moment in episode],
        [moment.learned for moment in episode],
        [moment.total for moment in episode],
        last.terminated,
        last.truncated,
        last.success,
    )


# -- the file -------------------------------------------------------------------------------------
PAPER, INK, MUTED, LINE = (255, 255, 255), (38, 41, 46), (107, 114, 128), (226, 229, 233)
GOOD, BAD = (0, 114, 178), (201, 80, 0)
MARGIN, GAP, HEAD, FOOT = 14, 22, 34, 104
HOLD = 2500
"""Milliseconds for which the last picture stays."""


def side_by_side(before: Recording, after: Recording, path: Path) -> None:
    """Write both episodes as one looping WebP; the shorter one waits, and the end is held.

    Args:
        before: of the untrained policy.
        after: of the trained one.
        path: where to write.
    """
    length = max(before.length, after.length)
    duration = int(np.clip(14_000 / (length + 1), 70, 700))
    height = max(len(before.pictures[0]), len(after.pictures[0]))
    frames = [_frame(before, after, t, height) for t in range(length + 1)]
    durations = [duration] * length + [HOLD]
    write_webp(frames, durations, path)


def write_webp(frames: Sequence[Image.Image], durations: Sequence[int], path: Path) -> None:
    """Write pictures that follow one another, each for its milliseconds, and begin again.

    Lossless, which on flat colours is also the smallest; lossy where that takes more than MAX_BYTES.
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


def _frame(before: Recording, after: Recording, t: int, height: int) -> Image.Image:
    """Draw both episodes at step t, each at its end if that was earlier."""
    image = Image.new("RGB", (2 * SIDE + GAP + 2 * MARGIN, HEAD + height + FOOT), PAPER)
    draw = ImageDraw.Draw(image)
    for x, label, recording in (
        (MARGIN, "before training", before),
        (MARGIN + SIDE + GAP, "after training", after),
    ):
        _episode(image, draw, x, label, recording, min(t, recording.length), height)
    return image


def _episode(
    image: Image.Image, draw: ImageDraw.ImageDraw, x: int, label: str, recording: Recording, t: int, height: int
) -> None:
    picture = Image.fromarray(recording.pictures[t])
    draw.text((x, 9), label, fill=INK, font=font(16, bold=True))
    over = t == recording.length
    if over:
        color = MUTED if recording.success is None else GOOD if recording.success else BAD
        draw.text((x + SIDE, 11), recording.outcome, fill=color, font=font(13, bold=True), anchor="ra")
    image.paste(picture, (x + (SIDE - picture.width) // 2, HEAD + (height - picture.height) // 2))
    draw.rectangle((x - 1, HEAD - 1, x + SIDE, HEAD + height), outline=LINE)

    y = HEAD + height + 10
    caption = recording.captions[t] or ("The episode begins." if t == 0 else "Nothing to say.")
    for line in textwrap.wrap(caption, 42, max_lines=2, placeholder=" …"):
        draw.text((x, y), line, fill=INK if recording.captions[t] else MUTED, font=font(14))
        y += 19
    y = HEAD + height + 56
    reward = recording.rewards[t]
    if any(value is not None for value in recording.rewards):
        draw.text((x, y), "learned reward", fill=MUTED, font=font(13))
        text = "-" if reward is None else f"{reward:+.2f}"
        tone = MUTED if reward is None else GOOD if reward > 0 else BAD
        draw.text((x + 122, y), text, fill=tone, font=font(13, bold=True))
    draw.text((x, y + 20), "return so far", fill=MUTED, font=font(13))
    draw.text((x + 122, y + 20), f"{recording.returns[t]:.2f}", fill=INK, font=font(13, bold=True))
    draw.text((x + SIDE, y + 20), f"step {t} of {recording.length}", fill=MUTED, font=font(13), anchor="ra")


def font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return DejaVu Sans as it comes with matplotlib: alike on all machines, and with most scripts' letters."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(mpl.get_data_path()) / "fonts" / "ttf" / name, size)

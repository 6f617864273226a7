from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageChops

from laurel.errors import DataError
from laurel.evaluation.animation import HOLD
from laurel.evaluation.episode import Moment
from laurel.evaluation.film import draw, write_film


def stand(step: int) -> Moment:
    gray = np.full((40, 80, 3), 60 * step, dtype=np.uint8)
    return Moment(step, gray, "right", f"You stand at {step}.", total=step, cut=step == 3)


PLAYED = [stand(step) for step in range(4)]


def film(path: Path, **changes: Any) -> int:
    return write_film(((moment, ["preference", "Corridor-v0"]) for moment in PLAYED), path, **{"fps": 5.0, **changes})


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_a_film_holds_every_moment_and_its_end(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"play{suffix}"
    assert film(path) == 3, "steps"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with Image.open(path) as image:
        assert (image.n_frames, image.info["loop"]) == (4, 0)  # type: ignore[attr-defined]
        durations = []
        for frame, moment in enumerate(PLAYED):
            image.seek(frame)
            image.load()
            durations.append(image.info["duration"])
            shown = np.asarray(image.convert("RGB"))
            assert tuple(shown[140, 174]) == (60 * moment.step,) * 3
    assert durations == [200, 200, 200, HOLD]


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_the_same_frames_give_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    for name in "ab":
        film(tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_all_text_is_drawn() -> None:
    plain = Moment(2, PLAYED[2].view, "left", "You go.", 0.0, 0.5, 0.5, 1.0)
    changes: list[dict[str, Any]] = [
        {"step": 1}, {"action": "right"}, {"caption": "You stop."}, {"reward": 1.0}, {"learned": 0.25},
        {"shaped": 0.25}, {"total": 2.0}, {"cut": True},
    ]  # fmt: skip
    fields = {name: getattr(plain, name) for name in Moment.__dataclass_fields__}
    before = draw(plain, ["x"])
    for change in changes:
        after = draw(Moment(**{**fields, **change}), ["x"])
        assert after.size == before.size
        assert ImageChops.difference(before, after).getbbox(), change
    assert ImageChops.difference(before, draw(plain, ["y"])).getbbox()


def test_long_words_stay_in_the_picture() -> None:
    wordy = Moment(1, PLAYED[1].view, "x" * 300, "word " * 300)
    assert draw(wordy, ["t" * 300, "u" * 300]).size == draw(PLAYED[1], ["t"]).size


def test_an_output_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "play.gif").mkdir()
    with pytest.raises(DataError, match=r"play\.gif: cannot be written .*Choose another --output\.$"):
        film(tmp_path / "play.gif")
    assert [file.name for file in tmp_path.iterdir()] == ["play.gif"], "nothing half written is left"

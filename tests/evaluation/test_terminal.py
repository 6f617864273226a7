"""Terminal output, checked with a small terminal emulator."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from laurel.evaluation.episode import Moment
from laurel.evaluation.terminal import Screen, half_blocks, panel, plain_line, text_lines, wrapped

PICTURE = np.zeros((32, 32, 3), dtype=np.uint8)
PICTURE[:16, :16] = (255, 0, 0)
PICTURE[16:, 16:] = (0, 0, 255)


def moment(**changes: Any) -> Moment:
    return Moment(**{"step": 3, "view": PICTURE, "action": "left", "caption": "You go left.", **changes})


def visible(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line)


class Terminal:
    """Keeps the lines that are written to it; knows up, carriage return and clearing, as `Screen` uses them."""

    def __init__(self) -> None:
        self.lines: list[str] = [""]
        self.row = 0

    def write(self, text: str) -> None:
        for part in re.findall(r"\x1b\[\d+A|\x1b\[J|\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
            if part.endswith("A") and part.startswith("\x1b"):
                self.row -= int(part[2:-1])
                assert self.row >= 0
            elif part == "\x1b[J":
                self.lines = [*self.lines[: self.row], ""]
            elif part == "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif part != "\r" and not part.startswith("\x1b"):
                self.lines[self.row] += part


# -- pictures ---------------------------------------------------------------------------------------------------
def test_a_half_block_is_two_pixels() -> None:
    lines, width = half_blocks(PICTURE, 80, 4, true_color=True)
    assert (len(lines), width) == (4, 8), "as large as fits, with square pixels"
    assert [visible(line) for line in lines] == ["▀" * 8] * 4
    red, black, blue = "255;0;0", "0;0;0", "0;0;255"
    assert lines[0] == f"\x1b[38;2;{red};48;2;{red}m▀▀▀▀\x1b[38;2;{black};48;2;{black}m▀▀▀▀\x1b[0m"
    assert lines[3] == f"\x1b[38;2;{black};48;2;{black}m▀▀▀▀\x1b[38;2;{blue};48;2;{blue}m▀▀▀▀\x1b[0m"
    striped = np.zeros((2, 1, 3), dtype=np.uint8)
    striped[1] = 255
    assert half_blocks(striped, 1, 1, true_color=True)[0] == ["\x1b[38;2;0;0;0;48;2;255;255;255m▀\x1b[0m"]


def test_256_colours_without_true_colour() -> None:
    lines, _ = half_blocks(PICTURE, 80, 4, true_color=False)
    assert lines[0].startswith("\x1b[38;5;196;48;5;196m▀"), "pure red"
    assert "38;5;21;48;5;21" in lines[3], "pure blue"
    greens = np.array([[[0, 255, 0]], [[0, 128, 0]]], dtype=np.uint8)
    assert half_blocks(greens, 1, 1, true_color=False)[0] == ["\x1b[38;5;46;48;5;34m▀\x1b[0m"]


@pytest.mark.parametrize(("columns", "lines"), [(5, 50), (50, 3), (1, 1)])
def test_a_picture_fits(columns: int, lines: int) -> None:
    drawn, width = half_blocks(PICTURE, columns, lines, true_color=True)
    assert len(drawn) <= lines
    assert {len(visible(line)) for line in drawn} == {width}
    assert width <= columns


# -- text of the environment's own ------------------------------------------------------------------------------
def test_text_keeps_only_colour_codes() -> None:
    lines = text_lines("\x1b[41mS\x1b[0mF\x1b[2J\x07\nFH", 6)
    assert "\x1b[41mS\x1b[0mF" in lines[0]
    assert "\x1b[2J" not in lines[0]
    assert "\x07" not in lines[0]
    assert [len(visible(line)) for line in lines] == [6, 6]


# -- words ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "shown"), [("abcdef", "abc"), ("漢字", "漢 "), ("a", "a  "), ("\x1b[31mab\x1b[0mcd", "abc")]
)
def test_text_is_cut_or_filled_to_its_columns(text: str, shown: str) -> None:
    assert [visible(line) for line in text_lines(text, 3)] == [shown]


def test_the_panel_shows_all_values_of_a_frame() -> None:
    shown = moment(reward=1.0, learned=-0.5, shaped=0.25, total=2.0, terminated=True, success=True)
    lines = [visible(line) for line in panel(shown, ["preference, seed 0", "Corridor-v0"], 30)]
    assert lines[:2] == ["preference, seed 0", "Corridor-v0"]
    assert [line.split() for line in lines[3:9]] == [
        ["step", "3"], ["action", "left"], ["reward", "+1.00"],
        ["learned", "-0.50"], ["shaped", "+0.25"], ["return", "2.00"],
    ]  # fmt: skip
    assert lines[10:] == ["You go left.", "", "solved"]
    blank = [visible(line) for line in panel(moment(step=0, action="", caption=""), ["x"], 30)]
    assert "learned  -" in blank
    assert blank[-1] == "The episode begins."


def test_a_line_describes_the_whole_frame() -> None:
    shown = moment(reward=1.0, learned=-0.5, shaped=0.25, total=2.0, cut=True)
    assert plain_line(shown) == (
        "step 3: left. You go left. (reward +1.00, learned -0.50, shaped +0.25, return 2.00); cut after 3 steps"
    )
    assert plain_line(moment(caption="")) == "step 3: left. (reward +0.00, return 0.00)"


def test_texts_cannot_control_the_terminal() -> None:
    evil = moment(caption="You \x1b[2J\x1b]0;owned\x07 win.", action="\x1b[1A")
    for text in ("".join(panel(evil, ["\x1b[9A"], 60)), plain_line(evil)):
        assert "\x1b[2J" not in text
        assert "\x1b]" not in text
        assert "\x07" not in text
        assert "\x1b[1A" not in text
        assert "\x1b[9A" not in text
        assert "win." in text


def test_wide_letters_count_twice() -> None:
    assert all(2 * len(line) <= 10 for line in wrapped("你向左走。你向右走。" * 3, 10))


# -- the screen -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("columns", [100, 60])
def test_each_frame_replaces_the_one_before(columns: int) -> None:
    screen, terminal = Screen(true_color=True), Terminal()
    terminal.write("before\n")
    for step in range(5):
        said = "You go on and on. " * (step % 3)
        terminal.write(screen.draw(moment(step=step, caption=said), ["x"], columns, 30))
    assert terminal.lines[0] == "before"
    assert sum("step" in line for line in terminal.lines) == 1
    assert any("step     4" in line for line in terminal.lines)
    beside = next(line for line in terminal.lines if "step" in line)
    assert beside.startswith("▀") == (columns == 100)
    assert all(len(line) <= columns for line in terminal.lines)
    screen.keep()
    terminal.write(screen.draw(moment(step=9), ["x"], columns, 30))
    assert sum("step" in line for line in terminal.lines) == 2, "one that is kept stays"


@pytest.mark.parametrize("lines", [10, 16, 30])
def test_a_moment_is_never_higher_than_the_terminal(lines: int) -> None:
    for columns in (40, 60, 100):
        screen = Screen(true_color=True)
        drawn = screen.draw(moment(caption="You go on. " * 9), ["x"], columns, lines)
        assert drawn.count("\n") < lines


def test_the_panel_beside_a_text_view_keeps_its_column() -> None:
    screen = Screen(true_color=True)
    wide, narrow = (screen.draw(moment(view=text), ["title"], 100, 30) for text in ("abcdefgh\nab", "ab\nab"))
    assert visible(wide).index("title") == visible(narrow).index("title")

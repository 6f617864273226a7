"""Arguments on the command line: numbers that are allowed, the words for others, and what help texts list."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurel.cli.app import _parser
from laurel.cli.command import LOGGED, log_warnings, number, whole
from laurel.console import aligned


@given(st.integers(0, 2**31 - 1))
def test_integers_are_read(value: int) -> None:
    assert whole(0)(str(value)) == value
    assert whole(value, value)(str(value)) == value


@pytest.mark.parametrize("text", ["0", "-1", "1.0", "2147483648", "", " 1", "one", "\u0663", "1_000"])
def test_values_that_are_not_integers(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r'" is not a whole number from 1 on$'):
        whole()(text)


def test_the_largest_is_named_where_there_is_one() -> None:
    assert whole(1, 65535)("65535") == 65535
    with pytest.raises(argparse.ArgumentTypeError, match=r'"65536" is not a whole number from 1 to 65535$'):
        whole(1, 65535)("65536")


@pytest.mark.parametrize("text", ["0.04", "3600.1", "nan", "inf", "-1", "", "fast"])
def test_values_that_are_not_numbers(text: str) -> None:
    assert number(0.05, 3600)("0.05") == 0.05
    assert number(0.05, 3600)("3.6e3") == 3600
    with pytest.raises(argparse.ArgumentTypeError, match=r'" is not a number from 0\.05 to 3600$'):
        number(0.05, 3600)(text)


def commands_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in dict.fromkeys(action.choices.values()):
                yield from commands_of(command)


def test_options_that_a_help_text_names_are_listed() -> None:
    """The help of annotate tune spoke of --captions, which it did not list."""
    for command in commands_of(_parser()):
        shown = [action for action in command._actions if action.help != argparse.SUPPRESS]
        listed = {option for action in shown for option in action.option_strings}
        named = {option for action in shown for option in re.findall(r"(?<!\S)--[a-z-]+", action.help or "")}
        assert named <= listed, command.prog


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert aligned([("a", "bb", ""), ("aaa", "b", "c")]) == ["a    bb", "aaa  b   c"]


def test_a_warning_is_logged_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The check of a run and the stage look at the same environment; stages silence the logger of environments."""
    monkeypatch.setenv(LOGGED, "")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own, beside which none is added
    log_warnings()
    for _ in range(2):
        logging.getLogger("laurel.some").warning("%s has no adapter.", "Pendulum-v1")
    logging.getLogger("laurel.some").warning("%s has no adapter.", "Ant-v5")
    assert capsys.readouterr().err == "WARNING: Pendulum-v1 has no adapter.\nWARNING: Ant-v5 has no adapter.\n"

    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # a stage that laurel run starts inherits the environment
    log_warnings()
    for name in ("Pendulum-v1", "Hopper-v5"):
        logging.getLogger("laurel.some").warning("%s has no adapter.", name)
    assert capsys.readouterr().err == "WARNING: Hopper-v5 has no adapter.\n"

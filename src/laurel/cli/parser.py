"""A parser of the command line whose errors are one sentence, which names the nearest option or command."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from laurel.errors import closest

_CHOICE = re.compile(r"(?P<what>.*invalid choice: )'(?P<given>[^']*)' \(choose from (?P<allowed>.*)\)")

SIMILAR = 0.6
"""Least similarity of what is suggested."""


class Parser(argparse.ArgumentParser):
    """Reports mistakes with the parser of the command in which they are."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._end(f"unrecognized arguments: {' '.join(unknown)}", unknown[0], self._option_string_actions)
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        if choice := _CHOICE.fullmatch(message):
            allowed = [name.strip("'") for name in choice["allowed"].split(", ")]
            self._end(f'{choice["what"]}"{choice["given"]}"', choice["given"], allowed)
        self._end(message)

    def _end(self, message: str, value: str = "", allowed: Iterable[str] = ()) -> NoReturn:
        names = [name for name in allowed if name != "--help"]
        near = closest(value.partition("=")[0], names, SIMILAR) if value else ""
        self.exit(2, f"{self.prog}: {message.rstrip('.')}.{near} {self.prog} --help lists what is allowed.\n")

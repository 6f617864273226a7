"""Numbers on the command line, checked where they are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable

MOST = 2**31 - 1


def whole(least: int = 1, most: int = MOST) -> Callable[[str], int]:
    """Return a parser of whole numbers, for argparse's `type`.

    >>> whole(0)("12")
    12
    """
    allowed = f"from {least} on" if most == MOST else f"from {least} to {most}"

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f'"{text}" is not a complete number {allowed}')
        return int(text)

    return read


def number(least: float, most: float) -> Callable[[str], float]:
    """Return a parser of numbers, for argparse's `type`.

    >>> number(0.05, 3600)("15")
    15.0
    """

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f'"{text}" is not a number from {least:g} to {most:g}')
        return value

    return read

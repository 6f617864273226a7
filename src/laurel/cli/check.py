"""`laurel check`: whether a run fits together, and what it will do. Imports nothing heavy before it is to run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from laurel.console import say

Command = Callable[..., argparse.ArgumentParser]


def add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser], command: Command) -> None:
    """Add the command.

    Args:
        commands: of the program.
        command: makes a command of parent, name, summary and example.
    """
    check = command(
        commands, "check", "Check that a run fits together, and say what it will do and cost.", "laurel check"
    )
    check.add_argument("--params", type=Path, default=Path("params.yaml"), metavar="FILE", help="the parameters")
    check.add_argument(
        "--captions",
        type=Path,
        default=Path("data/captions"),
        metavar="DIR",
        help="what to estimate the annotator's cost from, where it is there; default: data/captions",
    )
    check.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from laurel.params import load_params
    from laurel.stages.preflight import check_run, described

    params = load_params(options.params)
    adapter = check_run(params, gold=False)  # labels of a person are given to captions, which may be still to be made
    return say(described(params, adapter, options.captions))

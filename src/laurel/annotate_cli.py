"""What `laurel annotate` can do besides running the stage. Imports nothing heavy before an action is to run."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from laurel.review_cli import add_review

Actions = "argparse._SubParsersAction[argparse.ArgumentParser]"
Command = Callable[..., argparse.ArgumentParser]
Say = Callable[[str], int]


def add_actions(annotate: argparse.ArgumentParser, command: Command, say: Say) -> None:
    """Add the actions.

    Args:
        annotate: the parser of the stage.
        command: makes a command of parent, name, summary and example.
        say: writes a result and returns the exit code.
    """
    annotate.add_argument(
        "--dry-run", action="store_true", help="say what would be asked and what that would cost, and ask nothing"
    )
    stage = annotate.get_default("run")
    annotate.set_defaults(run=lambda options: say(_estimate(options)) if options.dry_run else stage(options))
    actions = annotate.add_subparsers(dest="action", metavar="[ACTION]", required=False)
    add_review(actions, command, say)


def _estimate(options: argparse.Namespace) -> str:
    from laurel.params import load_params
    from laurel.stages import estimate_annotate

    return estimate_annotate.run(load_params(options.params), options.captions)

"""The actions of `laurel annotate` besides the stage itself."""

from __future__ import annotations

import argparse

from laurel.cli import annotate_compare, annotate_forget, annotate_probe, annotate_review, annotate_tune
from laurel.console import say
from laurel.permissions import add_permissions


def add_actions(annotate: argparse.ArgumentParser) -> None:
    """Add the actions to the parser of the stage."""
    annotate.add_argument(
        "--dry-run", action="store_true", help="print the number of questions and their cost, and ask nothing"
    )
    add_permissions(annotate)
    stage = annotate.get_default("run")
    annotate.set_defaults(run=lambda options: say(_estimate(options)) if options.dry_run else stage(options))
    actions = annotate.add_subparsers(dest="action", metavar="[ACTION]", required=False)
    for action in (annotate_review, annotate_forget, annotate_probe, annotate_compare, annotate_tune):
        action.add(actions)


def _estimate(options: argparse.Namespace) -> str:
    from laurel.params import load_params
    from laurel.stages import estimate_annotate

    return estimate_annotate.run(load_params(options.params), options.captions)

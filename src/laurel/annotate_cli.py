"""What `laurel annotate` can do besides running the stage. Imports nothing heavy before an action is to run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

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
    actions = annotate.add_subparsers(dest="action", metavar="[ACTION]", required=False)
    probing = command(
        actions,
        "probe",
        "Ask the annotator questions with known answers about the environment.",
        "laurel annotate probe --params params.yaml",
    )
    probing.add_argument("--params", type=Path, default=argparse.SUPPRESS, metavar="FILE", help="the parameters")
    probing.set_defaults(run=lambda options: say(_probe(options)))


def _probe(options: argparse.Namespace) -> str:
    from laurel.envs import room_for
    from laurel.feedback.annotator import make_annotator
    from laurel.feedback.probe import ask, load_probe
    from laurel.params import load_params
    from laurel.seeding import derive_seed

    params = load_params(options.params)
    probe = load_probe(params.env.id)
    room = room_for(params.env, with_action=params.caption.with_action)
    annotator = make_annotator(params.annotate, room, derive_seed(params.seed, "annotate"))
    findings = ask(annotator, probe)
    used = ", ".join(f"{amount:,} {what.replace('_', ' ')}" for what, amount in annotator.usage.items())
    action = ", whose captions name the action, which the questions do not" if room.with_action else ""
    lines = [f"asked  {annotator.name}", f"about  {room.env_id}{action}", "", findings.table()]
    return "\n".join([*lines, *([f"used   {used}"] if used else [])]) + "\n"

"""`laurel classics`: draw how agents learn well-known tasks."""

from __future__ import annotations

import argparse
from pathlib import Path

from laurel.cli.command import Commands, add_command, add_group, whole
from laurel.console import say

KINDS = {
    "bandits": ("Run the bandit agents on ten arms, Gaussian, Bernoulli and drifting.", 2000),
    "tabular": ("Run the tabular agents on tasks whose best policy is known.", 100),
    "deep": ("Train the deep agents on CartPole, Pendulum and Catch; a few minutes.", 5),
}
"""Kind of figure -> its help text and the default number of runs."""


def add(commands: Commands) -> None:
    """Add the commands."""
    kinds = add_group(commands, "classics", "Draw how agents learn: bandits, tabular and deep agents.", "kind")
    for kind, (summary, runs) in KINDS.items():
        command = add_command(kinds, kind, summary, f"laurel classics {kind} --output docs")
        command.add_argument(
            "--runs", type=whole(2), default=runs, metavar="N", help=f"runs per agent; default: {runs}"
        )
        command.add_argument("--seed", type=whole(0), default=0, metavar="N", help="default: 0")
        command.add_argument("--output", type=Path, default=Path(), metavar="DIR", help=f"folder for {kind}.png")
        command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from laurel.classics.deep import show_deep
    from laurel.classics.lessons import show_bandits, show_tabular
    from laurel.data.written import prepare

    prepare(options.output, options.output / f"{options.kind}.png")
    show = {"bandits": show_bandits, "tabular": show_tabular, "deep": show_deep}[options.kind]
    table = show(options.output, n_runs=options.runs, seed=options.seed)
    return say(f"{table}\n\nfigure: {options.output / f'{options.kind}.png'}\n")

"""`laurel tune`: search the parameters of the agents' training. Imports nothing heavy before it is to run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.cli.arguments import whole
from laurel.cli.cloud import pipelines_module
from laurel.errors import ParamsError

if TYPE_CHECKING:
    from laurel.params import Params
    from laurel.pipelines.sweep import SweepPlan
    from laurel.tuning.plan import Search

Command = Callable[..., argparse.ArgumentParser]
Say = Callable[[str], int]

STORAGE, OUTPUT = Path("data/studies.db"), Path("data/tune")
INPUTS = ("captions", "preferences", "reward")
DRAWN_BEFOREHAND = ("sobol", "random", "grid")
"""Samplers of a sweep."""


def add_tune(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    command: Command,
    say: Say,
    places: Mapping[str, str],
) -> None:
    """Add the command.

    Args:
        commands: of the program.
        command: makes a command of parent, name, summary and example.
        say: writes a result and returns the exit code.
        places: where stages read their inputs unless told otherwise.
    """
    tune = command(
        commands,
        "tune",
        "Search the parameters of the agents' training: shaping, learning rate and others.",
        "laurel tune --trials 30 --search shaping.intrinsic=log:0.01:1 --search agent.ppo.learning_rate=log:3e-4:1e-2",
    )
    tune.add_argument("--params", type=Path, default=Path("params.yaml"), metavar="FILE", help="the parameters")
    for name in INPUTS:
        tune.add_argument(
            f"--{name}", type=Path, default=Path(places[name]), metavar="DIR", help=f"default: {places[name]}"
        )
    tune.add_argument("--trials", type=whole(), default=30, metavar="N", help="of the study in all; default: 30")
    add_search(tune)
    tune.add_argument("--no-prune", action="store_true", help="train every candidate to the end")
    tune.add_argument("--workers", type=whole(), metavar="N", help="candidates at a time; default: agent.workers")
    tune.add_argument("--study", metavar="NAME", help="the same name goes on where it was; default: the arm's")
    tune.add_argument("--storage", type=Path, default=STORAGE, metavar="FILE", help=f"SQLite; default: {STORAGE}")
    tune.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR", help=f"default: {OUTPUT}")
    tune.set_defaults(run=lambda options: say(_run(options)))


def add_search(parser: argparse._ActionsContainer, *, samplers: tuple[str, ...] = ("tpe", *DRAWN_BEFOREHAND)) -> None:
    """Add what says what is searched."""
    parser.add_argument(
        "--search",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="a parameter and its values: LOW:HIGH, log:LOW:HIGH or A,B,C; or a YAML file of them. Default: intrinsic "
        "weight, quantile, beta, learning rate and entropy coefficient",
    )
    parser.add_argument("--arm", metavar="ARM", help="which is trained; default: the first method of agent.arms")
    parser.add_argument(
        "--seeds", type=whole(0), nargs="+", metavar="N", help="of the trials; none of agent.seeds; default: 1000 1001"
    )
    parser.add_argument("--steps", type=whole(), metavar="N", help="of a training run; default: agent.steps")
    parser.add_argument(
        "--sampler", choices=samplers, default=samplers[0], help=f"how candidates are drawn; default: {samplers[0]}"
    )


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Add what makes a pipeline a sweep."""
    sweep = parser.add_argument_group("a sweep, instead of training and evaluating all arms")
    sweep.add_argument(
        "--sweep",
        dest="trials",
        type=whole(),
        metavar="N",
        help="try N candidates, drawn beforehand, each in a branch of its own, and pick the best; at most 100",
    )
    add_search(sweep, samplers=DRAWN_BEFOREHAND)


def sweep_plan(options: argparse.Namespace, params: Params) -> SweepPlan | None:
    """Return what a pipeline is to try; None where it is no sweep.

    Raises:
        ParamsError: the options of a sweep are given without --sweep, or something is not allowed.
    """
    search = sweep_search(options)
    plan: SweepPlan | None = pipelines_module("sweep").plan_sweep(params, search) if search else None
    return plan


def sweep_search(options: argparse.Namespace) -> Search | None:
    """Return what the options say of a sweep; None where it is none.

    Raises:
        ParamsError: the options of a sweep are given without --sweep.
    """
    if options.trials is None:
        given = [f"--{name}" for name in ("search", "arm", "seeds", "steps") if getattr(options, name)]
        given += ["--sampler"] if options.sampler != DRAWN_BEFOREHAND[0] else []
        if given:
            raise ParamsError(f"Without --sweep nobody reads {', '.join(given)}: add --sweep N, or leave these out.")
        return None
    return search_of(options)


def search_of(options: argparse.Namespace) -> Search:
    """Return what the options say of the search.

    Raises:
        ParamsError: the study's name is none.
    """
    from laurel.tuning.plan import Search

    study = getattr(options, "study", None)
    if study is not None and not re.fullmatch(r"\w[\w.-]{0,99}", study):
        raise ParamsError(f'--study is "{study}", but must be made of letters, digits, "_", "-" and ".".')
    return Search(
        arm=options.arm,
        entries=options.search,
        trials=options.trials,
        seeds=options.seeds,
        steps=options.steps,
        sampler=options.sampler,
        prune=not getattr(options, "no_prune", False),
        study=study,
        storage=getattr(options, "storage", STORAGE),
    )


def _run(options: argparse.Namespace) -> str:
    import logging
    import sys

    from laurel.params import load_params
    from laurel.stages import tune
    from laurel.tracking.runs import configure

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    params = load_params(options.params)
    configure(options.params.parent)
    told = tune.run(
        params,
        **{name: getattr(options, name) for name in INPUTS},
        output=options.output,
        search=search_of(options),
        text=options.params.read_text(encoding="utf-8"),
        workers=options.workers,
    )
    return f"{told}\n"

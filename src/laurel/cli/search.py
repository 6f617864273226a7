"""The options that define a search, of `laurel tune` and of a sweep."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.cli.command import pipelines_module, whole
from laurel.errors import ParamsError

if TYPE_CHECKING:
    from laurel.params import Params
    from laurel.pipelines.sweep import SweepPlan
    from laurel.tuning.plan import Search

STORAGE = Path("data/studies.db")
DRAWN_BEFOREHAND = ("sobol", "random", "grid")
"""Samplers of a sweep."""


def add_search(parser: argparse._ActionsContainer, *, samplers: tuple[str, ...] = ("tpe", *DRAWN_BEFOREHAND)) -> None:
    """Add the options that define the search."""
    parser.add_argument(
        "--search",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="a parameter and its values: LOW:HIGH, log:LOW:HIGH or A,B,C; or a YAML file of them. Default: intrinsic "
        "weight, quantile, beta, learning rate and entropy coefficient",
    )
    parser.add_argument("--arm", metavar="ARM", help="the arm to train; default: the first method of arms")
    parser.add_argument(
        "--seeds",
        type=whole(0),
        nargs="+",
        metavar="N",
        help="seeds of the trials, other than agent.seeds; default: 1000 1001",
    )
    parser.add_argument("--steps", type=whole(), metavar="N", help="steps of a training run; default: agent.steps")
    parser.add_argument(
        "--sampler", choices=samplers, default=samplers[0], help=f"sampler of the candidates; default: {samplers[0]}"
    )


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a pipeline a sweep."""
    sweep = parser.add_argument_group("a sweep, instead of training and evaluating all arms")
    sweep.add_argument(
        "--sweep",
        dest="trials",
        type=whole(),
        metavar="N",
        help="try N candidates, drawn in advance, each in its own branch, and pick the best; at most 100",
    )
    add_search(sweep, samplers=DRAWN_BEFOREHAND)


def sweep_plan(options: argparse.Namespace, params: Params) -> SweepPlan | None:
    """Return the plan of a pipeline's sweep; None without one.

    Raises:
        ParamsError: the options of a sweep are given without --sweep, or something is not allowed.
    """
    search = sweep_search(options)
    plan: SweepPlan | None = pipelines_module("sweep").plan_sweep(params, search) if search else None
    return plan


def sweep_search(options: argparse.Namespace) -> Search | None:
    """Return the search of a sweep's options; None without a sweep.

    Raises:
        ParamsError: the options of a sweep are given without --sweep.
    """
    if options.trials is None:
        set_options = [f"--{name}" for name in ("search", "arm", "seeds", "steps") if getattr(options, name)]
        set_options += ["--sampler"] if options.sampler != DRAWN_BEFOREHAND[0] else []
        if set_options:
            raise ParamsError(f"{', '.join(set_options)} only applies to a sweep: add --sweep N, or leave it out.")
        return None
    return search_of(options)


def search_of(options: argparse.Namespace) -> Search:
    """Return the search of the options.

    Raises:
        ParamsError: the study's name is not allowed.
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

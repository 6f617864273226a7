"""The command `laurel annotate review`: a person labels pairs in the terminal."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.cli.command import Commands, add_command, add_input, add_params, whole
from laurel.console import printable, say
from laurel.errors import AnnotationError

if TYPE_CHECKING:
    from laurel.data.gold import GoldFile
    from laurel.data.preferences import Pairs, Preferences
    from laurel.feedback.review import Offer
    from laurel.params import Params

WIDTH = 96
END_OF_INPUT = "\x04"
"""The character of Ctrl-D in a terminal's raw mode."""


def add(actions: Commands) -> None:
    """Add the action to `laurel annotate`."""
    reviewing = add_command(
        actions,
        "review",
        "Label pairs yourself, to compare the annotator's labels with.",
        "laurel annotate review --gold gold.jsonl --sample uniform",
    )
    add_params(reviewing, of_parent=True)
    add_input(reviewing, "captions", of_parent=True)
    reviewing.add_argument(
        "--preferences",
        type=Path,
        default=Path("data/preferences"),
        metavar="DIR",
        help="the annotator's labels to compare with, if they exist; default: data/preferences",
    )
    reviewing.add_argument("--gold", type=Path, metavar="FILE", help="file for your labels; default: annotate.gold")
    reviewing.add_argument(
        "--sample",
        choices=["uniform", "uncertain"],
        default="uniform",
        help="uniform: random pairs, to measure all labels; uncertain: pairs with uncertain labels first",
    )
    reviewing.add_argument("-n", type=whole(), default=50, metavar="N", help="maximum number of pairs; default: 50")
    reviewing.add_argument(
        "--labels",
        choices=["before", "after", "never"],
        default="after",
        help="when to show the annotator's answer; before may bias you; default: after",
    )
    reviewing.set_defaults(run=lambda options: say(_review(options)), again="Every answer so far is kept.")


def _review(options: argparse.Namespace) -> str:
    from laurel.data.captions import read_segments
    from laurel.data.gold import GoldFile
    from laurel.data.lineage import read_inputs
    from laurel.envs import adapter_for
    from laurel.feedback.references import task_of
    from laurel.feedback.review import HELP, review
    from laurel.params import load_params

    params = load_params(options.params)
    path = options.gold or params.annotate.gold
    if path is None:
        raise AnnotationError("Set the file for your labels: annotate.gold in the params file, or --gold FILE.")
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    gold = GoldFile(path, task_of(params.annotate, adapter))
    inputs = {"captions": options.captions}
    if options.preferences.exists():
        inputs["preferences"] = options.preferences
    read_inputs(params.dump("seed", "env", "caption"), inputs)
    texts = read_segments(options.captions).texts
    pairs, preferences = _pairs(params, options)
    offers = _offers(params, pairs, preferences, texts, options)
    intro = [f"{adapter.env_id}: {adapter.description}", f"Goal: {gold.task.goal}", HELP]
    say("\n".join(line for text in intro for line in textwrap.wrap(printable(text), WIDTH)) + "\n")
    with _keys() as keys:
        added = review(offers, gold, options.sample, options.labels, keys, say, limit=options.n)
    return _summary(gold, pairs, preferences, texts, added)


def _pairs(params: Params, options: argparse.Namespace) -> tuple[Pairs, Preferences | None]:
    """Return the labelled pairs; without labels, the pairs that would be drawn.

    Raises:
        AnnotationError: uncertain pairs are requested, but nothing has been labelled yet.
    """
    import numpy as np

    from laurel.data.captions import read_segments
    from laurel.data.preferences import Pairs, read_pairs, read_preferences
    from laurel.feedback.pairs import sample_pairs
    from laurel.seeding import derive_seed

    if options.preferences.exists():
        return read_pairs(options.preferences), read_preferences(options.preferences)
    if options.sample == "uncertain":
        raise AnnotationError(
            f"{options.preferences}: no such directory, so there are no uncertain labels yet. Run laurel annotate "
            f"first, or use --sample uniform."
        )
    seed = derive_seed(params.seed, "annotate")
    counts = read_segments(options.captions).counts
    drawn = sample_pairs(counts, params.annotate.n_pairs, params.annotate.drawn_by, np.random.default_rng(seed))
    return Pairs(*drawn, params.annotate.drawn_by, seed), None


def _offers(
    params: Params, pairs: Pairs, preferences: Preferences | None, texts: Sequence[str], options: argparse.Namespace
) -> Iterator[Offer]:
    """Yield the pairs to ask about, in order."""
    from laurel.data.quality import label_in_words
    from laurel.feedback.review import Offer, order
    from laurel.seeding import generator

    for number in order(pairs, preferences, options.sample, generator(params.seed, "review")).tolist():
        first, second = texts[pairs.first[number]], texts[pairs.second[number]]
        label = None
        if preferences is not None:
            label = label_in_words(str(preferences.status[number]), float(preferences.p_first[number]))
        if first != second:
            yield Offer(first, second, label)


def _summary(
    gold: GoldFile,
    pairs: Pairs,
    preferences: Preferences | None,
    texts: Sequence[str],
    added: int,
) -> str:
    """Summarise the gold file, and the agreement of labels with it."""
    from laurel.data.quality import Figure, figures
    from laurel.feedback.quality import compare
    from laurel.feedback.references import gold_sides

    labelled = f"{added} pair{'s' * (added != 1)} labelled"
    lines = ["", f"{labelled}, {len(gold.labels)} in {gold.path} for this environment and goal."]
    shown: list[Figure] = []
    if preferences is not None:
        known = {
            "gold": gold_sides(pairs, texts, gold, "uniform"),
            "gold_uncertain": gold_sides(pairs, texts, gold, "uncertain"),
        }
        compared = {name: compare(preferences.p_first, sides) for name, sides in known.items()}
        shown = figures({name: agreement for name, agreement in compared.items() if agreement})
        lines += [f"{f.measure}: {f.shown} ({f'{f.shown_interval}, ' if f.interval else ''}of {f.of:,})" for f in shown]
        lines += [] if shown else ["No pair has a preference in both, so agreement cannot be computed yet."]
    if gold.labels:
        lines += [
            "",
            f"To include it in the report: annotate.gold: {gold.path} in the params file, then laurel annotate (with "
            f"DVC:",
            "dvc repro --force --single-item annotate). Answers are kept, so nothing is asked again.",
        ]
    return "\n".join(lines) + "\n"


@contextmanager
def _keys() -> Iterator[Callable[[], str]]:
    """Yield a function that waits for a key: a single key on a terminal, elsewhere the first character of a line."""
    if not sys.stdin.isatty():
        yield _line
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    attributes = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield _pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, attributes)


def _line() -> str:
    line = sys.stdin.readline()
    return line.strip()[:1] or line[:1]


def _pressed() -> str:
    key = sys.stdin.read(1)
    sys.stdout.write(f"{key}\n" if key.isprintable() else "\n")
    return "" if key == END_OF_INPUT else key

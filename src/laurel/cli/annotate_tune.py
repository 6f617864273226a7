"""`laurel annotate tune`: a small chat model becomes a judge of your own."""

from __future__ import annotations

import argparse
from pathlib import Path

from laurel.cli.command import Commands, add_command, add_input, add_output, add_params, number, whole
from laurel.console import say
from laurel.llm.judge_tuning import Labels, Tuning

OUTPUT = "judges/tuned"


def add(actions: Commands) -> None:
    """Add the action to `laurel annotate`."""
    tuning = add_command(
        actions,
        "tune",
        "Tune the model of annotate.huggingface into a judge, by LoRA weights that annotate.huggingface.adapter names: "
        "on environments' hand-written progress, a person's labels or another judge's, and tested on environments "
        "that it never sees.",
        "laurel annotate tune --env FrozenLake-v1 Taxi-v3 CartPole-v1 --held-out MiniGrid-DoorKey-8x8-v0",
    )
    add_params(tuning, of_parent=True)
    labels, defaults = Labels((), ()), Tuning()
    tuning.add_argument("--model", metavar="NAME", help="default: annotate.huggingface.model")
    tuning.add_argument(
        "--env", nargs="+", default=[], metavar="ID", help="train on the hand-written progress of these environments"
    )
    tuning.add_argument("--gold", type=Path, metavar="FILE", help="train on gold labels for the params' environment")
    tuning.add_argument(
        "--preferences", type=Path, metavar="DIR", help="train on another judge's labels of the captions in --captions"
    )
    tuning.add_argument(
        "--ranked-texts",
        type=Path,
        nargs="?",
        const=True,
        metavar="FILE",
        help="train on tasks whose texts are ranked by hand: from a YAML file, or those that come with Laurel",
    )
    add_input(tuning, "captions", of_parent=True)
    tuning.add_argument("--held-out", nargs="+", default=[], metavar="ID", help="test with these environments")

    def count(name: str, default: int, description: str, metavar: str = "N") -> None:
        tuning.add_argument(
            name, type=whole(), default=default, metavar=metavar, help=f"{description}; default: {default}"
        )

    count("--pairs", labels.pairs, "training pairs per environment")
    count("--ranked-pairs", labels.ranked_pairs, "training pairs per task of --ranked-texts")
    count("--test-pairs", labels.test_pairs, "test pairs per held-out environment")
    tuning.add_argument("--prompt", default="concise", metavar="NAME", help="prompt of the questions; default: concise")
    count("--rank", defaults.rank, "LoRA rank", "R")
    count("--passes", defaults.passes, "passes over all pairs")
    tuning.add_argument(
        "--learning-rate",
        type=number(1e-6, 0.1),
        default=defaults.learning_rate,
        metavar="R",
        help=f"Adam's; default: {defaults.learning_rate:g}",
    )
    count("--batches", defaults.batches, "batches per gradient step, each of one environment or task")
    add_output(tuning, OUTPUT)
    tuning.set_defaults(run=lambda options: say(_tune(options)), again="Run it again to resume after the last pass.")


def _tune(options: argparse.Namespace) -> str:
    from laurel.feedback.ranked_texts import OWN
    from laurel.params import load_params
    from laurel.stages import tune_judge

    labels = Labels(
        environments=tuple(options.env),
        held_out=tuple(options.held_out),
        pairs=options.pairs,
        test_pairs=options.test_pairs,
        gold=options.gold,
        preferences=options.preferences,
        captions=options.captions if options.preferences else None,
        ranked=OWN if options.ranked_texts is True else options.ranked_texts,
        ranked_pairs=options.ranked_pairs,
    )
    settings = Tuning(
        rank=options.rank, learning_rate=options.learning_rate, passes=options.passes, batches=options.batches
    )
    params = load_params(options.params)
    return tune_judge.run(params, labels, options.output, prompt=options.prompt, tuning=settings, model=options.model)

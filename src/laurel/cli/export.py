"""`laurel export` and `laurel import`: data in other libraries' formats."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

from laurel.cli.command import Commands, add_command, add_group, add_input, add_output
from laurel.console import say
from laurel.errors import ParamsError

RESPONSES = "responses/responses.db"
"""Database of language models' answers unless params.yaml names another one."""

PREFERENCES = {
    "trl": "Write preferences as TRL's rows: prompt, chosen, rejected.",
    "choice": "Write preferences as Vertex AI's rows: input_text, candidate_0, candidate_1, choice.",
    "gemini": "Write preferences as examples of Gemini's preference tuning.",
    "datasets": "Write preferences as a directory of Hugging Face datasets, in TRL's columns.",
    "motif": "Write preferences as Motif's arrays.",
}
"""Formats of preferences between texts, which `laurel import` reads."""


def add(commands: Commands) -> None:
    """Add the commands."""
    example = "laurel export minari doorkey/random-v0 --output minari"
    formats = add_group(commands, "export", "Write data in other libraries' formats.", "format", example)
    minari = add_command(formats, "minari", "Write trajectories as a Minari data set.", example)
    minari.add_argument("dataset", metavar="NAME", help="name of the data set, e.g. doorkey/random-v0")
    add_input(minari, "trajectories")
    minari.add_argument("--output", type=Path, default=Path("minari"), metavar="DIR", help="folder of Minari data sets")
    minari.set_defaults(run=_export_minari)
    for name, summary in PREFERENCES.items():
        suffix = "" if name in ("motif", "datasets") else ".jsonl"
        default = Path(f"preferences-{name}{suffix}")
        rows = add_command(formats, name, summary, f"laurel export {name} --output {default}")
        add_input(rows, "preferences")
        add_input(rows, "captions")
        rows.add_argument(
            "--rows",
            type=Path,
            metavar="PATH",
            help="convert these preferences instead: a file or directory in any format",
        )
        kinds = "" if suffix == "" or name == "gemini" else "; by its suffix .jsonl, .csv or .parquet"
        rows.add_argument("--output", type=Path, default=default, metavar="PATH", help=f"default: {default}{kinds}")
        rows.add_argument("--prompt", default="", metavar="TEXT", help="prompt for rows without one")
        if name != "motif":
            rows.add_argument(
                "--drop-undecided",
                action="store_true",
                help="leave out ties and pairs without a label, which the format cannot store",
            )
        rows.set_defaults(run=_export_preferences, layout=name, drop_undecided=False)
    hub = add_command(
        formats,
        "hub",
        "Write a reward and its preferences as folders for the Hugging Face hub, each with its card.",
        "laurel export hub --reward data/reward/preference --output hub",
    )
    for name in ("reward", "preferences", "captions"):
        add_input(hub, name)
    hub.add_argument(
        "--reports",
        type=Path,
        default=Path("reports"),
        metavar="DIR",
        help="report with the figures for the cards; default: reports",
    )
    add_output(hub, "hub")
    hub.set_defaults(run=_export_hub)
    responses = add_command(
        formats,
        "responses",
        "Write every answer of a language model as one Parquet file.",
        "laurel export responses --output responses.parquet",
    )
    _add_responses(responses)
    responses.add_argument(
        "--output", type=Path, default=Path("responses.parquet"), metavar="FILE", help="default: responses.parquet"
    )
    responses.add_argument(
        "--prices",
        type=Path,
        metavar="FILE",
        help="your own prices, as annotate.budget.prices; default: the packaged ones",
    )
    responses.set_defaults(run=_export_responses)
    example = "laurel export inspect --output logs/judgements.eval"
    inspect = add_command(formats, "inspect", "Write a language model's judgements as a log for inspect view.", example)
    add_input(inspect, "preferences")
    add_input(inspect, "captions")
    _add_responses(inspect)
    default = Path("logs/judgements.eval")
    inspect.add_argument("--output", type=Path, default=default, metavar="FILE", help=f"default: {default}")
    inspect.set_defaults(run=_export_inspect)
    example = "laurel import rows.jsonl --output imported"
    taken = add_command(
        commands,
        "import",
        "Import preferences from other formats (as laurel export writes them: trl, choice, gemini, datasets, motif).",
        example,
    )
    taken.add_argument("rows", type=Path, metavar="PATH", help="a .jsonl, .csv or .parquet file, or a directory")
    add_output(taken, "imported")
    taken.set_defaults(run=_import)


def _add_responses(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--responses", type=Path, default=Path(RESPONSES), metavar="FILE", help=f"the store; default: {RESPONSES}"
    )


def _check_suffix(output: Path, suffixes: Sequence[str]) -> None:
    if output.suffix not in suffixes:
        raise ParamsError(f"--output {output}: name a file that ends with {' or '.join(suffixes)}.")


def _check_apart(output: Path, source: Path | None) -> None:
    """Refuse to replace what is exported by its export."""
    if source is not None and output.exists() and source.exists() and output.samefile(source):
        raise ParamsError(f"--output {output}: is what the export reads, and would be replaced. Name another file.")


def _import(options: argparse.Namespace) -> int:
    from laurel.data.own_preferences import CAPTIONS, PREFERENCES, import_rows, read_any

    rows = read_any(options.rows)
    import_rows(rows, options.output)
    statuses = ", ".join(f"{count:,} {status}" for status, count in rows.labels.status_counts().items() if count)
    left_out = f"; columns left out: {', '.join(rows.left_out)}" if rows.left_out else ""
    places = f"{options.output / PREFERENCES} and {options.output / CAPTIONS}"
    return say(f"{len(rows):,} preferences ({statuses}) in {places}{left_out}\n")


def _export_minari(options: argparse.Namespace) -> int:
    from laurel.data.minari import export

    warnings.filterwarnings("ignore", module="minari")  # that a data set names no author, and the like
    counts = export(options.trajectories, options.dataset, options.output.resolve())
    written = ", ".join(f"{value} {key}" for key, value in counts.items())
    return say(f"{written} in {options.output / options.dataset}\n")


def _export_preferences(options: argparse.Namespace) -> int:
    from laurel.data.motif import write_motif
    from laurel.data.own_preferences import read_any, read_own
    from laurel.data.preference_rows import LAYOUTS
    from laurel.data.row_files import SUFFIXES, write_file

    name, output = options.layout, options.output
    if name in ("trl", "choice"):
        _check_suffix(output, SUFFIXES)
    _check_apart(output, options.rows)
    if name in ("motif", "datasets") and output.suffix:
        raise ParamsError(f"--output {output}: {name} is a directory, whose name has no suffix.")
    rows = read_any(options.rows) if options.rows else read_own(options.preferences, options.captions)
    rows = rows.prompted(options.prompt)
    kept = rows.decided() if options.drop_undecided else rows
    if name == "motif":
        write_motif(kept, output)
    else:
        write_file(kept, LAYOUTS["trl" if name == "datasets" else name], output)
    dropped = f", {len(rows) - len(kept):,} without a preferred text left out" if len(kept) < len(rows) else ""
    return say(f"{len(kept):,} preferences in {output}{dropped}\n")


def _export_hub(options: argparse.Namespace) -> int:
    from laurel.stages.hub import DATASET, MODEL, export_hub

    output: Path = options.output
    counts = export_hub(options.reward, options.preferences, options.captions, options.reports, output)
    dropped = f", {counts['left_out']:,} without a preferred text left out" if counts["left_out"] else ""
    return say(
        f"{counts['rows']:,} preferences{dropped}; read both cards, and choose a licence. To send them:\n"
        f"  hf upload OWNER/NAME {output / MODEL}\n"
        f"  hf upload OWNER/NAME {output / DATASET} --repo-type dataset\n"
    )


def _export_responses(options: argparse.Namespace) -> int:
    from laurel.evaluation.formats import counted
    from laurel.llm.responses_export import export_responses

    _check_suffix(options.output, (".parquet",))
    _check_apart(options.output, options.responses)
    count = export_responses(options.responses, options.output, options.prices)
    return say(f"{counted(count, 'answer')} in {options.output}\n")


def _export_inspect(options: argparse.Namespace) -> int:
    from laurel.evaluation.formats import counted
    from laurel.feedback.inspect_log import SUFFIXES, export_inspect

    output: Path = options.output
    _check_suffix(output, SUFFIXES)
    count, missing = export_inspect(options.preferences, options.captions, options.responses, output)
    left_out = f", {missing:,} that the store does not hold left out" if missing else ""
    return say(f"{counted(count, 'answer')} in {output}{left_out}. To look: inspect view --log-dir {output.parent}\n")

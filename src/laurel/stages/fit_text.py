"""fit-text: preference rows → a text reward model, with a quality file. Not part of the pipeline."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from laurel.console import aligned
from laurel.data.digests import files_in
from laurel.data.directory import check_output, output_directory
from laurel.data.json_file import write_json
from laurel.data.manifest import MANIFEST
from laurel.data.own_preferences import read_any
from laurel.evaluation.formats import counted
from laurel.llm.embedding_cache import encode_cached
from laurel.progress import progress
from laurel.rewards.method import QUALITY
from laurel.rewards.text import fit_rows
from laurel.rewards.text_tuning import Tuning, require_trl

STAGE = "reward fit"


def run(
    rows: Path,
    output: Path,
    *,
    model: str,
    tuning: Tuning | None = None,
    seed: int = 0,
) -> str:
    """Fit a reward model of texts; return its quality as text for a terminal.

    Args:
        rows: preferences of any format that `laurel import` reads.
        output: directory to write the model and QUALITY into.
        model: sentence encoder, or the language model that is tuned.
        tuning: how the whole model is tuned; None: only a head is trained.
        seed: of the held-out split.

    Raises:
        DataError: rows cannot be read, none has a preferred text, or the output cannot be written.
        AnnotationError: there is no such model.
        MissingPackageError: TRL or `datasets` is needed and not installed.
    """
    check_output(output, STAGE)
    if tuning:
        require_trl()
    preferences = read_any(rows)
    params = {"model": model, "train": "all" if tuning else "head", "seed": seed, **(asdict(tuning) if tuning else {})}

    def encode(texts: list[str]) -> Any:
        with progress(len(texts), "reward fit: encode", "texts") as advance:
            return encode_cached(model, texts, advance)

    with output_directory(output, stage=STAGE, params=params, inputs=_inputs(rows)) as out:
        _, quality = fit_rows(preferences, model, tuning=tuning, seed=seed, place=out.path, encode=encode)
        write_json(out.path / QUALITY, quality)
        unlabelled = int((~preferences.labels.usable).sum())
        equal = len(preferences) - unlabelled - quality["pairs"]
        out.counts = {"rows": len(preferences), "unlabelled": unlabelled, "identical": equal, "pairs": quality["pairs"]}
        if preferences.left_out:
            out.notes.append(f"Columns that were not read: {', '.join(preferences.left_out)}.")
        notes, counts = list(out.notes), dict(out.counts)
    return described(quality, counts, notes, output)


def _inputs(rows: Path) -> dict[str, Path]:
    """Return what rows are read from: a file, the output of a stage, or all files of another folder."""
    if rows.is_file() or (rows / MANIFEST).is_file():
        return {"rows": rows}
    return {f"rows/{file.relative_to(rows).as_posix()}": file for file in files_in(rows)}


def described(quality: dict[str, Any], counts: dict[str, int], notes: list[str], output: Path) -> str:
    """Describe in a few lines the training data, and the agreement of predictions with held-out labels."""
    lines = [("rows", f"{counts['rows']:,}")]
    for key, means in (("unlabelled", "without a label, left out"), ("identical", "of identical texts, left out")):
        lines += [("", f"{counts[key]:,} {means}")] if counts[key] else []
    trained = quality.get("trained_pairs")  # a tuned model learns from neither ties nor pairs that are held out
    if trained is not None and quality["ties"]:
        lines.append(("", f"{counted(quality['ties'], 'tie')}, left out"))
    tied = ""
    if trained is None and quality["ties"]:
        tied = f", {quality['ties']:,} of them {'a tie' if quality['ties'] == 1 else 'ties'}"
    lines.append(("learned from", f"{counted(quality['pairs'] if trained is None else trained, 'pair')}{tied}"))
    if quality["contradicted"]:
        contradicted = f"{counted(quality['contradicted'], 'pair')} that are also labelled in the opposite order"
        lines.append(("contradicted", contradicted))
    if quality["heldout_agreement"] is None:
        lines.append(("held out", "nothing: too few pairs with a preference, or all of them share their texts"))
    else:
        low, high = quality["heldout_ci95"]
        agreement = (
            f"{quality['heldout_agreement']:.1%} [{low:.1%}, {high:.1%}] of {counted(quality['heldout_pairs'], 'pair')}"
        )
        lines.append(("held out", f"agrees with {agreement} with a text that it was not trained on"))
        named = {"longer": "the longer text", "majority": "always the first or always the second"}
        shares = [f"{named[key]} {value:.1%}" for key, value in quality["baselines"].items() if value is not None]
        lines.append(("", f"for comparison: {'; '.join(shares)}"))
    lines += [("note", note) for note in notes]
    lines.append(("written", f'{output}; try: laurel reward score {output} "a text"'))
    return "\n".join(aligned(lines)) + "\n"

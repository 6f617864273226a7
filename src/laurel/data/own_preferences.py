"""Convert between Laurel's own preferences (outputs of the stages caption and annotate) and rows of texts.

A prompt becomes a caption: a segment then has two members, the prompt and its completion, which the manifest records.
Both sides of a pair have the same prompt, so its reward cancels out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from laurel.data.captions import Segments, Vocabulary, read_segments, read_vocabulary, write_segments, write_vocabulary
from laurel.data.directory import output_directory
from laurel.data.labels import write_labels
from laurel.data.manifest import MANIFEST, read_manifest
from laurel.data.motif import is_motif, read_motif
from laurel.data.ownership import stage_of, would_be_lost
from laurel.data.preference_rows import PreferenceRows, below
from laurel.data.preferences import Pairs, read_pairs, read_preferences
from laurel.data.row_files import read_file
from laurel.errors import DataError

PROMPTED = "prompts"
"""Parameter of imported captions: whether segments begin with a prompt."""
CAPTIONS, PREFERENCES = "captions", "preferences"
"""Folders that `import_rows` writes."""


def read_any(path: Path) -> PreferenceRows:
    """Read preferences of any format: a file or directory of rows, Motif's arrays, or Laurel's own after an import.

    Raises:
        DataError: the format is unknown, or a file is damaged.
    """
    if is_motif(path):
        return read_motif(path)
    if (path / PREFERENCES / MANIFEST).is_file():
        return read_own(path / PREFERENCES, path / CAPTIONS)
    if (path / MANIFEST).is_file():
        return read_own(path, path.with_name(CAPTIONS))
    return read_file(path)


def read_own(preferences: Path, captions: Path) -> PreferenceRows:
    """Read the output of annotate, with the texts from the output of caption.

    Raises:
        DataError: a directory is missing or damaged, or the preferences were made from other captions.
    """
    made_from = read_manifest(preferences, "annotate")["inputs"].get("captions")
    described = read_manifest(captions, "caption")
    if made_from not in (None, described["digest"]):
        raise DataError(
            f"{preferences}: was not made from the captions in {captions}. Name the right ones with --captions."
        )
    pairs, labels, segments = read_pairs(preferences), read_preferences(preferences), read_segments(captions)
    highest = max(pairs.first.max(initial=-1), pairs.second.max(initial=-1))
    if highest >= len(segments):
        raise DataError(f"{preferences}: names segment {highest}, but {captions} has {len(segments)}.")
    if not described["params"].get(PROMPTED):
        first, second = ([segments.texts[i] for i in side] for side in (pairs.first, pairs.second))
        return PreferenceRows([""] * len(pairs), first, second, labels, pairs.sampler, pairs.seed)
    texts = read_vocabulary(captions).texts
    prompts = [texts[i] for i in segments.members[pairs.first, 0]]
    first, second = ([texts[i] for i in segments.members[side, 1]] for side in (pairs.first, pairs.second))
    return PreferenceRows(prompts, first, second, labels, pairs.sampler, pairs.seed)


def import_rows(rows: PreferenceRows, output: Path) -> None:
    """Write rows as outputs of caption and annotate, in the folders CAPTIONS and PREFERENCES of a directory.

    Raises:
        DataError: the place cannot be written, or holds outputs of these stages that were not imported.
    """
    for place in (output / CAPTIONS, output / PREFERENCES):
        if (stage := stage_of(place)) is not None and not set(read_manifest(place).get("params", {})) <= {PROMPTED}:
            raise would_be_lost(place, stage)
    prompted = any(rows.prompts)
    items = [*zip(rows.prompts, rows.first, strict=True), *zip(rows.prompts, rows.second, strict=True)]
    numbers = {item: number for number, item in enumerate(dict.fromkeys(items))}
    sides = np.array([numbers[item] for item in items], dtype=np.int64).reshape(2, -1)
    texts = [text for item in numbers for text in (item if prompted else item[1:])]
    ids = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    members = np.array([ids[text] for text in texts], dtype=np.int64).reshape(len(numbers), -1)
    counts = np.bincount(sides.reshape(-1), minlength=len(numbers)).astype(np.int64)
    unknown = np.full(len(ids), -1, dtype=np.int64)
    occurrences = np.bincount(members.reshape(-1), weights=np.repeat(counts, members.shape[1]), minlength=len(ids))
    vocabulary = Vocabulary(list(ids), occurrences.astype(np.int64), unknown, unknown.astype(np.int32))
    judged = [below(prompt, text) for prompt, text in numbers]
    note = f"These were imported ({rows.labels.annotator}); no environment's steps belong to them."
    with output_directory(output / CAPTIONS, stage="caption", params={PROMPTED: prompted}) as out:
        write_vocabulary(out.path, vocabulary)
        write_segments(out.path, Segments(judged, counts, members))
        out.counts = {"distinct": len(ids), "segments": len(numbers), "shards": 0}
        out.notes.append(note)
    made_from = {"captions": output / CAPTIONS}
    with output_directory(output / PREFERENCES, stage="annotate", params={}, inputs=made_from) as out:
        write_labels(out.path, Pairs(sides[0], sides[1], rows.sampler, rows.seed), rows.labels)
        out.counts = {"pairs": len(rows), **rows.labels.status_counts()}
        out.notes.append(note)

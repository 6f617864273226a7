"""Preferences in the format of Motif (arXiv 2310.00166, rlaif/dataset.py): arrays in one folder, aligned by pair.

    DIR/data/message.npy      uint8 (N, 2, L, 256): L messages of either side, filled up with zeros
    DIR/preference/NAME.npy   int8 (N,): 0 the first, 1 the second, 2 a tie, 3 unknown

Laurel writes each text as one message (L = 1); when reading, messages of longer sequences are joined like the captions
of a segment. Fields that the codes of laurel.npy cannot express are stored in DIR/laurel.parquet, which Motif does not
read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from laurel.data.parquet import read_beside, write_beside
from laurel.data.preference_rows import PreferenceRows, Row, RowError, extras_of, with_extras
from laurel.data.written import written_whole
from laurel.envs.captioner import collapse
from laurel.errors import DataError, first_line

WIDTH = 256
"""Bytes of a message in NetHack, for which Motif's network is built."""
MESSAGES, PREFERENCE, BESIDE = Path("data/message.npy"), "preference", "laurel.parquet"
OWN = "laurel"
"""Name of the annotator whose preferences `write_motif` writes."""
CODES = {0: 1.0, 1: 0.0, 2: 0.5, 3: None}


def is_motif(path: Path) -> bool:
    """Whether a path is such a folder, or one of its files of preferences."""
    return (_root(path) / MESSAGES).is_file()


def read_motif(path: Path) -> PreferenceRows:
    """Read a folder, or one of several annotators' preferences by its file.

    Raises:
        DataError: a file is missing, damaged or of another shape, or there are several annotators.
    """
    root = _root(path)
    codes_file = path if path.suffix == ".npy" else _only(sorted((root / PREFERENCE).glob("*.npy")), root)
    messages, codes = _array(root / MESSAGES), _array(codes_file)
    if messages.ndim != 4 or messages.shape[1] != 2 or messages.dtype != np.uint8:
        raise DataError(f"{root / MESSAGES}: is {messages.dtype} {messages.shape}, but must be uint8 (N, 2, L, width).")
    if codes.shape != messages.shape[:1] or codes.dtype.kind not in "iu":
        raise DataError(f"{codes_file}: is {codes.dtype} {codes.shape}, but must be int8 ({len(messages)},).")
    sidecar = None
    if (root / BESIDE).is_file() and codes_file.stem == OWN:  # it is about Laurel's labels, not another annotator's
        sidecar = read_beside(root / BESIDE, [root / MESSAGES, codes_file])
        if len(sidecar) != len(codes):
            raise DataError(f"{root / BESIDE}: belongs to pairs other than those in {codes_file}. Remove it.")
    rows = []
    for number, code in enumerate(codes.tolist()):
        if code not in CODES:
            raise DataError(f"{codes_file}: pair {number} has the code {code}, but must have one from 0 to 3.")
        p = CODES[code]
        first, second = (_text(side, f"{root / MESSAGES}: pair {number}") for side in messages[number])
        row = Row("", first, second, p, status="" if p is not None else "parse_failed")
        try:
            rows.append(with_extras(row, sidecar[number]) if sidecar else row)
        except RowError as error:
            raise DataError(f"{root / BESIDE}: pair {number}, column {error.column}: {error.says}.") from None
    return PreferenceRows.of(rows, f"Motif {codes_file.stem}")


def write_motif(rows: PreferenceRows, path: Path) -> None:
    """Write a folder atomically.

    Raises:
        DataError: a text is longer than WIDTH bytes, holds a NUL or has a prompt, for which Motif has no array; or the
            folder holds other files.
    """
    row_list = rows.rows()
    messages = np.zeros((len(row_list), 2, 1, WIDTH), dtype=np.uint8)
    codes = np.zeros(len(row_list), dtype=np.int8)
    for number, row in enumerate(row_list):
        if row.prompt:
            raise DataError(
                f"pair {number} has a prompt, and Motif's arrays have no place for one. Export trl or choice."
            )
        for side, text in enumerate((row.first, row.second)):
            encoded = text.encode()
            if len(encoded) > WIDTH or 0 in encoded:
                flaw = "a NUL" if 0 in encoded else f"{len(encoded)} bytes of at most {WIDTH}"
                raise DataError(
                    f"pair {number} holds a text with {flaw}, which Motif's arrays cannot hold. Export trl or choice."
                )
            messages[number, side, 0, : len(encoded)] = list(encoded)
        codes[number] = 3 if row.p_first is None else 2 if row.p_first == 0.5 else 0 if row.p_first > 0.5 else 1
    if path.exists() and not is_motif(path) and (not path.is_dir() or any(path.iterdir())):
        raise DataError(f"{path}: exists, but contains no Motif arrays to replace.")
    with written_whole(path) as partial:
        (partial / MESSAGES).parent.mkdir(parents=True, exist_ok=True)
        (partial / PREFERENCE).mkdir(exist_ok=True)
        np.save(partial / MESSAGES, messages)
        np.save(partial / PREFERENCE / f"{OWN}.npy", codes)
        files = [partial / MESSAGES, partial / PREFERENCE / f"{OWN}.npy"]
        write_beside(partial / BESIDE, [extras_of(row) for row in row_list], files)


def _root(path: Path) -> Path:
    return path.parent.parent if path.suffix == ".npy" else path


def _only(files: list[Path], root: Path) -> Path:
    if len(files) != 1:
        named = ", ".join(map(str, files)) or "none"
        raise DataError(
            f"{root / PREFERENCE}: must hold the preferences of one annotator, but holds {named}. Name one."
        )
    return files[0]


def _array(file: Path) -> np.ndarray:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: is not an array that can be read ({first_line(error)}).") from None


def _text(side: np.ndarray, place: str) -> str:
    try:
        return collapse([bytes(message).rstrip(b"\0").decode() for message in side])
    except UnicodeDecodeError:
        raise DataError(f"{place} holds a message that is not text in UTF-8.") from None

"""The single answers behind labels, as arrays; their raw text stays in the response store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from laurel.arrays import BoolArray, DoubleArray, IntArray
from laurel.data.parquet import opened, readable
from laurel.data.preferences import ANSWERS, ANSWERS_SCHEMA, STAGE
from laurel.errors import DataError

VERDICTS = ("first", "second", "tie", "abstain", "unread", "failed")
"""Answers about the pair in its own order, not the order shown; unread: could not be parsed; failed: no answer."""
FIRST, SECOND, TIE, ABSTAIN, UNREAD, FAILED = range(len(VERDICTS))
_NONE = pa.array([], pa.dictionary(pa.int32(), pa.string()))


@dataclass(frozen=True)
class Verdicts:
    """N answers about P pairs."""

    pair: IntArray
    """(N,) which pair was asked about."""
    swapped: BoolArray
    """(N,) True if the second text was shown first."""
    verdict: npt.NDArray[np.integer[Any]]
    """(N,) index in VERDICTS."""
    p_first: DoubleArray
    """(N,) NaN if there is no label."""
    by: npt.NDArray[np.integer[Any]]
    """(N,) index of the annotator in `names`."""
    names: tuple[str, ...] = ("",)

    def __len__(self) -> int:
        return len(self.pair)

    def of(self, name: str) -> Verdicts:
        """Return the answers of one annotator."""
        mask = self.by == self.names.index(name)
        return Verdicts(
            pair=self.pair[mask],
            swapped=self.swapped[mask],
            verdict=self.verdict[mask],
            p_first=self.p_first[mask],
            by=np.zeros(int(mask.sum()), dtype=np.int64),
            names=(name,),
        )


def read_verdicts(path: Path) -> Verdicts | None:
    """Read the answers of a directory, also of one that is still being written; None without any.

    Raises:
        DataError: the file is damaged or does not contain verdicts.
    """
    file = path / ANSWERS
    if not file.exists():
        return None
    with (
        opened(file, ANSWERS_SCHEMA, STAGE),
        readable(file, STAGE),
    ):  # dictionary-encoded: a string per answer would be large
        texts = ["verdict", "annotator"]
        columns = ["pair", "swapped", "p_first", *texts]
        table = pq.read_table(file, columns=columns, read_dictionary=texts, page_checksum_verification=True)
    table = table.unify_dictionaries().combine_chunks()
    verdicts, annotators = (table[name].chunk(0) if len(table) else _NONE for name in texts)
    places = pc.index_in(verdicts.dictionary, value_set=pa.array(VERDICTS, verdicts.dictionary.type))
    if places.null_count:
        raise DataError(f"{file}: a verdict is not one of {', '.join(VERDICTS)}. Run laurel {STAGE} again.")
    return Verdicts(
        pair=table["pair"].to_numpy().astype(np.int64),
        swapped=table["swapped"].to_numpy(),
        verdict=places.to_numpy()[verdicts.indices.to_numpy()],
        p_first=table["p_first"].fill_null(np.nan).to_numpy(),
        by=annotators.indices.to_numpy(),
        names=tuple(map(str, annotators.dictionary.to_pylist())),
    )

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laurel.data.preferences import ANSWERS, ANSWERS_SCHEMA
from laurel.data.verdicts import FAILED, FIRST, UNREAD, read_verdicts
from laurel.errors import DataError

ROWS = {
    "pair": [0, 0, 3],
    "swapped": [False, True, False],
    "vote": [0, 0, 0],
    "verdict": ["first", "unread", "failed"],
    "p_first": [1.0, None, None],
    "response": ["a", "b", ""],
    "annotator": ["", "", ""],
}


def test_answers_as_arrays(tmp_path: Path) -> None:
    assert read_verdicts(tmp_path) is None
    pq.write_table(pa.table(ROWS, schema=ANSWERS_SCHEMA), tmp_path / ANSWERS)
    found = read_verdicts(tmp_path)
    assert found is not None
    assert found.pair.tolist() == [0, 0, 3]
    assert found.swapped.tolist() == [False, True, False]
    assert found.verdict.tolist() == [FIRST, UNREAD, FAILED]
    np.testing.assert_array_equal(found.p_first, [1.0, np.nan, np.nan])
    assert found.names == ("",)


def test_answers_of_several_annotators(tmp_path: Path) -> None:
    table = pa.table({**ROWS, "annotator": ["x", "y", "x"]}, schema=ANSWERS_SCHEMA)
    pq.write_table(table, tmp_path / ANSWERS)
    found = read_verdicts(tmp_path)
    assert found is not None
    assert found.names == ("x", "y")
    assert found.of("x").pair.tolist() == [0, 3]
    assert found.of("y").verdict.tolist() == [UNREAD]


def test_an_invalid_verdict(tmp_path: Path) -> None:
    pq.write_table(pa.table({**ROWS, "verdict": ["first", "both", "tie"]}, schema=ANSWERS_SCHEMA), tmp_path / ANSWERS)
    with pytest.raises(DataError, match="a verdict is not one of first, second"):
        read_verdicts(tmp_path)

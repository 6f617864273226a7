from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from laurel.data.json_file import write_json
from laurel.training.curve import CURVE, CURVE_SCHEMA
from laurel.tuning.objective import area, diverged, last_return, note_of, read_curve, reports, result_of


def curve(returns: list[float | None], steps: int = 10) -> pd.DataFrame:
    """Mean returns of the last episodes after updates of `steps` environment steps; None: too few had ended."""
    return pd.DataFrame(
        {
            "env_steps": [steps * (i + 1) for i in range(len(returns))],
            "return_mean": [np.nan if value is None else value for value in returns],
        }
    )


def written(path: Path, rows: pd.DataFrame) -> Path:
    import pyarrow as pa

    from laurel.data.parquet import write_table

    path.mkdir(parents=True)
    write_table(path / CURVE, pa.Table.from_pylist(rows.to_dict("records"), schema=CURVE_SCHEMA))
    return path


def test_the_area_is_the_mean_over_updates() -> None:
    assert area(curve([0.0, 1.0, 2.0])) == pytest.approx(1.0)
    slow, quick = area(curve([0.0, 0.0, 0.0, 1.0])), area(curve([0.0, 1.0, 1.0, 1.0]))
    assert slow is not None
    assert quick is not None
    assert slow < quick, "to be good early is better"


def test_updates_with_too_few_episodes_do_not_count() -> None:
    assert area(curve([None, 0.0, 1.0])) == pytest.approx(0.5)
    assert area(curve([None, None])) is None
    assert last_return(curve([None, None])) is None
    assert last_return(curve([None, 3.0, None])) == 3.0


def test_reports_go_as_far_as_the_slowest_seed() -> None:
    full, half = curve([float(i) for i in range(20)]), curve([2.0] * 10)
    found = reports([full, half], 200)
    assert [part for part, _ in found] == [1, 2, 3, 4, 5]
    assert found[1] == (2, pytest.approx((np.mean([0, 1, 2, 3]) + 2.0) / 2))
    assert [part for part, _ in reports([full, full], 200)] == list(range(1, 10)), "the end is the score's"
    assert reports([full, curve([])], 200) == []


def test_too_few_episodes_are_not_reported() -> None:
    late = curve([None] * 4 + [1.0] * 16)
    assert reports([late], 200)[0][0] == 3
    assert reports([late, curve([2.0] * 20)], 200)[0] == (3, 1.5), "a mean over one of two seeds is not comparable"


def test_a_result_is_the_mean_over_seeds(tmp_path: Path) -> None:
    agents = [written(tmp_path / "seed-1", curve([0.0, 1.0])), written(tmp_path / "seed-2", curve([2.0, 3.0]))]
    trial = result_of(4, {"shaping.beta": 1.0}, agents, 20)
    assert (trial.state, trial.score, trial.last_return) == ("complete", pytest.approx(1.5), pytest.approx(2.0))
    assert trial.seed_scores == (pytest.approx(0.5), pytest.approx(2.5))
    assert trial.reports[-1] == (9, pytest.approx(1.0))


def test_failures_are_results(tmp_path: Path) -> None:
    silent = result_of(0, {}, [written(tmp_path / "seed-1", curve([None]))], 10)
    assert (silent.state, silent.score) == ("failed", None)
    assert silent.note == "No episode of an agent finished: raise --steps."
    half = [written(tmp_path / f"half-{i}", curve([value])) for i, value in enumerate([None, 1.0])]
    assert result_of(0, {}, half, 10).score is None, "nor is a score of one of two seeds"
    lost = tmp_path / "seed-2"
    assert diverged([lost]) == ""
    write_json(note_of(lost), "training diverged")
    assert result_of(0, {}, [lost], 10).note == "training diverged"


def test_a_failure_says_how_many_episodes_finished(tmp_path: Path) -> None:
    some = curve([None, None]).assign(episodes=[10, 7])
    enough = curve([1.0, 1.0]).assign(episodes=[60, 60])
    agents = [written(tmp_path / f"seed-{i}", rows) for i, rows in enumerate([enough, some])]
    note = result_of(0, {}, agents, 20).note
    assert note == (
        "Only 17 episodes of an agent finished, and none counts: episodes count in the order in which they began, and "
        "the first has not ended. Raise --steps."
    )


def test_few_episodes_that_count_are_enough_in_the_end(tmp_path: Path) -> None:
    """As `laurel.training.loop` writes the last row of a curve."""
    few = curve([None, 1.0]).assign(episodes=[10, 7], window=[0, 3])
    assert result_of(0, {}, [written(tmp_path / "seed-0", few)], 20).score == pytest.approx(1.0)


def test_a_curve_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert len(read_curve(tmp_path / "nowhere")) == 0

"""The page of learning curves while agents train, from checkpoints that are there, half there, or not there yet."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from known_arms import KNOWN
from laurel import progress
from laurel.data.directory import check_output, output_directory
from laurel.data.manifest import LIVE_PAGE, checked_manifest
from laurel.errors import DataError
from laurel.params import load_params
from laurel.params.resolved_arms import resolve_arms
from laurel.stages.live import LivePage
from laurel.training.checkpoint import STATE
from laurel.training.curve import CURVE, CURVE_SCHEMA
from tiny_project import REPOSITORY


def checkpoint(place: Path, returns: list[float | None], *, finished: bool) -> None:
    place.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = [
        {"env_steps": 100 * (i + 1), "window": 100, "return_mean": value, "success_rate": value}
        for i, value in enumerate(returns)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=CURVE_SCHEMA), place / CURVE)
    (place / STATE).write_text(json.dumps({"env_steps": 100 * len(returns), "finished": finished}))


@pytest.fixture
def page(tmp_path: Path) -> LivePage:
    params = load_params(REPOSITORY / "params.yaml")
    arms = resolve_arms(params.arms, params.rewards, params.shaping, params.agent)
    agents = [(arms[arm], n, tmp_path / arm / f"{n}") for arm in ("extrinsic", "preference") for n in range(2)]
    infos = [KNOWN["extrinsic"], KNOWN["preference"]]
    return LivePage(tmp_path / "reports" / LIVE_PAGE, "<Env>-v0", infos, agents, done=0, total=4000)


def test_curves_come_with_checkpoints(page: LivePage) -> None:
    page.write()
    text = page.place.read_text()
    assert "Curves appear with the first checkpoints" in text
    assert "&lt;Env&gt;-v0: agents train" in text
    assert 'http-equiv="refresh"' in text

    checkpoint(page.agents[2][2], [None, 0.25, 0.75], finished=False)
    checkpoint(page.agents[3][2], [None, None], finished=False)
    page.write()
    text = page.place.read_text()
    assert text.count("<svg") == 2
    assert "<td>preference</td><td>2</td><td>0</td><td>300</td><td>0.75</td><td>0.75</td>" in text
    assert "<td>extrinsic</td><td>2</td><td>0</td><td>0</td><td>-</td><td>-</td>" in text
    assert not list(page.place.parent.glob(".*")), "nothing is left half written"


def test_live_figures_are_redrawn_rarely_and_at_the_end(page: LivePage) -> None:
    drawn = []
    for returns, ended in (([0.25, 0.75], False), ([0.25, 0.5, 0.75], False), ([0.25, 0.5, 0.75], True)):
        checkpoint(page.agents[2][2], [*returns], finished=ended)
        page.write(ended=ended)
        drawn.append([str(figure) for figure in page._figures])
    assert drawn[0] == drawn[1] != drawn[2]
    assert "<td>300</td>" in page.place.read_text(), "the table is always that of now"


def test_it_ends_with_a_link_to_the_report_and_counts_steps(page: LivePage) -> None:
    counted = []
    with page:
        page.counting(lambda n, **_: counted.append(n))(1000)
        checkpoint(page.agents[0][2], [0.5], finished=True)
    text = page.place.read_text()
    assert counted == [1000]
    assert "1,000 of 4,000 environment steps" in text
    assert 'href="report.html"' in text
    assert 'http-equiv="refresh"' not in text
    assert "<td>extrinsic</td><td>2</td><td>1</td>" in text


def test_the_remaining_time_is_shown_once_known(page: LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    page._pace = progress.Pace()
    count = page.counting(lambda n, **_: None)
    for seconds, said in ((10.0, ""), (30.0, ", 19 min 0 s left")):
        now += seconds
        count(100)
        page.write()
        assert f" environment steps{said}. As of" in page.place.read_text()


def test_agents_train_where_the_page_cannot_be_written(page: LivePage) -> None:
    page.place.parent.write_text("a file")
    with page:
        pass
    assert len(page.notes) == 1
    assert "was not written" in page.notes[0]


def test_a_live_page_does_not_prevent_writing_the_report(tmp_path: Path) -> None:
    """Reports are written where the page is, and are whole with and without it."""
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / LIVE_PAGE).write_text("live")
    check_output(reports, "evaluate")
    with output_directory(reports, stage="evaluate", params={}) as out:
        (out.path / "metrics.json").write_text("{}")
    (reports / LIVE_PAGE).write_text("live again")
    assert checked_manifest(reports)["stage"] == "evaluate"
    (reports / "other.html").write_text("x")
    with pytest.raises(DataError, match="other"):
        checked_manifest(reports)

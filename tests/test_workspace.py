"""What outlives a run in a copy of the project that DVC throws away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from laurel.params.judges import LanguageModelParams
from laurel.tracking.server import configure
from laurel.workspace import outside_dvc_copy


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy as DVC makes it for a queued experiment, which is the working directory."""
    place = tmp_path / ".dvc" / "tmp" / "exps" / "tmp2064sx2c"
    (place / "sub").mkdir(parents=True)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(place)
    return place


def test_a_queued_experiment_stores_shared_files_in_the_project(copy: Path, tmp_path: Path) -> None:
    assert LanguageModelParams().store == tmp_path / "responses" / "responses.db"
    assert outside_dvc_copy(copy / "sub" / "mlflow.db") == tmp_path / "sub" / "mlflow.db"
    configure(Path())
    assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path}/mlflow.db"


def test_a_place_of_ones_own_is_that(copy: Path, tmp_path: Path) -> None:
    assert LanguageModelParams(responses=tmp_path / "mine.db").store == tmp_path / "mine.db"


def test_other_runs_write_to_their_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for root in (None, str(tmp_path)):  # without DVC, and with `dvc repro`
        monkeypatch.setenv("DVC_ROOT", root) if root else monkeypatch.delenv("DVC_ROOT", raising=False)
        assert LanguageModelParams().store == Path("responses/responses.db")
        assert outside_dvc_copy(tmp_path / "mlflow.db") == tmp_path / "mlflow.db"

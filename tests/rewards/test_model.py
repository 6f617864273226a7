from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from laurel.errors import DataError
from laurel.rewards.bradley_terry import Ensemble
from laurel.rewards.model import RewardModel, raw_rewards
from laurel.rewards.normalizer import LEVELS, Normalizer
from laurel.rewards.shaping import shape

torch.set_num_threads(1)
TEXTS = ("You turn.", "You reach the goal.", "Über 🎉, naïvely.", "")
RAW = arrays.arrays(np.float32, st.integers(2, 50), elements=st.floats(-1000, 1000, width=32))


def make(n_features: int = 4, *, observation: bool = False) -> RewardModel:
    ensemble = Ensemble(n_features, (5, 3), size=3, seed=1).eval()
    embeddings = np.random.default_rng(0).standard_normal((len(TEXTS), n_features)).astype(np.float32)
    raw = raw_rewards(ensemble, embeddings)
    normalizer = Normalizer.of(raw.mean(axis=0))
    return RewardModel(
        ensemble=ensemble,
        normalizer=normalizer,
        input="observation" if observation else "caption",
        encoder="some-encoder",
        epochs=7,
        texts=TEXTS,
        rewards=normalizer(raw.mean(axis=0)),
        spreads=(raw.std(axis=0) / normalizer.sd).astype(np.float32),
        counts=np.array([5, 0, 2, 10**10]),
        embeddings=np.zeros((len(TEXTS), 0), dtype=np.float32) if observation else embeddings,
    )


def test_the_spread_is_that_of_members_up_to_a_constant_of_each() -> None:
    """In a comparison of two texts a constant cancels out."""
    raw = np.random.default_rng(0).normal(size=(3, 4))
    wanted = [
        np.std([float(member[text] - member.mean()) for member in raw]) / np.std(raw.mean(axis=0)) for text in range(4)
    ]
    rest: dict[str, Any] = {"input": "caption", "encoder": "", "epochs": 1, "counts": np.zeros(4), "embeddings": raw.T}
    for constant in (0.0, 10.0):
        shifted = raw + constant * np.arange(3)[:, None]
        made = RewardModel.of(Ensemble(3, (2,), size=3), shifted, TEXTS, **rest)
        assert made.spreads == pytest.approx(wanted, abs=1e-5)


# -- the normaliser ---------------------------------------------------------------------------------------------
@settings(deadline=None)
@given(RAW)
def test_normalised_rewards_have_mean_zero_and_deviation_one(raw: np.ndarray) -> None:
    normalizer = Normalizer.of(raw)
    normalised = normalizer(raw)
    assert normalised.dtype == np.float32
    assert len(normalizer.quantiles) == len(LEVELS)
    if np.std(raw, dtype=np.float64) > 1e-3 * max(1, np.abs(raw).max()):
        assert normalised.mean(dtype=np.float64) == pytest.approx(0, abs=1e-3)
        assert normalised.std(dtype=np.float64) == pytest.approx(1, abs=1e-3)
    order = np.argsort(raw, kind="stable")
    assert (np.diff(normalised[order]) >= 0).all(), "the order is kept"


@settings(deadline=None)
@given(RAW, st.sampled_from(np.linspace(0, 0.99, 100).round(2).tolist()))
def test_the_threshold_is_the_quantile(raw: np.ndarray, quantile: float) -> None:
    normalizer = Normalizer.of(raw)
    expected = np.quantile(normalizer(raw).astype(np.float64), quantile)
    assert normalizer.threshold(quantile) == pytest.approx(expected, abs=1e-4)


@settings(deadline=None)
@given(st.integers(2, 60), st.integers(0, 99))
def test_the_captions_above_the_quantile_are_rewarded(n: int, percent: int) -> None:
    """Of N different rewards, those up to rank (N - 1) q, counted from 0, become 0."""
    raw = np.random.default_rng(n).permutation(n).astype(np.float32) / 7
    normalizer = Normalizer.of(raw)
    above = normalizer(raw) > normalizer.threshold(percent / 100)
    assert above.sum() == n - 1 - (n - 1) * percent // 100


def test_the_threshold_between_kept_quantiles_is_interpolated() -> None:
    normalizer = Normalizer.of(np.arange(11, dtype=np.float32))
    assert normalizer.threshold(0.505) == pytest.approx((normalizer.threshold(0.5) + normalizer.threshold(0.51)) / 2)
    assert normalizer.threshold(0.5) == 0.0


@pytest.mark.parametrize("value", [0.0, 0.1, -3.7, 1e6])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 1000])
def test_without_spread_nothing_is_divided_by_zero_and_nothing_is_paid(value: float, n: int) -> None:
    raw = np.full(n, value, dtype=np.float32)
    with np.errstate(all="raise"):
        normalizer = Normalizer.of(raw)
        normalised = normalizer(raw)
        unseen = normalizer(np.float32([value + 1, value - 1]))
    for rewards in (normalised, unseen):
        assert np.isfinite(rewards).all()
        for quantile in (0.0, 0.5, 0.99):
            threshold = normalizer.threshold(quantile)
            assert not shape(rewards, np.ones(len(rewards), np.int64), threshold=threshold, beta=1.0).any()


def test_differences_of_rounding_are_no_spread() -> None:
    value = np.float32(0.1)
    raw = np.array([value, np.nextafter(value, np.float32(1))] * 5)
    assert len(set(raw.tolist())) == 2
    assert not Normalizer.of(raw)(raw).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rewards_that_are_no_numbers_are_refused(value: float) -> None:
    """A deviation of NaN would normalise every reward to 0, as of a reward that likes nothing."""
    with pytest.raises(DataError, match=r"2 of 3 captions or texts .* NaN or infinite"):
        Normalizer.of(np.float32([value, 1, value]))


# -- the artefact -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("observation", [False, True])
def test_round_trip(tmp_path: Path, observation: bool) -> None:
    model = make(observation=observation)
    model.save(tmp_path)
    loaded = RewardModel.load(tmp_path)
    for name in ("input", "encoder", "epochs", "texts", "normalizer"):
        assert getattr(loaded, name) == getattr(model, name), name
    for name in ("rewards", "spreads", "counts", "embeddings"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
        assert getattr(loaded, name).dtype == getattr(model, name).dtype
    new = np.random.default_rng(1).standard_normal((20, 4)).astype(np.float32)
    np.testing.assert_array_equal(loaded.score(new), model.score(new))
    assert loaded.score(new).std() > 0
    assert not loaded.ensemble.training


def test_score_is_the_normalised_mean_of_the_members() -> None:
    model = make()
    new = np.random.default_rng(1).standard_normal((20, 4)).astype(np.float32)
    by_hand = [np.mean([model.ensemble(torch.from_numpy(row[None])).detach()[k, 0] for k in range(3)]) for row in new]
    expected = (np.array(by_hand) - model.normalizer.mean) / model.normalizer.sd
    np.testing.assert_allclose(model.score(new), expected, atol=1e-4)
    np.testing.assert_allclose(model.score(model.embeddings), model.rewards, atol=1e-5)


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        make().save(tmp_path / name)
    files = sorted(file.name for file in (tmp_path / "a").iterdir())
    assert files == ["config.json", "embeddings.safetensors", "model.safetensors", "vocabulary.parquet"]
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_file_permissions_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        make().save(tmp_path)
    finally:
        os.umask(before)
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()} == dict.fromkeys(
        ("config.json", "embeddings.safetensors", "model.safetensors", "vocabulary.parquet"), "0o640"
    )


def edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    return write


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def without_a_row(file: Path) -> None:
    table = pq.read_table(file)
    pq.write_table(table.slice(1), file)


def without_a_column(file: Path) -> None:
    pq.write_table(pq.read_table(file).drop_columns(["reward"]), file)


def with_an_empty_entry(file: Path) -> None:
    table = pq.read_table(file)
    entries = [None, *table["reward"].to_pylist()[1:]]
    pq.write_table(table.set_column(2, "reward", pa.array(entries, pa.float32())), file)


DAMAGE: list[tuple[str, Callable[[Path], Any]]] = [
    *[
        (file, harm)
        for file in ("model.safetensors", "embeddings.safetensors", "config.json", "vocabulary.parquet")
        for harm in (Path.unlink, cut, lambda file: file.write_bytes(b""), lambda file: file.write_bytes(b"\xff" * 50))
    ],
    ("config.json", lambda file: file.write_text("[]")),
    ("config.json", lambda file: file.write_text("{}")),
    ("config.json", edit(lambda c: c.pop("encoder"))),
    ("config.json", edit(lambda c: c.pop("normalizer"))),
    ("config.json", edit(lambda c: c["normalizer"].pop("quantiles"))),
    ("config.json", edit(lambda c: c.update(normalizer=3))),
    ("config.json", edit(lambda c: c["ensemble"].update(hidden=[9]))),
    ("config.json", edit(lambda c: c["ensemble"].update(size=4))),
    ("config.json", edit(lambda c: c["ensemble"].update(surprise=1))),
    ("vocabulary.parquet", without_a_row),
    ("vocabulary.parquet", without_a_column),
    ("vocabulary.parquet", with_an_empty_entry),
]


@pytest.mark.parametrize(("file", "harm"), DAMAGE)
def test_damage(tmp_path: Path, file: str, harm: Callable[[Path], Any]) -> None:
    make().save(tmp_path)
    harm(tmp_path / file)
    with pytest.raises(DataError) as caught:
        RewardModel.load(tmp_path)
    sentence = str(caught.value)
    assert str(tmp_path) in sentence
    assert "again" in sentence
    assert "\n" not in sentence
    assert caught.value.__cause__ is None


def test_there_is_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"config\.json: no such file"):
        RewardModel.load(tmp_path / "none")

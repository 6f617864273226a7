"""Cached vectors are those of the encoder's weights, not of its name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from laurel.arrays import FloatArray
from laurel.llm import embedding_cache
from laurel.llm.embedding_cache import encode_cached

NAME = "somebody/encoder"


class Hub:
    """A model on the hub, of which each commit gives other vectors, and the hub's cache on this machine."""

    def __init__(self, cache: Path) -> None:
        self.folder = cache / f"models--{NAME.replace('/', '--')}"
        self.newest, self.loaded = "a" * 40, 0

    def load(self, name: str, device: object = None) -> Hub:
        snapshot = self.folder / "snapshots" / self.newest
        snapshot.mkdir(parents=True, exist_ok=True)
        (snapshot / "config.json").write_text("{}")
        (self.folder / "refs").mkdir(exist_ok=True)
        (self.folder / "refs" / "main").write_text(self.newest)
        self.loaded += 1
        return self

    def encode(self, texts: list[str]) -> FloatArray:
        return np.full((len(texts), 2), ord(self.newest[0]), dtype=np.float32)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("LAUREL_CACHE", str(tmp_path / "laurel"))
    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr(embedding_cache, "load_encoder", hub.load)
    return hub


def test_a_new_revision_on_the_hub_is_encoded_anew(hub: Hub) -> None:
    def encoded(*texts: str) -> list[float]:
        done: list[int] = []
        vectors = encode_cached(NAME, texts, done.append)
        assert sum(done) == len(texts)
        return [float(value) for value in vectors[:, 0]]

    assert encoded("You go.") == [ord("a")]
    loaded = hub.loaded
    assert (encoded("You go."), hub.loaded) == ([ord("a")], loaded), "it is not loaded for what is known"
    hub.newest = "b" * 40
    assert encoded("You go.", "You turn.") == [ord("b")] * 2, "vectors of two revisions are not mixed"
    assert encoded("You go.") == [ord("b")]


def test_what_is_no_name_on_the_hub_has_no_commit() -> None:
    assert embedding_cache._commit("on a GPU") is None

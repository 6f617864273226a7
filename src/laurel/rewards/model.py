"""The artefact of a reward model: ensemble, normaliser, and the reward of every caption.

    DIR/model.safetensors     weights of the ensemble
    DIR/embeddings.safetensors  features of the captions that it was trained on (input: caption)
    DIR/config.json           input, encoder, sizes, mean, sd and quantiles
    DIR/vocabulary.parquet    id, text, reward (normalised), spread (sd over members), count

It is self-contained. Captions that were never met are encoded and scored; a model of observations has none of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from laurel.arrays import FloatArray, IntArray
from laurel.data.json_file import read_json, write_json
from laurel.data.manifest import MANIFEST, checked_manifest
from laurel.data.parquet import read_table, write_table
from laurel.data.replacing import recover_killed
from laurel.errors import DataError
from laurel.rewards.bradley_terry import Ensemble
from laurel.rewards.normalizer import Floats, Normalizer, on_grid

MODEL, EMBEDDINGS, CONFIG, VOCABULARY = (
    "model.safetensors",
    "embeddings.safetensors",
    "config.json",
    "vocabulary.parquet",
)
STAGE = "train-reward"
AT_ONCE = 2**15
"""Maximum number of rows per forward pass, which bounds memory."""


@dataclass(frozen=True)
class RewardModel:
    """A trained ensemble with its normaliser and the rewards of a vocabulary."""

    ensemble: Ensemble
    normalizer: Normalizer
    input: str
    """ "caption" or "observation"."""
    encoder: str
    """Sentence encoder of the captions; unused with observations."""
    epochs: int
    """Epochs of its training."""
    texts: tuple[str, ...]
    rewards: FloatArray
    """(V,) normalised reward of each text: the mean over members."""
    spreads: FloatArray
    """(V,) standard deviation over members, in the same units, of their rewards less each member's mean: a constant
    that a member adds to all rewards cancels out in every comparison, so it says nothing about a text."""
    counts: IntArray
    """(V,) how often collection met each text."""
    embeddings: FloatArray
    """(V, E) features of the texts; (V, 0) with observations."""

    @classmethod
    def of(cls, ensemble: Ensemble, raw: Floats, texts: Sequence[str], **rest: Any) -> RewardModel:
        """Normalise the raw rewards (M, V) that the members give the texts; `rest` has the other fields."""
        mean = raw.mean(axis=0)
        normalizer = Normalizer.of(mean)
        centred = raw - raw.mean(axis=1, keepdims=True)
        spreads = on_grid(centred.std(axis=0) / (normalizer.sd or 1))
        return cls(ensemble, normalizer, texts=tuple(texts), rewards=normalizer(mean), spreads=spreads, **rest)

    def score(self, features: Floats) -> FloatArray:
        """Return normalised rewards (N,) of features (N, F), computed in their precision."""
        return self.normalizer(raw_rewards(self.ensemble, features).mean(axis=0))

    def save(self, path: Path) -> None:
        """Write the artefact's files into a directory."""
        import pyarrow as pa
        from safetensors.numpy import save as arrays_as_bytes
        from safetensors.torch import save as as_bytes

        weights = {name: tensor.contiguous() for name, tensor in self.ensemble.state_dict().items()}
        (path / MODEL).write_bytes(as_bytes(weights))  # safetensors creates files that only their owner can read
        (path / EMBEDDINGS).write_bytes(arrays_as_bytes({"embeddings": self.embeddings}))
        config = {
            "input": self.input,
            "encoder": self.encoder,
            "epochs": self.epochs,
            "ensemble": self.ensemble.config(),
            "normalizer": asdict(self.normalizer),
        }
        write_json(path / CONFIG, config)
        columns = [range(len(self.texts)), self.texts, self.rewards, self.spreads, self.counts]
        write_table(path / VOCABULARY, pa.table(columns, schema=_vocabulary_schema()))

    @classmethod
    def load(cls, path: Path) -> RewardModel:
        """Read the artefact.

        Raises:
            DataError: a file is missing, damaged, does not fit the others, or was changed after its stage wrote it.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file as load_arrays
        from safetensors.torch import load_file

        recover_killed(path)
        config = read_json(path / CONFIG)
        table = read_table(path / VOCABULARY, _vocabulary_schema(), STAGE)
        try:
            ensemble = Ensemble(**config["ensemble"])
            ensemble.load_state_dict(load_file(path / MODEL))
            model = cls(
                ensemble=ensemble.eval(),
                normalizer=Normalizer.read(config["normalizer"]),
                input=config["input"],
                encoder=config["encoder"],
                epochs=config["epochs"],
                texts=tuple(table["text"].to_pylist()),
                rewards=table["reward"].to_numpy(),
                spreads=table["spread"].to_numpy(),
                counts=table["count"].to_numpy(),
                embeddings=load_arrays(path / EMBEDDINGS)["embeddings"],
            )
        except (OSError, SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")
            raise DataError(f"{path}: not a complete reward model ({reason}). Run laurel {STAGE} again.") from None
        if len(model.embeddings) != len(model.texts):
            raise DataError(
                f"{path}: {EMBEDDINGS} has {len(model.embeddings)} rows, but {VOCABULARY} has {len(model.texts)}. "
                f"Run laurel {STAGE} again."
            )
        if (path / MANIFEST).exists():  # MLflow's copy has none
            checked_manifest(path)
        return model


def raw_rewards(ensemble: Ensemble, features: Floats) -> Floats:
    """Return every member's reward (K, N) of features (N, F), before normalisation, in the features' precision."""
    with torch.inference_mode():
        rows = torch.from_numpy(features)
        parts = [rows[start : start + AT_ONCE] for start in range(0, max(len(rows), 1), AT_ONCE)]
        return torch.cat([ensemble(part) for part in parts], dim=1).numpy()


def _vocabulary_schema() -> Any:
    import pyarrow as pa

    columns = {
        "id": pa.int32(),
        "text": pa.string(),
        "reward": pa.float32(),
        "spread": pa.float32(),
        "count": pa.int64(),
    }
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])

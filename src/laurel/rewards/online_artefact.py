"""The artefact of a reward that an agent learned during training, stored with the agent.

DIR/online.json           the form, the judge, the number of labels
DIR/labels.parquet        the log: each answered question, when it was asked and when the answer took effect
DIR/annotation.parquet    growth of labels: a row per check for answers
DIR/reward.json           description for `laurel.load_reward`
DIR/model.safetensors …   of ranking: the reward model, as in `laurel.rewards.model`
DIR/captions.parquet      of the other forms: the probability that each labelled caption helps
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from laurel.arrays import DoubleArray, FloatArray
from laurel.data.json_file import read_json, write_json
from laurel.data.parquet import read_table, write_table
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError
from laurel.llm.encoder import load_encoder
from laurel.rewards.base import UNPAID, Memoryless, Reward, Steps
from laurel.rewards.functions import CaptionReward, learned
from laurel.rewards.method import PayTable
from laurel.rewards.model import RewardModel
from laurel.seeding import seed_folder

CONFIG, LABELS, ANNOTATION, TABLE = "online.json", "labels.parquet", "annotation.parquet", "captions.parquet"
STAGE = "train-agents"
LABELS_SCHEMA = pa.schema(
    [
        pa.field("asked", pa.int64(), nullable=False),  # environment steps done when it was asked
        pa.field("step", pa.int64(), nullable=False),  # environment steps from which on it is in effect
        pa.field("first", pa.string(), nullable=False),
        pa.field("second", pa.string(), nullable=False),  # empty if a single caption was judged
        pa.field("status", pa.string(), nullable=False),
        pa.field("p", pa.float64()),  # that the first is better, or that the caption helps; null without a label
        pa.field("swap_consistent", pa.bool_()),  # whether both orders gave the same label; null if only one was asked
        pa.field("answers", pa.string(), nullable=False),  # single answers, from laurel.feedback.online_quality.packed
    ]
)
ANNOTATION_SCHEMA = pa.schema(
    [
        pa.field("env_steps", pa.int64(), nullable=False),
        pa.field("labels", pa.int64(), nullable=False),  # that count
        pa.field("open", pa.int64(), nullable=False),  # questions without an answer in effect
        pa.field("dropped", pa.int64(), nullable=False),  # questions, so far
        pa.field("captions", pa.int64(), nullable=False),  # distinct ones met
        pa.field("coverage", pa.float64()),  # share of steps with a caption that have a labelled caption
        pa.field("lag", pa.float64()),  # mean environment steps until an answer takes effect
        pa.field("late", pa.bool_(), nullable=False),  # whether the judge was late, and training did not wait
    ]
)


@dataclass(frozen=True)
class YesNoTable:
    """Reward 1 for captions that help, otherwise 0, by labels or a classifier."""

    known: Mapping[str, float]
    """Labelled caption -> probability that it helps."""
    weights: DoubleArray | None = None
    """(E + 1,) weights of the classifier; None: captions without a label have no reward."""
    encoder: str = ""

    def reward(self) -> CaptionReward:
        """Return the reward that it defines."""
        return CaptionReward(self.paid, 0.0, self._score)

    @property
    def paid(self) -> dict[str, float]:
        """The rewards of labelled captions; empty with a classifier, which then scores every caption."""
        if self.weights is not None:
            return {}
        return {text: float(p > 0.5) for text, p in self.known.items()}

    def _score(self, texts: list[str]) -> FloatArray:
        if self.weights is None:
            return np.full(len(texts), UNPAID)

        return classified(load_encoder(self.encoder).encode(texts), self.weights)


def classified(embeddings: FloatArray, weights: DoubleArray) -> FloatArray:
    """Return a classifier's decisions, 1 or 0 (N,), for embeddings (N, E)."""
    return (embeddings.astype(np.float64) @ weights[:-1] + weights[-1] > 0).astype(np.float32)


class ZeroReward(Memoryless):
    """No reward, as there is no label."""

    threshold = 0.0

    def pay(self, steps: Steps) -> FloatArray:
        return np.full(steps.captions.shape, UNPAID)


Made = RewardModel | YesNoTable | None
"""The learned reward; None without labels."""


def save(
    place: Path,
    model: Made,
    config: Mapping[str, Any],
    labels: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Write an artefact into a directory."""
    if isinstance(model, RewardModel):
        model.save(place)
    elif isinstance(model, YesNoTable):
        columns = {"text": list(model.known), "p": np.array(list(model.known.values()), dtype=np.float64)}
        write_table(place / TABLE, pa.table(columns, schema=_table_schema()))
    classifier = model.weights.tolist() if isinstance(model, YesNoTable) and model.weights is not None else None
    form = "model" if isinstance(model, RewardModel) else "table" if model else "nothing"
    encoder = model.encoder if isinstance(model, YesNoTable) else ""
    write_json(place / CONFIG, {"form": form, "classifier": classifier, "encoder": encoder, **config})
    write_table(place / LABELS, pa.Table.from_pylist(list(labels), schema=LABELS_SCHEMA))
    write_table(place / ANNOTATION, pa.Table.from_pylist(list(rows), schema=ANNOTATION_SCHEMA))


def read_made(place: Path) -> Made:
    """Read the reward that was learned.

    Raises:
        DataError: it is damaged, or there is none.
    """
    config = read_json(place / CONFIG)
    match config.get("form"):
        case "model":
            return RewardModel.load(place)
        case "table":
            table = read_table(place / TABLE, _table_schema(), STAGE)
            weights = None if config["classifier"] is None else np.array(config["classifier"])
            return YesNoTable(
                dict(zip(table["text"].to_pylist(), table["p"].to_pylist(), strict=True)), weights, config["encoder"]
            )
        case "nothing":
            return None
    raise DataError(
        f"{place}: this reward is learned while agents are trained, and is stored with each of them, as in "
        f"data/agents/ARM/seed-0/reward/{place.name}."
    )


def load(place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
    """Return the reward of an artefact; errors as in `read_made`."""
    model = read_made(place)
    if isinstance(model, RewardModel):
        return learned(model, adapter, quantile)
    return model.reward() if model else ZeroReward()


def table(place: Path, quantile: float) -> PayTable | None:
    """Return an artefact's rewards of captions; None if nothing was learned."""
    if read_json(place / CONFIG).get("form") in (None, "nothing"):
        return None
    model = read_made(place)
    if isinstance(model, RewardModel):
        return PayTable(model.texts, model.rewards, model.spreads, model.counts, model.normalizer.threshold(quantile))
    if model is None:
        return None
    values = model.reward().scored(list(model.known))
    unknown = np.zeros_like(values), np.zeros(len(values), dtype=np.int64)
    return PayTable(list(model.known), values, *unknown, 0.0, normalised=False)


def read_labels(place: Path) -> list[dict[str, Any]]:
    """Read the log of labels, in the order in which they took effect.

    Raises:
        DataError: it is missing or damaged.
    """
    rows: list[dict[str, Any]] = read_table(place / LABELS, LABELS_SCHEMA, STAGE).to_pylist()
    return rows


def read_rows(place: Path) -> list[dict[str, Any]]:
    """Read the growth of labels; errors as in `read_labels`."""
    rows: list[dict[str, Any]] = read_table(place / ANNOTATION, ANNOTATION_SCHEMA, STAGE).to_pylist()
    return rows


def _table_schema() -> pa.Schema:
    return pa.schema([pa.field("text", pa.string(), nullable=False), pa.field("p", pa.float64(), nullable=False)])


def labels_to_replay(agents: Path, arm: str, seed: int, name: str) -> list[dict[str, Any]]:
    """Read the labels that an agent of another run learned from; errors as in `read_labels`, or it has none."""
    place = agents / arm / seed_folder(seed) / "reward" / name
    if not (place / LABELS).exists():
        raise DataError(f"{place}: holds no log of labels to replay. Name the agents of a run that has these arms.")
    return read_labels(place)

"""Outputs of stages as tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from laurel.data.captions import read_segments, read_vocabulary
from laurel.data.manifest import checked_manifest, read_manifest
from laurel.data.preferences import PREFERENCES_SCHEMA, read_pairs, read_preferences
from laurel.data.trajectories import trajectory_shards
from laurel.errors import DataError
from laurel.evaluation.summary import RESULTS
from laurel.extras import need
from laurel.library.sources import path_of
from laurel.rewards.stored import StoredRewards

FURTHER_UP = 4
"""Folders above labels in which captions are looked for: PREFERENCES/judges/NAME/set-1 has them four above."""


class Table(pd.DataFrame):
    """A pandas DataFrame that converts to other libraries' tables with one call."""

    @property
    def _constructor(self) -> Callable[..., Table]:
        return Table

    def to_arrow(self) -> pa.Table:
        """Return it as an Arrow table."""
        return pa.Table.from_pandas(pd.DataFrame(self), preserve_index=False)

    def to_dataset(self) -> Any:
        """Return it as a Hugging Face `datasets.Dataset`.

        Raises:
            MissingPackageError: datasets is not installed.
        """
        need("datasets", "A Dataset")
        from datasets import Dataset

        return Dataset(self.to_arrow())


def read(path: str | Path) -> Table:
    """Read the output of a stage.

    Args:
        path: data/trajectories: a row per step, and one more for the last observation of an episode, whose action and
            reward are NaN; data/captions: a row per distinct caption; data/preferences: a row per pair, with the texts;
            data/reward: a row per caption and reward that has a table, of the first label set; data/agents: a row per
            update of an agent; reports: a row per evaluation episode.

    Raises:
        DataError: it is not a stage's output, is damaged, or the captions it was made from are not beside it.
        ParamsError: it is neither a text nor a path.
    """
    place = Path(path_of(path, "the location"))
    stage = checked_manifest(place)["stage"]
    if stage not in _READERS:
        raise DataError(f"{place}: holds the output of laurel {stage}. There are tables of {', '.join(_READERS)}.")
    return Table(_READERS[stage](place))


def _trajectories(place: Path) -> pd.DataFrame:
    return pd.concat([pd.read_parquet(shard) for shard in trajectory_shards(place)], ignore_index=True)


def _captions(place: Path) -> pd.DataFrame:
    vocabulary = read_vocabulary(place)
    return pd.DataFrame({"text": list(vocabulary.texts), "count": vocabulary.counts})


def _preferences(place: Path) -> pd.DataFrame:
    pairs, labels = read_pairs(place), read_preferences(place)
    texts = pd.Series(read_segments(_captions_of(place)).texts, dtype="object")
    columns = {name: getattr(labels, name) for name in PREFERENCES_SCHEMA.names if name != "pair"}
    table = pd.DataFrame({"first": texts[pairs.first].to_numpy(), "second": texts[pairs.second].to_numpy(), **columns})
    return table.assign(swap_consistent=table["swap_consistent"].map({1: True, 0: False, -1: None}))


def _captions_of(place: Path) -> Path:
    """Return the captions that labels were made from, beside them or, as for `judges/NAME/set-1`, further up."""
    made_from = read_manifest(place)["inputs"]["captions"]
    places = [folder / "captions" for folder in place.resolve().parents[:FURTHER_UP]]
    for captions in places:
        if captions.is_dir() and read_manifest(captions)["digest"] == made_from:
            return captions
    found = next((captions for captions in places if captions.is_dir()), None)
    if found is None:
        raise DataError(
            f"{places[0]}: no such directory. The texts of the pairs in {place} are in the captions beside it. Restore "
            "that folder, or put a link to the captions there."
        )
    raise DataError(f"{found}: is not what {place} was made from. Restore the original captions.")


def _rewards(place: Path) -> pd.DataFrame:
    stored = StoredRewards.read(place)
    tables = {name: stored.table(name, 0.0) for name in stored.settings}
    parts = [
        pd.DataFrame({"name": name, "text": t.texts, "reward": t.rewards, "spread": t.spreads, "count": t.counts})
        for name, t in tables.items()
        if t is not None
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _curves(place: Path) -> pd.DataFrame:
    parts = []
    for file in sorted(place.glob("*/seed-*/curve.parquet")):
        curve = pd.read_parquet(file)
        parts.append(curve.assign(arm=file.parent.parent.name, seed=int(file.parent.name.removeprefix("seed-"))))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _results(place: Path) -> pd.DataFrame:
    return pd.read_parquet(place / RESULTS)


_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "collect": _trajectories,
    "caption": _captions,
    "annotate": _preferences,
    "train-reward": _rewards,
    "train-agents": _curves,
    "evaluate": _results,
}
"""Stage -> the function that reads its output."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from laurel.data.captions import read_captions, read_segments, read_vocabulary
from laurel.data.lineage import read_inputs
from laurel.data.manifest import read_manifest
from laurel.data.trajectories import read_trajectories
from laurel.envs import adapter_for
from laurel.envs.captioner import collapse
from laurel.errors import DataError
from laurel.params import Params, parse_params
from laurel.stages.pipeline import STAGE

Said = dict[tuple[int, int], str]


def make_params(env: str = "MiniGrid-Empty-5x5-v0", kwargs: dict[str, Any] | None = None, **section: Any) -> Params:
    content = {
        "env": {"id": env, "backend": "gymnasium", "kwargs": kwargs or {}},
        "collect": {"steps": 700, "n_envs": 4, "shard_steps": 200},
        "caption": section,
        "arms": ["extrinsic"],
        "agent": {"seeds": [0], "steps": 1},
        "tracking": {"enabled": False},
    }
    return parse_params(content, "test")


@pytest.fixture(scope="module")
def trajectories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("collected") / "t"
    STAGE["collect"].run(make_params(), output=path)
    return path


def expected(params: Params, trajectories: Path) -> Said:
    """(episode, t) -> what the adapter says, one transition at a time."""
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    said = {}
    for transitions, position in read_trajectories(trajectories):
        for i in range(len(transitions)):
            event = int(adapter.encode(transitions[i : i + 1])[0])
            said[int(position.episode_id[i]), int(position.t[i])] = adapter.describe(event)
    return said


def found(captions: Path) -> Said:
    texts = [*read_vocabulary(captions).texts, ""]
    said = {}
    for file in sorted(captions.glob("captions-*")):
        for row in pq.read_table(file).to_pylist():
            said[row["episode_id"], row["t"]] = texts[-1 if row["caption"] is None else row["caption"]]
    return said


@pytest.mark.parametrize("with_action", [False, True])
@pytest.mark.parametrize("enumerate_events", [False, True])
def test_every_step_has_the_adapters_caption(
    tmp_path: Path, trajectories: Path, with_action: bool, enumerate_events: bool
) -> None:
    params = make_params(with_action=with_action, enumerate=enumerate_events)
    STAGE["caption"].run(params, trajectories=trajectories, output=tmp_path / "c")
    said = expected(params, trajectories)
    assert found(tmp_path / "c") == said

    vocabulary = read_vocabulary(tmp_path / "c")
    counts = Counter(text for text in said.values() if text)
    assert {t: n for t, n in zip(vocabulary.texts, vocabulary.counts.tolist(), strict=True) if n} == counts
    for text, episode, t in zip(vocabulary.texts, vocabulary.first_episode, vocabulary.first_t, strict=True):
        first = next((where for where, words in said.items() if words == text), (-1, -1))
        assert (episode, t) == first
    unmet = int((vocabulary.counts == 0).sum())
    if not enumerate_events:
        assert unmet == 0
    elif with_action:
        assert unmet > 0, "the rarer ways of doing nothing are listed all the same"
    assert all(text.startswith("You try to") for text in vocabulary.texts) == with_action

    manifest = read_manifest(tmp_path / "c", "caption")
    assert manifest["counts"] == {
        "transitions": 700,
        "captioned": counts.total(),
        "nothing_to_say": 700 - counts.total(),
        "distinct": len(counts),
        "listed_only": unmet,
        "segments": len(vocabulary),
        "dropped_segments": 0,
        "fraction_unique": len(counts) / counts.total(),
        "shards": read_manifest(trajectories)["counts"]["shards"],
    }
    assert manifest["notes"] == []
    segments = read_segments(tmp_path / "c")
    assert list(segments.texts) == list(vocabulary.texts)
    assert segments.members.tolist() == [[i] for i in range(len(vocabulary))]


def test_captions_mirror_the_shards(tmp_path: Path, trajectories: Path) -> None:
    STAGE["caption"].run(make_params(), trajectories=trajectories, output=tmp_path / "c")
    files = sorted((tmp_path / "c").glob("captions-*"))
    assert len(files) > 2
    for (_, position), ids, file in zip(
        read_trajectories(trajectories), read_captions(tmp_path / "c"), files, strict=True
    ):
        table = pq.read_table(file)
        np.testing.assert_array_equal(table["episode_id"].to_numpy(), position.episode_id)
        np.testing.assert_array_equal(table["t"].to_numpy(), position.t)
        assert len(ids) == len(position.t)


@pytest.mark.parametrize("at_most", [5, 100_000])
def test_segments_of_three(tmp_path: Path, trajectories: Path, at_most: int) -> None:
    params = make_params(segment_length=3, max_segments=at_most)
    STAGE["caption"].run(params, trajectories=trajectories, output=tmp_path / "c")
    windows: dict[tuple[int, int], list[str]] = {}
    for (episode, t), text in expected(params, trajectories).items():
        windows.setdefault((episode, t // 3), []).append(text)
    counts = Counter(tuple(text for text in texts if text) for texts in windows.values())
    counts.pop((), None)
    kept = counts.most_common(at_most)
    segments = read_segments(tmp_path / "c")
    assert dict(zip(segments.texts, segments.counts.tolist(), strict=True)) == {
        collapse(list(texts)): n for texts, n in kept
    }
    texts = read_vocabulary(tmp_path / "c").texts
    for row, text in zip(segments.members.tolist(), segments.texts, strict=True):
        assert collapse([texts[i] for i in row if i >= 0]) == text
    manifest = read_manifest(tmp_path / "c")
    dropped = len(counts) - len(kept)
    assert (manifest["counts"]["segments"], manifest["counts"]["dropped_segments"]) == (len(kept), dropped)
    assert bool(manifest["notes"]) == bool(dropped)
    if dropped:
        assert manifest["notes"][0].startswith(f"{dropped} of {len(counts)} distinct segments were dropped")


def test_same_input_same_bytes(tmp_path: Path, trajectories: Path) -> None:
    for name in "ab":
        STAGE["caption"].run(make_params(segment_length=2), trajectories=trajectories, output=tmp_path / name)
    assert read_manifest(tmp_path / "a")["digest"] == read_manifest(tmp_path / "b")["digest"]
    assert read_manifest(tmp_path / "a")["inputs"] == {"trajectories": read_manifest(trajectories)["digest"]}


def test_a_generic_adapter_is_reported(tmp_path: Path) -> None:
    params = make_params("Pendulum-v1")
    STAGE["collect"].run(params, output=tmp_path / "t")
    STAGE["caption"].run(params, trajectories=tmp_path / "t", output=tmp_path / "c")
    (note,) = read_manifest(tmp_path / "c")["notes"]
    assert note.startswith("Pendulum-v1 has no adapter, so")


def test_captions_that_cannot_name_the_action_are_reported(tmp_path: Path, trajectories: Path) -> None:
    """Such as those of an environment of one's own, whose adapter has not asked for the action."""
    params = make_params("laurel/BallGame-v0", with_action=True)
    STAGE["collect"].run(params, output=tmp_path / "t")
    STAGE["caption"].run(params, trajectories=tmp_path / "t", output=tmp_path / "c")
    (note,) = read_manifest(tmp_path / "c")["notes"]
    assert note.startswith("caption.with_action has no effect: captions of laurel/BallGame-v0 are the same")
    STAGE["caption"].run(make_params(with_action=True), trajectories=trajectories, output=tmp_path / "named")
    assert not read_manifest(tmp_path / "named")["notes"]


def test_an_adapter_without_captions(tmp_path: Path, trajectories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.envs.minigrid.MiniGridAdapter.describe", lambda self, event: "")
    STAGE["caption"].run(make_params(segment_length=2), trajectories=trajectories, output=tmp_path / "c")
    manifest = read_manifest(tmp_path / "c")
    assert (manifest["counts"]["nothing_to_say"], manifest["counts"]["segments"]) == (700, 0)
    assert manifest["counts"]["fraction_unique"] == 0
    assert manifest["notes"] == ["None of 700 steps has a caption."]
    assert all((ids == -1).all() for ids in read_captions(tmp_path / "c"))


def test_trajectories_of_another_environment(tmp_path: Path, trajectories: Path) -> None:
    with pytest.raises(DataError, match=r"holds steps of MiniGrid-Empty-5x5-v0.*env is FrozenLake-v1"):
        STAGE["caption"].run(make_params("FrozenLake-v1"), trajectories=trajectories, output=tmp_path / "c")
    with pytest.raises(DataError, match="Run laurel collect again"):
        STAGE["caption"].run(make_params(kwargs={"size": 6}), trajectories=trajectories, output=tmp_path / "c")


def test_data_of_an_earlier_adapter_version_is_refused(
    tmp_path: Path, trajectories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions, params = tmp_path / "c", make_params()
    STAGE["caption"].run(params, trajectories=trajectories, output=captions)
    assert read_manifest(trajectories)["adapter"] == read_manifest(captions)["adapter"] == "MiniGridAdapter 2"
    read_inputs(params.dump("env", "caption"), {"captions": captions})
    monkeypatch.setattr("laurel.envs.minigrid.MiniGridAdapter.version", 3)
    refused = r"was made with the adapter MiniGridAdapter 2, but MiniGrid-.* now has MiniGridAdapter 3, .*collect"
    with pytest.raises(DataError, match=f"{trajectories}: {refused}"):
        STAGE["caption"].run(params, trajectories=trajectories, output=tmp_path / "d")
    with pytest.raises(DataError, match=f"{captions}: {refused}"):
        read_inputs(params.dump("env", "caption"), {"captions": captions})


def test_wrong_and_damaged_inputs(tmp_path: Path, trajectories: Path) -> None:
    with pytest.raises(DataError, match="no such directory"):
        STAGE["caption"].run(make_params(), trajectories=tmp_path / "none", output=tmp_path / "c")
    STAGE["caption"].run(make_params(), trajectories=trajectories, output=tmp_path / "c")
    with pytest.raises(DataError, match='holds the output of "caption", but that of "collect" is needed'):
        STAGE["caption"].run(make_params(), trajectories=tmp_path / "c", output=tmp_path / "d")
    STAGE["collect"].run(make_params(), output=tmp_path / "t")
    (tmp_path / "t" / "shard-00001.parquet").write_bytes(b"PAR1PAR1")
    with pytest.raises(DataError, match="shard-00001"):
        STAGE["caption"].run(make_params(), trajectories=tmp_path / "t", output=tmp_path / "c")
    assert json.loads((tmp_path / "c" / "manifest.json").read_text())["counts"]["transitions"] == 700

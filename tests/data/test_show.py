import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from laurel.agents.checkpoint import save_policy
from laurel.agents.policy import ActorCritic
from laurel.data.captions import Vocabulary, write_vocabulary
from laurel.data.directory import output_directory
from laurel.data.json_file import read_json, write_json
from laurel.data.manifest import read_manifest
from laurel.data.show import describe_directory
from laurel.data.trajectories import Rows, TrajectoryWriter, trajectory_schema
from laurel.errors import DataError


def described(path: Path) -> str:
    text = describe_directory(path)
    assert max(map(len, text.splitlines()[1:])) <= 100  # the first names the directory, however long
    return text


def test_trajectories(tmp_path: Path) -> None:
    n = 12
    zeros, no = np.zeros(n, dtype=np.float32), np.zeros(n, dtype=np.bool_)
    final = np.arange(n) % 4 == 3
    rows = Rows(np.zeros((n, 148), np.uint8), zeros.astype(np.int64), zeros, no, no, zeros, zeros, no.view("i1"), final)
    with output_directory(tmp_path / "t", stage="collect", params={}) as out:
        with TrajectoryWriter(out.path, trajectory_schema(np.dtype(np.uint8), 148), {}, 4) as writer:
            writer.write(rows)
        out.counts = {"transitions": 9, "shards": 3}
        out.notes.append("A note that is long. " * 12)
    text = described(tmp_path / "t")
    assert "output of laurel collect" in text
    assert "shard-*.parquet      3    12" in text
    assert "observation uint8[148]" in text
    assert "transitions            9" in text
    assert " ".join(text.split()).count("A note that is long.") == 12
    assert "episode_id  t  observation" in text


def test_captions_with_rewards_are_sorted(tmp_path: Path) -> None:
    n = 60
    with output_directory(tmp_path / "r", stage="train-reward", params={}) as out:
        reward = np.random.default_rng(0).permutation(n).astype(np.float32)
        columns = {"id": np.arange(n), "text": [f"caption {r:.0f} " + "x" * 200 for r in reward], "reward": reward}
        pq.write_table(pa.table({**columns, "spread": reward / 9, "count": np.arange(n)}), out.path / "vocab.parquet")
    lines = described(tmp_path / "r").splitlines()
    shown = [int(line.split("caption ")[1].split()[0]) for line in lines if "caption " in line]
    assert shown == [*range(59, 47, -1), *range(11, -1, -1)]
    assert "  ... 36 more" in lines


def test_vocabulary_without_rewards(tmp_path: Path) -> None:
    with output_directory(tmp_path / "c", stage="caption", params={}) as out:
        none = np.array([-1, 4])
        write_vocabulary(out.path, Vocabulary(["You turn.", "You win."], np.array([0, 3]), none, none.astype(np.int32)))
    text = described(tmp_path / "c")
    assert " 0  You turn.      0              -        -" in text


def test_agents(tmp_path: Path) -> None:
    with output_directory(tmp_path / "a", stage="train-agents", params={}) as out:
        for arm in ("extrinsic", "preference"):
            for seed in (0, 1):
                place = out.path / arm / f"seed-{seed}"
                torch.manual_seed(seed)
                save_policy(place, ActorCritic(4, 2, continuous=False, hidden=(8,)), arm=arm)
                curve = {"env_steps": [100, 200], "return_mean": [0.5, 7.25 + seed], "success_rate": [None, 0.5]}
                pq.write_table(pa.table(curve), place / "curve.parquet")
    text = described(tmp_path / "a")
    rows = [line.split() for line in text.splitlines() if line.split()[:1] == ["preference"]]
    assert rows == [["preference", f"seed-{s}", "200", f"{7.25 + s}", "0.5", "-", "-"] for s in (0, 1)]
    assert "shaped reward a step" in text
    assert text.count("actor.0.weight") == 1, "one agent's tensors stand for all"
    assert "[8, 4]" in text
    assert "network.hidden" in text
    assert "107 numbers in all" in text


def test_steps_of_agents_are_a_range_if_arms_differ(tmp_path: Path) -> None:
    """The manifest has the most of any arm."""
    for last, shown in ((200, "200"), (100, "100 to 200")):
        with output_directory(tmp_path / str(last), stage="train-agents", params={}) as out:
            for arm, steps in (("short", last), ("long", 200)):
                place = out.path / arm / "seed-0"
                place.mkdir(parents=True)
                pq.write_table(pa.table({"env_steps": [50, steps]}), place / "curve.parquet")
            out.counts = {"steps_each": 200}
        (line,) = (line for line in described(tmp_path / str(last)).splitlines() if "steps_each" in line)
        assert line.split(maxsplit=1)[1] == shown


def test_reports(tmp_path: Path) -> None:
    with output_directory(tmp_path / "e", stage="evaluate", params={}) as out:
        write_json(out.path / "metrics.json", {"return": {"extrinsic": 0.5}, "seeds": [0, 1], "pairs": [{"a": None}]})
        (out.path / "report.html").write_text("<html>")
    text = described(tmp_path / "e")
    assert "return.extrinsic" in text
    assert "pairs[0].a" in text
    assert "report.html" in text


def test_the_quality_of_labels(tmp_path: Path) -> None:
    share = {"value": 0.25, "ci95": [0.125, 0.4], "of": 1200}
    compared = {"agreement": share, "pairs": 1300, "brier": 0.2, "calibration_error": 0.05, "calibration": []}
    members = [{"annotator": f"model {i} " + "x" * 200, "parse_rate": share} for i in range(2)]
    with output_directory(tmp_path / "p", stage="annotate", params={}) as out:
        write_json(out.path / "quality.json", {"position_bias": share, "oracle": compared, "by": members, "answers": 9})
        row = {"pair": [3], "first": ["a"], "second": ["b"], "status": ["ok"], "p_first": [1.0], "answer": ["2 it is"]}
        pq.write_table(pa.table({**row, "vote": [0]}), out.path / "sample.parquet")
    lines = [" ".join(line.split()) for line in described(tmp_path / "p").splitlines()]
    assert "answers that named the text shown first 25.0% 12.5% to 40.0% 1,200 unbiased 50%" in lines
    assert "Brier score against the environment's progress 0.200 - 1,200 uninformed 0.25" in lines
    assert [line[:9] for line in lines if line.startswith("model ")] == ["model 0 x", "model 1 x"]
    assert "3 ok 1 a b 2 it is" in lines


def test_foreign_or_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such directory"):
        describe_directory(tmp_path / "none")
    with pytest.raises(DataError, match="is not the output of a stage"):
        describe_directory(tmp_path)
    for name in ("x.parquet", "x.safetensors", "x.json"):
        with output_directory(tmp_path / name, stage="caption", params={}) as out:
            (out.path / name).write_bytes(b"\xff\x00garbage and more of it")
        with pytest.raises(DataError, match=rf"{name}: .*Run"):
            describe_directory(tmp_path / name)


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [(".run.json", "usage", None), (".run.json", "run_notes", "x"), (".run.json", None, [])]
    + [("manifest.json", key, value) for key, value in {"notes": None, "inputs": 7, "counts": [], "stage": 1}.items()],
)
def test_records_with_values_of_other_types_are_refused(tmp_path: Path, file: str, key: str | None, value: Any) -> None:
    with output_directory(tmp_path / "p", stage="caption", params={}):
        pass
    place = tmp_path / "p" / file
    content = value if key is None else {**read_json(place), key: value}
    place.write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"{file}: not a (Laurel manifest|run record of Laurel)\."):
        describe_directory(tmp_path / "p")


def test_a_record_of_a_run_that_is_half_written_costs_no_run(tmp_path: Path) -> None:
    """It has no part in the content: without it the output is as good."""
    with output_directory(tmp_path / "p", stage="train-agents", params={}):
        pass
    record = tmp_path / "p" / ".run.json"
    record.write_text(record.read_text()[:40])
    with pytest.raises(DataError, match=r"\.run\.json: not a run record of Laurel\. Remove it: only") as refused:
        describe_directory(tmp_path / "p")
    assert "again" not in str(refused.value)
    record.unlink()
    assert "output of laurel train-agents" in described(tmp_path / "p")


def test_json_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"x\.json: cannot be read"):
        read_json(tmp_path / "x.json")


def test_empty_output(tmp_path: Path) -> None:
    with output_directory(tmp_path / "e", stage="evaluate", params={}):
        pass
    assert "output of laurel evaluate" in described(tmp_path / "e")


def test_the_usage_of_asking(tmp_path: Path) -> None:
    with output_directory(tmp_path / "out", stage="annotate", params={}) as out:
        out.usage = {"calls": 272, "cost_usd": None, "input_tokens": 5, "uncounted": 1}
    text = describe_directory(tmp_path / "out")
    lines = [line.split() for line in text.splitlines()]
    assert ["used", "calls", "272"] in lines
    assert ["used", "cost_usd", "unknown"] in lines
    assert "  used input_tokens      at least 5: 1 answer came without a token count\n" in text
    assert "used uncounted" not in text


def test_folders_that_are_no_stage_output_are_named_with_alternatives(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("seed: 0")
    with pytest.raises(DataError, match=r"params\.yaml: is a file.*directory that a stage wrote.*laurel params"):
        describe_directory(tmp_path / "params.yaml")
    agents = tmp_path / "data" / "agents"
    with output_directory(agents, stage="train-agents", params={}) as out:
        (out.path / "pot" / "seed-0").mkdir(parents=True)
        (out.path / "pot" / "seed-0" / "x.json").write_text("{}")
    with pytest.raises(DataError, match=rf"is a part of a stage's output.*: laurel show {agents}$"):
        describe_directory(agents / "pot" / "seed-0")
    with pytest.raises(DataError, match=r"data: is not the output of a stage.*data/captions"):
        describe_directory(tmp_path / "data")


def test_a_part_of_an_output_is_not_taken_for_one_whose_manifest_was_lost(tmp_path: Path) -> None:
    with output_directory(tmp_path / "agents", stage="train-agents", params={}) as out:
        (out.path / "preference").mkdir()
        (out.path / "preference" / "x").write_text("x")
    with pytest.raises(DataError, match=r"json: no such file, so \S+preference is not the whole output of a stage"):
        read_manifest(tmp_path / "agents" / "preference")

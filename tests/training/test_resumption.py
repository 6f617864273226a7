"""Resumption to the bit, wherever a run is stopped; checkpoints that are whole or refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file
from stopping import FILES, caption_reward, content, curve, make_task, run

from laurel.agents.checkpoint import load_policy
from laurel.agents.ppo import OnPolicyRollout
from laurel.agents.stacked_ppo import PPOGroup
from laurel.data.json_file import read_json, write_json
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError
from laurel.params import EnvParams
from laurel.rewards.base import Reward
from laurel.training import loop
from laurel.training import task as tasks
from laurel.training.checkpoint import is_finished
from laurel.training.credit import CREDIT


@pytest.fixture(scope="module")
def frozen_lake() -> EnvAdapter:
    return adapter_for(EnvParams(id="FrozenLake-v1"))


KINDS: dict[str, dict[str, Any]] = {
    "FrozenLake-v1": {},
    "CartPole-v1": {"ppo": {"anneal": True}},
    "Pendulum-v1": {},
    "MiniGrid-Empty-5x5-v0": {"backend": "auto"},
}


@pytest.mark.parametrize("recurrent", [False, True])
def test_a_long_run_keeps_few_actions_and_few_rows_and_resumes(
    recurrent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environments are recreated every second update, and a row of the curve is the mean of two."""
    monkeypatch.setattr(tasks, "ENV_LIFETIME", 100)
    monkeypatch.setattr(tasks, "MOST_ROWS", 4)
    task = make_task("FrozenLake-v1", ppo={"recurrent": recurrent})
    adapter = adapter_for(task.env)
    run(task, adapter, tmp_path / "whole", caption_reward())
    expected = content(tmp_path / "whole")
    assert [row["env_steps"] for row in curve(tmp_path / "whole")] == [96, 192, 288, 384]
    assert sum(row["episodes"] for row in curve(tmp_path / "whole")) > 0
    credit = pq.read_table(tmp_path / "whole" / CREDIT)
    assert sum(credit["steps"].to_pylist()) > 0.8 * task.steps, "of all updates, though a checkpoint has those of two"
    place = tmp_path / "resumed"
    for updates in (3, 0, 2, 1):
        run(task, adapter, place, caption_reward(), updates=updates)
    assert load_file(place / "actions.safetensors").keys() <= {"000000", "000001"}
    assert read_json(place / "state.json")["since"] > 0
    run(task, adapter, place, caption_reward())
    assert content(place) == expected
    assert pq.read_table(place / CREDIT).equals(credit)


def test_environments_that_are_recreated_do_not_begin_with_the_same_episodes_again(
    tmp_path: Path, frozen_lake: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    original = loop.make_envs

    def made(*args: Any) -> Any:
        seeds.append(args[3])
        return original(*args)

    monkeypatch.setattr(tasks, "ENV_LIFETIME", 100)
    monkeypatch.setattr(loop, "make_envs", made)
    run(make_task(), frozen_lake, tmp_path / "agent")
    assert len(set(seeds)) == len(seeds) == 4


@pytest.mark.parametrize("rewarded", [True, False])
@pytest.mark.parametrize("env", KINDS)
def test_a_resumed_run_is_the_run_that_it_would_have_been(env: str, rewarded: bool, tmp_path: Path) -> None:
    """Bit-identical, whenever it is stopped: between two checkpoints, right after one, several times, immediately."""
    task = make_task(env, **KINDS[env])
    adapter = adapter_for(task.env)

    def reward() -> Reward | None:
        return caption_reward() if rewarded else None

    whole = tmp_path / "whole"
    run(task, adapter, whole, reward())
    expected = content(whole)
    assert expected["files"] == sorted(FILES | ({CREDIT} if rewarded else set()))
    rng = np.random.default_rng(sum(env.encode()))
    stops = [[int(rng.integers(1, 8))], [2, 3], [0, 1, 5, 0]]
    for number, updates in enumerate(stops):
        place = tmp_path / str(number)
        for some in updates:
            run(task, adapter, place, reward(), updates=some)
        run(task, adapter, place, reward())
        assert content(place) == expected, updates
    if rewarded and env != "Pendulum-v1":
        assert expected["state"]["unseen"] > 0, "captions that were met before the stop are counted again"
    lengths = [row["length_mean"] for row in curve(whole) if row["length_mean"]]
    if env in ("CartPole-v1", "MiniGrid-Empty-5x5-v0"):
        assert max(lengths) > task.settings.n_steps, "episodes cross updates, and so checkpoints"


def test_training_resumes_from_the_checkpoint_and_not_from_the_start(
    tmp_path: Path, frozen_lake: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = 0
    original = PPOGroup.learn

    def counted(self: PPOGroup, rollouts: Sequence[OnPolicyRollout]) -> Any:
        nonlocal learned
        learned += 1
        return original(self, rollouts)

    monkeypatch.setattr(PPOGroup, "learn", counted)
    task = make_task()
    run(task, frozen_lake, tmp_path / "agent", updates=5)
    assert learned == 5
    assert read_json(tmp_path / "agent" / "state.json")["update"] == 4, "the last checkpoint"
    run(task, frozen_lake, tmp_path / "agent")
    assert learned == 5 + 4


def test_all_steps_are_reported_including_those_of_the_checkpoint(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    task = make_task()
    assert run(task, frozen_lake, tmp_path / "a") == task.total_steps == 384
    assert run(task, frozen_lake, tmp_path / "b", updates=3) == 3 * 48
    assert run(task, frozen_lake, tmp_path / "b") == 384
    assert run(task, frozen_lake, tmp_path / "b") == 384, "nothing is left to do"


def test_a_finished_agent_is_unchanged(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    task = make_task()
    run(task, frozen_lake, tmp_path / "agent")
    before = {file.name: file.read_bytes() for file in (tmp_path / "agent").iterdir()}
    assert set(before) == FILES, "no actions: they are needed to go on alone"
    run(task, frozen_lake, tmp_path / "agent")
    assert {file.name: file.read_bytes() for file in (tmp_path / "agent").iterdir()} == before


def test_a_checkpoint_is_a_policy_that_can_be_used(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    run(make_task(), frozen_lake, tmp_path / "agent", updates=5)
    assert {file.name for file in (tmp_path / "agent").iterdir()} == FILES | {"actions.safetensors"}
    actions = load_file(tmp_path / "agent" / "actions.safetensors")
    assert {array.shape for array in actions.values()} == {(16, 3)}
    assert {array.dtype for array in actions.values()} == {np.dtype(np.uint8)}, "a byte each"
    load_policy(tmp_path / "agent")


def test_file_permissions_follow_the_umask(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    before = os.umask(0o027)
    try:
        run(make_task(), frozen_lake, tmp_path / "agent", updates=5)
    finally:
        os.umask(before)
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in (tmp_path / "agent").iterdir()}
    assert modes == dict.fromkeys(FILES | {"actions.safetensors"}, "0o640")


def test_partial_files_of_a_killed_write_are_ignored(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    run(make_task(), frozen_lake, tmp_path / "whole")
    run(make_task(), frozen_lake, tmp_path / "agent", updates=6)  # the next checkpoint is the last
    (tmp_path / ".agent.writing").mkdir()
    (tmp_path / ".agent.writing" / "actions.safetensors").write_text("half")
    (tmp_path / ".agent.writing" / "model.safetensors").write_text("half")
    run(make_task(), frozen_lake, tmp_path / "agent")
    assert content(tmp_path / "agent") == content(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent", "whole"]


def test_a_run_that_was_killed_between_two_renames(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    run(make_task(), frozen_lake, tmp_path / "whole")
    run(make_task(), frozen_lake, tmp_path / "agent", updates=5)
    (tmp_path / "agent").rename(tmp_path / ".agent.previous")
    assert run(make_task(), frozen_lake, tmp_path / "agent", updates=0) == 4 * 48, "it is put back"
    run(make_task(), frozen_lake, tmp_path / "agent")
    assert content(tmp_path / "agent") == content(tmp_path / "whole")


def test_is_finished(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    assert not is_finished(tmp_path / "agent")
    run(make_task(), frozen_lake, tmp_path / "agent", updates=3)
    assert not is_finished(tmp_path / "agent")
    run(make_task(), frozen_lake, tmp_path / "agent")
    assert is_finished(tmp_path / "agent")
    (tmp_path / "agent").rename(tmp_path / ".agent.previous")
    assert is_finished(tmp_path / "agent"), "as it was before it was moved aside"


# -- damage -----------------------------------------------------------------------------------------------------
def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def fewer_actions(file: Path) -> None:
    actions = load_file(file)
    actions.pop(sorted(actions)[-1])
    save_file(actions, file)


def without_digests(file: Path) -> None:
    write_json(file, {key: value for key, value in read_json(file).items() if key != "digests"})


@pytest.mark.parametrize(
    ("file", "harm"),
    [
        *[
            (file, harm)
            for file in sorted(FILES - {".run.json"} | {"actions.safetensors"})
            for harm in (cut, Path.unlink)
        ],
        ("state.json", lambda file: file.write_text('{"finished": false}')),
        ("state.json", lambda file: file.write_text("{}")),
        *[(file, without_digests) for file in ("state.json", "config.json")],
        ("actions.safetensors", fewer_actions),
        ("curve.parquet", lambda file: file.write_bytes(b"")),
    ],
)
def test_a_damaged_checkpoint_is_refused(
    file: str, harm: Callable[[Path], Any], tmp_path: Path, frozen_lake: EnvAdapter
) -> None:
    run(make_task(), frozen_lake, tmp_path / "agent", updates=3)
    harm(tmp_path / "agent" / file)
    with pytest.raises(DataError) as caught:
        run(make_task(), frozen_lake, tmp_path / "agent")
    assert str(tmp_path / "agent") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    run(make_task(), frozen_lake, tmp_path / "agent", updates=3)
    with pytest.raises(DataError, match=r"agent: not a complete checkpoint .*Delete it to train this agent again"):
        run(make_task(ppo={"hidden": (9,)}), frozen_lake, tmp_path / "agent")

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from gymnasium.spaces import Box

from laurel.agents.behaviour import Behaviour
from laurel.agents.checkpoint import save_policy
from laurel.agents.policy import make_network
from laurel.data.manifest import RUN_FACTS, digest_directory, read_manifest
from laurel.data.trajectories import read_metadata, read_trajectories
from laurel.envs import adapter_for
from laurel.envs.vector import make_vector
from laurel.errors import DataError, EnvError, ParamsError
from laurel.params import Params, parse_params
from laurel.seeding import derive_seed
from laurel.stages import collect
from laurel.stages.pipeline import STAGE

torch.set_num_threads(1)
ENVS = ["MiniGrid-Empty-5x5-v0", "FrozenLake-v1", "CartPole-v1", "Pendulum-v1"]


def make_params(env: str = "FrozenLake-v1", *, backend: str = "gymnasium", seed: int = 0, **section: Any) -> Params:
    content = {
        "seed": seed,
        "env": {"id": env, "backend": backend},
        "collect": {"steps": 500, "n_envs": 4, "shard_steps": 150, **section},
        "arms": ["extrinsic"],
        "agent": {"seeds": [0], "steps": 1},
        "tracking": {"enabled": False},
    }
    return parse_params(content, "test")


def agent(path: Path, env: str) -> Path:
    adapter = adapter_for(make_params(env).env)
    torch.manual_seed(0)
    blank = np.zeros((1, adapter.observation_size), dtype=adapter.observation_dtype)
    save_policy(path, make_network(adapter.features(blank).shape[1], adapter.action_space, (8,)))
    return path


Step = tuple[Any, ...]


def direct_episodes(params: Params) -> list[list[Step]]:
    """Step the same environments with the same policies, one Python step at a time."""
    adapter = adapter_for(params.env)
    n = params.collect.n_envs
    policies = Behaviour(params.collect.policies, adapter, n, derive_seed(params.seed, "collect", "policies"))
    envs = make_vector(params.env, adapter, n, derive_seed(params.seed, "collect", "envs"))
    observation = envs.reset()
    running: list[list[Step]] = [[] for _ in range(n)]
    episodes = []
    taken = 0
    while taken < params.collect.steps:
        action, log_prob, value = policies.act(observation)
        if isinstance(adapter.action_space, Box):
            action = np.clip(action, adapter.action_space.low, adapter.action_space.high)
        step = envs.step(action)
        for env in range(n):
            if step.valid[env] and taken < params.collect.steps:
                taken += 1
                running[env].append(
                    (
                        observation[env].tobytes(),
                        action[env].tobytes(),
                        float(step.reward[env]),
                        step.observation[env].tobytes(),
                        bool(step.terminated[env]),
                        bool(step.truncated[env]),
                        float(log_prob[env]),
                        None if np.isnan(value[env]) else float(value[env]),
                        int(policies.assignment[env]),
                    )
                )
                if step.terminated[env] or step.truncated[env]:
                    episodes.append(running[env])
                    running[env] = []
        observation = step.observation.copy()
    envs.close()
    return episodes + [episode for episode in running if episode]


def collected_episodes(path: Path) -> list[list[Step]]:
    table = pa.concat_tables([pq.read_table(file) for file in sorted(path.glob("shard-*"))])
    step = np.flatnonzero(~table["reward"].is_null().to_numpy())
    extra = [[table[name][int(i)].as_py() for name in ("log_prob", "value", "policy")] for i in step]
    episodes: dict[int, list[Step]] = {}
    row = 0
    for transitions, position in read_trajectories(path):
        for i in range(len(transitions)):
            transition = transitions[i]
            steps = episodes.setdefault(int(position.episode_id[i]), [])
            assert position.t[i] == len(steps)
            steps.append(
                (
                    transition.observation.tobytes(),
                    transition.action.tobytes(),
                    float(transition.reward),
                    transition.next_observation.tobytes(),
                    bool(transition.terminated),
                    bool(transition.truncated),
                    *extra[row],
                )
            )
            row += 1
    return [episodes[number] for number in range(len(episodes))]


@pytest.mark.parametrize("env", ENVS)
def test_transitions_are_those_that_stepping_gives(tmp_path: Path, env: str) -> None:
    mix = [
        {"kind": "random"},
        {"kind": "checkpoint", "path": str(agent(tmp_path / "agent", env))},
        {"kind": "epsilon_random", "epsilon": 0.5, "path": str(tmp_path / "agent"), "share": 2.0},
    ]
    params = make_params(env, policies=mix)
    STAGE["collect"].run(params, output=tmp_path / "t")
    found, expected = collected_episodes(tmp_path / "t"), direct_episodes(params)
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert sum(map(len, found)) == 500

    counts = read_manifest(tmp_path / "t", "collect")["counts"]
    assert (counts["transitions"], counts["episodes"]) == (500, len(found))
    ended = [episode[-1][4] or episode[-1][5] for episode in found]
    assert counts["unfinished_episodes"] == ended.count(False)
    assert counts["shards"] == len(list((tmp_path / "t").glob("*.parquet"))) > 1
    for episode in found:
        assert not any(step[4] or step[5] for step in episode[:-1])
        for before, after in pairwise(episode):
            assert before[3] == after[0]


@pytest.mark.parametrize(("steps", "n_envs"), [(1, 1), (1, 8), (7, 8), (8, 8), (9, 8), (1030, 3)])
def test_exactly_so_many_transitions(tmp_path: Path, steps: int, n_envs: int) -> None:
    params = make_params(steps=steps, n_envs=n_envs)
    STAGE["collect"].run(params, output=tmp_path / "t")
    found = collected_episodes(tmp_path / "t")
    assert sum(map(len, found)) == steps
    assert sorted(found, key=repr) == sorted(direct_episodes(params), key=repr)


def test_the_real_backend(tmp_path: Path) -> None:
    pytest.importorskip("envpool")
    params = make_params("MiniGrid-Empty-5x5-v0", backend="envpool", steps=3000, n_envs=8)
    STAGE["collect"].run(params, output=tmp_path / "t")
    assert sorted(collected_episodes(tmp_path / "t"), key=repr) == sorted(direct_episodes(params), key=repr)
    assert read_metadata(tmp_path / "t")["backend"] == "envpool"


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_same_params_same_bytes(tmp_path: Path, env: str) -> None:
    mix = [{"kind": "random"}, {"kind": "checkpoint", "path": str(agent(tmp_path / "agent", env))}]
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        STAGE["collect"].run(make_params(env, seed=seed, policies=mix), output=tmp_path / name)
    files = [[file.read_bytes() for file in sorted((tmp_path / name).glob("shard-*"))] for name in "abc"]
    assert files[0] == files[1] != files[2]
    manifests = [read_manifest(tmp_path / name) for name in "ab"]
    for manifest in manifests:
        for key in RUN_FACTS:
            del manifest[key]
    assert manifests[0] == manifests[1]


@pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed")
@pytest.mark.parametrize("env", ["MiniGrid-DoorKey-5x5-v0", "CartPole-v1"])
def test_the_number_of_cpus_does_not_change_the_output(
    tmp_path: Path, env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = make_params(env, backend="envpool", n_envs=3 * collect.ENVS_PER_THREAD, steps=6000)
    for cpus in (1, 3):
        monkeypatch.setattr("laurel.stages.collect.usable_cpus", lambda cpus=cpus: cpus)
        STAGE["collect"].run(params, output=tmp_path / str(cpus))
    assert digest_directory(tmp_path / "1") == digest_directory(tmp_path / "3")
    assert sorted(collected_episodes(tmp_path / "3"), key=repr) == sorted(direct_episodes(params), key=repr)


def test_metadata_says_what_was_collected(tmp_path: Path) -> None:
    path = agent(tmp_path / "agent", "CartPole-v1")
    policies = [{"kind": "random", "share": 3.0}, {"kind": "checkpoint", "path": str(path)}]
    params = make_params("CartPole-v1", policies=policies)
    STAGE["collect"].run(params, output=tmp_path / "t")
    metadata = read_metadata(tmp_path / "t")
    assert metadata["env"] == params.env.model_dump(mode="json")
    assert [(p["kind"], p["n_envs"]) for p in metadata["policies"]] == [("random", 3), ("checkpoint", 1)]
    assert metadata["policies"][1]["path"] == str(path)
    assert metadata["observation"] | {"space": ""} == {
        "adapter": "CartPoleAdapter", "dtype": "float32", "size": 4, "space": ""
    }  # fmt: skip
    assert metadata["seed"] == derive_seed(0, "collect", "envs")
    assert read_manifest(tmp_path / "t")["params"] == params.dump("seed", "env", "collect")


def test_wrong_policies_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"collect\.policies has 2 entries"):
        STAGE["collect"].run(make_params(n_envs=1, policies=[{}, {}]), output=tmp_path / "t")
    none = {"kind": "checkpoint", "path": str(tmp_path / "none")}
    with pytest.raises(DataError, match="none: no such directory; a trained agent is needed"):
        STAGE["collect"].run(make_params(policies=[none]), output=tmp_path / "t")
    wrong = {"kind": "checkpoint", "path": str(agent(tmp_path / "agent", "CartPole-v1"))}
    with pytest.raises(DataError, match=r"agent with .* but FrozenLake-v1 has"):
        STAGE["collect"].run(make_params(policies=[wrong]), output=tmp_path / "t")
    with pytest.raises(EnvError, match="knows no environment"):
        STAGE["collect"].run(make_params("FrozenLake-v9"), output=tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_a_full_disk_leaves_the_old_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    STAGE["collect"].run(make_params(), output=tmp_path / "t")
    before = digest_directory(tmp_path / "t")

    def full(self: Any, table: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("laurel.data.parquet.ParquetWriter.write", full)
    with pytest.raises(DataError, match=r"t: the disk is full\. Free some space"):
        STAGE["collect"].run(make_params(seed=1), output=tmp_path / "t")
    assert digest_directory(tmp_path / "t") == before
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".partial")] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_really_full_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(tmp_path / "disk")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mount is not allowed here")
    try:
        with pytest.raises(DataError, match="the disk is full"):
            STAGE["collect"].run(make_params("CartPole-v1", steps=20_000), output=tmp_path / "disk" / "t")
        assert not list((tmp_path / "disk").glob("*t*/*"))
    finally:
        subprocess.run(["umount", "-l", str(tmp_path / "disk")], check=True)


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_killed_stage_leaves_the_old_output(tmp_path: Path) -> None:
    output = tmp_path / "t"
    STAGE["collect"].run(make_params(), output=output)
    before = digest_directory(output)
    content = make_params(steps=100_000_000, seed=1).model_dump(mode="json")
    code = (
        "import json, sys; from pathlib import Path; from laurel.params import parse_params;"
        "from laurel.stages.pipeline import STAGE;"
        "STAGE['collect'].run(parse_params(json.loads(sys.argv[1]), 'test'), output=Path(sys.argv[2]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, json.dumps(content), str(output)])
    try:
        wait_for(lambda: bool(list(tmp_path.glob(".t.*.partial/shard-*"))))
        with pytest.raises(DataError, match="another process is writing it"):
            STAGE["collect"].run(make_params(), output=output)
        time.sleep(float(np.random.default_rng().uniform(0, 0.5)))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert digest_directory(output) == before == read_manifest(output)["digest"]
    assert list(tmp_path.glob(".t.*.partial"))
    STAGE["collect"].run(make_params(seed=2), output=output)
    assert digest_directory(output) == read_manifest(output)["digest"] != before
    assert not list(tmp_path.glob(".t.*.partial"))


def test_help_does_not_load_anything_heavy() -> None:
    code = "import sys, laurel.stages.collect, laurel.stages.caption; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "gymnasium", "pyarrow", "mlflow", "pandas"}.isdisjoint(loaded)

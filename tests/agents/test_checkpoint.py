import json
from pathlib import Path

import numpy as np
import pytest
import torch

from laurel.agents.checkpoint import load_policy, save_policy
from laurel.agents.policy import ActorCritic
from laurel.errors import DataError


@pytest.fixture(params=[True, False])
def network(request: pytest.FixtureRequest) -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(4, 2, continuous=request.param, hidden=(8, 5))


def test_round_trip(tmp_path: Path, network: ActorCritic) -> None:
    save_policy(tmp_path / "deep" / "agent", network, arm="preference", seed=3)
    loaded = load_policy(str(tmp_path / "deep" / "agent"))  # as MLflow names what it has downloaded
    assert loaded.config() == network.config()
    features = np.random.default_rng(0).random((16, 4), dtype=np.float32)
    for a, b in zip(*(n.act(features, np.random.default_rng(1)) for n in (network, loaded)), strict=True):
        np.testing.assert_array_equal(a, b)
    config = json.loads((tmp_path / "deep" / "agent" / "config.json").read_text())
    assert (config["arm"], config["seed"]) == ("preference", 3)


def test_same_weights_same_bytes(tmp_path: Path, network: ActorCritic) -> None:
    for name in "ab":
        save_policy(tmp_path / name, network)
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()


def test_damage(tmp_path: Path, network: ActorCritic) -> None:
    with pytest.raises(DataError, match=r"no such directory; a trained agent .*Run laurel train-agents first\."):
        load_policy(tmp_path / "none")
    save_policy(tmp_path, network)
    model, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    good = model.read_bytes()
    for bad in (b"", good[:50], good[:-1], b"\xff" * len(good)):
        model.write_bytes(bad)
        with pytest.raises(DataError, match=r"model\.safetensors: cannot be read as this policy"):
            load_policy(tmp_path)
    save_policy(tmp_path / "other", ActorCritic(4, 3, continuous=network.continuous, hidden=(8, 5)))
    model.write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    with pytest.raises(DataError, match=r"model\.safetensors: cannot be read as this policy"):
        load_policy(tmp_path)
    model.unlink()
    with pytest.raises(DataError, match=r"model\.safetensors: no such file"):
        load_policy(tmp_path)
    for text in ("{}", "[]", '{"network": 3}', '{"network": {"hidden": [4]}}', '{"network": {"hidden": 4}}'):
        config.write_text(text)
        with pytest.raises(DataError, match=r"config\.json: does not describe a policy"):
            load_policy(tmp_path)
    config.unlink()
    with pytest.raises(DataError, match=r"holds no agent: config\.json is missing"):
        load_policy(tmp_path)

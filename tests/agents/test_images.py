"""Networks for images: what is found in an observation space, what is seen of it, what only filters learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from learning import collected, learned, mean_return, probe, weights
from probe_environments import Bar, Countdown

from laurel.agents.algorithms import initial_policy
from laurel.agents.checkpoint import load_policy, save_policy
from laurel.agents.images import Image, ImageActorCritic, ImageEncoder, images_in
from laurel.agents.recurrent import RecurrentActorCritic
from laurel.envs import EnvAdapter, adapter_for
from laurel.errors import EnvError
from laurel.params import EnvParams
from laurel.params.algorithms import PPOParams

SMALL = PPOParams(n_envs=64, n_steps=8, n_epochs=4, batch_size=128, learning_rate=2e-3, hidden=(32,))


def adapter_of(space: gym.Space[Any]) -> EnvAdapter:
    return EnvAdapter("Pictures-v0", space, gym.spaces.Discrete(2))


def box(*shape: int, dtype: Any = np.uint8) -> gym.spaces.Box:
    return gym.spaces.Box(0, 1 if dtype is np.float32 else 255, shape, dtype)


@pytest.mark.parametrize(
    ("space", "found"),
    [
        (box(20, 30, 3), [Image(0, 20, 30, 3)]),
        (box(3, 20, 30), [Image(0, 20, 30, 3, channels_first=True)]),
        (box(20, 30), [Image(0, 20, 30, 1)]),
        (box(7, 7, 3), []),
        (box(20, 30, 3, dtype=np.float32), []),
        (box(400), []),
        (gym.spaces.Dict({"a": gym.spaces.Discrete(5), "b": box(16, 16), "c": box(16, 20, 1)}),
         [Image(5, 16, 16, 1), Image(261, 16, 20, 1)]),
        (gym.spaces.Tuple([gym.spaces.MultiDiscrete([3, 4]), box(16, 16)]), [Image(7, 16, 16, 1)]),
    ],
)  # fmt: skip
def test_images_are_found(space: gym.Space[Any], found: list[Image]) -> None:
    assert list(images_in(adapter_of(space))) == found


def test_own_features_of_an_adapter_hold_no_images() -> None:
    assert images_in(adapter_for(EnvParams(id="MiniGrid-Empty-5x5-v0")), smallest=1) == ()


@pytest.mark.parametrize("first", [True, False])
def test_each_image_is_filtered_by_itself(first: bool) -> None:
    """The codes are those of the same filters on the picture alone, with the rest beside them."""
    shape = (2, 16, 18) if first else (16, 18, 2)
    space = gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": box(*shape), "c": gym.spaces.Discrete(2)})
    if first:
        space = gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": box(2, 16, 18), "c": gym.spaces.Discrete(2)})
    adapter = adapter_of(space)
    space.seed(0)
    observations = [space.sample() for _ in range(3)]
    features = torch.from_numpy(adapter.features(np.stack([adapter.pack_one(o) for o in observations])))
    (image,) = images_in(adapter)
    encoder = ImageEncoder(features.shape[1], (image,))
    codes = encoder(features)
    assert codes.shape == (3, encoder.size)
    for i, observation in enumerate(observations):
        picture = observation["b"] if first else observation["b"].transpose(2, 0, 1)
        pixels = torch.from_numpy(picture.astype(np.float32) / 127.5 - 1)[None]
        alone = encoder.filters[0](pixels)[0]
        torch.testing.assert_close(codes[i, : len(alone)], alone, atol=1e-4, rtol=1e-4)
        rest = torch.eye(3)[int(observation["a"])], torch.eye(2)[int(observation["c"])]
        torch.testing.assert_close(codes[i, len(alone) :], torch.cat(rest))


def test_large_images_have_the_filters_of_the_paper() -> None:
    encoder = ImageEncoder(84 * 84 * 4, (Image(0, 84, 84, 4),))
    assert encoder.size == 7 * 7 * 64, "Mnih et al. 2015"


@pytest.mark.parametrize(
    ("network", "recurrent", "kind"),
    [
        ("auto", False, ImageActorCritic),
        ("cnn", False, ImageActorCritic),
        ("auto", True, RecurrentActorCritic),
    ],
)
def test_it_is_saved_and_loaded(network: str, recurrent: bool, kind: type, tmp_path: Path) -> None:
    settings = SMALL.model_copy(update={"network": network, "recurrent": recurrent})
    adapter = adapter_for(probe(Bar))
    policy = initial_policy(adapter, settings, 0, 0)
    assert type(policy) is kind
    save_policy(tmp_path, policy)
    loaded = load_policy(tmp_path)
    features = np.random.default_rng(0).random((4, policy.n_features), dtype=np.float32)
    for ours, theirs in zip(*(p.act(features, np.random.default_rng(1)) for p in (policy, loaded)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_without_an_image_there_are_no_filters() -> None:
    with pytest.raises(
        EnvError, match=r"agent\.ppo\.network is cnn, but the features of .*Countdown.* contain no image"
    ):
        initial_policy(adapter_for(probe(Countdown)), SMALL.model_copy(update={"network": "cnn"}), 0, 0)
    plain = initial_policy(adapter_for(probe(Bar)), SMALL.model_copy(update={"network": "mlp"}), 0, 0)
    assert not isinstance(plain, ImageActorCritic)


def test_bars_in_an_image_are_distinguished() -> None:
    """Image and number are both needed: with either alone the mean return is zero."""
    bar = probe(Bar)
    learner = learned(bar, SMALL, 60, seed=0)
    assert isinstance(learner.policy, ImageActorCritic)
    assert mean_return(learner, bar) > 0.9


@pytest.mark.parametrize("recurrent", [False, True])
def test_filters_learn(recurrent: bool) -> None:
    """Those of the policy and those of its values; chance alone may make filters that are good enough for a bar."""
    learner, rollout, _ = collected(probe(Bar), SMALL.model_copy(update={"recurrent": recurrent}))
    before = weights(learner)
    learner.learn(rollout)
    filters = [name for name in before if ".filters." in name]
    assert len(filters) == (4 if recurrent else 8)
    for name in filters:
        assert not torch.equal(weights(learner)[name], before[name]), name

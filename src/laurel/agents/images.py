"""Networks for observations that contain images: convolutions for images, in parallel to other features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from laurel.agents.policy import ActorCritic, mlp, orthogonal_
from laurel.envs.base import EnvAdapter
from laurel.envs.spaces import n_features_of

SMALLEST = 16
"""Width and height from which `network: auto` uses convolutions."""
NATURE = 36
"""Width and height that the filters of Mnih et al. 2015 need."""


@dataclass(frozen=True, slots=True)
class Image:
    """Position of an image within a row of features."""

    start: int
    height: int
    width: int
    channels: int
    channels_first: bool = False

    @property
    def size(self) -> int:
        return self.height * self.width * self.channels

    def config(self) -> list[int]:
        return [self.start, self.height, self.width, self.channels, int(self.channels_first)]


def images_in(adapter: EnvAdapter, *, smallest: int = SMALLEST) -> tuple[Image, ...]:
    """Find the images in a network's input: uint8 arrays with two or three dimensions; an adapter's own features have
    none.
    """
    images, start = [], 0
    for leaf in adapter.packed.leaves:
        image = _image(leaf.space, start)
        if image is not None and min(image.height, image.width) >= smallest:
            images.append(image)
        start += n_features_of(leaf.space)
    return tuple(images) if adapter.n_features == start else ()


def _image(space: gym.Space[Any], start: int) -> Image | None:
    if not (isinstance(space, gym.spaces.Box) and space.dtype == np.uint8):
        return None
    match space.shape:
        case (height, width):
            return Image(start, height, width, 1)
        case (height, width, channels) if channels <= 4:
            return Image(start, height, width, channels)
        case (channels, height, width):
            return Image(start, height, width, channels, channels_first=True)
        case _:
            return None


class ImageEncoder(nn.Module):
    """Turns features (B, F) into codes (B, `size`): convolutions over each image; other features pass unchanged.

    Large images get the filters of Mnih et al. 2015, small ones two layers of 3 by 3.
    """

    def __init__(self, n_features: int, images: tuple[Image, ...]) -> None:
        super().__init__()
        self.images = images
        self.filters = nn.ModuleList(_filters(image) for image in images)
        mask = np.ones(n_features, dtype=np.bool_)
        for image in images:
            mask[image.start : image.start + image.size] = False
        self.register_buffer("rest", torch.from_numpy(np.flatnonzero(mask)), persistent=False)
        self.size = int(mask.sum())
        with torch.no_grad():
            for image, filters in zip(images, self.filters, strict=True):
                self.size += filters(torch.zeros(1, image.channels, image.height, image.width)).shape[1]

    rest: Tensor

    def forward(self, features: Tensor) -> Tensor:
        codes = []
        for image, filters in zip(self.images, self.filters, strict=True):
            pixels = features[:, image.start : image.start + image.size]
            if image.channels_first:
                pixels = pixels.reshape(-1, image.channels, image.height, image.width)
            else:
                pixels = pixels.reshape(-1, image.height, image.width, image.channels).permute(0, 3, 1, 2)
            codes.append(filters(pixels))
        return torch.cat([*codes, features[:, self.rest]], dim=1)


class ImageActorCritic(ActorCritic):
    """An actor-critic whose bodies begin with convolutions; `images` are as `Image.config` gives them."""

    kind = "image_actor_critic"
    ppo_class = "laurel.agents.ppo:PPO"

    def __init__(
        self,
        n_features: int,
        n_actions: int,
        *,
        continuous: bool,
        hidden: tuple[int, ...],
        images: tuple[list[int], ...],
    ) -> None:
        super().__init__(n_features, n_actions, continuous=continuous, hidden=())
        self.hidden = hidden
        self.images = images
        restored = tuple(image_of(place) for place in images)
        actor, critic = ImageEncoder(n_features, restored), ImageEncoder(n_features, restored)
        self.actor = nn.Sequential(actor, *mlp((actor.size, *hidden, n_actions), gain=0.01))
        self.critic = nn.Sequential(critic, *mlp((critic.size, *hidden, 1), gain=1.0))


def image_of(place: list[int]) -> Image:
    """Return the image that `Image.config` described."""
    start, height, width, channels, first = place
    return Image(start, height, width, channels, channels_first=bool(first))


def _filters(image: Image) -> nn.Sequential:
    if min(image.height, image.width) >= NATURE:
        sizes = [(32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)]
    else:
        sizes = [(16, 3, 1, 1), (32, 3, 2, 1)]
    layers: list[nn.Module] = []
    n_in = image.channels
    for n_out, kernel, stride, padding in sizes:
        convolution = nn.Conv2d(n_in, n_out, kernel, stride, padding)
        orthogonal_(convolution.weight, math.sqrt(2))
        nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        layers += [convolution, nn.ReLU()]
        n_in = n_out
    return nn.Sequential(*layers, nn.Flatten())

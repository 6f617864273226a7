"""One environment that renders itself, as pictures or as text; works without a display."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
from PIL import Image

from laurel.arrays import ByteArray
from laurel.envs import make_reference
from laurel.envs.guard import NOT_OURS, in_a_line
from laurel.errors import EnvError

if TYPE_CHECKING:
    from laurel.params import EnvParams

Picture = ByteArray
"""(H, W, 3)."""
Mode = Literal["rgb_array", "ansi"]

SIDE = 320
"""Width and height at most of a picture in a file, in pixels."""


class NotRenderedError(Exception):
    """The environment does not render; the text is a sentence that says why."""


@contextmanager
def rendering(env: EnvParams, mode: Mode | None, *, headless: bool = True) -> Iterator[gym.Env[Any, Any]]:
    """Yield the reference environment, made to render in a mode.

    Args:
        mode: rgb_array (pictures), ansi (text) or None (nothing).
        headless: let pygame draw without a display within the block, even if there is one.

    Raises:
        NotRenderedError: it does not render, or not so.
    """
    with _headless() if headless else nullcontext():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Gymnasium warns of the same problem as the error
                reference = make_reference(env, **({} if mode is None else {"render_mode": mode}))
        except (EnvError, TypeError):  # its adapter was made from the same environment, so this is about `render_mode`
            raise NotRenderedError(f"{env.id} has no render_mode {mode}.") from None
        declared = reference.metadata.get("render_modes")
        if mode is not None and (reference.render_mode != mode or (declared and mode not in declared)):
            reference.close()
            raise NotRenderedError(f"{env.id} has no render_mode {mode}.")
        try:
            yield reference
        except (ImportError, gym.error.DependencyNotInstalled) as error:
            raise NotRenderedError(f"{env.id} needs a package to render ({error}).") from error
        finally:
            reference.close()


def metadata(env: EnvParams) -> dict[str, Any]:
    """Return the environment's metadata: render_modes, render_fps and more."""
    reference = make_reference(env)
    try:
        return reference.metadata
    finally:
        reference.close()


def view(reference: gym.Env[Any, Any]) -> Picture | str:
    """Render: a picture, or text in the mode ansi; empty text where no mode was asked for.

    Raises:
        NotRenderedError: rendering fails, or returns neither.
    """
    if reference.render_mode is None:
        return ""
    env_id = reference.spec.id if reference.spec else "the environment"
    try:
        rendered: Any = reference.render()
    except (ImportError, gym.error.DependencyNotInstalled):
        raise
    except NOT_OURS as error:
        raise NotRenderedError(f"the render of {env_id} raised {in_a_line(error)}.") from error
    if reference.render_mode == "ansi":
        if isinstance(rendered, str):
            return rendered
    elif isinstance(rendered, np.ndarray):
        whole = rendered.dtype.kind in "iu" and rendered.size > 0
        if whole and rendered.ndim == 3 and rendered.shape[2] in (3, 4):
            return rendered[..., :3].astype(np.uint8)
        raise NotRenderedError(
            f"{env_id} renders an array of shape {rendered.shape} and type {rendered.dtype}, but a picture has the "
            "shape (height, width, 3) and the type uint8."
        )
    raise NotRenderedError(f"{env_id} renders no {reference.render_mode}.")


def scaled(picture: Picture, side: int = SIDE) -> Picture:
    """Scale a picture so that it fits a square."""
    image = Image.fromarray(picture)
    factor = side / max(image.size)
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    return np.asarray(image.resize(size, Image.Resampling.LANCZOS if factor < 1 else Image.Resampling.NEAREST))


@contextmanager
def _headless() -> Iterator[None]:
    """Let pygame draw without a display, for a while."""
    settings = {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
    previous = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

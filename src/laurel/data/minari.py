"""Export to Minari, the data-set format of the Farama Foundation, maker of Gymnasium (https://minari.farama.org).

The data are unchanged, except that an episode that was cut off by the end of collection is marked truncated.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from laurel.arrays import Array
from laurel.data.manifest import checked_manifest
from laurel.data.trajectories import STAGE, Position, read_trajectories
from laurel.envs import adapter_for, make_reference
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.spaces import texts_of
from laurel.errors import DataError
from laurel.extras import need

if TYPE_CHECKING:
    from minari.data_collector import EpisodeBuffer

ROOT = "MINARI_DATASETS_PATH"


def export(trajectories: Path, dataset_id: str, output: Path) -> dict[str, int]:
    """Write trajectories as a Minari data set.

    Observations are unpacked into the environment's space if possible; otherwise the packed rows are stored. An
    environment registered by a class rather than by its name cannot be recovered from the data set; its spaces can.

    Args:
        dataset_id: Minari's name for it, e.g. "minigrid/doorkey-8x8/random-v0".
        output: directory of data sets; `MINARI_DATASETS_PATH` names it when the set is loaded.

    Returns:
        Episodes and steps written.

    Raises:
        MissingPackageError: Minari is not installed.
        DataError: the name is not allowed or taken, or the trajectories cannot be read.
    """
    for package in ("minari", "h5py"):
        need(package)
    import minari
    from minari.dataset.minari_dataset import parse_dataset_id

    try:
        parse_dataset_id(dataset_id)
    except (ValueError, TypeError):  # the latter if the version is missing
        raise DataError(
            f'"{dataset_id}" is not a name of a Minari data set: write NAME-vN or NAMESPACE/NAME-vN with letters, '
            'digits, - and _, the namespace no shorter than two, as in "doorkey/random-v0".'
        ) from None
    place = output / dataset_id
    if place.exists():
        raise DataError(f"{place}: exists already. Choose another name or version, or delete it.")

    from laurel.params import EnvParams
    from laurel.progress import progress

    manifest = checked_manifest(trajectories, STAGE)
    env = EnvParams.model_validate(manifest["params"]["env"])
    adapter = adapter_for(env)
    reference = make_reference(env)
    space = _observation_space(adapter)
    counts = {"episodes": 0, "steps": 0}
    try:
        with _datasets_in(output), progress(manifest["counts"]["transitions"], "export", "steps") as advance:
            dataset = None
            for transitions, position in read_trajectories(trajectories):
                episodes = list(_episodes(transitions, position, space, adapter))
                if dataset is None:
                    dataset = minari.create_dataset_from_buffers(
                        dataset_id,
                        episodes,
                        env=reference if _has_portable_spec(reference) else None,
                        observation_space=space,
                        action_space=reference.action_space,
                        algorithm_name="laurel collect",
                        description=f"{adapter.env_id}: {adapter.description}",
                        data_format="hdf5",  # other formats take time quadratic in the number of episodes
                        jpeg_encoding=False,  # lossy compression would blur symbolic images
                    )
                else:
                    dataset.storage.update_episodes(episodes)
                counts["episodes"] += len(episodes)
                counts["steps"] += len(transitions)
                advance(len(transitions))
    except BaseException as error:  # also Ctrl-C: a partial data set must not look complete
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, OSError):
            raise DataError(f"{place}: cannot be written ({error.strerror or error}).") from error
        raise
    finally:
        reference.close()
    return counts


def _observation_space(adapter: EnvAdapter) -> gym.Space[Any]:
    """Return the environment's space, or a box of rows where these hold something else: the adapter packs observations
    differently, or leaves out texts.
    """
    whole = type(adapter).pack_one is EnvAdapter.pack_one and not texts_of(adapter.packed.space)
    return adapter.packed.space if whole else adapter.row_space


def _has_portable_spec(env: gym.Env[Any, Any]) -> bool:
    """Whether Minari can store the environment's spec; an entry point that is a class has no text form."""
    try:
        return env.spec is not None and bool(env.spec.to_json())
    except (TypeError, ValueError):
        return False


def _episodes(
    transitions: Transitions, position: Position, space: gym.Space[Any], adapter: EnvAdapter
) -> Iterator[EpisodeBuffer]:
    from minari.data_collector import EpisodeBuffer

    starts = np.flatnonzero(position.t == 0)
    for start, stop in zip(starts, [*starts[1:], len(transitions)], strict=True):
        part = transitions[start:stop]
        rows = np.concatenate([part.observation, part.next_observation[-1:]])
        truncated = part.truncated.copy()
        truncated[-1] |= not part.terminated[-1]
        yield EpisodeBuffer(
            observations=_batch([adapter.packed.unpack(row) for row in rows])
            if space is adapter.packed.space
            else rows,
            actions=part.action,
            rewards=part.reward,
            terminations=part.terminated,
            truncations=truncated,
            infos=_infos(part) or None,
        )


def _infos(part: Transitions) -> dict[str, Array]:
    """Return (K + 1,) values of each kept field of `info` for K steps: starting with 0, as those of a reset are not
    stored.
    """
    return {name: np.concatenate([np.zeros(1, values.dtype), values]) for name, values in part.info.items()}


def _batch(observations: list[Any]) -> Any:
    """Turn a list of observations into one observation of arrays, as Minari stores them."""
    match observations[0]:
        case dict():
            return {key: _batch([observation[key] for observation in observations]) for key in observations[0]}
        case tuple():
            return tuple(_batch(list(parts)) for parts in zip(*observations, strict=True))
        case _:
            return np.array(observations)


@contextmanager
def _datasets_in(output: Path) -> Iterator[None]:
    """Make Minari use only this directory for data sets."""
    before = os.environ.get(ROOT)
    os.environ[ROOT] = str(output)
    try:
        yield
    finally:
        if before is None:
            del os.environ[ROOT]
        else:
            os.environ[ROOT] = before

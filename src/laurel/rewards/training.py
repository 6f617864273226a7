"""From preferences to a reward model, with its quality on held-out pairs.

Gathers items and comparisons from the stages' files, cross-validates by caption, fits on everything and normalises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from laurel.arrays import DoubleArray, FloatArray, IntArray
from laurel.data.captions import Segments, read_captions, read_segments, read_vocabulary
from laurel.data.preferences import read_pairs, read_preferences
from laurel.data.trajectories import read_trajectories
from laurel.device import torch_device
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError
from laurel.params.rewards import PreferenceParams
from laurel.progress import progress
from laurel.rewards.bradley_terry import Comparisons, cross_validate, fit, fit_to_labels
from laurel.rewards.functions import transition_features
from laurel.rewards.model import RewardModel, raw_rewards
from laurel.rewards.normalizer import Floats, Normalizer, rounded
from laurel.rewards.quality import quality
from laurel.seeding import derive_seed, generator

REDRAWS = 4
"""With `input: observation`, each pair is compared on this many draws of example observations."""


@dataclass(frozen=True)
class _Items:
    """Inputs of the ensemble, and the caption of each row."""

    features: FloatArray
    """(M, F)."""
    caption: IntArray
    """(M,)."""


def usable_comparisons(captions: Path, preferences: Path) -> tuple[Segments, Comparisons]:
    """Read the pairs that have a label (ok or tie), as comparisons of segments of captions."""
    segments = read_segments(captions)
    pairs, labels = read_pairs(preferences), read_preferences(preferences)
    usable = np.flatnonzero(labels.usable)
    group = np.arange(len(segments), dtype=np.int64)
    first, second = pairs.first[usable], pairs.second[usable]
    return segments, Comparisons(segments.members, group, first, second, labels.p_first[usable])


def train_reward_model(
    run_seed: int,
    settings: PreferenceParams,
    adapter: EnvAdapter,
    trajectories: Path,
    captions: Path,
    preferences: Path,
) -> tuple[RewardModel, dict[str, Any]]:
    """Train on the labelled pairs; return the model and the figures that say how good it is.

    The figures are those of `laurel.rewards.quality.quality`, and of `laurel.rewards.bradley_terry.Fit`, whose `epochs`
    are `trained_epochs`.

    Raises:
        DataError: an input is missing or damaged, or leaves nothing to train on.
    """
    from laurel.llm.encoder import load_encoder

    seed = derive_seed(run_seed, "train-reward")
    device = torch_device(settings.device, "rewards of kind preference: device")
    vocabulary = read_vocabulary(captions)
    segments, comparisons = usable_comparisons(captions, preferences)
    environment = _mean_environment_reward(trajectories, captions, len(vocabulary))
    if settings.input == "caption":
        embeddings = load_encoder(settings.encoder, device).encode(list(vocabulary.texts))
        items = _Items(embeddings, np.arange(len(vocabulary), dtype=np.int64))
        compared = comparisons
    else:
        embeddings = np.zeros((len(vocabulary), 0), dtype=np.float32)
        items = _observed_items(run_seed, settings, adapter, trajectories, captions, len(vocabulary))
        compared = _on_observations(comparisons, items, generator(seed, "draws"))
    if len(compared) == 0:
        raise DataError(
            f"{preferences}: no pair has a label and steps to learn it from. Judge more pairs (annotate.n_pairs; run "
            "laurel annotate again where the arms asked for none), "
            'collect more steps (collect.steps), or set the reward\'s input to "caption".'
        )
    # in double precision on CPUs, so that the same labels give the same rewards on all of them; GPUs are slow at it
    features = items.features.astype(np.float64) if device.type == "cpu" else items.features
    folds, fitting = derive_seed(seed, "folds"), derive_seed(seed, "fit")
    with progress(settings.max_epochs, "train-reward: held out", "epochs at most") as advance:
        held_out = cross_validate(features, compared, settings, folds, device, advance)
    epochs = max(held_out.epochs, 1)
    with progress(epochs, "train-reward", "epochs") as advance:
        fitted = fit_to_labels(features, compared, settings, epochs, fitting, device, advance)
    raw = raw_rewards(fitted.ensemble, features)
    rewarded = np.unique(items.caption)  # of observations, a caption that was never met has no reward
    model = RewardModel.of(
        fitted.ensemble,
        _caption_means(raw, np.searchsorted(rewarded, items.caption)),
        [vocabulary.texts[i] for i in rewarded.tolist()],
        input=settings.input,
        encoder=settings.encoder,
        epochs=fitted.epochs,
        counts=vocabulary.counts[rewarded],
        embeddings=embeddings[rewarded],
    )
    follows = {
        "trained_epochs": fitted.epochs,
        "judged_share": rounded(fitted.judged_share),
        "clear_pairs": fitted.clear_pairs,
        "clear_pairs_followed": fitted.clear_pairs_followed,
    }
    return model, quality(held_out, compared, segments, environment) | follows


def shuffled_model(model: RewardModel, comparisons: Comparisons, settings: PreferenceParams, seed: int) -> RewardModel:
    """Train a reward model of the same form on the same answers given to the wrong pairs, drawn by a seed."""
    order = generator(seed, "shuffled_labels").permutation(len(comparisons))
    shuffled = Comparisons(
        comparisons.members, comparisons.group, comparisons.first, comparisons.second, comparisons.p_first[order]
    )
    features = model.embeddings.astype(np.float64)
    ensemble = fit(features, shuffled, settings, model.epochs, derive_seed(seed, "shuffled_labels"))
    raw = raw_rewards(ensemble, features).mean(axis=0)
    normalizer = Normalizer.of(raw)
    return replace(
        model,
        ensemble=ensemble,
        normalizer=normalizer,
        rewards=normalizer(raw),
        spreads=np.zeros(len(raw), dtype=np.float32),
        embeddings=np.zeros((len(raw), 0), dtype=np.float32),  # the original has them; nothing is learned from these
    )


def _observed_items(
    run_seed: int, settings: PreferenceParams, adapter: EnvAdapter, trajectories: Path, captions: Path, size: int
) -> _Items:
    """Keep up to `observations_per_caption` example transitions of each of `size` captions, drawn uniformly."""
    limit = settings.observations_per_caption
    rng = generator(run_seed, "train-reward", "observations")
    seen = np.zeros(size, dtype=np.int64)
    places, features = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 0), dtype=np.float32)]
    for (transitions, _), ids in zip(read_trajectories(trajectories), read_captions(captions), strict=True):
        rows = np.argsort(ids, kind="stable")[np.count_nonzero(ids < 0) :]  # by caption, in order
        caption = ids[rows]
        nth = np.arange(len(rows)) - np.searchsorted(caption, caption)
        mask = nth < 4 * limit  # a shard's first rows suffice, and are as good as any
        rows, caption, nth = rows[mask], caption[mask], nth[mask] + seen[caption[mask]]
        place = nth.copy()
        overflow = np.flatnonzero(nth >= limit)
        place[overflow] = [rng.integers(n + 1) for n in nth[overflow].tolist()]
        seen += np.bincount(caption, minlength=size)
        kept = place < limit
        places.append(caption[kept] * limit + place[kept])
        features.append(transition_features(adapter, transitions[rows[kept]]))
    all_places = np.concatenate(places)[::-1]
    taken, last = np.unique(all_places, return_index=True)  # the last row drawn for a place keeps it
    if not len(taken):
        return _Items(features[0], taken)
    return _Items(np.concatenate(features[1:])[len(all_places) - 1 - last], taken // limit)


def _on_observations(comparisons: Comparisons, items: _Items, rng: np.random.Generator) -> Comparisons:
    """Replace captions by randomly drawn examples; pairs with a caption that was never met are left out."""
    start = np.searchsorted(items.caption, np.arange(len(comparisons.members)))
    size = np.searchsorted(items.caption, np.arange(len(comparisons.members)), side="right") - start
    pairs = np.flatnonzero((size[comparisons.first] > 0) & (size[comparisons.second] > 0)).repeat(REDRAWS)

    def draw(segment: IntArray) -> IntArray:
        return start[segment] + (rng.random(len(segment)) * size[segment]).astype(np.int64)

    members = np.arange(len(items.caption), dtype=np.int64)[:, None]
    first, second = draw(comparisons.first[pairs]), draw(comparisons.second[pairs])
    return Comparisons(members, items.caption, first, second, comparisons.p_first[pairs])


def _caption_means(raw: Floats, caption: IntArray) -> DoubleArray:
    """Average rewards of items (K, M) into rewards of captions (K, V); each caption has an item."""
    sums = np.stack([np.bincount(caption, weights=member) for member in raw])
    return (sums / np.bincount(caption)).astype(np.float64)


def _mean_environment_reward(trajectories: Path, captions: Path, size: int) -> DoubleArray:
    """Return the environment's mean reward at each caption (V,), NaN where collection never met it."""
    total, count = np.zeros(size), np.zeros(size)
    for (transitions, _), ids in zip(read_trajectories(trajectories), read_captions(captions), strict=True):
        named = ids >= 0
        total += np.bincount(ids[named], weights=transitions.reward[named], minlength=size)
        count += np.bincount(ids[named], minlength=size)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)

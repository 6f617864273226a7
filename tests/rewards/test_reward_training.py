"""From preferences to a reward model, end to end on a small collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from laurel.data.captions import read_captions, read_vocabulary
from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from laurel.data.preferences import read_pairs, read_preferences, set_of
from laurel.data.trajectories import read_trajectories
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError
from laurel.feedback.annotator import Judgement
from laurel.params import Params, parse_params
from laurel.params.rewards import PreferenceParams
from laurel.rewards import training
from laurel.rewards.bradley_terry import Comparisons
from laurel.rewards.functions import transition_features
from laurel.rewards.method import QUALITY
from laurel.rewards.methods.preference import Preference
from laurel.rewards.model import RewardModel, raw_rewards
from laurel.rewards.training import train_reward_model, usable_comparisons
from laurel.stages import annotate, train_reward
from laurel.stages.pipeline import STAGE

torch.set_num_threads(1)
FIRST, SECOND, BEST = "You turn.", "You move forward.", "You reach the goal."


def make_params(**sections: Any) -> Params:
    content: dict[str, Any] = {
        "env": {"id": "MiniGrid-Empty-5x5-v0"},
        "collect": {"steps": 3000, "n_envs": 8, "shard_steps": 1000},
        "annotate": {"n_pairs": 200},
        "arms": ["preference"],
        "rewards": {"preference": {"ensemble": 3, "hidden": [16], "max_epochs": 40, "patience": 10}},
        "agent": {"seeds": [0], "steps": 1},
        "tracking": {"enabled": False},
    }
    for name, section in sections.items():
        content[name] = {**content.get(name, {}), **section}
    return parse_params(content, "test")


class Places:
    """A collection with captions and preferences."""

    def __init__(self, root: Path, trajectories: Path | None = None, **sections: Any) -> None:
        self.params = make_params(**sections)
        self.adapter: EnvAdapter = adapter_for(self.params.env)
        self.trajectories = trajectories or root / "trajectories"
        self.captions, self.preferences = root / "captions", root / "preferences"
        if trajectories is None:
            STAGE["collect"].run(self.params, output=self.trajectories)
        STAGE["caption"].run(self.params, trajectories=self.trajectories, output=self.captions)
        annotate.run(**STAGE["annotate"].given(self.params), captions=self.captions, output=self.preferences)

    def train(self, **reward: Any) -> tuple[RewardModel, dict[str, Any]]:
        settings = self.params.rewards["preference"].model_copy(update=reward)
        assert isinstance(settings, PreferenceParams)
        return train_reward_model(
            self.params.seed,
            settings,
            self.adapter,
            self.trajectories,
            self.captions,
            self.preferences,
        )


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Every step's caption judged by itself, by the hand-written progress."""
    root = tmp_path_factory.mktemp("steps")
    return Places(root, annotate={"annotator": "scripted", "n_pairs": 200})


@pytest.fixture(scope="module")
def of_captions(steps: Places) -> tuple[RewardModel, dict[str, Any]]:
    return steps.train()


@pytest.fixture(scope="module")
def of_observations(steps: Places) -> tuple[RewardModel, dict[str, Any]]:
    return steps.train(input="observation", observations_per_caption=16)


# -- captions ---------------------------------------------------------------------------------------------------
def test_the_planted_best_caption_is_rewarded_most(steps: Places, of_captions: Any) -> None:
    model, quality = of_captions
    vocabulary = read_vocabulary(steps.captions)
    assert list(model.texts) == list(vocabulary.texts)
    assert model.counts.tolist() == vocabulary.counts.tolist()
    progress = [steps.adapter.oracle(text) for text in model.texts]
    best = {text for text, value in zip(model.texts, progress, strict=True) if value == max(progress)}
    top = sorted(zip(model.rewards.tolist(), model.texts, strict=True))[-len(best) :]
    assert {text for _, text in top} == best
    assert model.input == "caption"
    assert quality["pairs"] == len(read_pairs(steps.preferences))
    assert quality["heldout_agreement"] is not None


def test_a_model_of_captions_is_normalised_and_whole(of_captions: Any) -> None:
    model, _ = of_captions
    assert model.rewards.mean() == pytest.approx(0, abs=1e-5)
    assert model.rewards.std() == pytest.approx(1, abs=1e-4)
    raw = raw_rewards(model.ensemble, model.embeddings)
    np.testing.assert_allclose(model.score(model.embeddings), model.rewards, atol=1e-5)
    apart = raw - raw.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(model.spreads, apart.std(axis=0) / model.normalizer.sd, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(model.embeddings, axis=1), 1, atol=1e-5)
    assert model.epochs >= 1


def test_the_same_inputs_give_the_same_model(steps: Places, of_captions: Any) -> None:
    model, quality = of_captions
    again, quality_again = steps.train()
    assert np.array_equal(model.rewards, again.rewards)
    assert quality == quality_again


# -- observations -----------------------------------------------------------------------------------------------
def test_a_model_of_observations_rewards_what_was_called_better(steps: Places, of_observations: Any) -> None:
    model, quality = of_observations
    assert model.input == "observation"
    assert model.embeddings.shape == (len(model.texts), 0)
    assert model.rewards[model.texts.index(BEST)] == max(model.rewards)
    by_caption: dict[str, list[float]] = {}
    vocabulary = read_vocabulary(steps.captions).texts
    for (transitions, _), ids in zip(read_trajectories(steps.trajectories), read_captions(steps.captions), strict=True):
        scores = model.score(transition_features(steps.adapter, transitions))
        for number, score in zip(ids, scores, strict=True):
            if number >= 0:
                by_caption.setdefault(vocabulary[number], []).append(float(score))
    assert np.mean(by_caption[BEST]) > max(np.mean(by_caption[FIRST]), np.mean(by_caption[SECOND])) + 1
    pairs = read_pairs(steps.preferences)
    met = read_vocabulary(steps.captions).counts > 0
    assert quality["pairs"] == int((met[pairs.first] & met[pairs.second]).sum())


def test_quality_of_observations_is_about_captions(steps: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held out by caption: no member judges an example of a caption that it was trained on."""
    seen: dict[str, Any] = {}
    original, original_quality = training.cross_validate, training.quality

    def spy(features: Any, comparisons: Comparisons, params: Any, *rest: Any) -> Any:
        seen.update(features=features, comparisons=comparisons)
        return original(features, comparisons, params, *rest)

    def spy_quality(held_out: Any, *arguments: Any) -> Any:
        seen.update(held_out=held_out, arguments=arguments)
        return original_quality(held_out, *arguments)

    monkeypatch.setattr(training, "cross_validate", spy)
    monkeypatch.setattr(training, "quality", spy_quality)
    _, quality = steps.train(input="observation", observations_per_caption=5)
    compared, held_out = seen["comparisons"], seen["held_out"]
    _, comparisons = usable_comparisons(steps.captions, steps.preferences)
    per_caption = Counter(compared.group.tolist())
    assert max(per_caption.values()) == 5, "examples of a caption at most"
    fold_of = {int(c): set(held_out.fold[compared.group == c].tolist()) for c in per_caption}
    assert all(len(folds) == 1 for folds in fold_of.values()), "all examples of a caption are in one fold"

    # every usable pair of captions that were met is there, drawn four times, with its own label
    labels = {
        (a, b): p for a, b, p in zip(comparisons.first, comparisons.second, comparisons.p_first, strict=True)
        if a in per_caption and b in per_caption
    }  # fmt: skip
    drawn = list(zip(compared.group[compared.first], compared.group[compared.second], compared.p_first, strict=True))
    assert Counter((a, b) for a, b, _ in drawn) == dict.fromkeys(labels, 4)
    assert all(labels[a, b] == p for a, b, p in drawn)
    examples = {int(i) for i in np.concatenate([compared.first, compared.second])}
    assert len(examples) > len(per_caption), "not always the same example"

    # an environment that pays at the goal alone: guesses by its reward are right about pairs with the goal
    goal = read_vocabulary(steps.captions).texts.index(BEST)
    target = compared.p_first[held_out.pair]
    decided = target != 0.5
    with_goal = (compared.group[compared.first] == goal) | (compared.group[compared.second] == goal)
    right_by_goal = with_goal[held_out.pair][decided]
    assert quality["baselines"]["environment_reward"] == pytest.approx((1 + right_by_goal.mean()) / 2, abs=0.02)


def test_examples_are_of_their_caption_and_drawn_from_everywhere(steps: Places) -> None:
    settings = PreferenceParams(kind="preference", input="observation", observations_per_caption=40)
    size = len(read_vocabulary(steps.captions))
    items = training._observed_items(steps.params, settings, steps.adapter, steps.trajectories, steps.captions, size)
    assert (np.diff(items.caption) >= 0).all()
    counts = read_vocabulary(steps.captions).counts
    expected = {i: min(40, int(n)) for i, n in enumerate(counts) if n}
    assert Counter(items.caption.tolist()) == expected
    possible: dict[int, set[bytes]] = {}
    first_shard: set[bytes] = set()
    shards = zip(read_trajectories(steps.trajectories), read_captions(steps.captions), strict=True)
    for number, ((transitions, _), ids) in enumerate(shards):
        for caption_id, row in zip(ids, transition_features(steps.adapter, transitions), strict=True):
            possible.setdefault(int(caption_id), set()).add(row.tobytes())
            if number == 0:
                first_shard.add(row.tobytes())
    rows = [(int(c), row.tobytes()) for c, row in zip(items.caption, items.features, strict=True)]
    assert all(row in possible[c] for c, row in rows)
    assert any(row not in first_shard for _, row in rows), "later shards have their chance"


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """DoorKey lists what a random walk of a few steps never meets."""
    return Places(
        tmp_path_factory.mktemp("listed"),
        env={"id": "MiniGrid-DoorKey-5x5-v0"},
        collect={"steps": 1000},
        annotate={"annotator": "scripted", "n_pairs": 300},
    )


def test_a_captions_reward_is_the_mean_over_its_examples(listed: Places) -> None:
    """Captions without an example have no reward, and so no part in the scale and the threshold."""
    model, quality = listed.train(input="observation", observations_per_caption=4)
    vocabulary = read_vocabulary(listed.captions)
    met = np.flatnonzero(vocabulary.counts)
    assert list(model.texts) == [vocabulary.texts[i] for i in met.tolist()]
    assert len(met) < len(vocabulary)
    assert quality["pairs"] < len(read_pairs(listed.preferences)), "the others are not in any pair"
    settings = PreferenceParams(kind="preference", input="observation", observations_per_caption=4)
    items = training._observed_items(
        listed.params.seed, settings, listed.adapter, listed.trajectories, listed.captions, len(vocabulary)
    )
    raw = raw_rewards(model.ensemble, items.features)
    means = np.stack([raw[:, items.caption == caption_id].mean(axis=1) for caption_id in met], axis=1)
    rewards = ((whole := means.mean(axis=0)) - whole.mean()) / whole.std()
    assert model.rewards == pytest.approx(rewards, abs=1e-4)
    assert model.normalizer.threshold(0.7) == pytest.approx(np.quantile(rewards, 0.7), abs=1e-4)
    apart = means - means.mean(axis=1, keepdims=True)
    assert model.spreads == pytest.approx(apart.std(axis=0) / whole.std(), abs=1e-4)


# -- segments ---------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def segments(steps: Places, tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(tmp_path_factory.mktemp("segments"), steps.trajectories, caption={"segment_length": 3})


def test_segments_of_captions(segments: Places) -> None:
    model, quality = segments.train()
    table, comparisons = usable_comparisons(segments.captions, segments.preferences)
    assert table.members.shape[1] == 3
    assert comparisons.members is table.members
    assert comparisons.group.tolist() == list(range(len(table)))
    assert list(model.texts) == list(read_vocabulary(segments.captions).texts), "captions are rewarded, not segments"
    assert quality["pairs"] == len(comparisons)
    worth = np.array([model.rewards[row[row >= 0]].mean() for row in table.members])
    difference = worth[comparisons.first] - worth[comparisons.second]
    assert spearmanr(difference, comparisons.p_first).statistic > 0.7, "the model reproduces what it was told"


# -- what there is to learn from --------------------------------------------------------------------------------
class _SomeSilent:
    """Abstains on every second question, prefers the first of the others."""

    name, simulated = "silent", True
    usage: ClassVar[dict[str, int]] = {}

    def prepare(self, questions: Any) -> None:
        """Nothing to get ready."""

    def annotate(self, questions: Any) -> Any:
        for i, _ in enumerate(questions):
            yield Judgement("abstain", None) if i % 2 else Judgement("ok", 1.0)


def test_pairs_without_a_label_are_left_out(steps: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.stages.pair_labelling.make_annotator", lambda *_, **__: _SomeSilent())
    annotate.run(**STAGE["annotate"].given(steps.params), captions=steps.captions, output=tmp_path / "preferences")
    pairs, labels = read_pairs(tmp_path / "preferences"), read_preferences(tmp_path / "preferences")
    _, comparisons = usable_comparisons(steps.captions, tmp_path / "preferences")
    assert 0 < len(comparisons) < len(pairs)
    assert comparisons.first.tolist() == pairs.first[labels.usable].tolist()
    assert comparisons.second.tolist() == pairs.second[labels.usable].tolist()
    assert (comparisons.p_first == 1).all()


class _Backwards(_SomeSilent):
    """Prefers what comes last in the alphabet."""

    def annotate(self, questions: Any) -> Any:
        for question in questions:
            yield Judgement("ok", float(question.first > question.second))


def test_a_reward_is_trained_on_until_it_follows_its_labels(
    steps: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laurel.stages.pair_labelling.make_annotator", lambda *_, **__: _Backwards())
    labels = Places(tmp_path, steps.trajectories, annotate={"n_pairs": 200})
    original = training.cross_validate
    monkeypatch.setattr(training, "cross_validate", lambda *given: replace(original(*given), epochs=1))
    model, quality = labels.train(max_epochs=200, patience=50)
    assert quality["clear_pairs_followed"] == quality["clear_pairs"] == quality["pairs"]
    assert [model.texts[i] for i in np.argsort(-model.rewards)] == sorted(model.texts, reverse=True)
    assert model.epochs == quality["trained_epochs"] > quality["heldout_epochs"] == 1
    assert labels.train(max_epochs=1)[1]["clear_pairs_followed"] < quality["clear_pairs"]


def test_a_reward_that_contradicts_its_labels_says_so(steps: Places, tmp_path: Path) -> None:
    params = {"annotator": "scripted", "n_pairs": 200, "scripted": {"error_rate": 0.4}, "feedback_seeds": 3}
    labels = Places(tmp_path, steps.trajectories, annotate=params)
    given = {name: getattr(labels, name) for name in ("trajectories", "captions", "preferences")}
    train_reward.run(**STAGE["train-reward"].given(labels.params), **given, output=tmp_path / "reward")
    expected = []
    for number in range(3):
        quality = read_json(set_of(tmp_path / "reward" / "preference", number) / QUALITY)
        contradicted, clear = quality["clear_pairs"] - quality["clear_pairs_followed"], quality["clear_pairs"]
        if contradicted:
            expected.append(f"contradicts {contradicted} of the {clear} clear labels of label set {number} that")
    notes = [note for note in read_manifest(tmp_path / "reward")["notes"] if "contradicts" in note]
    assert len(notes) == len(expected) > 0
    assert all(text in note for text, note in zip(expected, notes, strict=True))


@pytest.mark.parametrize(
    ("figures", "noted"),
    [
        ({"judged_share": 0.5, "clear_pairs": 1000, "clear_pairs_followed": 990}, False),  # 1% may be errors
        ({"judged_share": 0.5, "clear_pairs": 1000, "clear_pairs_followed": 989}, True),
        ({"judged_share": 0.4, "clear_pairs": 1000, "clear_pairs_followed": 700}, False),  # it carries over to others
        ({"judged_share": 1.0, "clear_pairs": 0, "clear_pairs_followed": 0}, False),
    ],
)
def test_when_contradictions_are_noted(figures: dict[str, Any], noted: bool) -> None:
    assert bool([*Preference(PreferenceParams()).notes("preference", [figures])]) == noted


def test_nothing_to_learn_from(steps: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    segments, comparisons = usable_comparisons(steps.captions, steps.preferences)
    nothing = comparisons[np.zeros(0, np.int64)]
    monkeypatch.setattr(training, "usable_comparisons", lambda *_, **__: (segments, nothing))
    for kind in ("caption", "observation"):
        with pytest.raises(DataError, match="no pair has a label and steps to learn it from"):
            steps.train(input=kind)


def test_no_step_was_captioned(steps: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs are of captions that were listed, so there is no observation to learn from."""
    silent = [np.full(len(ids), -1) for ids in read_captions(steps.captions)]
    monkeypatch.setattr(training, "read_captions", lambda _: iter(silent))
    with pytest.raises(DataError, match="no pair has a label and steps to learn it from"):
        steps.train(input="observation")


@pytest.mark.parametrize("collection", ["steps", "listed"])
def test_mean_environment_reward_by_hand(
    collection: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: Places = request.getfixturevalue(collection)
    vocabulary = read_vocabulary(places.captions)
    ids_of_shards = [np.where(np.arange(len(ids)) % 3 == 0, -1, ids) for ids in read_captions(places.captions)]
    monkeypatch.setattr(training, "read_captions", lambda _: iter(ids_of_shards))
    means = training._mean_environment_reward(places.trajectories, places.captions, len(vocabulary))
    rewards: dict[int, list[float]] = {}
    for (transitions, _), ids in zip(read_trajectories(places.trajectories), ids_of_shards, strict=True):
        for number, reward in zip(ids.tolist(), transitions.reward.tolist(), strict=True):
            rewards.setdefault(number, []).append(reward)
    for number in range(len(vocabulary)):
        if number in rewards:
            assert means[number] == pytest.approx(np.mean(rewards[number]))
        else:
            assert np.isnan(means[number]), "which is not a reward of 0"


# -- the stage --------------------------------------------------------------------------------------------------
def test_the_stage_writes_the_artefact_and_its_quality(steps: Places, of_captions: Any, tmp_path: Path) -> None:
    train_reward.run(
        **STAGE["train-reward"].given(steps.params),
        trajectories=steps.trajectories,
        captions=steps.captions,
        preferences=steps.preferences,
        output=tmp_path / "reward",
    )
    model, quality = of_captions
    loaded = RewardModel.load(tmp_path / "reward" / "preference")
    assert np.array_equal(loaded.rewards, model.rewards)
    assert read_json(tmp_path / "reward" / "preference" / "quality.json") == quality
    counts = read_json(tmp_path / "reward" / "manifest.json")["counts"]
    assert counts == {"rewards": 1, "pairs": quality["pairs"]}

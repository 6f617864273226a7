from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from single_steps import nowhere, pay, pay_captions

from laurel.arrays import FloatArray
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter, Transitions
from laurel.errors import DataError, ParamsError
from laurel.params import EnvParams, parse_params
from laurel.params.judges import EmbeddingParams
from laurel.params.rewards import PreferenceParams, RewardParams
from laurel.rewards import training
from laurel.rewards.base import UNPAID, Reward, Steps
from laurel.rewards.bradley_terry import Comparisons, Ensemble
from laurel.rewards.functions import CaptionReward, ScoredCaptions, WeightedSum, learned
from laurel.rewards.method import RewardContext
from laurel.rewards.methods import similarity
from laurel.rewards.methods.oracle import Oracle
from laurel.rewards.methods.random_reward import drawn
from laurel.rewards.methods.shuffled_labels import ShuffledLabels, ShuffledParams
from laurel.rewards.model import RewardModel, raw_rewards
from laurel.rewards.normalizer import Normalizer
from minimal_params import MINIMAL

torch.set_num_threads(1)
TEXTS = tuple(f"Caption {i}." for i in range(9))


@pytest.fixture(scope="module")
def adapter() -> EnvAdapter:
    return adapter_for(EnvParams(id="MiniGrid-Empty-5x5-v0"))


def rewards_of(function: Any, texts: list[str]) -> list[float]:
    """Ask a function about captions, each once, with ids of their own."""
    return pay_captions(function, texts).tolist()


def make_model(*, observation: bool = False, n_features: int = 4) -> RewardModel:
    ensemble = Ensemble(n_features, (6,), size=3, seed=0).eval()
    embeddings = np.resize(FakeEncoder().encode(list(TEXTS)), (len(TEXTS), n_features))
    raw = raw_rewards(ensemble, embeddings).mean(axis=0)
    normalizer = Normalizer.of(raw)
    return RewardModel(
        ensemble, normalizer, "observation" if observation else "caption", "fake", 5, TEXTS,
        normalizer(raw), np.zeros_like(raw), np.ones(len(TEXTS), np.int64), embeddings,
    )  # fmt: skip


def random_reward(texts: tuple[str, ...], quantile: float, seed: int) -> CaptionReward:
    return ScoredCaptions.of(texts, drawn(list(texts), seed)).reward(quantile, lambda new: drawn(new, seed))


def shuffled_labels(
    model: RewardModel, comparisons: Comparisons, params: PreferenceParams, adapter: EnvAdapter, seed: int
) -> Reward:
    return learned(training.shuffled_model(model, comparisons, params, seed), adapter, 0.5)


class FakeEncoder:
    """A vector for each text, and a list of what it was asked for."""

    name = "fake"

    def __init__(self) -> None:
        self.loaded = 0
        self.asked: list[str] = []

    def load(self, name: str) -> FakeEncoder:
        self.loaded += 1
        return self

    def encode(self, texts: list[str]) -> np.ndarray:
        self.asked += texts
        rows = [np.random.default_rng(list(text.encode())).standard_normal(4) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(-1, 4)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> FakeEncoder:
    fake = FakeEncoder()
    monkeypatch.setattr("laurel.rewards.functions.load_encoder", fake.load)
    return fake


# -- CaptionReward ----------------------------------------------------------------------------------------------
def by_length(calls: list[list[str]]) -> Callable[[list[str]], np.ndarray]:
    def score(texts: list[str]) -> np.ndarray:
        calls.append(texts)
        return np.array([len(text) for text in texts], dtype=np.float32)

    return score


def test_rewards_are_looked_up_by_id() -> None:
    function = CaptionReward({"a": 1.5, "b": -2.0}, 0.0, by_length([]))
    rewards = pay(function, nowhere(5), np.array([1, -1, 0, 0, -1]), ["a", "b"])
    assert rewards.dtype == np.float32
    assert rewards.tolist() == [-2.0, -np.inf, 1.5, 1.5, -np.inf]
    assert pay(function, nowhere(2), np.array([-1, -1]), []).tolist() == [-np.inf] * 2


def test_ids_follow_the_texts_and_not_the_tables_order() -> None:
    function = CaptionReward({"a": 1.0, "b": 2.0}, 0.0, by_length([]))
    assert rewards_of(function, ["b", "a"]) == [2.0, 1.0]
    function.begin(1)
    assert rewards_of(function, ["a", "b"]) == [1.0, 2.0], "ids begin anew"


def test_captions_that_are_not_known_are_scored_once_when_they_are_met() -> None:
    calls: list[list[str]] = []
    function = CaptionReward({"a": 0.5}, 0.0, by_length(calls))
    texts = ["a"]
    assert rewards_of(function, texts) == [0.5]
    assert (calls, function.unseen) == ([], 0)
    texts += ["long", "a longer one"]
    ids = np.array([2, 1, 0, -1])
    assert pay(function, nowhere(4), ids, texts).tolist() == [12.0, 4.0, 0.5, -np.inf]
    assert pay(function, nowhere(4), ids, texts).tolist() == [12.0, 4.0, 0.5, -np.inf]
    texts += ["xy"]
    assert pay(function, nowhere(1), np.array([3]), texts).tolist() == [2.0]
    assert calls == [["long", "a longer one"], ["xy"]]
    assert function.unseen == 3

    function.begin(4)  # with other ids
    texts = ["xy", "a", "new"]
    assert pay(function, nowhere(3), np.array([0, 1, 2]), texts).tolist() == [2.0, 0.5, 3.0]
    assert calls[2:] == [["new"]]
    assert function.unseen == 2


def test_a_function_without_a_table_reports_no_unseen_captions() -> None:
    function = CaptionReward({}, 0.0, by_length([]))
    assert rewards_of(function, ["ab", "c"]) == [2.0, 1.0]
    assert function.unseen == 0


# -- what the arms pay ------------------------------------------------------------------------------------------
def test_learned_is_the_table_of_the_model_and_its_score_of_the_rest(encoder: FakeEncoder, adapter: EnvAdapter) -> None:
    model = make_model()
    function = learned(model, adapter, 0.25)
    assert function.threshold == model.normalizer.threshold(0.25)
    assert rewards_of(function, list(TEXTS)) == pytest.approx(model.rewards.tolist())
    assert encoder.asked == [], "no encoder is needed for what is known"
    texts = [*TEXTS, "Something new."]
    expected = model.score(FakeEncoder().encode(["Something new."]))
    assert rewards_of(function, texts)[-1] == pytest.approx(float(expected[0]))
    assert encoder.asked == [TEXTS[0], "Something new."], "a known one shows that the encoder is the same"
    assert function.unseen == 1
    rewards_of(function, [*texts, "Something newer."])
    assert (encoder.asked[-1], encoder.loaded) == ("Something newer.", 1)


def test_on_observations_the_model_reads_what_is_before_and_after(adapter: EnvAdapter) -> None:
    rng = np.random.default_rng(0)
    before, after = rng.integers(0, 3, (2, 6, adapter.observation_size), dtype=np.uint8)
    flags = np.zeros(6, np.bool_)
    transitions = Transitions(before, np.zeros(6, np.int64), np.zeros(6, np.float32), after, flags, flags)
    model = make_model(observation=True, n_features=2 * 147)
    function = learned(model, adapter, 0.5)
    ids = np.array([0, -1, 0, 1, 1, -1])
    rewards = pay(function, transitions, ids, ["a", "b"])
    features = np.concatenate([adapter.features(before), adapter.features(after)], axis=1)
    expected = np.where(ids >= 0, model.score(features), -np.inf)
    np.testing.assert_allclose(rewards, expected, atol=1e-6)
    assert rewards.dtype == np.float32
    assert function.threshold == model.normalizer.threshold(0.5)
    assert len(set(rewards[ids >= 0].tolist())) == 4, "it is not the caption that is rewarded"
    turned = Transitions(after, transitions.action, transitions.reward, before, flags, flags)
    assert not np.allclose(pay(function, turned, ids, ["a", "b"])[ids >= 0], rewards[ids >= 0])


def test_a_random_reward_is_the_captions_own_whenever_and_wherever_it_is_met() -> None:
    known, new = list(TEXTS), ["Never met 1.", "Never met 2."]
    function = random_reward(TEXTS, 0.5, seed=3)
    rewards = dict(zip(known + new, rewards_of(function, known + new), strict=True))
    shuffled = [new[1], *known[::-1], new[0]]
    again = dict(zip(shuffled, rewards_of(random_reward(TEXTS, 0.5, seed=3), shuffled), strict=True))
    assert again == rewards
    assert function.unseen == 2
    assert np.mean([rewards[text] for text in known]) == pytest.approx(0, abs=1e-6)
    assert np.std([rewards[text] for text in known]) == pytest.approx(1, abs=1e-5)
    other = rewards_of(random_reward(TEXTS, 0.5, seed=4), known)
    assert not np.allclose(other, [rewards[text] for text in known], atol=0.1)


def test_a_random_reward_is_the_same_in_another_process() -> None:
    code = "from laurel.rewards.methods.random_reward import drawn; print(drawn(['a', 'b', 'c'], 1).tolist())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert out == str(drawn(["a", "b", "c"], 1).tolist())


def test_random_rewards_of_new_captions_are_in_the_same_units() -> None:
    """Which captions were known only moves and scales all of them together."""
    some, all_of_them = random_reward(TEXTS[:3], 0.5, 0), random_reward(TEXTS, 0.5, 0)
    a, b = (np.array(rewards_of(function, list(TEXTS))) for function in (some, all_of_them))
    assert not np.allclose(a, b, atol=0.1)
    assert np.corrcoef(a, b)[0, 1] == pytest.approx(1, abs=1e-5)


def test_random_rewards_are_normal() -> None:
    rewards = rewards_of(random_reward(("x", "y"), 0.5, 0), [f"text {i}" for i in range(2000)])
    z = (np.array(rewards) - np.mean(rewards)) / np.std(rewards)
    assert [np.mean(z < edge) for edge in (-1, 0, 1)] == pytest.approx([0.159, 0.5, 0.841], abs=0.04)


def compared(n_pairs: int = 400) -> Comparisons:
    """Captions with a smaller number are better."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, len(TEXTS), (2, n_pairs))
    n = np.arange(len(TEXTS))
    return Comparisons(n[:, None], n, first, second, np.where(first == second, 0.5, first < second))


def test_shuffled_labels_are_the_same_answers_given_to_other_pairs(
    monkeypatch: pytest.MonkeyPatch, adapter: EnvAdapter
) -> None:
    trained_on: list[Any] = []
    original = training.fit

    def spy(features: Any, comparisons: Comparisons, params: Any, epochs: int, seed: int) -> Any:
        trained_on.append((features, comparisons, epochs, seed))
        return original(features, comparisons, params, epochs, seed)

    monkeypatch.setattr(training, "fit", spy)
    model, comparisons, params = make_model(), compared(), PreferenceParams(kind="preference", ensemble=3, hidden=(8,))
    for seed in (0, 0, 1):
        shuffled_labels(model, comparisons, params, adapter, seed)
    features, shuffled, epochs, _ = trained_on[0]
    np.testing.assert_array_equal(features, model.embeddings)
    assert epochs == model.epochs, "as long as the model that it is compared with"
    assert np.array_equal(shuffled.first, comparisons.first)
    assert np.array_equal(shuffled.second, comparisons.second)
    assert sorted(shuffled.p_first) == sorted(comparisons.p_first)
    agreement = (shuffled.p_first == comparisons.p_first).mean()
    assert 0.35 < agreement < 0.65
    assert np.array_equal(trained_on[1][1].p_first, shuffled.p_first)
    assert not np.array_equal(trained_on[2][1].p_first, shuffled.p_first)


@pytest.mark.parametrize("other", ["weights", "width"])
def test_another_encoder_than_that_of_the_training_is_refused(
    encoder: FakeEncoder, adapter: EnvAdapter, other: str
) -> None:
    model = make_model()
    wide = np.zeros((len(TEXTS), 5), dtype=np.float32)
    model = replace(model, embeddings=wide if other == "width" else model.embeddings + np.float32(0.1))
    function = learned(model, adapter, 0.5)
    assert rewards_of(function, [TEXTS[1]]) == [model.rewards[1]], "what is known needs no encoder"
    function.begin(1)
    with pytest.raises(
        DataError, match=r'different version of the sentence encoder "fake": here "Caption 0." has another vector\.'
    ):
        rewards_of(function, ["Something new."])


def test_shuffled_labels_pay_by_a_model_of_the_same_form(encoder: FakeEncoder, adapter: EnvAdapter) -> None:
    model = make_model()
    params = PreferenceParams(kind="preference", ensemble=3, hidden=(8,))
    function = shuffled_labels(model, compared(), params, adapter, 0)
    rewards = np.array(rewards_of(function, list(TEXTS)))
    assert rewards.mean() == pytest.approx(0, abs=1e-5)
    assert rewards.std() == pytest.approx(1, abs=1e-4)
    assert (rewards > function.threshold).sum() == len(TEXTS) // 2
    assert abs(np.corrcoef(rewards, model.rewards)[0, 1]) < 0.999, "not the model's own"
    rewards_of(function, [*TEXTS, "New."])
    assert (encoder.asked, function.unseen) == (["New."], 1)


def test_shuffled_labels_are_of_a_reward_learned_from_preferences(adapter: EnvAdapter) -> None:
    params = parse_params({**MINIMAL, "arms": ["shuffled_labels"]}, "params")
    settings = params.rewards["shuffled_labels"]
    assert isinstance(settings, ShuffledParams)
    method, context = ShuffledLabels(settings), RewardContext.of(params)
    assert method.needs() == ("preference",)
    assert method.check(context, adapter) is None
    other = replace(context, rewards={**params.rewards, "preference": RewardParams(kind="oracle")})
    with pytest.raises(ParamsError, match="labels of preference cannot be shuffled, as its kind is oracle"):
        method.check(other, adapter)


def test_a_loaded_scorer_gives_the_same_scores(tmp_path: Path) -> None:
    texts = ("a", "b", "ü")
    made = ScoredCaptions.of(texts, drawn(list(texts), 3))
    made.save(tmp_path, seed=3)
    loaded, config = ScoredCaptions.load(tmp_path)
    assert (loaded, config["seed"]) == (made, 3)


# -- sums -------------------------------------------------------------------------------------------------------
def test_rewards_add_up_by_weight_and_silence_counts_as_the_threshold() -> None:
    some = CaptionReward({"a": 1.0, "b": 3.0}, 0.5, by_length([]))

    class Silent(CaptionReward):
        def pay(self, steps: Steps) -> FloatArray:
            return np.full(steps.captions.shape, UNPAID)

    total = WeightedSum([(some, 2.0), (Silent({}, -1.0, by_length([])), 0.25)])
    assert total.threshold == 2 * 0.5 - 0.25
    paid = pay(total, nowhere(3), np.array([0, 1, -1]), ["a", "b"])
    assert paid.dtype == np.float32
    assert paid.tolist() == [2.0 - 0.25, 6.0 - 0.25, -np.inf]
    both = WeightedSum([(CaptionReward({"a": 1.0}, 0.0, by_length([])), 1.0) for _ in range(2)])
    pay(both, nowhere(2), np.array([0, 1]), ["a", "new"])
    assert both.unseen == 1, "new to both"


def test_similarity_is_the_normalised_utility(
    monkeypatch: pytest.MonkeyPatch, adapter: EnvAdapter, tmp_path: Path
) -> None:
    utility = np.linspace(0.3, -0.2, len(TEXTS)).astype(np.float32)
    asked: list[list[str]] = []
    loaded: list[EmbeddingParams] = []

    class Annotator:
        def utility(self, texts: list[str]) -> np.ndarray:
            asked.append(texts)
            return np.full(len(texts), 0.8, dtype=np.float32)

    def load(params: EmbeddingParams, adapter: EnvAdapter) -> Annotator:
        loaded.append(params)
        return Annotator()

    monkeypatch.setattr(similarity.EmbeddingAnnotator, "load", load)
    ScoredCaptions.of(TEXTS, utility).save(tmp_path, embedding=EmbeddingParams().model_dump(mode="json"))
    function = similarity.Similarity(similarity.SimilarityParams(kind="similarity")).load(tmp_path, adapter, 0.5)
    normalised = (utility - utility.mean()) / utility.std()
    assert rewards_of(function, [*TEXTS, "New."]) == pytest.approx(
        [*normalised, (0.8 - utility.mean()) / utility.std()], abs=1e-4
    )
    assert asked == [["New."]]
    assert function.unseen == 1
    rewards_of(function, [*TEXTS, "New.", "Newer."])
    assert asked == [["New."], ["Newer."]]
    assert len(loaded) == 1, "not at every new caption"
    assert function.threshold == pytest.approx(0, abs=1e-5), "the median of evenly spread ones"


def test_utilities_are_those_of_the_annotator(monkeypatch: pytest.MonkeyPatch, adapter: EnvAdapter) -> None:
    fake = FakeEncoder()
    monkeypatch.setattr("laurel.feedback.annotators.embedding.load_encoder", lambda name, device: fake)
    utility = similarity.utilities(["You turn.", adapter.goal], EmbeddingParams(), adapter)
    turn, goal, anti_goal = FakeEncoder().encode(["You turn.", adapter.goal, adapter.anti_goal])
    np.testing.assert_allclose(utility, [turn @ goal - turn @ anti_goal, goal @ goal - goal @ anti_goal], atol=1e-5)


def test_the_oracle_reward_is_the_unscaled_progress(adapter: EnvAdapter) -> None:
    function = Oracle(RewardParams(kind="oracle")).load(Path(), adapter, 0.5)
    assert rewards_of(function, ["You turn.", "You reach the goal."]) == [0.0, 1.0]
    assert function.threshold == 0.0
    assert function.unseen == 0

"""A causal language model that is trained: answers that are drawn, losses that learn, adapters that are kept."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing

from laurel.llm import trl_tuning
from laurel.llm.causal import load_causal, put_weights, save_causal, texts_of, tokens_of, weights_of, written_prompt
from laurel.llm.local_model import LocalModel
from laurel.llm.lora import with_lora
from laurel.llm.sampling import Grammar, log_probs, sample, without_dropout
from laurel.llm.tiny_model import write_tiny_model
from laurel.llm.trl_tuning import Group, Pair, Tuning, imitate, learn_from_groups, learn_from_pairs

GOOD, BAD = "forward, left", "left, forward"
NAMES = ("prompt_ids", "completion_ids", "KL_completion_ids")
"""Of what TRL's KTO reads."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"You are in row {row}." for row in range(4)] + [GOOD, BAD]
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), texts, width=16, heads=2, vocabulary=320)


@pytest.fixture(scope="module")
def whole(place: Path) -> LocalModel:
    return load_causal(str(place))


@pytest.fixture
def local(whole: LocalModel) -> LocalModel:
    """Return the model with its first weights."""
    first = weights_of(whole.model)
    yield whole
    put_weights(whole.model, first)


def prompts(local: LocalModel) -> list[str]:
    return [written_prompt(local, f"You are in row {row}.") for row in range(4)]


def lead(local: LocalModel) -> float:
    """Return by how much the good answer is likelier than the bad one."""
    end = [local.tokenizer.eos_token_id]
    asked = [tokens_of(local, prompts(local)[0])] * 2
    good, bad = log_probs(local, asked, [tokens_of(local, text) + end for text in (GOOD, BAD)])
    return float(good - bad)


def test_drawn_answers_have_the_probabilities_that_the_model_gives_them(local: LocalModel) -> None:
    ids = [tokens_of(local, text) for text in prompts(local)]
    drawn = sample(local, [*ids, *ids], np.random.default_rng(0), max_tokens=5)
    again = sample(local, [*ids, *ids], np.random.default_rng(0), max_tokens=5)
    assert drawn.tokens == again.tokens
    end = local.tokenizer.eos_token_id
    whole = [tokens + [end] * ended for tokens, ended in zip(drawn.tokens, drawn.ended, strict=True)]
    np.testing.assert_allclose(drawn.log_prob, log_probs(local, [*ids, *ids], whole), atol=1e-4)
    assert log_probs(local, ids[:1], [[]]).tolist() == [0.0], "an answer without a token is certain"
    greedy, *_ = sample(local, [ids[2]], np.random.default_rng(0), max_tokens=5, temperature=0).tokens
    many = sample(local, [*ids, *ids], np.random.default_rng(1), max_tokens=5, temperature=0).tokens
    assert many[2] == many[6] == greedy


def test_a_batch_of_prompts_of_different_lengths_is_as_each_alone(
    local: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a temperature, with answers that end one after the other, in several batches."""
    with torch.no_grad():
        for weight in local.model.parameters():
            weight.mul_(2)  # so that the next token depends on all before it, and on its place
    often = replace(local, stops=frozenset(range(0, local.model.config.vocab_size, 5)))
    texts = ["You are.", "You are in row 1, in row 2.", "in row 3", "You are in row 0. You are in row 1."]
    ids = [tokens_of(often, text) for text in texts]
    assert len({len(tokens) for tokens in ids}) == 4
    drawn = sample(often, ids * 8, np.random.default_rng(0), max_tokens=6, temperature=0.5)
    assert len({len(tokens) for tokens in drawn.tokens}) >= 3
    alone = [
        float(log_probs(often, [tokens], [answer], 0.5)[0]) for tokens, answer in zip(ids * 8, drawn.whole, strict=True)
    ]
    np.testing.assert_allclose(drawn.log_prob, alone, atol=1e-3)
    monkeypatch.setattr("laurel.llm.sampling.BATCH_TOKENS", 4 * 3 * (max(map(len, ids)) + 6))
    np.testing.assert_allclose(log_probs(often, ids * 8, drawn.whole, 0.5), alone, atol=1e-3)
    logs = [log_probs(often, ids[:1], [[token]], temperature)[0] for temperature in (1.0, 0.5) for token in range(2)]
    assert logs[2] - logs[3] == pytest.approx(2 * (logs[0] - logs[1]), abs=1e-3), "twice as far apart"


def test_answers_are_read_without_special_tokens_and_equal_ones_once(local: LocalModel) -> None:
    end = local.tokenizer.eos_token_id
    rows = [[*tokens_of(local, text), end] for text in (GOOD, BAD, GOOD)]
    assert texts_of(local, rows) == [GOOD, BAD, GOOD]
    tokenizer = Mock()
    texts_of(replace(local, tokenizer=tokenizer), rows)
    assert [asked.args[0] for asked in tokenizer.decode.call_args_list] == rows[:2]


def test_a_grammar_excludes_all_other_output(local: LocalModel) -> None:
    grammar = Grammar()
    answers = [tokens_of(local, text) for text in (GOOD, "left")]
    for tokens in answers:
        grammar.end(grammar.add(tokens), local.stops)
    asked = [tokens_of(local, prompts(local)[0])] * 64
    longest = max(map(len, answers)) + 1
    drawn = sample(local, asked, np.random.default_rng(0), max_tokens=longest, grammar=grammar)
    assert all(drawn.ended)
    assert {local.tokenizer.decode(tokens) for tokens in drawn.tokens} == {GOOD, "left"}
    chances = {tuple(tokens): np.exp(log) for tokens, log in zip(drawn.tokens, drawn.log_prob, strict=True)}
    assert sum(chances.values()) == pytest.approx(1.0, abs=1e-4)
    assert local.model.get_output_embeddings().weight.shape[0] > len(grammar.tokens)  # it computes all logits again
    grammar.add([0])
    with pytest.raises(ValueError, match="neither a next token nor an end"):
        grammar.allowed()


@pytest.mark.parametrize("loss", ["dpo", "kto", "simpo"])
def test_losses_of_pairs_prefer_what_was_chosen(local: LocalModel, loss: trl_tuning.Loss) -> None:
    how = Tuning(learning_rate=5e-3, batch_size=8, beta=2.0 if loss == "simpo" else 0.5)
    before = lead(local)
    learn_from_pairs(local, [Pair(prompt, GOOD, BAD) for prompt in prompts(local)] * 4, loss, how, 0)
    assert lead(local) > before + 1


@pytest.mark.parametrize("loss", ["imitate", "dpo", "kto", "simpo", "infonce", "grpo", "rloo"])
def test_nothing_is_put_before_the_prompts_that_answers_were_sampled_for(local: LocalModel, loss: Any) -> None:
    """As tokenizers of GPT-2 and Llama do by themselves, and TRL's SimPO; they also lack a padding token."""
    eager = copy.deepcopy(local.tokenizer)
    end, number = eager.eos_token, eager.eos_token_id
    eager._tokenizer.post_processor = TemplateProcessing(single=f"{end} $A", special_tokens=[(end, number)])
    eager.bos_token, eager.pad_token = end, None
    assert eager("left")["input_ids"] == [number, *tokens_of(local, "left")]
    how, first, found = Tuning(learning_rate=1e-2, batch_size=8), weights_of(local.model), []
    for model in (local, replace(local, tokenizer=eager)):
        put_weights(local.model, first)
        asked = prompts(local)
        if loss == "imitate":
            imitate(model, [(prompt, GOOD) for prompt in asked], how, 0)
        elif loss in trl_tuning.PAIRED:
            learn_from_pairs(model, [Pair(prompt, GOOD, "left") for prompt in asked], loss, how, 0)
        else:
            groups = [Group(prompt, (GOOD, "left"), (1.0, 0.0)) for prompt in asked]
            learn_from_groups(model, groups, loss, how, 0)
        found.append(weights_of(local.model))
    for name, weight in found[0].items():
        torch.testing.assert_close(found[1][name], weight, msg=name)
    assert any(not torch.equal(found[0][name], first[name]) for name in first)


@pytest.mark.parametrize(("loss", "used"), [("grpo", 9), ("infonce", 9), ("rloo", 9)])
def test_a_pass_learns_from_whole_steps_of_groups(
    local: LocalModel, monkeypatch: pytest.MonkeyPatch, loss: trl_tuning.Loss, used: int
) -> None:
    """So that the curve counts what was learned from, and any number of processes learns from the same."""
    seen: list[str] = []
    real = trl_tuning._recorded

    def recorded(base: Any, groups: list[Group], before: Any, **given: Any) -> Any:
        class Seen(real(base, groups, before, **given)):  # type: ignore[misc]
            def _generate(self, prompts: list[str]) -> Any:
                seen.extend(prompts[:: self.num_generations])
                return super()._generate(prompts)

        return Seen

    monkeypatch.setattr(trl_tuning, "_recorded", recorded)
    groups = [Group(prompt, (GOOD, "left"), (1.0, 0.0)) for prompt in (3 * prompts(local))[:10]]
    how = Tuning(batch_size=4 if loss == "infonce" else 2 * 4)
    assert trl_tuning.step_of(groups, loss, how) == 3
    learn_from_groups(local, groups, loss, how, 0)
    assert len(seen) == used


def test_the_reference_of_kto_is_asked_once_for_all_passes(
    local: LocalModel, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """To the byte the weights that come of asking it in every pass."""
    how, before, train = Tuning(learning_rate=5e-3, batch_size=4, epochs=2), weights_of(local.model), trl_tuning._train
    pairs, found = [Pair(prompt, GOOD, BAD) for prompt in prompts(local)] * 3, []
    for changed in ({}, {"precompute_ref_log_probs": False}):

        def trained(*args: Any, _changed: dict[str, bool] = changed, **given: Any) -> float:
            *others, extra = args
            return train(*others, {**extra, **(_changed if given.get("reference") else {})}, **given)

        monkeypatch.setattr(trl_tuning, "_train", trained)
        put_weights(local.model, before)
        learn_from_pairs(local, pairs, "kto", how, 0)
        found.append(weights_of(local.model))
    assert all(torch.equal(found[0][name], found[1][name]) for name in before)
    assert any(not torch.equal(found[0][name], before[name]) for name in before)
    assert capfd.readouterr().err == ""


def test_kto_imitates_the_chosen_answers_within_its_loss(local: LocalModel) -> None:
    """The model is its own reference at first, so that KTO's own loss is 1 - sigmoid(0)."""
    pairs = [Pair(prompt, GOOD, BAD) for prompt in prompts(local)]
    good = [*tokens_of(local, GOOD), local.tokenizer.eos_token_id]
    logs = log_probs(local, [tokens_of(local, pair.prompt) for pair in pairs], [good] * len(pairs))
    how = Tuning(learning_rate=1e-9, batch_size=len(pairs), beta=0.5, imitation=0.25)
    expected = 0.5 - 0.25 * float(logs.mean()) / len(good)
    assert learn_from_pairs(local, pairs, "kto", how, 0) == pytest.approx(expected, rel=1e-4)


def test_kto_estimates_its_divergence_from_answers_to_other_prompts(
    local: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where pairs of a prompt follow each other, as they come from groups of answers."""
    from trl import KTOTrainer

    seen: list[tuple[str, str, str]] = []
    train = KTOTrainer.train

    def spied(self: Any, *args: Any) -> Any:
        texts = [self.processing_class.batch_decode(list(self.train_dataset[name])) for name in NAMES]
        seen.extend(zip(*texts, strict=True))
        return train(self, *args)

    monkeypatch.setattr(KTOTrainer, "train", spied)
    asked, words = prompts(local), ["left", "forward", GOOD, BAD]
    pairs = [
        Pair(prompt, f"{word} {row}", f"{word} {word} {row}") for row, prompt in enumerate(asked) for word in words
    ]
    learn_from_pairs(local, pairs, "kto", Tuning(batch_size=4), 0)
    end = local.tokenizer.eos_token
    of_pair = {pair[1 + place] + end: pair for pair in pairs for place in range(2)}
    assert sorted(answer for _, answer, _ in seen) == sorted(of_pair)
    assert all(of_pair[answer].prompt == prompt for prompt, answer, _ in seen)
    assert not [(answer, other) for _, answer, other in seen if of_pair[answer] == of_pair[other]], "a pair's own"
    assert sum(of_pair[other].prompt == prompt for prompt, _, other in seen) <= len(seen) / 2


@pytest.mark.parametrize("loss", ["infonce", "grpo", "rloo"])
def test_losses_of_groups_prefer_what_scored_better(local: LocalModel, loss: trl_tuning.Loss) -> None:
    how = Tuning(learning_rate=5e-3, batch_size=8, beta=0.0)
    groups = [Group(prompt, (BAD, GOOD, BAD, BAD), (0.0, 1.0, 0.0, 0.0)) for prompt in prompts(local)]
    before = lead(local)
    learn_from_groups(local, groups * 4, loss, how, 0)
    assert lead(local) > before + 1


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("loss", ["grpo", "rloo"])
def test_a_round_changes_likelihoods_as_far_as_the_ratio_is_clipped(
    place: Path, loss: trl_tuning.Loss, rank: int
) -> None:
    """Of the ratio to the model that sampled the answers, in all steps and epochs; single steps exceed the bound."""
    local = load_causal(str(place))
    local = with_lora(local, rank) if rank else local
    groups = [Group(prompt, ("left", "forward"), (1.0, 0.0)) for prompt in prompts(local)]
    asked = [tokens_of(local, prompt) for prompt in prompts(local)]
    written = [[*tokens_of(local, "left"), local.tokenizer.eos_token_id]] * len(asked)
    before = log_probs(local, asked, written)
    how = Tuning(learning_rate=5e-4 if rank else 1e-4, batch_size=4, epochs=60, beta=0.0)
    learn_from_groups(local, groups, loss, how, 0)
    risen = log_probs(local, asked, written) - before
    clipped = np.log(1.2) * (len(written[0]) if loss == "grpo" else 1)  # the ratio of a token, or of the whole answer
    assert np.all(risen > clipped)
    assert np.all(risen < 3), "without a bound it rises by 7 to 11"


@pytest.mark.parametrize("loss", ["grpo", "rloo"])
def test_the_reference_of_groups_is_the_model_before_the_call(local: LocalModel, loss: trl_tuning.Loss) -> None:
    """So answers with equal scores change nothing, although the model differs from the one in its directory."""
    with torch.no_grad():
        for weight in local.model.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    before = weights_of(local.model)
    groups = [Group(prompt, (GOOD, BAD), (1.0, 1.0)) for prompt in prompts(local)]
    learn_from_groups(local, groups, loss, Tuning(batch_size=8, beta=1.0), seed=0)
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(local.model).items())


@pytest.mark.parametrize(("loss", "expected"), [("grpo", 0.5), ("rloo", 0.5), ("infonce", 1.0)])
def test_likelihoods_are_those_at_the_temperature_of_sampling(
    local: LocalModel, monkeypatch: pytest.MonkeyPatch, loss: trl_tuning.Loss, expected: float
) -> None:
    """Except in InfoNCE, whose temperature is 1 / beta."""
    made: list[float] = []
    monkeypatch.setattr(trl_tuning, "_train", lambda *given, **_: made.append(given[6]["temperature"]) or 0.0)
    groups = [Group(prompt, (GOOD, BAD), (1.0, 0.0)) for prompt in prompts(local)]
    learn_from_groups(local, groups, loss, Tuning(batch_size=8, temperature=0.5), seed=0)
    assert made == [expected]


def test_the_contrastive_loss_sets_the_best_against_all_others(local: LocalModel) -> None:
    """TRL shuffles the answers of a batch; each must be compared with those to its own prompt."""
    answers = (BAD, GOOD, "left", "forward")
    scores = [(0.0, 1.0, 0.5, -1.0), (0.0, 1.0, 1.0, -1.0), (2.0, 0.0, 1.0, 0.0)]
    groups = [
        Group(prompt, answers, group_scores) for prompt, group_scores in zip(prompts(local), scores, strict=False)
    ]
    written = [[*tokens_of(local, text), local.tokenizer.eos_token_id] for text in answers]
    expected = []
    for prompt, _, group_scores in groups:
        logs = log_probs(local, [tokens_of(local, prompt)] * 4, written)
        mean = logs / [len(tokens) for tokens in written]
        best = np.array(group_scores) == max(group_scores)
        share = np.exp(3 * mean)[best].sum() / np.exp(3 * mean).sum()
        expected.append(-np.log(share) - 0.5 * mean[best].mean())
    how = Tuning(learning_rate=1e-9, batch_size=3, beta=3.0, imitation=0.5)
    assert learn_from_groups(local, groups, "infonce", how, 0) == pytest.approx(np.mean(expected), rel=1e-4)


def test_no_group_is_left_out_where_they_are_not_a_multiple_of_the_batch_size(local: LocalModel) -> None:
    """TRL drops an incomplete batch: the loss of six groups in steps of up to four is the mean over all six."""
    how, answers = Tuning(learning_rate=1e-9, batch_size=4, beta=3.0, imitation=0.0), (BAD, GOOD, "left", "forward")
    scores = [(1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0)]
    groups = [Group(prompt, answers, group_scores) for group_scores in scores for prompt in prompts(local)[:2]]
    alone = [learn_from_groups(local, [group], "infonce", how, 0) for group in groups]
    assert np.ptp(alone) > 0.1
    assert learn_from_groups(local, groups, "infonce", how, 0) == pytest.approx(np.mean(alone), rel=1e-4)


@pytest.mark.parametrize(
    ("n", "most", "world", "taken"),
    [(3, 8, 1, 3), (8, 4, 1, 4), (7, 4, 1, 3), (63, 32, 1, 21), (101, 4, 1, 4), (7, 4, 2, 4)],
)
def test_steps_leave_out_the_fewest_groups(n: int, most: int, world: int, taken: int) -> None:
    groups = [Group("", ("left", GOOD), (1.0, 0.0))] * n
    assert trl_tuning.step_of(groups, "infonce", Tuning(batch_size=most), world) == taken
    assert trl_tuning.step_of(groups, "grpo", Tuning(batch_size=2 * most), world) == taken


def test_an_adapter_is_kept_and_the_same_for_the_same_seed(place: Path, tmp_path: Path) -> None:
    kept = []
    for number in range(2):
        torch.manual_seed(0)
        local = with_lora(load_causal(str(place)), 2)
        base = {name: weight.clone() for name, weight in local.model.named_parameters() if not weight.requires_grad}
        how = Tuning(learning_rate=1e-2, batch_size=8)
        imitate(local, [(prompt, GOOD) for prompt in prompts(local)] * 2, how, seed=3)
        learn_from_pairs(local, [Pair(prompts(local)[0], GOOD, BAD)] * 8, "dpo", replace(how, beta=0.5), seed=4)
        assert all(torch.equal(weight, base[name]) for name, weight in local.model.named_parameters() if name in base)
        assert list(local.model.peft_config) == ["default"]  # TRL's copy has a reference, ours has none
        save_causal(local, tmp_path / str(number))
        kept.append((tmp_path / str(number) / "adapter_model.safetensors").read_bytes())
    assert kept[0] == kept[1]
    again = load_causal(str(place), adapter=str(tmp_path / "0"))
    assert lead(again) == pytest.approx(lead(local), abs=1e-4)


def test_parts_of_a_model_train_again_after_they_sampled_without_dropout() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout().eval())
    with without_dropout(model):
        assert not any(part.training for part in model.modules())
    assert [part.training for part in model] == [True, False]

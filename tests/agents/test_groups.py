"""GRPO and RLOO of a language model that writes texts: what is paid more becomes likelier, and a seed repeats it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stopping
import torch
from tiny_llama import make_tiny_llama
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from laurel.agents.actor import View
from laurel.agents.algorithms import algorithm_of, initial_policy, make_learner
from laurel.agents.checkpoint import load_policy, save_policy
from laurel.agents.groups import GroupLearner
from laurel.agents.learner import Rollout
from laurel.agents.writer import CompletionSampler, Writing
from laurel.envs import adapter_for
from laurel.envs.builtin.completions import Completions, packed_text, text_of
from laurel.envs.vector import VectorEnv, make_vector
from laurel.errors import EnvError, ParamsError, PromptError
from laurel.llm.causal import load_causal
from laurel.llm.tiny_model import write_tiny_model
from laurel.params import EnvParams, load_params, parse_params
from laurel.params.algorithms import GroupParams, GRPOParams, RLOOParams
from laurel.params.training import ShapingParams
from laurel.rewards.functions import CaptionReward
from laurel.stages.preflight import check_run
from laurel.training.task import Task
from tiny_project import REPOSITORY

PROMPTS = ["It was", "The film was"]
ENV = EnvParams(id="laurel/Completions-v0", kwargs={"prompts": PROMPTS, "part": "all", "length": 16})
SMALL = {"rank": 2, "n_envs": 32, "group": 16, "batch_size": 32, "max_tokens": 4, "temperature": 1.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def _no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Completions, "utilities", lambda self, texts: np.array([len(text) for text in texts]) * 1.0)


def made(kind: type[GroupParams], model: Path, **changes: Any) -> tuple[GroupLearner, VectorEnv, Rollout]:
    adapter, settings = adapter_for(ENV), kind(model=str(model), **{**SMALL, **changes})
    learner = make_learner(initial_policy(adapter, settings, 0, 0), settings, np.random.default_rng(0))
    assert isinstance(learner, GroupLearner)
    envs = make_vector(ENV, adapter, settings.n_envs, 0)
    return learner, envs, learner.rollout(envs)


def letters(actions: Any) -> Any:
    return np.array([sum(letter.isalpha() for letter in text_of(row)) for row in actions])


def worth(learner: GroupLearner) -> float:
    """Return the mean pay of many completions."""
    prompts = np.repeat(np.stack([packed_text(prompt, 12) for prompt in PROMPTS]), 200, axis=0)
    return float(letters(learner.policy.act(prompts, np.random.default_rng(5))[0]).mean())


def trained(kind: type[GroupParams], model: Path, updates: int, **changes: Any) -> tuple[GroupLearner, list[Any]]:
    """Reward letters, and return the metrics of each update."""
    learner, envs, rollout = made(kind, model, **changes)
    observation, told = envs.reset(), []
    for _ in range(updates):
        observation = learner.collect(envs, observation, rollout)
        rollout.reward[0] = letters(rollout.action[0])
        told.append((float(rollout.reward[0].mean()), learner.learn(rollout)))
    return learner, told


@pytest.mark.parametrize("kind", [GRPOParams, RLOOParams])
def test_completions_with_higher_reward_become_likelier(kind: type[GroupParams], model: Path) -> None:
    """Fails where the sign of the advantage is turned."""
    first, _, _ = made(kind, model)
    learner, told = trained(kind, model, 6, learning_rate=0.015, beta=0.0)
    assert worth(learner) > worth(first) + 0.4
    kl = [metrics["reference_kl"] for _, metrics in told]
    assert kl[0] == pytest.approx(0.0, abs=1e-4), "nothing is trained yet"
    assert kl[-1] > 0.05


@pytest.fixture
def base_model(tmp_path: Path) -> Path:
    """A GPT-2 of 32 tokens with dropout and without a chat template."""
    folder = write_tiny_model(tmp_path / "m", PROMPTS, width=16, heads=2, vocabulary=300, context=32)
    (folder / "chat_template.jinja").unlink()
    tokens = AutoTokenizer.from_pretrained(folder)
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tokens), n_positions=32, n_embd=16, n_layer=1, n_head=2)).save_pretrained(
        folder
    )
    return folder


def test_the_divergence_of_a_base_model_is_measured_without_dropout(base_model: Path) -> None:
    _, ((_, metrics),) = trained(GRPOParams, base_model, 1)
    assert metrics["reference_kl"] == pytest.approx(0.0, abs=1e-5), "nothing is trained yet"


def test_a_prompt_longer_than_the_context_is_refused(base_model: Path) -> None:
    sampler = CompletionSampler(load_causal(str(base_model), chats=False), Writing("m", 16, 1.0, ""))
    with pytest.raises(PromptError, match=r"has \d+ tokens and an answer up to 16, but .* takes 32"):
        sampler.write(["I saw it once, and once more"], np.random.default_rng(0))


@pytest.mark.parametrize("kind", [GRPOParams, RLOOParams])
def test_beta_reduces_the_divergence_from_the_frozen_model(kind: type[GroupParams], model: Path) -> None:
    free, held = (trained(kind, model, 4, learning_rate=0.02, beta=beta)[1][-1][1] for beta in (0.0, 5.0))
    assert held["reference_kl"] < 0.7 * free["reference_kl"]


def test_no_update_beyond_the_largest_divergence(model: Path) -> None:
    learner, told = trained(GRPOParams, model, 4, learning_rate=0.05, beta=0.0, max_kl=1e-3)
    assert "policy" in told[0][1]
    assert told[-1][1].keys() == {"reference_kl"}
    before = learner.policy.state_dict()
    envs = make_vector(ENV, adapter_for(ENV), 32, 0)
    rollout = learner.rollout(envs)
    learner.collect(envs, envs.reset(), rollout)
    learner.learn(rollout)
    assert all(torch.equal(weight, before[name]) for name, weight in learner.policy.state_dict().items())


def test_updates_go_on_where_a_later_estimate_is_below_the_largest_divergence(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the settings say: the estimate is of one update's completions."""
    estimates = iter([0.5, 2.0, 0.5])
    monkeypatch.setattr(GroupLearner, "_divergence", lambda self, rollout, t: next(estimates))
    _, told = trained(GRPOParams, model, 3, max_kl=1.0)
    assert ["policy" in metrics for _, metrics in told] == [True, False, True]


def test_groups_share_a_prompt_and_are_scored_row_by_row(model: Path) -> None:
    learner, envs, rollout = made(RLOOParams, model)
    learner.collect(envs, envs.reset(), rollout)
    rollout.reward[0] = np.arange(32)
    shown = [text_of(row) for row in rollout.observation[0]]
    assert len(set(shown[:16])) == len(set(shown[16:])) == 1
    groups = learner._groups(rollout, 0)
    assert [group.prompt for group in groups] == [shown[0], shown[16]]
    assert groups[1].scores == tuple(range(16, 32))
    assert rollout.valid[0].all()
    assert not rollout.valid[1].any()


def test_an_agent_is_its_lora_weights_and_writes_the_same_when_it_is_loaded(model: Path, tmp_path: Path) -> None:
    learner, _ = trained(GRPOParams, model, 1, learning_rate=0.05)
    save_policy(tmp_path / "agent", learner.policy)
    assert (tmp_path / "agent" / "model.safetensors").stat().st_size < 40_000
    adapter = adapter_for(ENV)
    envs = make_vector(ENV, adapter, 4, 1)
    view = View(adapter, envs.reset())
    written = [
        policy.as_actor(greedy=True).act(view, np.random.default_rng(0)).action
        for policy in (learner.policy, load_policy(tmp_path / "agent"))
    ]
    np.testing.assert_array_equal(*written)


def test_an_environment_of_other_actions_is_refused(model: Path) -> None:
    settings = GRPOParams(model=str(model))
    with pytest.raises(EnvError, match="reads and writes texts, but Blackjack-v1"):
        algorithm_of(settings).check(adapter_for(EnvParams(id="Blackjack-v1")))


@pytest.mark.parametrize("changes", [{"n_envs": 30}, {"batch_size": 24, "group": 16}, {"n_steps": 3}])
def test_groups_must_be_whole(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"multiple of batch_size|must be even"):
        GRPOParams(**changes)


def test_a_stopped_run_ends_with_the_same_agent(model: Path, tmp_path: Path) -> None:
    """To the bit, the moments of the optimizer and the divergence in the curve included."""
    settings = RLOOParams(model=str(model), **{**SMALL, "n_envs": 8, "group": 4, "batch_size": 8, "max_tokens": 3})
    task = Task("text", 1, 5, ENV, settings, ShapingParams(quantile=0.0, beta=0.0), 4 * 16, 16)
    adapter, reward = (
        adapter_for(ENV),
        CaptionReward({}, 0.0, lambda texts: np.array([len(text) for text in texts]) * 1.0),
    )
    stopping.run(task, adapter, tmp_path / "whole", reward)
    for _ in range(3):
        stopping.run(task, adapter, tmp_path / "stopped", reward, updates=1)
    stopping.run(task, adapter, tmp_path / "stopped", reward)
    assert stopping.content(tmp_path / "stopped") == stopping.content(tmp_path / "whole")
    assert all(row["reference_kl"] is not None for row in stopping.curve(tmp_path / "whole"))


def test_the_example_writes_the_same_in_all_arms() -> None:
    params = load_params(REPOSITORY / "examples/rlhf.yaml")
    (policy,) = params.collect.policies
    settings = params.agent.settings.model_dump()
    assert policy.options == params.resolved_arms["base"].actor_options
    assert policy.options == {name: settings[name] for name in policy.options}


def test_evaluation_elsewhere_must_fit_the_agents(model: Path) -> None:
    writer = {"reward": None, "agent": {"actor": "writer", "options": {"model": str(model)}}}
    content = {"env": ENV.model_dump(), "collect": {"steps": 8}, "agent": {"seeds": [0], "steps": 8}}
    content |= {"arms": {"base": writer}}
    check_run(parse_params({**content, "evaluate": {"kwargs": {"goal": "It was short."}}}, "p"), "evaluate")
    with pytest.raises(ParamsError, match=r"evaluate\.kwargs is .* other observations or actions"):
        check_run(parse_params({**content, "evaluate": {"kwargs": {"length": 8}}}, "p"), "evaluate")

"""GLAM: the likelihoods follow the formula, PPO on them learns, and training resumes after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stopping
import torch

from laurel.agents.actor import Advisor, View
from laurel.agents.algorithms import algorithm_of, initial_policy, make_learner
from laurel.agents.checkpoint import load_policy
from laurel.agents.language_model.chain import MovesChain, Reader, chain_settings
from laurel.agents.language_model.glam import GLAM, LikelihoodPolicy
from laurel.agents.language_model.policy import LanguageModelPolicy
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.vector import make_vector
from laurel.errors import EnvError, PromptError
from laurel.llm.causal import tokens_of
from laurel.llm.sampling import log_probs
from laurel.llm.tiny_model import write_tiny_model
from laurel.params import EnvParams
from laurel.params.language_actor import GLAMParams
from laurel.params.training import ShapingParams
from laurel.training.loop import train
from laurel.training.task import Task

torch.set_num_threads(1)

GRID = EnvParams(id="laurel/GridWorld-v0", kwargs={"size": 2, "goal": [1, 1], "slip": 0.0, "max_episode_steps": 8})
SMALL: dict[str, Any] = {"n_envs": 16, "n_steps": 8, "batch_size": 32, "learning_rate": 1e-3, "entropy_coef": 0.0}


@pytest.fixture(scope="module")
def adapter() -> EnvAdapter:
    return adapter_for(GRID)


def states(adapter: EnvAdapter, count: int = 3) -> tuple[str, ...]:
    return View(adapter, np.arange(count)[:, None].astype(adapter.observation_dtype)).text


@pytest.mark.parametrize("names", [("up", "up the hill", "left"), ("a", "b", "c")])
def test_a_policy_is_the_normalised_likelihood_of_each_name(adapter: EnvAdapter, names: tuple[str, ...]) -> None:
    """Names of several tokens, one a prefix of another, and names of one token each."""
    chain = chain_settings(GLAMParams().asked)
    policy = LikelihoodPolicy(1, "tiny", None, 0, "float32", names, 1, chain, 1.0)
    lengths = [len(tokens_of(policy.local, name)) for name in names]
    assert (max(lengths) > 1) == (names[0] == "up")
    texts = states(adapter)
    numbers = policy.numbered(adapter, [*texts, texts[0]])
    assert numbers[:, 0].tolist() == [0, 1, 2, 0]
    logs, values = (found.detach().numpy() for found in policy.distributions(torch.from_numpy(numbers)))
    assert isinstance(policy.asks, MovesChain)
    for state, found, value in zip(texts, logs, values, strict=False):
        prompt = policy.asks.asked(Reader(policy.local, adapter), state)[1]
        with torch.no_grad():
            of_state = policy.value(policy._hidden(torch.tensor([prompt]))[0, -1])
        assert value == pytest.approx(float(of_state), abs=1e-4), "without any name"
        sums = log_probs(policy.local, [prompt] * 3, [tokens_of(policy.local, name) for name in names])
        np.testing.assert_allclose(found, sums - np.log(np.exp(sums).sum()), atol=1e-4)
    assert len(set(np.round(values, 6).tolist())) == 3
    with torch.no_grad():
        forward = [found.numpy() for found in policy(torch.from_numpy(numbers), torch.tensor([0, 2, 1, 0]))]
    np.testing.assert_allclose(forward[0], logs[np.arange(4), [0, 2, 1, 0]], atol=1e-5)
    np.testing.assert_allclose(forward[1], -(np.exp(logs) * logs).sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(forward[2], values, atol=1e-5)
    np.testing.assert_allclose(policy.evaluate(numbers), values, atol=1e-5)
    view, rng = View(adapter, np.zeros((40, 1), dtype=adapter.observation_dtype)), np.random.default_rng(0)
    assert set(policy.as_actor(greedy=True).act(view, rng).action.tolist()) == {logs[0].argmax()}
    assert policy.act(policy.numbered(adapter, texts), rng, greedy=True)[0].tolist() == logs[:3].argmax(axis=1).tolist()
    with torch.no_grad():
        next(policy.value.parameters()).mul_(2)
    policy.forget()
    assert not np.allclose(policy.evaluate(policy.numbered(adapter, texts)), values[:3], atol=1e-4), "of new weights"


def paid(adapter: EnvAdapter, updates: int) -> list[float]:
    params = GLAMParams.model_validate(SMALL)
    learner = make_learner(initial_policy(adapter, params, 0, 0), params, np.random.default_rng(0))
    assert isinstance(learner, GLAM)
    envs = make_vector(GRID, adapter, params.n_envs, 0)
    rollout, observation, found = learner.rollout(envs), envs.reset(), []
    for _ in range(updates):
        observation = learner.collect(envs, observation, rollout)
        found.append(float(rollout.extrinsic[rollout.valid].mean()))
        learner.learn(rollout)
    return found


def test_it_learns_to_reach_the_goal(adapter: EnvAdapter) -> None:
    """Fails where the sign of the advantage is flipped."""
    found = paid(adapter, 14)
    assert max(found[:2]) < 0.2
    assert np.mean(found[-5:]) > 0.35  # .71 is the best


def test_a_killed_training_ends_with_the_same_adapter(adapter: EnvAdapter, tmp_path: Path) -> None:
    """To the bit, the value's network and Adam's moments included; what lies there acts as it was trained."""
    tiny = initial_policy(adapter, GLAMParams(), 0, 0)
    assert isinstance(tiny, LanguageModelPolicy)
    tiny.write_beside(tmp_path)
    model = str((tmp_path / "language_model").rename(tmp_path / "base"))
    settings = GLAMParams.model_validate({**SMALL, "n_epochs": 1, "model": model, "lora_rank": 2, "prompt": "brief"})
    task = Task("glam", 0, 0, GRID, settings, ShapingParams(), steps=4 * 128, checkpoint_steps=128)
    train(task, adapter, None, tmp_path / "whole", lambda _: None)
    for updates in (3, None):
        stopping.run(task, adapter, tmp_path / "killed", None, updates=updates)
    assert stopping.content(tmp_path / "killed") == stopping.content(tmp_path / "whole")
    assert (tmp_path / "whole" / "adapter" / "adapter_config.json").exists()
    again = load_policy(tmp_path / "whole")
    assert isinstance(again, LikelihoodPolicy)
    assert {name.partition(".")[0] for name, _ in again.named_parameters()} == {"network", "value"}
    assert all("lora" in name or name.startswith("value") for name, _ in again.named_parameters())
    actor = again.as_actor()
    assert isinstance(actor, Advisor)
    view = View(adapter, np.zeros((2, 1), dtype=adapter.observation_dtype))
    np.testing.assert_allclose(np.exp(actor.log_probs(view)).sum(axis=1), 1, atol=1e-5)


def test_a_prompt_longer_than_the_context_is_refused(adapter: EnvAdapter, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "m", ["left", "right"], width=16, heads=2, vocabulary=300, context=48)
    policy = initial_policy(adapter, GLAMParams(model=str(model), prompt="instruct"), 0, 0)
    assert isinstance(policy, LikelihoodPolicy)
    with pytest.raises(PromptError, match=r"has \d+ tokens .* takes 48"):
        policy.numbered(adapter, states(adapter))


def test_lists_of_moves_are_refused() -> None:
    lists = EnvParams(id=GRID.id, kwargs={"actions": "sequence"})
    with pytest.raises(EnvError, match=r"is a list of moves\. Set env\.kwargs\.actions to moves"):
        algorithm_of(GLAMParams()).check(adapter_for(lists))
    with pytest.raises(EnvError, match=r"glam, which chooses among Discrete actions"):
        algorithm_of(GLAMParams()).check(adapter_for(EnvParams(id="Pendulum-v1")))

"""Hints: agents act by the hinted policy, and it is that policy whose log-probabilities go into PPO's loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stopping import caption_reward, content, make_task, run

from laurel.agents.actor import Advisor, View
from laurel.agents.algorithms import initial_policy
from laurel.agents.hints import Hints, Shuffled, hints_of, make_advisor
from laurel.agents.policy import ActorCritic
from laurel.agents.ppo import OnPolicyRollout, clipped_loss, gae_of
from laurel.agents.stacked_ppo import StackedPPO
from laurel.agents.stacked_update import Update
from laurel.arrays import FloatArray
from laurel.data import usage
from laurel.data.usage import of_all
from laurel.envs import adapter_for
from laurel.envs.base import Transitions
from laurel.envs.vector import make_vector
from laurel.errors import EnvError, ParamsError
from laurel.evaluation.arms import comparisons_of, main_of
from laurel.params import EnvParams, parse_params
from laurel.params.algorithms import HintsParams, PPOParams
from laurel.params.annotation import AnnotateParams
from laurel.params.arm_infos import arm_infos
from laurel.params.arms import ArmParams
from laurel.params.resolved_arms import resolve_arms
from laurel.params.training import AgentParams, ShapingParams
from laurel.rewards.base import UNPAID, Steps
from laurel.rewards.functions import WeightedSum
from laurel.rewards.method import Inputs, RewardContext
from laurel.rewards.methods.llm_hints import LanguageModelHints, LanguageModelHintsParams, LikelyActions
from laurel.seeding import generator
from laurel.stages.train_agents import _asked_by
from laurel.stages.training_notes import notes_on_questions
from laurel.training import loop
from laurel.training.checkpoint import used_by
from laurel.training.lockstep import can_be_on_device
from laurel.training.task import Assignment

torch.set_num_threads(1)
LAKE = EnvParams(id="FrozenLake-v1", backend="gymnasium")
HINTED = HintsParams(weight=2.0, share=0.5)
WHOLE = PPOParams(n_envs=8, n_steps=16, n_epochs=1, batch_size=10_000, hidden=(16, 16), max_grad_norm=1e9)


class Right(Advisor):
    """Hints to go right, less so on later squares, so that hints differ between states."""

    def __init__(self) -> None:
        super().__init__(4)
        self.asked = 0

    def advise(self, view: View) -> FloatArray:
        self.asked += len(view)
        logits = np.zeros((len(view), 4), dtype=np.float32)
        logits[:, 2] = 2.0 - view.packed[:, 0] / 16
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def learner(*, hinted: bool, params: PPOParams = WHOLE) -> tuple[StackedPPO, Right]:
    policy = initial_policy(adapter_for(LAKE), params, 0, 0)
    assert isinstance(policy, ActorCritic)
    with torch.no_grad():
        policy.actor[-1].weight.mul_(30)  # so that the network itself has a preference
    found, advisor = StackedPPO(policy, params, generator(0, "actions")), Right()
    if hinted:
        found.hints = Hints(advisor, HINTED)
    return found, advisor


def collected(agent: StackedPPO) -> OnPolicyRollout:
    envs = make_vector(LAKE, adapter_for(LAKE), agent.params.n_envs, 0)
    rollout = agent.rollout(envs)
    agent.collect(envs, envs.reset(), rollout)
    envs.close()
    return rollout


def hinted_log_probs(policy: ActorCritic, rollout: OnPolicyRollout) -> torch.Tensor:
    """(T, N, A) by the definition, with autograd."""
    assert rollout.hints is not None
    outputs = policy.actor(torch.from_numpy(rollout.features[:-1]))
    return torch.log_softmax(outputs + torch.from_numpy(rollout.hints), dim=-1)


def test_agents_act_by_the_hinted_policy() -> None:
    agent, advisor = learner(hinted=True)
    rollout = collected(agent)
    assert rollout.hints is not None
    squares, valid = rollout.observation[:-1, :, 0], rollout.valid
    assert (rollout.hints[..., 2] - rollout.hints[..., 0])[valid] == pytest.approx(
        HINTED.weight * (2.0 - squares / 16)[valid], abs=1e-5
    )
    log_probs = hinted_log_probs(agent.policy, rollout)
    log_prob = log_probs.gather(2, torch.from_numpy(rollout.action)[..., None])[..., 0]
    assert rollout.log_prob == pytest.approx(log_prob.detach().numpy(), abs=1e-5)
    frequency = (rollout.action == 2)[rollout.valid].mean()
    assert frequency == pytest.approx(log_probs[..., 2].exp().detach().numpy()[rollout.valid].mean(), abs=0.1)
    assert not set(squares[~valid]) <= set(squares[valid]), "some states end episodes"
    assert advisor.asked == len(np.unique(squares[valid])), "each distinct state on which agents act, once"


def test_the_ratio_begins_at_one_and_would_not_with_the_networks_own_log_probabilities() -> None:
    figures = {}
    for name in ("influenced", "plain"):
        agent, _ = learner(hinted=True)
        rollout = collected(agent)
        if name == "plain":
            features = rollout.features[:-1].reshape(-1, agent.policy.n_features)
            plain = agent.policy.log_prob(features, rollout.action.reshape(-1))
            rollout.log_prob[:] = plain.reshape(rollout.log_prob.shape)
        figures[name] = agent.learn(rollout)
    assert figures["influenced"]["approx_kl"] == pytest.approx(0, abs=1e-6)
    assert figures["influenced"]["clip_fraction"] == 0
    assert figures["plain"]["approx_kl"] > 0.1
    assert figures["plain"]["clip_fraction"] > 0.5, "most steps would be thrown away before anything was learned"


def test_the_gradient_is_that_of_the_loss_of_the_hinted_policy() -> None:
    agent, _ = learner(hinted=True)
    rollout = collected(agent)
    rollout.reward[:] = np.random.default_rng(1).normal(size=rollout.reward.shape)
    n, flat = int(rollout.valid.sum()), lambda array: torch.from_numpy(rollout.rows(array))
    advantage = gae_of(agent.params, rollout, rollout.value)
    returns = advantage + rollout.value[:-1]
    old = rollout.log_prob + np.random.default_rng(2).normal(scale=0.3, size=rollout.log_prob.shape).astype(np.float32)

    log_probs = hinted_log_probs(agent.policy, rollout)[torch.from_numpy(rollout.valid)]
    values = agent.policy.critic(flat(rollout.features[:-1]))[:, 0]
    entropy = -(log_probs.exp() * log_probs).sum(1)
    chosen = log_probs.gather(1, flat(rollout.action)[:, None])[:, 0]
    loss, _ = clipped_loss(agent.params, chosen, entropy, values, flat(old), flat(advantage), flat(returns))
    torch.autograd.backward(loss)
    expected = {name: weight.grad for name, weight in agent.policy.named_parameters()}

    group = agent._group()
    update = Update(group, slice(0, 1), n)
    update.work.forward(rollout.rows(rollout.features[:-1])[None])
    row = [rollout.rows(array)[None] for array in (old, advantage, returns)]
    hints = rollout.rows(rollout.hints).T  # type: ignore[arg-type]
    action = [rollout.rows(rollout.action)[None].astype(np.float32), *hints[:, None]]
    update.differentiate(*row, action, np.full((1, n), 1 / n, dtype=np.float32))
    for name, gradient in group.stack.named(update.gradient, 0).items():
        assert gradient.numpy() == pytest.approx(expected[name].numpy(), abs=2e-5), name  # type: ignore[union-attr]
    assert max(float(gradient.abs().max()) for gradient in expected.values() if gradient is not None) > 1e-2


def test_hints_with_zero_strength_change_nothing() -> None:
    """Bit-identical, and without a question."""
    weights = []
    for hinted in (False, True):
        agent, advisor = learner(hinted=hinted)
        agent.schedule(0.5)
        agent.learn(collected(agent))
        weights.append({name: weight.clone() for name, weight in agent.policy.state_dict().items()})
        assert advisor.asked == 0
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    hints = Hints(Right(), HINTED)
    found = []
    for done in (0.0, 0.125, 0.25, 0.5, 1.0):
        hints.schedule(done)
        found.append(hints.weight)
    assert found == [2.0, 1.5, 1.0, 0.0, 0.0]


def test_shuffled_hints_are_as_strong_and_another_draw_for_each_agent() -> None:
    """The same probabilities of each state, given to other actions; also where agents are trained together."""
    settings = HintsParams(weight=2.0, shuffled=True)
    advisor, adapter = Right(), adapter_for(LAKE)
    states = np.arange(14)[:, None]
    plain = Hints(advisor, HINTED)(adapter, states)
    alone = [Hints(advisor, settings, seed)(adapter, states) for seed in (0, 1, 0)]
    assert isinstance(plain, np.ndarray)
    for found in alone:
        assert np.array_equal(np.sort(found, axis=1), np.sort(plain, axis=1))
        assert not np.array_equal(found, plain)
        favourites = np.argmax(found, axis=1)
        assert len(set(favourites.tolist())) > 1, "each state has an order of its own"
    assert np.array_equal(alone[0], alone[2])
    assert not np.array_equal(alone[0], alone[1])
    group = [Hints(advisor, settings, seed) for seed in (0, 1)]
    acting = np.ones(28, dtype=np.bool_)
    together = hints_of(group, adapter, np.concatenate([states, states]), acting)
    assert np.array_equal(together, np.concatenate(alone[:2]))
    for agent in group:
        agent.schedule(1.0)
    assert hints_of(group, adapter, np.concatenate([states, states]), acting) == 0.0
    assert advisor.asked == 14, "all share what the model said"
    assert "shuffled" not in HintsParams().model_dump(), "digests of runs without it stay"


def test_arms_with_hints_are_methods_and_with_shuffled_ones_controls() -> None:
    hints = {"actor": "llm_policy", "options": {"judge": "player"}}
    arms = {
        "extrinsic": None,
        "hinted": {"reward": None, "agent": {"ppo": {"hints": hints}}},
        "shuffled_hints": {"reward": None, "agent": {"ppo": {"hints": {**hints, "shuffled": True}}}},
        "bonus": {"reward": "llm_hints"},
        "shuffled_bonus": {"reward": "shuffled_labels"},
        "llm_policy": {"reward": None, "agent": {"actor": "llm_policy", "options": {"judge": "player"}}},
    }
    content = {"env": {"id": "FrozenLake-v1"}, "collect": {"steps": 1}, "agent": {"seeds": [0], "steps": 1}}
    rewards = {"llm_hints": {}, "shuffled_labels": {"of": "llm_hints"}}
    params = parse_params({**content, "arms": arms, "rewards": rewards}, "p")
    infos = arm_infos(params.arms, params.rewards, params.agent)
    roles = {info.name: info.role for info in infos}
    assert roles == dict(zip(arms, ["baseline", "method", "control", "method", "control", "method"], strict=True))
    main = main_of(infos)
    assert main is not None
    assert main.name == "hinted", "an arm that is trained goes before one that is not"
    assert {over for arm, over in comparisons_of(infos) if arm == "hinted"} == set(arms) - {"hinted"}


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_hinted_run_that_was_stopped_is_the_run_that_it_would_have_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shuffled: bool
) -> None:
    monkeypatch.setattr("laurel.agents.hints.make_advisor", lambda *_: Right())
    task = make_task("FrozenLake-v1", ppo={"hints": {"share": 0.6, "shuffled": shuffled}})
    adapter = adapter_for(task.env)
    run(task, adapter, tmp_path / "whole")
    run(task, adapter, tmp_path / "stopped", updates=3)
    run(task, adapter, tmp_path / "stopped")
    assert content(tmp_path / "stopped") == content(tmp_path / "whole")
    run(make_task("FrozenLake-v1"), adapter, tmp_path / "alone")
    assert content(tmp_path / "alone") != content(tmp_path / "whole")


def test_what_a_stopped_process_asked_counts_also_before_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "NOTED_SECONDS", 0.0)
    adapter, task = adapter_for(LAKE), make_task("FrozenLake-v1", checkpoint_steps=10_000)
    for updates, calls in ((2, 6), (None, 12)):
        run(task, adapter, tmp_path / "agent", LikelyActions(Half(), adapter), updates=updates)
        assert (tmp_path / "agent").exists() == (updates is None)
        assert of_all([used_by(tmp_path / "agent")]) == {"calls": calls}


def test_what_a_stopped_process_asked_counts(tmp_path: Path) -> None:
    adapter, task = adapter_for(LAKE), make_task("FrozenLake-v1")
    for updates, calls in ((3, 6), (None, 12)):
        run(task, adapter, tmp_path / "agent", LikelyActions(Half(), adapter), updates=updates)
        assert of_all([used_by(tmp_path / "agent")]) == {"calls": calls}


def test_agents_that_are_trained_together_are_those_of_a_run_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shuffles by its own seed, in whatever company."""
    monkeypatch.setattr("laurel.agents.hints.make_advisor", lambda *_: Right())
    shuffling: list[int] = []

    class Noted(Shuffled):
        def __init__(self, advisor: Advisor, seed: int) -> None:
            shuffling.append(seed)
            super().__init__(advisor, seed)

    monkeypatch.setattr("laurel.agents.hints.Shuffled", Noted)
    tasks = [replace(make_task("FrozenLake-v1", ppo={"hints": {"shuffled": True}}), seed=seed) for seed in (0, 1)]
    adapter = adapter_for(tasks[0].env)
    for task in tasks:
        run(task, adapter, tmp_path / f"alone-{task.seed}")
    assert len(set(shuffling)) == 2
    together = [Assignment(task, None, tmp_path / f"together-{task.seed}") for task in tasks]
    loop.train_together(together, adapter, lambda _: None)
    assert shuffling[2:] == shuffling[:2]
    for task in tasks:
        found, alone = (content(tmp_path / f"{how}-{task.seed}") for how in ("together", "alone"))
        assert found["state"] == alone["state"]
        assert found["model"] == alone["model"]


@pytest.mark.parametrize(
    ("env_id", "params", "error", "sentence"),
    [
        ("Pendulum-v1", {}, EnvError, r"agent\.ppo\.hints: Pendulum-v1 has continuous actions"),
        (
            "FrozenLake-v1",
            {"actor": "random"},
            ParamsError,
            r"hints\.actor is random, which gives no probabilities",
        ),
        ("FrozenLake-v1", {}, ParamsError, r"the annotator embedding \(annotate\) judges texts and chooses nothing"),
    ],
)
def test_unsupported_hints_are_refused(
    env_id: str, params: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    from laurel.agents.algorithms import algorithm_of

    settings = PPOParams(hints=HintsParams(**params))
    adapter = adapter_for(EnvParams(id=env_id))

    def check() -> None:
        algorithm_of(settings).check(adapter)
        assert settings.hints is not None
        make_advisor(settings.hints.actor, settings.hints.options, adapter, AnnotateParams())

    with pytest.raises(error, match=sentence):
        check()


def test_hints_are_refused_on_a_device() -> None:
    env = EnvParams(id="CartPole-v1")
    adapter = adapter_for(env)
    assert can_be_on_device(env, adapter, PPOParams())
    assert not can_be_on_device(env, adapter, PPOParams(hints=HintsParams()))


def test_hints_for_a_recurrent_policy_are_refused() -> None:
    with pytest.raises(ValueError, match="only with an MLP"):
        PPOParams(recurrent=True, hints=HintsParams())
    assert "hints" not in PPOParams().model_dump(), "digests of runs without them stay"


def test_the_control_rewards_shuffled_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, method = adapter_for(LAKE), LanguageModelHints(LanguageModelHintsParams())
    monkeypatch.setattr(LanguageModelHints, "_advisor", lambda *_: Right())
    content = {"env": {"id": "FrozenLake-v1"}, "collect": {"steps": 1}, "agent": {"seeds": [0], "steps": 1}}
    context = RewardContext.of(parse_params({**content, "arms": {"extrinsic": None}}, "p"))
    assert method.check_shuffled("llm_hints", context, adapter) is None
    inputs = Inputs(tmp_path, tmp_path, tmp_path)
    paid = {}
    for name, seed in (("a", 0), ("b", 1), ("plain", None)):
        place = tmp_path / name
        place.mkdir()
        if seed is None:
            method.fit(context, inputs, adapter, 0, place)
        else:
            method.fit_shuffled(context, inputs, tmp_path, seed, place)
        every = np.arange(4)
        none = np.zeros(4, dtype=np.bool_)
        zero = np.full((4, 1), 3)
        steps = Transitions(zero, every, np.zeros(4, np.float32), zero, none, none)
        valid, no = np.ones((4, 1), dtype=np.bool_), np.zeros((4, 1), dtype=np.bool_)
        reward = method.load(place, adapter, 0.5)
        paid[name] = reward.pay(Steps(steps, np.zeros((4, 1), dtype=int), ["a"], valid, no, no))[:, 0]
    assert sorted(paid["a"]) == sorted(paid["b"]) == sorted(paid["plain"])
    assert len({tuple(rewards) for rewards in paid.values()}) > 1


def test_the_reward_is_the_likelihood_of_the_action_over_chance() -> None:
    adapter = adapter_for(LAKE)
    transitions = Transitions(
        np.array([[0], [8], [0]]), np.array([2, 2, 0]), np.zeros(3, np.float32), np.array([[1], [9], [0]]),
        *(np.zeros(3, dtype=np.bool_) for _ in range(2)),
    )  # fmt: skip
    shape = (3, 1)
    valid = np.array([[True], [True], [False]])
    no = np.zeros(shape, dtype=np.bool_)
    paid = LikelyActions(Right(), adapter).pay(Steps(transitions, np.zeros(shape, dtype=int), ["a"], valid, no, no))
    right = [np.exp(x) / (np.exp(x) + 3) for x in (2.0, 1.5)]
    assert paid[:2, 0] == pytest.approx([np.log(4 * p) for p in right], abs=1e-5)
    assert paid[2, 0] == UNPAID, "a reset is no action"


class Half(Right):
    """A model half of whose answers cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.asker = usage.new_asker()

    @property
    def account(self) -> dict[str, Any]:
        sample = {"name": "tiny", "prompt": {}, "items": [["an answer"]]}
        about = {
            "model": "tiny",
            "states": 4,
            "unread": 2,
            "calls": 6,
            "asked_sample": [sample],
            "asker": self.asker,
        }
        return about if self.asked else {}


def test_an_unreadable_reward_model_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = adapter_for(LAKE)
    reward = WeightedSum([(caption_reward(), 0.5), (LikelyActions(Half(), adapter), 1.0)])
    run(make_task("FrozenLake-v1"), adapter, tmp_path / "agent", reward)
    arm = resolve_arms([ArmParams(name="mixed", reward={})], {}, ShapingParams(), AgentParams(seeds=(1,), steps=48))[
        "mixed"
    ]
    (note,) = notes_on_questions([(arm, seed, tmp_path / "agent") for seed in (1, 2)])
    (sample,) = _asked_by([(arm, seed, tmp_path / "agent") for seed in (1, 2)])
    assert sample["items"] == [["an answer"]], "agents of one process share it"
    assert "trained mixed seed 1, mixed seed 2 asked tiny for its reward about 4 distinct states: 6 calls" in note
    assert "2 states had no answer that could be read: all choices counted as equally likely" in note
    assert of_all([used_by(tmp_path / "agent")] * 2) == {"calls": 6}, "agents of one process share it"
    assert note in capsys.readouterr().err, "a user who does not open the report is told, too"

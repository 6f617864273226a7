"""An agent that learns to reach a planner's subgoals: what it sees, what it is paid, and how it acts afterwards."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stopping import content, curve, make_task, run
from test_planner import DOORKEY, KEY, Wise

import laurel
from laurel.agents.actor import View
from laurel.agents.actors import make_actor
from laurel.agents.actors.planner import _next
from laurel.agents.algorithms import algorithm_of, initial_policy, make_learner
from laurel.agents.checkpoint import load_policy, save_policy
from laurel.agents.ppo import PPO
from laurel.agents.subgoal_ppo import SubgoalActor, SubgoalActorCritic, SubgoalPPO, SubgoalRollout
from laurel.agents.subgoals import EXPLORE
from laurel.arrays import FloatArray
from laurel.envs import adapter_for
from laurel.envs.vector import make_vector
from laurel.errors import EnvError, ParamsError
from laurel.evaluation.rollout import roll_out
from laurel.feedback.annotators.huggingface import HuggingFaceKind
from laurel.params import EnvParams, parse_params
from laurel.params.algorithms import SubgoalParams
from laurel.params.annotation import AnnotateParams
from laurel.params.arm_infos import arm_infos
from laurel.params.training import ShapingParams
from laurel.seeding import generator
from laurel.training.checkpoint import read_run
from laurel.training.loop import train_together
from laurel.training.task import Assignment, Task

DRAWN = {"plan": "random"}
SMALL = {"n_envs": 4, "n_steps": 64, "batch_size": 64, "n_epochs": 1, "hidden": (8,), "options": DRAWN}


def task_of(env: str = DOORKEY.id, **settings: Any) -> Task:
    small = {**SMALL, "n_envs": 3, "n_steps": 16, "batch_size": 16, **settings}
    return replace(make_task(env), settings=SubgoalParams.model_validate(small))


def learner_of(env: EnvParams, **settings: Any) -> SubgoalPPO:
    params, adapter = SubgoalParams.model_validate({**SMALL, **settings}), adapter_for(env)
    learner = make_learner(initial_policy(adapter, params, 0, 0), params, generator(0, "agent", 0, "actions"))
    assert isinstance(learner, SubgoalPPO)
    assert params.helper is not None
    learner.take_help(make_actor(params.helper.actor, adapter, "", **params.helper.options))
    return learner


@pytest.fixture(scope="module")
def collected() -> tuple[SubgoalPPO, SubgoalRollout]:
    """Return a learner after two rollouts, and the second one."""
    learner, env = learner_of(DOORKEY, n_steps=256), EnvParams(id=DOORKEY.id, max_episode_steps=50)
    with closing(make_vector(env, adapter_for(env), 4, 0)) as envs:
        rollout = learner.rollout(envs)
        observation = learner.collect(envs, envs.reset(), rollout)
        learner.collect(envs, observation, rollout)
    return learner, rollout


def test_a_step_is_paid_for_the_caption_of_the_subgoal_that_the_network_saw(
    collected: tuple[SubgoalPPO, SubgoalRollout],
) -> None:
    learner, rollout = collected
    adapter, texts = adapter_for(DOORKEY), learner.policy.subgoals
    seen = rollout.features[:-1, :, learner.policy.n_features :]
    assert (seen.sum(axis=2) == 1).all()
    followed = np.array(texts)[seen.argmax(axis=2)]
    happened = np.array([adapter.describe(int(event)) for event in adapter.encode(rollout.transitions)])
    same = (followed == happened.reshape(followed.shape)) & rollout.valid
    named = followed != EXPLORE.text
    assert np.array_equal(rollout.reached & named, same & named)
    assert (rollout.reached & named).any()
    assert (rollout.reached & ~named).any(), "new things are found, too"
    assert not rollout.reached[~rollout.valid].any()


@pytest.mark.parametrize("env", [DOORKEY, EnvParams(id="MiniGrid-UnlockPickup-v0")])
def test_the_step_that_completes_the_task_reaches_the_subgoal(env: EnvParams, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_of(env, n_steps=128, options={"plan": "progress"})
    rng = np.random.default_rng(0)

    def scripted(features: FloatArray, _: Any) -> Any:
        numbers = [_next(episode, rng) if episode.subgoal else 0 for episode in learner._subgoals.episodes]
        return np.array(numbers), *np.zeros((2, len(features)), dtype=np.float32)

    monkeypatch.setattr(learner.policy, "act", scripted)
    with closing(make_vector(env, adapter_for(env), 4, 0)) as envs:
        rollout = learner.rollout(envs)
        learner.collect(envs, envs.reset(), rollout)
    assert rollout.terminated.sum() > 8
    assert rollout.reached[rollout.terminated].all()
    assert rollout.reached.sum() > 3 * rollout.terminated.sum(), "key, door, and goal or box"


def test_a_subgoal_lasts_until_it_ends(collected: tuple[SubgoalPPO, SubgoalRollout]) -> None:
    learner, rollout = collected
    number = rollout.features[:, :, learner.policy.n_features :].argmax(axis=2)
    changed = number[1:] != number[:-1]
    ended = rollout.terminated | rollout.truncated
    assert not (changed & ended).any(), "no subgoal is named for an episode's last observation"
    assert 0.01 < changed.mean() < 0.3


def test_the_reward_of_subgoals_is_added_to_the_arms(
    collected: tuple[SubgoalPPO, SubgoalRollout], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, rollout = collected
    learned: list[SubgoalRollout] = []
    monkeypatch.setattr(PPO, "learn", lambda _, given: learned.append(given) or {})
    monkeypatch.setattr(learner, "params", learner.params.model_copy(update={"reward": 0.25}))
    before = rollout.reward.copy()
    metrics = learner.learn(rollout)
    np.testing.assert_allclose(learned[0].reward - before, 0.25 * rollout.reached, atol=1e-6)
    assert np.array_equal(rollout.reward, before), "the rollout is not changed"
    assert metrics["subgoals"] == pytest.approx(rollout.reached.sum() / rollout.valid.sum())


@pytest.mark.parametrize("settings", [{"practice": "random"}, {"options": {"plan": "progress"}}])
def test_a_resumed_run_is_the_run_that_it_would_have_been(settings: dict[str, Any], tmp_path: Path) -> None:
    task = task_of(**settings)
    adapter = adapter_for(task.env)
    run(task, adapter, tmp_path / "whole")
    expected = content(tmp_path / "whole")
    for number, updates in enumerate([[3], [2, 3], [0, 1, 5, 0]]):
        for some in updates:
            run(task, adapter, tmp_path / str(number), updates=some)
        run(task, adapter, tmp_path / str(number))
        assert content(tmp_path / str(number)) == expected, updates
    assert all(row["subgoals"] is not None for row in curve(tmp_path / "whole"))


def test_agents_that_are_trained_together_are_those_of_a_run_each(tmp_path: Path) -> None:
    tasks = [replace(task_of(), seed=seed) for seed in (1, 2)]
    adapter = adapter_for(tasks[0].env)
    train_together([Assignment(task, None, tmp_path / f"both-{task.seed}") for task in tasks], adapter, lambda _: None)
    for task in tasks:
        run(task, adapter, tmp_path / f"alone-{task.seed}")
        assert content(tmp_path / f"both-{task.seed}") == content(tmp_path / f"alone-{task.seed}")


@pytest.mark.parametrize("practice", ["random", "planned"])
def test_a_model_is_asked_in_training_only_where_it_plans_then(
    practice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = Wise()
    monkeypatch.setattr(HuggingFaceKind, "model", lambda *_: model)
    monkeypatch.setattr(HuggingFaceKind, "check_here", lambda _: None)
    monkeypatch.setattr(HuggingFaceKind, "identity", lambda _: (model.identity, True))
    annotate = AnnotateParams(annotator="huggingface")
    task = replace(task_of(practice=practice, options={}), annotate=annotate, steps=96, checkpoint_steps=96)
    adapter = adapter_for(task.env)
    run(task, adapter, tmp_path / "agent")
    asked = len(model.told)
    assert bool(asked) == (practice == "planned")
    assert read_run(tmp_path / "agent").get("accounts", {}).keys() == ({"subgoals"} if asked else set())
    actor = make_actor("checkpoint", adapter, "", path=tmp_path / "agent", annotate=annotate)
    roll_out(
        task.env.model_copy(update={"max_episode_steps": 90}),
        adapter,
        actor,
        n_envs=2,
        episodes=2,
        seed=0,
        learned=None,
    )
    assert len(model.told) > asked
    assert actor.account["states"] > 0
    with pytest.raises(
        ParamsError, match=r"asks a chat model \(judge main\), which only laurel evaluate and laurel play do"
    ):
        make_actor("checkpoint", adapter, "", path=tmp_path / "agent")


@pytest.mark.parametrize("with_action", [False, True])
def test_the_actor_gives_the_log_probabilities_of_its_actions(with_action: bool) -> None:
    adapter = adapter_for(DOORKEY, with_action=with_action)
    policy = initial_policy(adapter, SubgoalParams.model_validate(SMALL), 0, 0)
    assert isinstance(policy, SubgoalActorCritic)
    assert KEY in policy.subgoals, "subgoals do not name the action, as captions may"
    actor = policy.actor_in(adapter)
    with closing(make_vector(DOORKEY, adapter, 3, 0)) as envs:
        view = View(adapter, envs.reset())
        actor.begin(np.ones(3, dtype=np.bool_))
        acted = actor.act(view, np.random.default_rng(0))
        np.testing.assert_allclose(actor.log_prob(view, acted.action), acted.log_prob, atol=1e-6)


def test_a_loaded_agent_goes_on_with_its_subgoal_and_its_map(tmp_path: Path) -> None:
    """Step by step, with the state that the last call returned, it acts as in an evaluation."""
    adapter = adapter_for(DOORKEY)
    policy = initial_policy(adapter, SubgoalParams.model_validate(SMALL), 0, 0)
    save_policy(tmp_path / "agent", policy, env=DOORKEY.model_dump(mode="json"))
    agent = laurel.load_agent(tmp_path / "agent", seed=5)
    actor, rng = policy.actor_in(adapter), generator(5, "predict")
    assert isinstance(actor, SubgoalActor)
    env, state = gym.make(DOORKEY.id), None
    observation, _ = env.reset(seed=0)
    actor.begin(np.ones(1, dtype=np.bool_))
    for _ in range(60):
        expected = actor.act(View(adapter, adapter.pack_one(observation)[None]), rng).action
        action, state = agent.predict(observation, state)
        assert action == expected
        observation, *_ = env.step(action)
    assert state is not None
    assert vars(state[0, 0][0].map) == vars(actor.subgoals.episodes[0].map)
    assert len(state[0, 0][0].map.cells) > 9
    _, begun = agent.predict(observation, state, np.array([True]))
    assert begun is not None
    assert begun[0, 0][0].steps == 0


@pytest.mark.parametrize(("options", "expected"), [({}, True), ({"greedy": False}, False)])
def test_the_planner_is_greedy_where_the_agent_is(options: dict[str, Any], expected: bool) -> None:
    """As that of an arm with the script: evaluate.greedy is the default of its option."""
    policy = learner_of(DOORKEY, options={**DRAWN, **options}).policy
    for greedy in (False, True):
        actor = policy.actor_in(adapter_for(DOORKEY), greedy=greedy)
        assert isinstance(actor, SubgoalActor)
        assert actor.subgoals._greedy == (greedy and expected)


def test_an_agent_follows_the_subgoal_that_it_is_given() -> None:
    """With weights planted so that one subgoal means one action."""
    adapter, texts = adapter_for(DOORKEY), (EXPLORE.text, KEY)
    policy = SubgoalActorCritic(adapter.n_features, 7, hidden=(), subgoals=texts, options={})
    for parameter in policy.parameters():
        parameter.data.zero_()
    policy.actor[0].weight.data[2, -2], policy.actor[0].weight.data[3, -1] = 100.0, 100.0  # type: ignore[index,union-attr]
    features = policy.joined(np.ones((2, adapter.n_features), dtype=np.float32), np.array([0, 1]))
    assert policy.act(features, np.random.default_rng(0))[0].tolist() == [2, 3]


def test_an_arm_with_a_planner_of_its_own_has_the_role_of_this_planner() -> None:
    """Also where the section `agent` sets the algorithm, or the plan to which the arm only adds an option."""
    learns = {"algorithm": "subgoals", "subgoals": {"options": {"plan": "random"}}}
    content = {"env": {"id": DOORKEY.id}, "collect": {"steps": 1}}
    arms = {
        "plain": {"reward": None},
        "random": {"reward": None, "agent": {"subgoals": {"options": {"patience": 9}}}},
        "told": {"reward": None, "agent": {"subgoals": {"options": {"plan": "progress"}}}},
        "learned": {"reward": None, "agent": {"subgoals": {"options": {"plan": "model"}}}},
        "script": {"reward": None, "agent": {"actor": "planner", "options": {"plan": "progress"}}},
    }
    params = parse_params({**content, "arms": arms, "agent": {"seeds": [0], "steps": 1, **learns}}, "p")
    infos = arm_infos(params.arms, params.rewards, params.agent)
    assert [info.role for info in infos] == ["baseline", "control", "bound", "method", "bound"]
    assert infos[0].label == "the environment's reward, and for subgoals"
    assert infos[2].label == "the environment's reward, and for subgoals; agent.subgoals.options.plan progress"
    alone = {"learned": {"reward": None, "agent": {"algorithm": "subgoals"}}, "unused": arms["told"]}
    params = parse_params({**content, "arms": alone, "agent": {"seeds": [0], "steps": 1}}, "p")
    assert [info.role for info in arm_infos(params.arms, params.rewards, params.agent)] == ["method", "baseline"]


def test_other_environments_are_refused() -> None:
    algorithm, frozen_lake = algorithm_of(SubgoalParams()), adapter_for(EnvParams(id="FrozenLake-v1"))
    with pytest.raises(EnvError, match=r"subgoals exist only in MiniGrid's tasks, and FrozenLake-v1 is not one"):
        algorithm.check(frozen_lake)
    policy = learner_of(DOORKEY).policy
    with pytest.raises(EnvError, match=r"was trained on different subgoals .* than MiniGrid-Empty-5x5-v0 has"):
        policy.actor_in(adapter_for(EnvParams(id="MiniGrid-Empty-5x5-v0")))
    with pytest.raises(EnvError, match="needs a planner to choose its subgoals"):
        policy.as_actor()


@pytest.mark.slow
def test_an_agent_learns_what_each_subgoal_means(tmp_path: Path) -> None:
    """Told by progress, it solves the task, which it was not paid for; with subgoals at random it seldom does."""
    settings = SubgoalParams(options={"plan": "progress"})
    unpaid = ShapingParams(extrinsic=0.0)
    task = replace(task_of(), settings=settings, shaping=unpaid, steps=80 * 2048, checkpoint_steps=80 * 2048)
    adapter = adapter_for(task.env)
    run(task, adapter, tmp_path / "agent")
    policy = load_policy(tmp_path / "agent")
    assert isinstance(policy, SubgoalActorCritic)
    found = []
    for plan in ("progress", "random"):
        policy.options = {"plan": plan}
        env = task.env.model_copy(update={"max_episode_steps": 40})
        rows = roll_out(env, adapter, policy.actor_in(adapter), n_envs=8, episodes=32, seed=3, learned=None)
        found.append(np.mean([row["success"] for row in rows]))
    assert found[0] > 0.9
    assert found[1] < 0.6

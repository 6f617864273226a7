from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from laurel.agents.agent import Agent, Experience
from laurel.agents.bandits import UCB, Random
from laurel.arrays import IntArray
from laurel.classics.running import run_agent, run_episodes
from laurel.envs.builtin import ARMED_BANDIT, GRID_WORLD
from laurel.envs.builtin.grid_world import GridWorld
from laurel.envs.builtin.model import model_of
from laurel.envs.builtin.simulator import Simulator
from laurel.errors import EnvError


class Recorder(Agent):
    """Goes around in circles and remembers what it is shown."""

    def reset(self, seed: int, n_envs: int = 1) -> None:
        super().reset(seed, n_envs)
        self.seed = seed
        self.seen: list[Experience] = []

    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        return np.full(self.n_envs, len(self.seen) % 4)

    def observe(self, experience: Experience) -> None:
        self.seen.append(experience)


def test_an_agent_sees_whole_episodes() -> None:
    agent = Recorder()
    found = run_episodes(GRID_WORLD, agent, 6, 0, n_episodes=4)
    for i in range(6):
        steps = [seen for seen in agent.seen if seen.valid[i]]
        ends = [k for k, seen in enumerate(steps) if seen.terminated[i] or seen.truncated[i]]
        assert len(ends) == 4
        assert ends[-1] == len(steps) - 1, "an agent sees no more episodes than were asked for"
        assert np.diff([-1, *ends]).tolist() == found.lengths[i].tolist()
        for episode, (begin, end) in enumerate(zip([0, *[k + 1 for k in ends]], ends, strict=False)):
            of_episode = steps[begin : end + 1]
            assert of_episode[0].observation[i] == 8, "the start"
            assert sum(seen.reward[i] for seen in of_episode) == pytest.approx(found.returns[i, episode])
            for step, following in pairwise(of_episode):
                assert step.next_observation[i] == following.observation[i]


def test_a_gymnasium_environment_is_copied_with_its_options() -> None:
    steps = run_agent(gym.make(ARMED_BANDIT, n_arms=2, offset=50.0, max_episode_steps=7), Recorder(), 3, 0, n_steps=2)
    assert steps.rewards.shape == (3, 2)
    assert steps.rewards.min() > 40
    found = run_episodes(gym.make("FrozenLake-v1", is_slippery=False), Recorder(), 3, 0, n_episodes=2)
    assert found.returns.shape == found.lengths.shape == (3, 2)


def test_steps_of_bandits() -> None:
    agent = Recorder()
    steps = run_agent(gym.make(ARMED_BANDIT, n_arms=4, max_episode_steps=10), agent, 5, 0)
    assert steps.rewards.shape == (5, 10)
    np.testing.assert_array_equal(steps.rewards.T, [seen.reward for seen in agent.seen])
    assert steps.regret is not None
    assert steps.optimal is not None
    np.testing.assert_array_equal(steps.regret == 0, steps.optimal)


def test_resets_have_no_reward_and_no_best_arm() -> None:
    agent = Recorder()
    steps = run_agent(gym.make(ARMED_BANDIT, n_arms=4, max_episode_steps=3), agent, 50, 0, n_steps=8)
    assert [bool(seen.valid.all()) for seen in agent.seen] == [True] * 3 + [False] + [True] * 3 + [False]
    for t in (3, 7):
        assert not steps.rewards[:, t].any()
        assert not steps.optimal[:, t].any()


def test_agent_and_environment_have_luck_of_their_own() -> None:
    agent, envs, seeds = Recorder(), Simulator(model_of(GridWorld()), 2, 5), []
    for seed in (0, 1):
        run_agent(envs, agent, 2, seed, n_steps=3)
        seeds += [envs.np_random_seed, agent.seed]
        run_episodes(envs, agent, 2, seed, n_episodes=1)
        assert seeds[-2:] == [envs.np_random_seed, agent.seed]
    assert len(set(seeds)) == 4


def test_environments_without_a_best_arm_in_info() -> None:
    steps = run_agent(GRID_WORLD, Recorder(), 2, 0, n_steps=5)
    assert steps.optimal is None
    assert steps.regret is None


def test_runs_that_are_refused() -> None:
    agent = Recorder()
    with pytest.raises(EnvError, match="a copy is made from its spec"):
        run_agent(GridWorld(), agent, 2)
    with pytest.raises(EnvError, match="2 copies, but n_runs is 3"):
        run_agent(Simulator(model_of(GridWorld()), 2), agent, 3)
    with pytest.raises(EnvError, match="no limit"):
        run_agent(Simulator(model_of(GridWorld()), 2), agent, 2)
    with pytest.raises(EnvError, match="of 5 episodes ended in 3 steps"):
        run_episodes(GRID_WORLD, agent, 2, n_episodes=5, max_steps=3)
    same_step = gym.make_vec("FrozenLake-v1", 2, vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP})
    with pytest.raises(EnvError, match="NEXT_STEP"):
        run_agent(same_step, agent, 2)


@pytest.mark.parametrize("n_arms", [3, 5])
def test_a_bandit_agent_has_as_many_arms_as_the_environment(n_arms: int) -> None:
    env = gym.make(ARMED_BANDIT, n_arms=4)
    says = rf"has {n_arms} arms, but the environment's actions are Discrete\(4\)\. Make the agent with n_arms 4\."
    with pytest.raises(EnvError, match=says):
        run_agent(env, UCB(n_arms), 2, n_steps=3)
    with pytest.raises(EnvError, match=says):
        run_episodes(env, Random(n_arms), 2, n_episodes=1)
    with pytest.raises(EnvError, match=r"actions are Box\(.*need Discrete actions from 0 on\."):
        run_agent("Pendulum-v1", UCB(n_arms), 2)

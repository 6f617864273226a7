"""A loop as in CleanRL (here A2C) trains on a learned reward: python train_cleanrl.py, where laurel run has run."""

import gymnasium as gym
import torch
from minigrid.wrappers import ImgObsWrapper

import laurel

UPDATES = 200
reward = laurel.load_reward("data/reward/preference")
single = lambda: gym.wrappers.FlattenObservation(ImgObsWrapper(gym.make(reward.env.id)))  # noqa: E731
make = lambda: laurel.RewardWrapper(single(), reward)  # noqa: E731
envs = gym.vector.SyncVectorEnv([make] * 8)
trunk = torch.nn.Sequential(torch.nn.Linear(envs.single_observation_space.shape[0], 64), torch.nn.Tanh())
network = torch.nn.Sequential(trunk, torch.nn.Linear(64, envs.single_action_space.n + 1))
optimizer = torch.optim.Adam(network.parameters(), 1e-3)
(observation, _), over = envs.reset(seed=0), torch.zeros(8, dtype=torch.bool)
for _ in range(UPDATES):
    out = network(torch.as_tensor(observation, dtype=torch.float32))
    policy, value = torch.distributions.Categorical(logits=out[:, :-1]), out[:, -1]
    action = policy.sample()
    observation, paid, terminated, truncated, info = envs.step(action.numpy())
    after = network(torch.as_tensor(observation, dtype=torch.float32))[:, -1].detach() * ~torch.as_tensor(terminated)
    advantage = torch.as_tensor(paid, dtype=torch.float32) + 0.99 * after - value
    loss = ((advantage**2 - policy.log_prob(action) * advantage.detach() - 0.01 * policy.entropy()) * ~over).mean()
    over = torch.as_tensor(terminated | truncated)  # the next step only resets these
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(paid[0], info["laurel"]["caption"][0])

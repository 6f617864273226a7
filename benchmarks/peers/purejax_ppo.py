"""PPO on CartPole with the whole loop in one compiled `lax.scan`: run in an environment of its own, prints JSON.

PureJaxRL (Lu et al. 2022, https://github.com/luchris429/purejaxrl) is not on PyPI. This follows its `ppo.py`: its
structure and its hyperparameters, which are those of CleanRL; the networks are written out, so that no more packages
are needed. Called with a seed.
"""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, str(Path(__file__).resolve().parent))
from reaching import Clock

N_ENVS, N_STEPS, TOTAL, EPOCHS, MINIBATCHES = 4, 128, 500_000, 4, 4
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, NORM, RATE, HIDDEN = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5, 2.5e-4, 64
UPDATES = TOTAL // (N_ENVS * N_STEPS)


def layers(key, sizes, gain):
    """Make a network: weights are orthogonal, as in CleanRL."""
    made = []
    for i, (n_in, n_out) in enumerate(pairwise(sizes)):
        key, layer_key = jax.random.split(key)
        scale = gain if i == len(sizes) - 2 else np.sqrt(2)
        made.append((jax.nn.initializers.orthogonal(scale)(layer_key, (n_in, n_out)), jnp.zeros(n_out)))
    return made


def run(network, x):
    """Compute a network's output."""
    for weight, bias in network[:-1]:
        x = jnp.tanh(x @ weight + bias)
    return x @ network[-1][0] + network[-1][1]


def act(params, observation):
    """Return log-probabilities and values."""
    return jax.nn.log_softmax(run(params["actor"], observation)), run(params["critic"], observation)[..., 0]


def chosen(log_probs, action):
    """Return the log-probabilities of actions."""
    return jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]


def make_train():
    """Return the function that trains from a random key and gives the returns of all steps that ended an episode."""
    env, env_params = gymnax.make("CartPole-v1")

    def rate(count):
        return RATE * (1.0 - (count // (MINIBATCHES * EPOCHS)) / UPDATES)

    optimizer = optax.chain(optax.clip_by_global_norm(NORM), optax.adam(rate, eps=1e-5))

    def loss_of(params, batch, advantage, target):
        observation, action, old_log_prob, old_value = batch
        log_probs, value = act(params, observation)
        ratio = jnp.exp(chosen(log_probs, action) - old_log_prob)
        near = old_value + (value - old_value).clip(-CLIP, CLIP)
        value_loss = 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2).mean()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss = -jnp.minimum(ratio * advantage, ratio.clip(1 - CLIP, 1 + CLIP) * advantage).mean()
        entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
        return policy_loss + VALUE * value_loss - ENTROPY * entropy

    def train(key):
        key, for_actor, for_critic, for_envs = jax.random.split(key, 4)
        params = {"actor": layers(for_actor, (4, HIDDEN, HIDDEN, 2), 0.01)}
        params["critic"] = layers(for_critic, (4, HIDDEN, HIDDEN, 1), 1.0)
        observation, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(for_envs, N_ENVS), env_params)
        running = jnp.zeros(N_ENVS)

        def step(carry, _):
            params, state, observation, running, key = carry
            key, for_action, for_step = jax.random.split(key, 3)
            log_probs, value = act(params, observation)
            action = jax.random.categorical(for_action, log_probs)
            next_observation, state, reward, terminated, truncated, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
                jax.random.split(for_step, N_ENVS), state, action, env_params
            )
            done = terminated | truncated  # what gymnax called done when PureJaxRL was written
            running = running + reward
            ended = jnp.where(done, running, jnp.nan)
            kept = (observation, action, chosen(log_probs, action), value), reward, done, ended
            return (params, state, next_observation, jnp.where(done, 0.0, running), key), kept

        def update(carry, _):
            params, optimum, state, observation, running, key = carry
            (_, state, observation, running, key), (batch, reward, done, ended) = jax.lax.scan(
                step, (params, state, observation, running, key), None, N_STEPS
            )
            last = act(params, observation)[1]

            def estimate(following, row):
                value, reward, done, next_value = row
                error = reward + GAMMA * next_value * (1 - done) - value
                following = error + GAMMA * LAMBDA * (1 - done) * following
                return following, following

            value = batch[3]
            next_values = jnp.concatenate([value[1:], last[None]])
            _, advantage = jax.lax.scan(estimate, jnp.zeros(N_ENVS), (value, reward, done, next_values), reverse=True)
            rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (batch, advantage, advantage + value))

            def epoch(carry, _):
                params, optimum, key = carry
                key, epoch_key = jax.random.split(key)
                order = jax.random.permutation(epoch_key, N_ENVS * N_STEPS)
                shuffled = jax.tree.map(lambda x: x[order].reshape(MINIBATCHES, -1, *x.shape[1:]), rows)

                def descend(carry, minibatch):
                    params, optimum = carry
                    change, optimum = optimizer.update(jax.grad(loss_of)(params, *minibatch), optimum)
                    return (optax.apply_updates(params, change), optimum), None

                (params, optimum), _ = jax.lax.scan(descend, (params, optimum), shuffled)
                return (params, optimum, key), None

            (params, optimum, key), _ = jax.lax.scan(epoch, (params, optimum, key), None, EPOCHS)
            return (params, optimum, state, observation, running, key), ended

        carry = (params, optimizer.init(params), state, observation, running, key)
        return jax.lax.scan(update, carry, None, UPDATES)[1]

    return train


def main() -> None:
    """Compile, train, and print."""
    key = jax.random.PRNGKey(int(sys.argv[1]))
    started, worked = time.perf_counter(), time.process_time()
    compiled = jax.jit(make_train()).lower(key).compile()
    compiling = time.perf_counter() - started
    ended = np.asarray(compiled(key))  # (updates, steps, environments)
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    steps, reached, clock = UPDATES * N_STEPS * N_ENVS, None, Clock(N_ENVS)
    for update, rows in enumerate(ended):
        for step in rows:
            solved = clock.reached((int(i), float(step[i])) for i in np.flatnonzero(~np.isnan(step)))
        if reached is None and solved:
            reached = update + 1
    to_goal = None if reached is None else compiling + (seconds - compiling) * reached / UPDATES
    figures = {"steps": steps, "seconds": seconds, "cpu_seconds": cpu, "compile_seconds": compiling}
    sys.stdout.write(json.dumps(figures | {"seconds_to_goal": to_goal, "last": clock.mean}))


if __name__ == "__main__":
    main()

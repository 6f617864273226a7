"""The recorder against a slow obvious loop over each environment's steps."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.data.recorder import EpisodeRecorder
from laurel.data.trajectories import Rows

Episode = tuple[tuple[Any, ...], ...]


def episodes_of(parts: list[Rows]) -> list[Episode]:
    """Each episode as its rows; what stands beside a final observation is left out."""
    found: list[Episode] = []
    current: list[tuple[Any, ...]] = []
    for rows in parts:
        for i in range(len(rows)):
            observation = tuple(rows.observation[i].tolist())
            if rows.final[i]:
                found.append((*current, observation))
                current = []
            else:
                step = (rows.action[i], rows.reward[i], rows.terminated[i], rows.truncated[i], rows.log_prob[i])
                current.append((observation, int(rows.policy[i]), *(float(x) for x in step)))
        assert not current, "rows handed over must be whole episodes"
    return found


@settings(max_examples=150, deadline=None)
@given(data=st.data(), n_envs=st.integers(1, 4), n_steps=st.integers(1, 25), block=st.integers(1, 8))
def test_episodes_are_those_of_a_loop_over_each_environment(data: Any, n_envs: int, n_steps: int, block: int) -> None:
    ends = np.array(data.draw(st.lists(st.booleans(), min_size=n_envs * n_steps, max_size=n_envs * n_steps)))
    ends = ends.reshape(n_steps, n_envs)
    for t in range(1, n_steps):  # the step after an end is a reset and ends nothing
        ends[t] &= ~ends[t - 1]
    valid = np.ones_like(ends)
    valid[1:] = ~ends[:-1]
    undo = valid[-1] & np.array(data.draw(st.lists(st.booleans(), min_size=n_envs, max_size=n_envs)))
    terminated = ends & (np.arange(n_steps)[:, None] % 2 == 0)
    numbers = np.arange((n_steps + 1) * n_envs, dtype=np.float32).reshape(n_steps + 1, n_envs)
    observation = np.stack([numbers, -numbers], axis=-1)
    policy = (np.arange(n_envs) % 2).astype(np.int8)

    parts: list[Rows] = []
    recorder = EpisodeRecorder(observation[0], (), np.dtype(np.int64), policy, parts.append, block)
    for t in range(n_steps):
        step = numbers[t]
        recorder.record(
            step, step / 2, step / 4, observation[t + 1], step * 3, terminated[t], ends[t] & ~terminated[t], valid[t]
        )
    running = recorder.finish(undo)

    expected: list[Episode] = []
    expected_running = 0
    for env in range(n_envs):
        episode: list[tuple[Any, ...]] = []
        for t in range(n_steps - int(undo[env])):
            before = tuple(observation[t, env].tolist())
            if not valid[t, env]:
                expected.append((*episode, before))
                episode = []
                continue
            n = float(numbers[t, env])
            flags = float(terminated[t, env]), float(ends[t, env] & ~terminated[t, env])
            episode.append((before, int(policy[env]), n, n * 3, *flags, n / 2))
        if episode:
            expected.append((*episode, tuple(observation[n_steps - int(undo[env]), env].tolist())))
            expected_running += not (episode[-1][4] or episode[-1][5])
    assert sorted(episodes_of(parts), key=str) == sorted(expected, key=str)
    assert running == expected_running


def test_rows_already_written_are_not_written_again() -> None:
    parts: list[Rows] = []
    zeros = np.zeros(1, dtype=np.float32)
    flag = np.zeros(1, dtype=np.bool_)
    recorder = EpisodeRecorder(
        zeros[:, None], (), np.dtype(np.int64), np.zeros(1, dtype=np.int8), parts.append, block_steps=2
    )
    for t in range(1, 7):
        ended = np.array([t % 2 == 1])
        recorder.record(zeros, zeros, zeros, zeros[:, None] + t, zeros, ended, flag, ~np.array([t % 2 == 0]))
    recorder.finish(flag)
    assert [rows.observation[:, 0].tolist() for rows in parts] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]

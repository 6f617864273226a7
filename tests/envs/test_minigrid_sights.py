"""What comes into view in MiniGrid: the same for many steps at once, whose rows may overlap, as for each alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.envs import adapter_for
from laurel.envs.base import Transitions
from laurel.envs.minigrid_sights import first_sight
from laurel.envs.vector import make_vector
from laurel.params import EnvParams


@pytest.mark.parametrize("apart", [1, 3, 20])
def test_what_comes_into_view_is_equal_in_overlapping_rollouts_and_step_by_step(apart):
    """`apart` rows of one array lie between a step and the next of its environment."""
    rng = np.random.default_rng(0)
    rows = rng.choice([1, 2, 4, 5, 6, 7, 8], p=[0.7, 0.25, *5 * [0.01]], size=(60 + apart, 148)).astype(np.uint8)
    rows[:, 1:147:3] = rng.integers(0, 6, (len(rows), 49))
    before, after = rows[:60], rows[apart:]
    together = first_sight(before, after)
    alone = [first_sight(before[i : i + 1].copy(), after[i : i + 1].copy())[0] for i in range(60)]
    np.testing.assert_array_equal(together, alone)
    for seen, earlier, later in zip(together, before, after, strict=True):
        new = set(later[:147:3].tolist()) - set(earlier[:147:3].tolist())
        expected = max(new & {4, 5, 6, 7, 8}, default=0)
        assert seen[0] == expected
        assert not expected or seen[1] == later[3 * int(np.argmax(later[:147:3] == expected)) + 1]
    assert len(set(together[:, 0])) > 4
    np.testing.assert_array_equal(first_sight(after, before), first_sight(after.copy(), before.copy()))


@given(
    n=st.integers(0, 9),
    apart=st.integers(0, 12),
    step=st.sampled_from([1, 2, -1]),
    unused=st.integers(0, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=200, deadline=None)
def test_views_of_one_array_show_what_copies_show(n, apart, step, unused, seed):
    """Whatever of them overlaps: all rows, none, a single one, every second, backwards, or columns of wider rows."""
    rng = np.random.default_rng(seed)
    size = 2 * n + apart + 1, 148 + unused
    whole = rng.choice([1, 2, 4, 5, 6, 7, 8], p=[0.7, 0.25, *5 * [0.01]], size=size).astype(np.uint8)
    part = whole[::step, :148]
    views = part[:n], whole[apart:, :148][::step][:n]
    same = np.broadcast_to(part[:1], (n, 148))
    for before, after in (views, views[::-1], (same, same), (views[0], whole[2 : n + 2, :148])):
        np.testing.assert_array_equal(first_sight(before, after), first_sight(before.copy(), after.copy()))


@pytest.mark.parametrize("env_id", ["MiniGrid-LavaCrossingS9N1-v0", "MiniGrid-Fetch-5x5-N2-v0", "BabyAI-GoToLocal-v0"])
def test_steps_are_captioned_in_a_batch_as_one_by_one(env_id):
    adapter = adapter_for(EnvParams(id=env_id))
    envs, rng = make_vector(EnvParams(id=env_id), adapter, 8, 0), np.random.default_rng(0)
    rows = np.zeros((61, 8, adapter.observation_size), np.uint8)
    actions = rng.choice(7, p=[0.14, 0.14, 0.36, 0.12, 0.06, 0.16, 0.02], size=(60, 8))
    reward, ended, valid = np.zeros((60, 8), np.float32), np.zeros((60, 8), np.bool_), np.zeros((60, 8), np.bool_)
    rows[0] = envs.reset()
    for t, action in enumerate(actions):
        step = envs.step(action)
        rows[t + 1], reward[t], ended[t], valid[t] = step.observation, step.reward, step.terminated, step.valid
    before, after = rows[:-1].reshape(480, -1), rows[1:].reshape(480, -1)
    flat = [array.reshape(-1) for array in (actions, reward, ended, valid)]
    steps = Transitions(before, flat[0], flat[1], after, flat[2], np.zeros(480, np.bool_))
    ends = (flat[2] | (flat[1] > 0)) & flat[3]
    assert (ends.any(), (~ends).any()) == (True, True)
    events = adapter.encode(steps)
    assert len(set(events.tolist())) > 5
    for i in np.flatnonzero(flat[3]):
        assert events[i] == adapter.encode(steps[i : i + 1])[0] == adapter.encode(steps[[i]])[0]

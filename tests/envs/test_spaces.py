"""Packing: what goes into a row comes out of it, batched or alone."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laurel.envs.spaces import PackedSpace, one_hot
from laurel.errors import EnvError

discrete = st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 300), st.integers(-5, 5))
multi_discrete = st.builds(
    lambda sizes, start: spaces.MultiDiscrete(sizes, start=[start] * len(sizes)),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(-3, 3),
)
multi_binary = st.builds(
    spaces.MultiBinary, st.one_of(st.integers(1, 5), st.tuples(st.integers(1, 3), st.integers(1, 3)))
)
shapes = st.one_of(
    st.just(()), st.tuples(st.integers(1, 4)), st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3))
)
boxes = st.one_of(
    st.builds(lambda shape: spaces.Box(-1.0, 2.0, shape, np.float32), shapes),
    st.builds(lambda shape: spaces.Box(-np.inf, np.inf, shape, np.float32), shapes),
    st.builds(lambda shape: spaces.Box(0.0, np.inf, shape, np.float64), shapes),
    st.builds(lambda shape: spaces.Box(0, 255, shape, np.uint8), shapes),
    st.builds(lambda shape: spaces.Box(-7, 7, shape, np.int64), shapes),
)
leaves = st.one_of(discrete, multi_discrete, multi_binary, boxes)
any_space = st.recursive(
    leaves,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from(["view", "near_by", "z"]), parts, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=5,
)  # fmt: skip
thorough = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def same(space, left, right):
    match space:
        case spaces.Dict():
            assert left.keys() == right.keys()
            for key, part in space.spaces.items():
                same(part, left[key], right[key])
        case spaces.Tuple():
            assert len(left) == len(right) == len(space.spaces)
            for part, first, second in zip(space.spaces, left, right, strict=True):
                same(part, first, second)
        case _:
            np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=1e-6)
            assert np.shape(left) == np.shape(right)


@thorough
@given(any_space, st.integers(0, 99))
def test_a_packed_observation_unpacks_to_itself(space, seed):
    space.seed(seed)
    packed = PackedSpace(space)
    observation = space.sample()
    row = packed.pack_one(observation)
    assert row.shape == (packed.size,)
    assert row.dtype == packed.dtype
    same(space, packed.unpack(row), observation)
    np.testing.assert_array_equal(packed.pack_one(packed.unpack(row)), row)


@thorough
@given(any_space, st.integers(0, 99))
def test_a_batch_packs_like_its_members(space, seed):
    packed = PackedSpace(space)
    batched = batch_space(space, 3)
    batched.seed(seed)
    observations = batched.sample()
    rows = packed.pack(observations)
    assert rows.shape == (3, packed.size)
    assert rows.dtype == packed.dtype
    members = list(gym.vector.utils.iterate(batched, observations))
    np.testing.assert_array_equal(rows, [packed.pack_one(member) for member in members])
    np.testing.assert_array_equal(packed.pack(rows), rows)


@thorough
@given(any_space, st.integers(0, 99))
def test_features_are_finite_and_bounded_where_the_space_is(space, seed):
    space.seed(seed)
    packed = PackedSpace(space)
    rows = np.stack([packed.pack_one(space.sample()) for _ in range(4)])
    with np.errstate(all="raise"):
        features = packed.features(rows)
    assert features.dtype == np.float32
    assert features.shape[0] == 4
    assert np.isfinite(features).all()
    width = 0
    for leaf in packed.leaves:
        part = leaf.space
        bounded = not isinstance(part, spaces.Box) or (np.isfinite(part.low).all() and np.isfinite(part.high).all())
        n = {spaces.Discrete: lambda s: int(s.n), spaces.MultiDiscrete: lambda s: int(s.nvec.sum())}.get(
            type(part), lambda s, size=leaf.size: size
        )(part)
        if bounded:
            assert np.abs(features[:, width : width + n]).max() <= 1 + 1e-5
        width += n
    assert features.shape[1] == width


def test_discrete_parts_are_one_hot_from_where_they_start():
    packed = PackedSpace(spaces.Discrete(3, start=-1))
    np.testing.assert_array_equal(packed.features(np.array([[-1], [1]])), [[1, 0, 0], [0, 0, 1]])
    packed = PackedSpace(spaces.MultiDiscrete([2, 3], start=[5, 0]))
    np.testing.assert_array_equal(packed.features(np.array([[6, 2], [5, 0]])), [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]])
    np.testing.assert_array_equal(one_hot(np.array([1, 0]), 2), [[0, 1], [1, 0]])


def test_boxes_are_scaled_by_their_bounds_where_these_say_something():
    low, high = np.float32([0, -4.8, -3.4e38, -3.4e38]), np.float32([10, 4.8, 3.4e38, 5])
    packed = PackedSpace(spaces.Box(low, high))
    rows = np.float32([[10, -4.8, 7, 2], [5, 0, -7, 5]])
    np.testing.assert_allclose(packed.features(rows), [[1, -1, 7, 2], [0, 0, -7, 5]])


def test_integers_are_kept_in_32_bits_where_they_fit():
    assert PackedSpace(spaces.Discrete(500)).dtype == np.int32
    assert PackedSpace(spaces.Box(0, 2**40, (2,), np.int64)).dtype == np.int64
    packed = PackedSpace(spaces.Box(0, 2**40, (2,), np.int64))
    assert packed.unpack(packed.pack_one(np.array([2**39, 1]))).tolist() == [2**39, 1]


def test_text_is_left_out():
    space = spaces.Dict({"mission": spaces.Text(20), "place": spaces.Discrete(4)})
    packed = PackedSpace(space)
    assert packed.pack_one({"mission": "go", "place": 3}).tolist() == [3]
    assert packed.unpack(np.array([3])) == {"mission": "", "place": 3}


def test_the_parts_know_their_names():
    space = spaces.Dict(
        {"arm": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))]), "eye": spaces.MultiBinary(2)}
    )
    assert [leaf.name for leaf in PackedSpace(space).leaves] == ["arm part 1", "arm part 2", "eye"]
    assert PackedSpace(spaces.Discrete(2)).leaves[0].name == ""


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (spaces.Sequence(spaces.Discrete(3)), "has no flat form"),
        (spaces.Graph(spaces.Discrete(3), None), "has no flat form"),
        (spaces.Text(5), "has no numbers"),
        (spaces.Dict({"words": spaces.Text(5)}), "has no numbers"),
    ],
)
def test_spaces_without_a_flat_form_are_refused(space, why):
    with pytest.raises(EnvError, match=why):
        PackedSpace(space)

"""Counts against a slow obvious loop, however the steps are cut into shards."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.data.captions import CaptionTally, Segments, SegmentTally
from laurel.data.trajectories import Position
from laurel.envs.captioner import collapse

TEXTS = ["You turn.", "You move.", "You bump.", "You win."]
EPISODES = st.lists(st.lists(st.integers(-1, 3), min_size=1, max_size=9), min_size=1, max_size=8)


def shards(episodes: list[list[int]], cut: int) -> list[tuple[Position, np.ndarray]]:
    """Cut episodes into shards of `cut` episodes."""
    found = []
    for start in range(0, len(episodes), cut):
        part = episodes[start : start + cut]
        number = np.repeat(np.arange(start, start + len(part)), [len(e) for e in part])
        t = np.concatenate([np.arange(len(e)) for e in part]).astype(np.int32)
        found.append((Position(number, t), np.array([i for e in part for i in e], dtype=np.int64)))
    return found


@settings(max_examples=100, deadline=None)
@given(episodes=EPISODES, cut=st.integers(1, 4))
def test_captions(episodes: list[list[int]], cut: int) -> None:
    tally = CaptionTally()
    for position, ids in shards(episodes, cut):
        tally.update(position, ids)
    vocabulary = tally.vocabulary(TEXTS)
    steps = [(e, t, caption) for e, ids in enumerate(episodes) for t, caption in enumerate(ids)]
    for caption in range(len(TEXTS)):
        where = [(e, t) for e, t, found in steps if found == caption]
        assert vocabulary.counts[caption] == len(where)
        first = (vocabulary.first_episode[caption], vocabulary.first_t[caption])
        assert first == (where[0] if where else (-1, -1))
    assert tally.transitions == len(steps)
    assert tally.captioned == sum(caption >= 0 for _, _, caption in steps)
    assert tally.distinct == len({caption for _, _, caption in steps} - {-1})


@settings(max_examples=150, deadline=None)
@given(episodes=EPISODES, cut=st.integers(1, 4), length=st.integers(1, 5), at_most=st.integers(1, 12))
def test_segments(episodes: list[list[int]], cut: int, length: int, at_most: int) -> None:
    tally = SegmentTally(length)
    for position, ids in shards(episodes, cut):
        tally.update(position, ids)
    segments, dropped = tally.segments(TEXTS, at_most)

    counts: Counter[tuple[int, ...]] = Counter()  # remembers the order of appearance
    for ids in episodes:
        for start in range(0, len(ids), length):
            said = tuple(caption for caption in ids[start : start + length] if caption >= 0)
            if said:
                counts[said] += 1
    kept = {captions for captions, _ in counts.most_common(at_most)}
    expected = [(captions, n) for captions, n in counts.items() if captions in kept]
    found = [tuple(c for c in row if c >= 0) for row in segments.members.tolist()]
    assert list(zip(found, segments.counts.tolist(), strict=True)) == expected
    assert list(segments.texts) == [collapse([TEXTS[c] for c in captions]) for captions, _ in expected]
    assert dropped == len(counts) - len(expected)


def test_the_first_of_equally_frequent_segments_are_kept() -> None:
    order = np.random.default_rng(0).permutation(300)
    twice = order[order % 3 == 0]
    tally = SegmentTally(2)
    for ids in (order, twice):
        tally.update(Position(np.arange(len(ids)), np.zeros(len(ids), np.int32)), ids)
    segments, dropped = tally.segments([str(i) for i in range(300)], 150)
    kept = {*twice.tolist(), *order[order % 3 != 0][:50].tolist()}
    assert (segments.members[:, 0].tolist(), dropped) == ([i for i in order if i in kept], 150)


def test_a_single_step_is_its_captions_segment() -> None:
    tally = CaptionTally()
    tally.update(*shards([[2, 0, -1, 2]], 1)[0])
    segments = Segments.units(tally.vocabulary(TEXTS))
    assert segments.members.tolist() == [[0], [1], [2], [3]]
    assert (list(segments.texts), segments.counts.tolist()) == (TEXTS, [1, 0, 2, 0])

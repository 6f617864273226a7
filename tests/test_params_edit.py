"""Values changed in the text of a params file."""

from __future__ import annotations

import copy
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.params.edit import edited
from laurel.params.file import read_value
from tiny_project import REPOSITORY

NAMES = st.sampled_from(["a", "bc", "n_envs"])
LEAVES = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none(), st.text())
VALUES = st.one_of(LEAVES, st.lists(st.integers(), max_size=3))
SECTIONS = st.recursive(
    st.dictionaries(NAMES, VALUES, min_size=1, max_size=3),
    lambda inner: st.dictionaries(NAMES, st.one_of(VALUES, inner), min_size=1, max_size=3),
    max_leaves=8,
)


def changed(content: dict[str, Any], name: str, value: Any) -> dict[str, Any] | None:
    """The slow, obvious way; None where the name leads through what is no section."""
    content = copy.deepcopy(content)
    *sections, last = name.split(".")
    place: Any = content
    for section in sections:
        place = place.setdefault(section, {})
        if not isinstance(place, dict):
            return None
    place[last] = value
    return content


@settings(max_examples=60, deadline=None)
@given(SECTIONS, st.lists(NAMES, min_size=1, max_size=3), VALUES, st.sampled_from([None, True, False]))
def test_reads_back_as_what_was_changed(content: Any, path: list[str], value: Any, flow: bool | None) -> None:
    name = ".".join(path)
    expected = changed(content, name, value)
    if expected is None:
        return
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=flow)
    assert read_value(edited(text, {name: value}), "text") == expected


def test_comments_and_layout_stay() -> None:
    text = (REPOSITORY / "params.yaml").read_text()
    made = edited(
        text, {"shaping.intrinsic": 0.05, "agent.ppo.hidden": [8], "agent.seeds": [7], "agent.ppo.clip": 1e-05}
    )
    before, after = text.splitlines(), made.splitlines()
    differing = [(a, b) for a, b in zip(before, [line for line in after if "clip:" not in line], strict=True) if a != b]
    assert [pair[1].partition("#")[0].strip() for pair in differing] == ["intrinsic: 0.05", "seeds: [7]", "hidden: [8]"]
    assert all(old.partition("#")[2] == new.partition("#")[2] for old, new in differing)
    assert "    clip: 1.0e-05" in after
    commented = edited("a: 0.5    # why\nb: 1 # x\n", {"a": 0.123, "b": 1234})
    assert commented == "a: 0.123  # why\nb: 1234  # x\n", "comments keep their column where they can"
    assert "shaping:                      # r = extrinsic" in made


def test_comments_after_a_list_stay() -> None:
    text = "a:\n- 1  # one\n- 2\n\n# of b\nb:\nc: 3\n"
    assert edited(text, {"a": [4], "b": 5}) == "a: [4]\n\n# of b\nb: 5\nc: 3\n"

"""Params written out and read back, and whatever a file may hold."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laurel.errors import ParamsError
from laurel.params import Params, parse_params
from laurel.params.arms import WELL_KNOWN
from laurel.params.kinds import ALGORITHMS
from minimal_params import MINIMAL, keys_of, with_value

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


KEYS = keys_of(parse_params(MINIMAL, "my.yaml"))


@given(st.dictionaries(st.text() | st.sampled_from(sorted(Params.model_fields)), JSON, max_size=5) | JSON)
def test_arbitrary_content_is_never_a_traceback(content: Any) -> None:
    with pytest.raises(ParamsError, match=r"^my\.yaml: "):
        parse_params(content, "my.yaml")


@given(st.sampled_from(KEYS), JSON)
@example("annotate.judges", {"": {}})
@example("annotate.judges", {"teacher": {"": None}})
def test_one_arbitrary_value_is_never_a_traceback(key: str, value: Any) -> None:
    try:
        parse_params(with_value(key, value), "my.yaml")
    except ParamsError as error:
        section = key.rpartition(".")[0]
        for line in str(error).splitlines():
            assert line.startswith((f"my.yaml: {key}", f"my.yaml: {section} has an invalid ")) or f" in {key} " in line


POSITIVE = st.floats(0, 1e300, exclude_min=True) | st.integers(1, 10**9)
COUNT = st.integers(1, 2**31 - 1)
KWARGS = st.dictionaries(st.text(), JSON.filter(lambda value: "nan" not in repr(value)), max_size=3)
POLICY = st.fixed_dictionaries(
    {}, optional={"kind": st.sampled_from(["random", "checkpoint"]), "share": POSITIVE, "epsilon": st.floats(0, 1)}
).map(lambda policy: policy | {"path": "data/agents/x"} if policy.get("kind") == "checkpoint" else policy)
GOOD = {
    "seed": st.integers(0, 2**31 - 1),
    "env.kwargs": KWARGS,
    "env.max_episode_steps": st.none() | COUNT,
    "collect.policies": st.lists(POLICY, min_size=1, max_size=3),
    "caption.with_action": st.booleans(),
    "annotate.embedding.goal": st.none() | st.text(),
    "annotate.embedding.temperature": POSITIVE,
    "annotate.scripted.error_rate": st.floats(0, 1) | st.integers(0, 1),
    "rewards.preference.hidden": st.lists(COUNT, max_size=3),
    "rewards.preference.input": st.sampled_from(["caption", "observation"]),
    "shaping.beta": st.floats(0, 1e300) | st.integers(0, 100),
    "shaping.quantile": st.floats(0, 1, exclude_max=True),
    "arms": st.just("full") | st.lists(st.sampled_from([*WELL_KNOWN]), min_size=1, unique=True),
    "agent.seeds": st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5, unique=True),
    "agent.workers": st.none() | COUNT,
    "agent.ppo.gamma": st.floats(0, 1),
}


@given(st.fixed_dictionaries({}, optional=GOOD))
def test_a_dump_reads_back_as_the_same_params(values: dict[str, Any]) -> None:
    content = copy.deepcopy(MINIMAL)
    for key, value in values.items():
        section = content
        *parents, last = key.split(".")
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
    params = parse_params(content, "my.yaml")
    assert parse_params(params.dump(), "dump") == params
    assert parse_params(json.loads(json.dumps(params.dump())), "json") == params


def test_a_dump_keeps_infinite_arguments() -> None:
    params = parse_params(with_value("env.kwargs", {"limit": math.inf}), "my.yaml")
    assert params.dump("env")["env"]["kwargs"] == {"limit": math.inf}


def test_dump_of_some_sections() -> None:
    params = parse_params(with_value("collect.policies", [{"kind": "checkpoint", "path": "data/x"}]), "my.yaml")
    some = params.dump("seed", "collect")
    assert set(some) == {"seed", "collect"}
    assert some["collect"]["policies"][0]["path"] == "data/x"
    assert set(params.dump()) == set(Params.model_fields)


@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin())
def test_used_params_name_one_algorithm_and_no_workers(algorithm: str) -> None:
    """So that what an unused section says reruns no stage, and what the used one says does."""
    used = parse_params(with_value("agent.algorithm", algorithm), "my.yaml").used("seed", "agent")
    assert set(used) == {"seed", "agent"}
    assert set(used["agent"]) & {*ALGORITHMS.builtin(), "workers"} == {algorithm}
    other = next(name for name in ALGORITHMS.builtin() if name != algorithm)
    for name, differs in ((algorithm, True), (other, False)):
        content = with_value(f"agent.{name}.n_envs", 96)
        content["agent"]["algorithm"] = algorithm
        assert (parse_params(content, "my.yaml").used("seed", "agent") != used) is differs
    assert "agent" not in parse_params(MINIMAL, "my.yaml").used("seed")

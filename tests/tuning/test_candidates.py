from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.errors import ParamsError
from laurel.params import Params
from laurel.params.search import read_space, with_values
from laurel.tuning.candidates import candidates
from laurel.tuning.plan import narrowed

ENTRIES = [
    "shaping.intrinsic=log:0.01:1",
    "shaping.beta=0:4",
    "agent.ppo.n_epochs=1:3",
    "agent.ppo.hidden=[8],[16],[32]",
]


@settings(max_examples=20, deadline=None)
@given(sampler=st.sampled_from(["sobol", "random"]), n=st.integers(1, 40), seed=st.integers(0, 5))
def test_more_candidates_begin_with_the_fewer(params: Params, sampler: str, n: int, seed: int) -> None:
    space = read_space(ENTRIES, params, "preference")
    drawn = candidates(space, params, n, sampler, seed)
    assert len(drawn) == n
    assert candidates(space, params, n + 3, sampler, seed)[:n] == drawn
    for candidate in drawn:
        assert all(space[name].holds(value) for name, value in candidate.items())
        with_values(params, candidate)


def test_draws_cover_the_space_evenly(params: Params) -> None:
    space = read_space(ENTRIES, params, "preference")
    drawn = candidates(space, params, 256, "sobol", 0)
    logs = np.log10([candidate["shaping.intrinsic"] for candidate in drawn])  # type: ignore[arg-type]
    assert np.mean(logs < -1) == pytest.approx(0.5, abs=0.02), "a decade as often as the next"
    for name, n in (("agent.ppo.n_epochs", 3), ("agent.ppo.hidden", 3)):
        counts = np.unique([str(candidate[name]) for candidate in drawn], return_counts=True)[1]
        assert len(counts) == n
        assert counts.min() > 256 / n * 0.9, "both ends as often as the middle"


def test_own_values_come_first(params: Params) -> None:
    space = read_space(["shaping.intrinsic=log:0.01:1"], params, "preference")
    for sampler in ("sobol", "random"):
        assert candidates(space, params, 2, sampler, 0)[0] == {"shaping.intrinsic": 0.1}
    outside = read_space(["shaping.intrinsic=0.5:1"], params, "preference")
    assert candidates(outside, params, 2, "random", 0)[0] != {"shaping.intrinsic": 0.1}


def test_seeds_differ(params: Params) -> None:
    space = read_space(ENTRIES, params, "preference")
    for sampler in ("sobol", "random"):
        assert candidates(space, params, 5, sampler, 0) != candidates(space, params, 5, sampler, 1)


def test_a_grid_is_every_combination_once(params: Params) -> None:
    space = read_space(["shaping.intrinsic=0.05,0.1", "agent.ppo.hidden=[8],[64, 64]"], params, "preference")
    drawn = candidates(space, params, 100, "grid", 0)
    assert drawn[0] == {"shaping.intrinsic": 0.1, "agent.ppo.hidden": [64, 64]}, "its own"
    assert sorted(map(str, drawn)) == sorted(
        str({"shaping.intrinsic": weight, "agent.ppo.hidden": hidden})
        for weight in (0.05, 0.1)
        for hidden in ([8], [64, 64])
    )
    assert candidates(space, params, 3, "grid", 0) == drawn[:3], "no more than asked for are paid for"
    with pytest.raises(ParamsError, match=r"grid needs choices, but shaping\.beta is a range"):
        candidates(read_space(["shaping.beta=0:1"], params, "preference"), params, 3, "grid", 0)


def test_a_trial_has_a_checkpoint_at_each_point_where_it_may_be_pruned(params: Params) -> None:
    trial = narrowed(params, "preference", (1000,), 50_000)
    assert (trial.agent.seeds, trial.agent.steps, trial.agent.checkpoint_steps) == ((1000,), 50_000, 5_000)
    assert trial.arm_names == ("preference",)

"""What a search leaves as a params file, where the file that it began with cannot be edited in place."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laurel.errors import DataError
from laurel.params import Params, parse_params
from laurel.params.file import read_value
from laurel.params.search import Searched, Sweep
from laurel.tuning.results import _best, _notes, summary
from laurel.tuning.trials import Trial

WHOLE = """\
env: {id: CartPole-v1}
collect: {steps: 100}
arms: [preference]
agent:
  seeds: [0]
  steps: 1000
  ppo: &shared
    # of both
    gamma: 0.9
  a2c: *shared
"""


def best(text: str, params: Params, **values: Any) -> str:
    trial: Any = SimpleNamespace(values={name.replace("__", "."): value for name, value in values.items()}, number=0)
    return _best(params, text, [], trial, Sweep("preference", (1,), 1000, {}))


def read(text: str) -> Params:
    return parse_params(read_value(text, "params"), "params")


def test_a_value_in_two_places_is_changed_in_one() -> None:
    params = read(WHOLE)
    text = best(WHOLE, params, agent__ppo__gamma=0.5)
    assert "# of both" not in text
    assert "Comments are left out" in text
    found = read(text)
    assert (found.agent.ppo.gamma, found.agent.a2c.gamma) == (0.5, 0.9)


def test_a_file_that_was_changed_meanwhile() -> None:
    with pytest.raises(DataError, match="has changed since it was read"):
        best(WHOLE.replace("0.9", "0.8"), read(WHOLE), agent__ppo__gamma=0.5)


@pytest.mark.parametrize(
    ("searched", "value", "near"),
    [
        (Searched(low=0.0, high=4.0), 3.9, True),
        (Searched(low=0.0, high=4.0), 0.1, True),
        (Searched(low=0.0, high=4.0), 0.5, False),
        (Searched(low=1e-4, high=1.0, log=True), 1.2e-4, True),
        (Searched(low=1e-4, high=1.0, log=True), 1e-3, False),
        (Searched(low=1, high=3), 3, True),
        (Searched(low=1, high=3), 2, False),
        (Searched(choices=(1, 2)), 1, False),
    ],
)
def test_a_best_value_near_an_end_of_its_range_is_noted(searched: Searched, value: float, near: bool) -> None:
    best: Any = SimpleNamespace(values={"shaping.beta": value}, number=0, state="complete")
    sweep = Sweep("preference", (1,), 1000, {"shaping.beta": searched})
    noted = [note for note in _notes(sweep, read(WHOLE), [best], best, {}) if "near an end of its range" in note]
    assert len(noted) == near


def test_the_score_of_a_single_trial_is_not_chosen() -> None:
    trial, sweep = Trial(0, {}, "complete", 1.0), Sweep("preference", (1,), 1000, {})
    assert not any("biased upwards" in note for note in _notes(sweep, read(WHOLE), [trial], trial, {}))
    assert any("biased upwards" in note for note in _notes(sweep, read(WHOLE), [trial, trial], trial, {}))
    assert summary(Path("tune"), sweep, [trial], []).startswith("1 trial of the arm preference (1 complete)")

"""What a search leaves as a params file, where the file that it began with cannot be edited in place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from laurel.errors import DataError
from laurel.params import Params, parse_params
from laurel.params.file import read_value
from laurel.params.search import Sweep
from laurel.tuning.results import _best

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

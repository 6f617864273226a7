"""What another package's advisor returns are log-probabilities of all actions, or it is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from laurel.agents.actor import Advisor, View
from laurel.agents.actors import Checked
from laurel.agents.hints import make_advisor
from laurel.envs import adapter_for
from laurel.errors import ActorError, PluginError
from laurel.params import EnvParams

CARTPOLE = adapter_for(EnvParams(id="CartPole-v1"))
VIEW = View(CARTPOLE, np.arange(12, dtype=np.float32).reshape(3, 4))
LOGS = np.log([[0.25, 0.75]] * 3)


class Returning(Advisor):
    def __init__(self, advice: Any, n_actions: int = 2) -> None:
        super().__init__(n_actions)
        self._advice = advice

    def advise(self, view: View) -> Any:
        return self._advice


@pytest.mark.parametrize("advice", [LOGS, LOGS.tolist(), LOGS.astype(np.float32), [[0.0, -np.inf]] * 3])
def test_log_probabilities_are_taken(advice: Any) -> None:
    advised = Returning(advice).log_probs(VIEW)
    assert (advised.shape, advised.dtype) == ((3, 2), np.float32)
    np.testing.assert_allclose(np.exp(advised).sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("advice", "said"),
    [
        (np.exp(LOGS), r"numbers whose exponentials sum to 3\.4 in a state"),
        (np.full((3, 2), np.nan), "numbers whose exponentials sum to nan in a state"),
        (LOGS[:, :1], r"an array of shape \(3, 1\) and type float64"),
        (LOGS[0], r"an array of shape \(2,\) and type float64"),
        (None, "None"),
        ([["a", "b"]] * 3, r"\[\['a', 'b'\]"),
    ],
)
def test_others_are_refused(advice: Any, said: str) -> None:
    with pytest.raises(
        PluginError, match=rf"Returning: its advise returned {said}.* log-probabilities of the shape \(3, 2\) is requ"
    ):
        Returning(advice).log_probs(VIEW)


def test_hints_are_for_the_actions_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Checked(Returning(None, n_actions=3), "odd", CARTPOLE.action_space)
    monkeypatch.setattr("laurel.agents.hints.make_actor", lambda *_, **__: made)
    with pytest.raises(ActorError, match=r'The actor "odd" gives hints for 3 actions, but Discrete\(2\) has 2\.'):
        make_advisor("odd", {}, CARTPOLE, None)

"""Code that a language model wrote is contained, whatever it is, and only finite numbers come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from laurel.rewards.sandbox import BATCH, Sandbox, SandboxError

HEAD = "def reward(observation, action, next_observation):\n    "
ATTACKS = Path(__file__).with_name("attacks.txt").read_text().split("\n", 2)[2].strip("\n").split("\n---\n")
HARMLESS = ("re.findall", "re.match", "time.sleep", "asyncio.sleep")
"""What may return a number: regular expressions that do not backtrack, and sleep that takes no time."""
ROWS = [[1.0]] * 3, [0] * 3, [[2.0]] * 3


@pytest.fixture(scope="module")
def honest() -> Iterator[Sandbox]:
    with Sandbox(f'{HEAD}return 2 * next_observation["x"]', ["x"]) as sandbox:
        yield sandbox


def outcome(sandbox: Sandbox) -> str:
    try:
        return "contained" if sandbox.evaluate(*ROWS).failed == 3 else "numbers"
    except SandboxError:
        return "contained"


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_stopped_without_effect(attack: str, honest: Sandbox) -> None:
    with Sandbox(f"{HEAD}{attack}\n", ["x"], seconds=0.1, memory=2**24) as sandbox:
        assert outcome(sandbox) == "contained" or any(harmless in attack for harmless in HARMLESS)
    np.testing.assert_array_equal(honest.evaluate(*ROWS).rewards, [4.0] * 3)


@pytest.mark.parametrize("reason", ["10**5000", "None", "(1,)"])
def test_a_function_that_replaces_names_of_its_caller_is_found_out(reason: str) -> None:
    """The rows after the first; a whole number of 5,000 digits cannot even be written."""
    body = f"global _row\n    _row = lambda before, action, after: (False, {reason})\n    return 1.0\n"
    with Sandbox(f"{HEAD}{body}", ["x"]) as sandbox:
        assert sandbox.evaluate(*ROWS).failures == {"it changed what its caller returns": 2}


def test_there_are_enough_attacks() -> None:
    assert len(set(ATTACKS)) == len(ATTACKS) >= 125


def test_numbers_come_back_in_order_with_their_components() -> None:
    source = HEAD + 'x = next_observation["x"]\n    return (x, {"half": x / 2}) if action else x\n'
    n = BATCH + 5
    with Sandbox(source, ["x"]) as sandbox:
        found = sandbox.evaluate([[0]] * n, [i % 2 for i in range(n)], [[float(i)] for i in range(n)])
        sandbox.close()
        assert sandbox.evaluate([[0]], [0], [[7]]).rewards.tolist() == [7.0], "another worker begins"
    np.testing.assert_array_equal(found.rewards, np.arange(n))
    np.testing.assert_array_equal(found.components["half"][1::2], np.arange(n)[1::2] / 2)
    assert np.isnan(found.components["half"][::2]).all()
    assert (found.failed, found.failures) == (0, {})


@pytest.mark.parametrize("size", [150, 800])
def test_many_numbers_of_an_observation_do_not_stop_a_function(size: int) -> None:
    """As many as a MiniGrid's view or a small image has, in batches one after the other."""
    rows = [[float(row), *[1.0] * (size - 1)] for row in range(2 * BATCH)]
    with Sandbox("def reward(observation, action, next_observation):\n    return next_observation[0] + action") as box:
        found = box.evaluate(rows, [1] * len(rows), rows)
    np.testing.assert_array_equal(found.rewards, np.arange(len(rows)) + 1.0)


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_large_number_is_refused_whatever_its_sign(sign: str) -> None:
    with Sandbox(f"{HEAD}return {sign}1e7\n") as sandbox:
        assert sandbox.evaluate(*ROWS).failures == {"it returned a number beyond 1e+06": 3}


@pytest.mark.parametrize(("calls", "failed"), [(50, 0), (500, 3)])
def test_calls_within_calls_are_limited(calls: int, failed: int) -> None:
    body = f"def f(n):\n        return n and f(n - 1) + 1\n    return f({calls})\n"
    with Sandbox(f"{HEAD}{body}") as sandbox:
        assert sandbox.evaluate(*ROWS).failed == failed


def test_names_that_are_not_there_are_not_asked_for_without_end() -> None:
    asked = "try:\n            missing\n        except NameError:\n            pass"
    body = f"for i in range(1000):\n        {asked}\n    return 1.0\n"
    with Sandbox(f"{HEAD}{body}") as sandbox, pytest.raises(SandboxError, match="it asked more than 100 times"):
        sandbox.evaluate(*ROWS)


def test_a_row_that_fails_does_not_spoil_the_others() -> None:
    with Sandbox(f"{HEAD}return 1 / next_observation[0]\n") as sandbox:
        found = sandbox.evaluate([[0]] * 3, [0] * 3, [[1], [0], [2]])
    np.testing.assert_array_equal(found.rewards, [1.0, np.nan, 0.5])
    assert found.failures == {"ZeroDivisionError: division by zero": 1}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("while True:\n        pass", "TimeoutError: feed time limit of 100ms exceeded"),
        ("return len('a' * 10 ** 9)", "MemoryError: memory limit of 16777216 bytes exceeded"),
    ],
)
def test_a_reason_is_the_same_in_each_run(body: str, reason: str) -> None:
    """With the time taken, the same seed made other bytes, and a chat model was asked again in the next round."""
    with (
        Sandbox(f"{HEAD}{body}\n", seconds=0.1, memory=2**24) as sandbox,
        pytest.raises(SandboxError, match=f"^{reason}$"),
    ):
        sandbox.evaluate(*ROWS)


def test_the_clock_and_chance_are_the_same_for_all() -> None:
    source = HEAD + "import random, time\n    return random.random() + time.time() % 1000\n"
    found = []
    for _ in range(2):
        with Sandbox(source) as sandbox:
            found.append(sandbox.evaluate([[0]] * 3, [0] * 3, [[0]] * 3).rewards.tolist())
    assert found[0] == found[1]

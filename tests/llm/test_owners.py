"""A process is known to have died only where that is certain."""

from __future__ import annotations

import subprocess
import sys

import pytest

from laurel.llm import owners
from laurel.llm.owners import has_died, this_owner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is known about processes")


def test_this_process_is_alive_and_its_owners_differ() -> None:
    assert not has_died(this_owner())
    assert this_owner() != this_owner()


def test_a_zombie_process_counts_as_dead() -> None:
    command = [sys.executable, "-c", "from laurel.llm.owners import this_owner; print(this_owner())"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        owner = process.stdout.read().strip()
        while not has_died(owner):  # it is a zombie soon
            pass
    assert has_died(owner)


def test_another_process_of_the_same_number_is_another() -> None:
    host, pid, began, end = this_owner().split("|")
    assert has_died("|".join((host, pid, str(int(began) - 1), end)))


@pytest.mark.parametrize("owner", ["", "4711-deadbeef", "x|y|z|u", "another|1|1|u"])
def test_unknown_owners_do_not_count_as_dead(owner: str) -> None:
    assert not has_died(owner)


def test_without_proc_no_owner_counts_as_dead(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(owners, "_PROC", tmp_path)
    owner = this_owner()
    assert not has_died(owner)

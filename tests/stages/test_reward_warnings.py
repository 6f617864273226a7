"""Warnings of `laurel check` about an episode's return: planted returns, some of truncated episodes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from laurel.data.trajectories import Position
from laurel.envs.base import Transitions
from laurel.params.resolved_arms import Arm
from laurel.params.training import AgentParams, ShapingParams
from laurel.rewards.method import PayTable
from laurel.stages import reward_warnings
from laurel.stages.reward_warnings import bonus_warnings


def collected(*episodes: tuple[int, bool]) -> tuple[Transitions, Position]:
    """Episodes of steps that cost 1 each: how many, and whether the last one ended the episode."""
    lengths = [length for length, _ in episodes]
    n = sum(lengths)
    last = np.cumsum(lengths) - 1
    truncated = np.zeros(n, np.bool_)
    truncated[last] = [ended for _, ended in episodes]
    rows, nothing = np.zeros((n, 1), np.float32), np.zeros(n, np.bool_)
    steps = Transitions(rows, np.zeros(n, np.int64), np.full(n, -1, np.float32), rows, nothing, truncated)
    number = np.repeat(np.arange(len(episodes)), lengths)
    return steps, Position(number, np.arange(n))


def said(
    monkeypatch: pytest.MonkeyPatch,
    intrinsic: float,
    *episodes: tuple[int, bool],
    threshold: float = 0.0,
    whose: str = "",
    **of: Any,
) -> str:
    ones, none = np.ones(10, np.float32), np.zeros(10, np.float32)
    table = PayTable(["a"] * 10, ones, none, np.ones(10, np.int64), threshold, **of)
    stored = SimpleNamespace(settings={"preference": None}, table=lambda *_: table, reward_owner=lambda *_: whose)
    monkeypatch.setattr(reward_warnings, "StoredRewards", SimpleNamespace(read=lambda _: stored))
    monkeypatch.setattr(reward_warnings, "read_trajectories", lambda _: iter([collected(*episodes)]))
    shaping = ShapingParams(intrinsic=intrinsic)
    arm = Arm("a", "method", {"preference": 1.0}, shaping, AgentParams(seeds=(0,), steps=1), None, {})
    (line,) = bonus_warnings([arm], Path(), Path())
    return line


def test_the_best_collected_episode_is_one_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the best collected episode -30" in said(monkeypatch, 1.0, (50, True), (30, True), (4, False))
    assert "the best collected episode -4" in said(monkeypatch, 1.0, (50, False), (4, False)), "none ended"


def test_pay_is_compared_with_the_spread_of_returns_which_may_be_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "lower shaping.intrinsic" not in said(monkeypatch, 1.9, (50, True), (30, True))
    assert "lower shaping.intrinsic" in said(monkeypatch, 2.1, (50, True), (30, True))
    assert "lower shaping.intrinsic" in said(monkeypatch, 0.2, (30, True), (30, True)), "alike: often of 1"
    assert "lower shaping.intrinsic" not in said(monkeypatch, 0.05, (30, True), (30, True))


def test_only_what_is_above_the_threshold_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "meeting each of 10 captions once pays 5 in all" in said(monkeypatch, 2.0, (30, True), threshold=0.75)
    assert "each of 0 captions once pays 0 in all" in said(monkeypatch, 2.0, (30, True), threshold=1.5)


def test_of_several_label_sets_the_line_names_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, 1.0, (30, True)).startswith("a: meeting each of 10 captions once pays 10 ")
    line = said(monkeypatch, 1.0, (30, True), whose="label set 1")
    assert line.startswith("a, by the reward of label set 1: meeting each of 10 captions once pays 10 ")


def test_an_episode_is_paid_one_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    told = said(monkeypatch, 2.0, (30, True), of="outcome")
    assert told == "a: the outcome of an episode pays at most 2; the environment paid the best collected episode -30"

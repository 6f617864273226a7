"""The bound of a core, and what PPO reaches, are both by the processor's clock."""

from __future__ import annotations

import importlib
import time
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.mark.parametrize("name", ["CartPole-v1", "DoorKey-8x8"])
def test_other_work_on_the_machine_does_not_lower_the_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script: Any = importlib.import_module("limits")
    clocks: dict[str, Any] = {"process_time": time.process_time, "perf_counter": lambda: 10 * time.process_time()}
    for module in (script, importlib.import_module("collect_caption")):
        monkeypatch.setattr(module, "time", SimpleNamespace(**clocks))
        monkeypatch.setattr(module, "RAW_SECONDS", 0.01)
    used: list[Any] = []
    rate = "_raw_cartpole" if name == script.CARTPOLE else "raw_rate"
    measure = getattr(script, rate)

    def measured(threads: int, clock: Any = clocks["perf_counter"]) -> float:
        used.append(clock)
        return float(measure(threads, clock))

    monkeypatch.setattr(script, rate, measured)
    monkeypatch.setattr(script, "_measured", lambda *_: {"seconds": 1e-6})
    products, environments = script.least_seconds(name)
    assert (products, used) == (1e-6, [time.process_time] * 3)
    assert environments > 0

"""The live page of `train-agents`: written from the agents' checkpoints by a thread, while their processes train."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from laurel.console import tell
from laurel.data.manifest import LIVE_PAGE
from laurel.errors import LaurelError
from laurel.params.arm_infos import ArmInfo
from laurel.progress import Advance, Pace

if TYPE_CHECKING:
    from markupsafe import Markup

    from laurel.training.task import Agent

SECONDS = 10
"""Interval of writing the page, and of reloading it in a browser."""
DRAWING = 1 / 40
"""Maximum fraction of a core for drawing, which slows training: hundreds of agents take seconds to draw."""


@dataclass
class LivePage:
    """Writes the page while the block runs, and once at its end."""

    place: Path
    """The file, which is written atomically."""
    title: str
    infos: Sequence[ArmInfo]
    agents: Sequence[Agent]
    """All, including finished ones."""
    done: int
    """Environment steps of an earlier run."""
    total: int
    notes: list[str] = field(default_factory=list)
    """Why the page was not written."""
    _pace: Pace = field(default_factory=Pace)
    _over: threading.Event = field(default_factory=threading.Event)
    _stamps: dict[Path, int] = field(default_factory=dict)
    _figures: list[Markup] = field(default_factory=list)
    _draw_at: float = 0.0
    """When figures may be redrawn."""
    _thread: threading.Thread | None = None

    def __enter__(self) -> LivePage:
        tell(f"learning curves: {self.place.resolve().as_uri()}")
        self._thread = threading.Thread(target=self._follow, name="live", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if error is None and not self.notes:
            self._try(ended=True)

    def counting(self, advance: Advance) -> Advance:
        """Return an `advance` that also advances the page."""

        def both(n: int, *, free: bool = False, left: float | None = None) -> None:
            self.done += n
            self._pace.add(n, free=free, left=left)
            advance(n, free=free, left=left)

        return both

    def _follow(self) -> None:
        self._try()
        while not self.notes and not self._over.wait(SECONDS):
            self._try()

    def _try(self, *, ended: bool = False) -> None:
        """Write the page; if that fails, agents train without it."""
        try:
            self.write(ended=ended)
        except (OSError, LaurelError, ValueError) as error:
            self.notes.append(f"{self.place} was not written ({getattr(error, 'strerror', None) or error}).")

    def write(self, *, ended: bool = False) -> None:
        """Write the current page; redraw figures if there is a new checkpoint, unless drawing recently took long."""
        import pandas as pd

        from laurel.evaluation.live_page import Live, curve_figures, render_live
        from laurel.tracking.agents import read_checkpoint, written
        from laurel.training.curve import CURVE_SCHEMA

        updates, finished, stamps = [], Counter[str](), {}
        for arm, seed, place in self.agents:
            stamp = written(place)
            checkpoint = read_checkpoint(place) if stamp is not None else None
            if stamp is None or checkpoint is None:
                continue
            stamps[place] = stamp
            _, state, rows = checkpoint
            finished[arm.name] += bool(state["finished"])
            updates += [{**row, "arm": arm.name, "seed": seed} for row in rows]
        curves = pd.DataFrame(updates, columns=["arm", "seed", *CURVE_SCHEMA.names])
        curves = curves.astype(dict.fromkeys(("return_mean", "success_rate"), "float64"))
        live = Live(
            title=self.title,
            arms=self.infos,
            agents=Counter(arm.name for arm, _, _ in self.agents),
            done=self.done,
            total=self.total,
            seconds_left=self._pace.seconds_left(self.total - self.done),
            finished=finished,
            every=SECONDS,
            ended=ended,
        )
        if stamps != self._stamps and (ended or time.monotonic() >= self._draw_at):
            began = time.thread_time()
            self._figures, self._stamps = curve_figures(live, curves), stamps
            self._draw_at = time.monotonic() + (time.thread_time() - began) / DRAWING
        self.place.parent.mkdir(parents=True, exist_ok=True)
        partial = self.place.with_name(f".{LIVE_PAGE}.partial")
        partial.write_text(render_live(live, curves, self._figures), encoding="utf-8")
        partial.replace(self.place)

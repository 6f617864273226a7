"""Peak memory of a Laurel command, by the module that allocated it.

    python benchmarks/held.py held.json caption        # as `laurel caption`; writes {module: bytes}

Memory is traced by Python, including NumPy's arrays; what Arrow holds outside of Python is a separate part, and other
processes that the command starts are not counted. The command runs twice: first to find its peak memory, then until
memory is within 5% of that peak, when it is attributed to modules. So the command must be repeatable.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

EVERY, NEARLY = 0.02, 0.95
"""Polling interval in seconds; and the share of the peak at which memory is attributed."""
FRAMES = 12
"""Number of callers searched for a module of Laurel."""
MOST = "LAUREL_HELD_MOST"
"""Environment variable: peak memory of the first run, in bytes."""
LAUREL = f"{Path(find_spec('laurel').origin).parent}{os.sep}"  # type: ignore[union-attr, arg-type]
ARROW, ELSE = "Arrow", "imports and all else"


class _Watch(threading.Thread):
    """Tracks peak memory; at a threshold, attributes it to modules."""

    def __init__(self, until: float) -> None:
        super().__init__(name="held", daemon=True)
        self.most, self.found = 0, Counter[str]()
        self._until, self._over = until, threading.Event()

    def run(self) -> None:
        while not self._over.wait(EVERY):
            if self._poll() >= self._until:
                self.found = attributed()
                return

    def stop(self) -> None:
        """End it. A peak between two polls is missed: then what is held now is attributed."""
        self._over.set()
        self.join()
        self._poll()
        self.found = self.found or attributed()

    def _poll(self) -> int:
        held = tracemalloc.get_traced_memory()[0] + _arrow()
        self.most = max(self.most, held)
        return held


def _arrow() -> int:
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is None or not hasattr(pyarrow, "total_allocated_bytes"):  # it may be in the middle of its import
        return 0
    return int(pyarrow.total_allocated_bytes())


def attributed() -> Counter[str]:
    """Bytes that are traced now, by the module of Laurel nearest to the allocation."""
    found = Counter({ARROW: _arrow()})
    for trace in tracemalloc.take_snapshot().traces:
        files = [frame.filename for frame in reversed(trace.traceback)]  # the innermost first
        imported = any(file.startswith("<frozen importlib") for file in files)
        ours = next((file for file in files if file.startswith(LAUREL)), None)
        found[_module(ours) if ours and not imported else ELSE] += trace.size
    return found


def _module(file: str) -> str:
    return file.removeprefix(LAUREL).removesuffix(".py").replace(os.sep, ".")


def main() -> int:
    """Run the command, and write what it held."""
    file, *command = sys.argv[1:]
    peak = os.environ.get(MOST)
    if peak is None:
        return _twice(file, command)
    counts = float(peak) > 0
    tracemalloc.start(FRAMES if counts else 1)
    watch = _Watch(float(peak) if counts else float("inf"))
    watch.start()
    from laurel.cli.app import main as laurel

    try:
        code = laurel(command)
    except SystemExit as end:  # of options such as --version
        code = int(end.code or 0)
    watch.stop()
    Path(file).write_text(json.dumps(watch.found if counts else watch.most))
    return code


def _twice(file: str, command: list[str]) -> int:
    command_line = [sys.executable, __file__, file, *command]
    code = subprocess.run(command_line, env={**os.environ, MOST: "0"}, check=False).returncode  # noqa: S603
    if code:
        return code
    threshold = NEARLY * json.loads(Path(file).read_text())
    return subprocess.run(command_line, env={**os.environ, MOST: str(threshold)}, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())

"""Headless Chromium, driven by its own protocol (https://chromedevtools.github.io/devtools-protocol/)."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

FAULTS = """
(() => {
  const faults = [], seen = (e) => { const b = e.getBoundingClientRect(); return b.width > 0 && b.height > 0; };
  const named = (e) => `${e.tagName.toLowerCase()}.${e.className} "${e.textContent.trim().slice(0, 30)}"`;
  const page = document.documentElement, wide = page.clientWidth + 1;
  if (page.scrollWidth > wide) faults.push(`the page is ${page.scrollWidth} wide, of ${page.clientWidth}`);
  for (const table of [...document.querySelectorAll("table, svg, pre, img")].filter(seen)) {
    const scrolls = [...(function* () { for (let e = table; e; e = e.parentElement) yield e; })()]
      .some((e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX));
    if (!scrolls && table.getBoundingClientRect().right > wide) faults.push(`cut: ${named(table)}`);
  }
  const kinds = "h1, h2, h3, p, li, td, th, dt, dd, figure, figcaption, summary, .chips, .filters, .player";
  const blocks = [...document.querySelectorAll(kinds)].filter(seen);
  const boxes = blocks.map((e) => e.getBoundingClientRect());
  for (let i = 0; i < blocks.length; i++)
    for (let j = i + 1; j < blocks.length; j++) {
      if (blocks[i].contains(blocks[j]) || blocks[j].contains(blocks[i])) continue;
      const across = Math.min(boxes[i].right, boxes[j].right) - Math.max(boxes[i].left, boxes[j].left);
      const down = Math.min(boxes[i].bottom, boxes[j].bottom) - Math.max(boxes[i].top, boxes[j].top);
      if (across > 2 && down > 2) faults.push(`overlap: ${named(blocks[i])} and ${named(blocks[j])}`);
    }
  return faults;
})()
"""
"""What is wrong by geometry: a page wider than the window, what is cut with no way to scroll, blocks that overlap."""


class Browser:
    """A browser with one page."""

    def __init__(self, folder: Path) -> None:
        assert PROGRAM
        self.process = subprocess.Popen(
            [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
             f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        place = folder / "DevToolsActivePort"
        deadline = time.monotonic() + 60
        while not (place.exists() and len(place.read_text().splitlines()) == 2):
            assert time.monotonic() < deadline
            assert self.process.poll() is None
            time.sleep(0.05)
        from websocket import create_connection

        port = place.read_text().splitlines()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
            (page,) = [target for target in json.load(answer) if target["type"] == "page"]
        self._socket = create_connection(page["webSocketDebuggerUrl"], suppress_origin=True, timeout=60)
        self._number = 0
        self.call("Page.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command; return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        return self._wait(lambda message: message.get("id") == self._number)["result"]

    def _wait(self, wanted: Any) -> dict[str, Any]:
        while True:
            message = json.loads(self._socket.recv())
            if wanted(message):
                assert "error" not in message, message
                return message

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False, media: str = "") -> None:
        """Make the window as wide and high, its scheme dark, its medium e.g. print."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def open(self, file: Path) -> None:
        """Show a page, and wait until it is loaded."""
        self._number += 1
        self._socket.send(
            json.dumps({"id": self._number, "method": "Page.navigate", "params": {"url": file.resolve().as_uri()}})
        )
        self._wait(lambda message: message.get("method") == "Page.loadEventFired")

    def ask(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def point(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, file: Path) -> None:
        """Write the whole page as PNG."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(taken["data"]))

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self.process.terminate()
        self.process.wait(timeout=30)

"""A headless browser, driven over its debugging pipe (Chrome DevTools Protocol)."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
MOST_S = 120.0  # for an answer
# The browser reads commands from descriptor 3 and answers on 4.
START = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
DRAWN = """
new Promise((done) => {
  const wait = () => globalThis.Bokeh?.documents.every((each) => each.is_idle)
    ? done() : setTimeout(wait, 5);
  wait();
})
"""
# Some errors, such as those of observers of sizes, are events alone.
ERRORS = "addEventListener('error', (each) => console.log(each.message))"
# Observers of sizes act between one frame and the next.
FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def find() -> str | None:
    """The path of an installed browser."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Page:
    """A tab.

    Attributes:
        said: what it wrote to the console, and its uncaught exceptions.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._buffer, self._number, self._session = b"", 0, ""
        self._events: list[str] = []
        self.said: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Performance"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=ERRORS)

    def open(self, path: Path, width: int, height: int, *, dark: bool = False) -> None:
        """Loads a file on a screen of this size; returns when its charts are drawn."""
        self._set_size(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self._events:
            self._receive()
        self.evaluate(DRAWN)

    def resize(self, width: int, height: int) -> None:
        """Changes the size of the screen; returns when the charts are drawn again."""
        self._set_size(width, height)
        self.evaluate(FRAMES)
        self.evaluate(DRAWN)

    def _set_size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 1000,
        )  # fmt: skip

    def evaluate(self, script: str) -> Any:
        """The value of an expression, or what its promise resolves to."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def metrics(self) -> dict[str, float]:
        """The browser's own measurements of the page."""
        found = self.call("Performance.getMetrics")["metrics"]
        return {each["name"]: each["value"] for each in found}

    def screenshot(self, path: Path) -> None:
        """Writes the whole page as a PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        """The next message; what is said and what happened is noted."""
        ends = time.monotonic() + MOST_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, ends - time.monotonic()))
            assert ready, "the browser does not answer"
            found = os.read(self._from, 1 << 20)
            assert found, "the browser has ended"
            self._buffer += found
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method, params = message.get("method", ""), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.consoleAPICalled":
            self.said.append(" ".join(str(each.get("value")) for each in params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.said.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.said.append(params["entry"]["text"])
        return message


@contextmanager
def page(browser: str, folder: Path) -> Iterator[Page]:
    """A tab of a fresh browser, whose profile is kept in `folder`."""
    read, to_browser = os.pipe()
    from_browser, write = os.pipe()
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    flags += [f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe"]
    started = subprocess.Popen(
        [sys.executable, "-S", "-c", START, str(read), str(write), browser, *flags],
        pass_fds=(read, write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read)
    os.close(write)
    try:
        yield Page(to_browser, from_browser)
    finally:
        started.terminate()
        started.wait(timeout=MOST_S)
        os.close(to_browser)
        os.close(from_browser)

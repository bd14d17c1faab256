"""A real browser for a test: Chromium without a window, through its debugging pipe (no driver, no other package)."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_LIMIT_S = 60.0  # for one answer, on a busy machine
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
    "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking",
    "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


def program() -> str | None:
    """The browser on this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a browser."""

    def __init__(self, to: int, come: int) -> None:
        self._to, self._from = to, come
        self._number, self._rest = 0, b""
        self._session = ""
        self.events: list[dict[str, Any]] = []
        page = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, and return its result."""
        self._number += 1
        order: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._to, json.dumps(order).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message)
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + _LIMIT_S
        while b"\0" not in self._rest:
            assert select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0], "the browser is silent"
            piece = os.read(self._from, 1 << 20)
            assert piece, "the browser has ended"
            self._rest += piece
        raw, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        return message

    def show(self, page: Path, width: int, *, dark: bool = False, script: bool = True) -> None:
        """Load a page at a width."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Emulation.setScriptExecutionDisabled", value=not script)
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is in the page."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self) -> bytes:
        """The first screenful as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])

    def printed(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])

    def requested(self) -> list[str]:
        """What the page has loaded, itself included."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def complaints(self) -> list[str]:
        """What the browser has refused, and errors of scripts."""
        entries = [event["params"]["entry"] for event in self.events if event.get("method") == "Log.entryAdded"]
        thrown = [str(event) for event in self.events if event.get("method") == "Runtime.exceptionThrown"]
        return [entry["text"] for entry in entries if entry["level"] == "error"] + thrown


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own."""
    found = program()
    assert found is not None
    order_end, to = os.pipe()
    come, answer_end = os.pipe()

    def as_three_and_four() -> None:
        low, high = os.dup(order_end), os.dup(answer_end)
        os.dup2(low, 3)
        os.dup2(high, 4)

    process = subprocess.Popen(
        [found, *_OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
        close_fds=False, preexec_fn=as_three_and_four, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    os.close(order_end)
    os.close(answer_end)
    try:
        yield Browser(to, come)
    finally:
        os.close(to)
        os.close(come)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

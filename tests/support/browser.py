"""A headless Chromium of the system, spoken to over its own protocol; no driver, no package."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

__all__ = ["CHROMIUM", "Page", "chromium_page"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


class Page:
    """One tab.

    Attributes:
        complaints: What the browser had to say: errors of the script, refusals of the policy, failed loads.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.complaints: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; events in between are kept if they are complaints."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        while True:
            message = json.loads((await self._socket.receive(60)).data)
            if message.get("id") == self._number:
                assert "error" not in message, message
                found: dict[str, Any] = message["result"]
                return found
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(json.dumps(message["params"]))

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        found = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait for a condition, which the page looks at in each of its frames."""
        look = f"new Promise(done => {{ const look = () => ({condition}) ? done() : setTimeout(look, 20); look(); }})"
        await asyncio.wait_for(self.evaluate(look), 30)

    async def open(self, address: str) -> None:
        """Load a page."""
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=address)
        await self.until(f"document.readyState === 'complete' && location.href.startsWith({address!r})")

    async def look(self, *, width: int, dark: bool) -> None:
        """Take this width and this scheme of colours; below 600 it is a phone."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def press(self, key: str) -> None:
        """Press a key and let it go."""
        code = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, " ": 32}[key]
        text = {"Enter": {"text": "\r"}, " ": {"text": " "}}.get(key, {})
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    async def picture(self, path: Path) -> None:
        """Keep the whole page as a PNG."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        _keep(path, base64.b64decode(found["data"]))


def _keep(path: Path, picture: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture)


@contextlib.asynccontextmanager
async def chromium_page() -> AsyncIterator[Page]:
    """A tab of a browser of its own, which ends with the block."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="lsb", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            *_FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            port = await asyncio.wait_for(_port(process), 30)
            async with aiohttp.ClientSession() as session:
                tabs = await (await session.get(f"http://127.0.0.1:{port}/json/list")).json()
                address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
                async with session.ws_connect(address, max_msg_size=0) as socket:
                    yield Page(socket)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


async def _port(process: asyncio.subprocess.Process) -> int:
    assert process.stderr is not None
    async for line in process.stderr:
        if line.startswith(b"DevTools listening on ws://"):
            return int(line.split(b"/")[2].rpartition(b":")[2])
    raise AssertionError("the browser ended before it listened")

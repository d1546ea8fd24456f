"""A real browser without a window, driven by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
NO_CHROMIUM = "needs a browser: no chromium or google-chrome on the PATH"
PATIENCE = 60.0


class Page:
    """One tab.

    Attributes:
        complaints: errors and warnings of its console, and exceptions that nobody caught.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._listening = asyncio.ensure_future(self._listen())
        self.complaints: list[str] = []

    async def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, PATIENCE)

    async def open(self, address: str, width: int, height: int, dark: bool = False) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.navigate", url=address)
        await self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def resize(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    async def evaluate(self, expression: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def wait_for(self, expression: str) -> None:
        """Until an expression is true; while a page loads, it may fail."""
        quietly = f"(() => {{ try {{ return !!({expression}) }} catch {{ return false }} }})()"
        for _ in range(round(PATIENCE / 0.1)):
            if await self.evaluate(quietly):
                return
            await asyncio.sleep(0.1)
        text = await self.evaluate("document.body.innerText")
        raise AssertionError(f"waited {PATIENCE} s for {expression}; the page says:\n{text}")

    async def photograph(self, path: Path, whole: bool = False) -> None:
        """A PNG of what is seen, or of the whole page."""
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    async def _listen(self) -> None:
        async for message in self._socket:
            told = message.json()
            if (answer := self._answers.pop(told.get("id"), None)) is not None:
                answer.set_result(told.get("result", told))
                continue
            parameters = told.get("params", {})
            match told.get("method"):
                case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning"):
                    self.complaints.append(str(parameters["args"]))
                case "Runtime.exceptionThrown":
                    self.complaints.append(str(parameters["exceptionDetails"]))
                case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                    self.complaints.append(str(parameters["entry"]))


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Page]:
    """A browser with one empty page, which ends with the block."""
    assert CHROMIUM is not None
    # /dev/shm is small in containers, where root has no sandbox either.
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]
    command += ["--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            port = await asyncio.wait_for(asyncio.to_thread(_port, process), PATIENCE)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as listed:
                    tabs = [tab for tab in await listed.json() if tab["type"] == "page"]
                async with session.ws_connect(
                    tabs[0]["webSocketDebuggerUrl"], max_msg_size=0
                ) as socket:
                    yield Page(socket)
        finally:
            process.kill()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"DevTools listening on ws://[^:]+:(\d+)/", line):
            return int(found[1])
    raise AssertionError("the browser ended before it could be driven")

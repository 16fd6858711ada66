"""A headless Chromium, steered over a pipe by its DevTools protocol; nothing but the standard library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 120.0
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--ignore-certificate-errors",
    "--remote-debugging-pipe",
)


class Tab:
    """One page.

    Attributes
    ----------
    complaints : what the browser said on its console, refusals by the page's policy among it.
    """

    def __init__(self, send, receive):
        self._send, self._receive = send, receive
        self._rest, self._number, self._session = b"", 0, ""
        self.complaints = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self):
        while b"\0" not in self._rest:
            piece = os.read(self._receive, 1 << 16)
            assert piece, "the browser has gone"
            self._rest += piece
        one, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(one)
        if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(message["params"]))
        return message

    def value(self, expression):
        """What an expression gives in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def until(self, expression, condition=bool):
        """Wait until an expression gives what is wanted."""
        deadline = time.monotonic() + PATIENCE
        while not condition(found := self.value(expression)):
            assert time.monotonic() < deadline, f"{expression}: {found}; {self.complaints}"
            time.sleep(0.05)
        return found

    def text(self, selector):
        return str(self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))


@contextmanager
def opened(profile):
    """A tab of a browser of its own."""
    to_read, send = os.pipe()
    receive, to_write = os.pipe()

    def hand_over():
        # 3 and 4 are what the browser reads from and writes to
        os.dup2(os.dup(to_read), 3)
        os.dup2(os.dup(to_write), 4)

    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}"]
    browser = subprocess.Popen(
        command,
        preexec_fn=hand_over,
        pass_fds=(3, 4, to_read, to_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(to_write)
    try:
        yield Tab(send, receive)
    finally:
        browser.kill()
        browser.wait()
        os.close(send)
        os.close(receive)

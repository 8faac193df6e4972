"""One server for the examples of JSON in the pages, with every log on, and what its callers do."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.harness.server import RunningServer
from tests.harness.together import eventually
from tests.harness.tokens import token_file

SECRET = "s" * 32
TOKENS = {"billing": "token-of-billing", "operator": "token-of-the-operator"}
ROLES = ("read", "write", "work", "admin")


class ExampleSite:
    """A server with two tokens, `billing` and `operator`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._config = folder / "semel.toml"
        self._config.write_text("ready_free_bytes = 0\n")
        tokens = token_file(folder, {name: (token, ROLES, ()) for name, token in TOKENS.items()})
        env = {
            "SEMEL_CONFIG": str(self._config),
            "SEMEL_TOKENS": str(tokens),
            "SEMEL_ACCESS_LOG": "true",
            "SEMEL_DELTAS_JWT_SECRET": SECRET,
            "SEMEL_STREAMS_WEBHOOK_PRIVATE": "true",
        }
        self.server = RunningServer(folder / "data", env=env)

    def send(self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str) -> Any:
        """The answer of the server to one request, which may be a refusal."""
        sent = {"authorization": f"Bearer {token or TOKENS['operator']}", "content-type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = None if body is None else json.dumps(body)
        return httpx.request(method, self.server.url + path, content=content, headers=sent, timeout=60)

    def sent(self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str) -> Any:
        """The JSON of an answer that must be a success; None without a body."""
        answer = self.send(method, path, body, token=token, **headers)
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The lines of a file in the data folder."""
        path = self.folder / "data" / name
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    def line(self, name: str, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The last line of a file of which this is so, once it is there."""
        eventually(lambda: any(map(is_it, self.lines(name))), f"a line in {name}")
        return [line for line in self.lines(name) if is_it(line)][-1]

    def set(self, text: str) -> None:
        """Write the settings anew, and let the server read them."""
        self._config.write_text(text)
        os.kill(self.server.pid, signal.SIGHUP)

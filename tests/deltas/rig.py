"""What some tests need besides a client: tokens signed by hand, plain connections, and a clock that is wrong."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.deltas.wire import PATIENCE_SECONDS, Deltas, Message, path
from tests.harness.server import HOST, path_with

HEADER = {"alg": "HS256", "typ": "JWT"}


def signed(
    claims: Mapping[str, Any] | list[Any],
    secret: str,
    *,
    header: Mapping[str, Any] | None = None,
    digest: str = "sha256",
) -> str:
    """A token with these claims, signed with HMAC over this digest whatever its header says."""
    parts = [json.dumps(part, separators=(",", ":")).encode() for part in (header or HEADER, claims)]
    text = ".".join(base64_text(part) for part in parts)
    return f"{text}.{base64_text(hmac.digest(secret.encode(), text.encode(), digest))}"


def base64_text(data: bytes) -> str:
    """As tokens carry it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Line:
    """One connection that is kept: for many small requests, and for what an HTTP library would not send."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE_SECONDS)

    def push(self, gateway: str, body: bytes) -> tuple[int, Message]:
        """Push these bytes; the status and the body of the answer."""
        self._connection.request("POST", path(gateway, "push"), body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        content = response.read()
        assert response.headers["Content-Type"].split(";")[0] == "application/json", content
        told: Message = json.loads(content)
        return response.status, told

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def wrong_clock(folder: Path, ahead_ms: int) -> dict[str, str]:
    """The environment of a server whose clock goes ahead of everybody else's, or behind."""
    # Python runs this file before anything else of the process.
    (folder / "sitecustomize.py").write_text(
        "import time\n"
        "_time, _time_ns = time.time, time.time_ns\n"
        f"time.time = lambda: _time() + {ahead_ms} / 1000\n"
        f"time.time_ns = lambda: _time_ns() + {ahead_ms} * 1_000_000\n"
    )
    # The server is to serve with it: /readyz would refuse as soon as it has compared its clock with the database's.
    return path_with(folder) | {"SEMEL_READY_CLOCK_MS": "0"}


def digest_of(deltas: Deltas, gateway: str) -> str:
    """Everything that can be seen of a gateway, as one short text: it changes when anything does."""
    seen = [deltas.log(gateway), deltas.gauges(gateway).body]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def check_nothing_stored(deltas: Deltas, gateway: str) -> None:
    """A gateway that nobody has written to."""
    assert deltas.pull(gateway)["deltas"] == []
    gauges = deltas.gauges(gateway)
    assert (gauges["logSize"], gauges["indexSize"], gauges["deltaCount"]) == (0, 0, 0), gauges.body

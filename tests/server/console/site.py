"""A server with something of every kind in it, most of it hostile: names and contents that would run as markup."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.harness.server import RunningServer
from tests.harness.tokens import token_file

ADMIN, READER = "the-admin-token", "the-reader-token"
HOSTILE = "<img src=x onerror=window.canary=1><script>window.canary=2</script>"
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" onload="window.canary=3"><a href="javascript:window.canary=4">x</a></svg>'
)
LONG = "a-name-without-a-break-" * 6


class ConsoleSite(NamedTuple):
    """A running server and a client with every right."""

    server: RunningServer
    client: httpx.Client

    @property
    def url(self) -> str:
        """The base URL."""
        return self.server.url


@contextmanager
def console_site(folder: Path, **env: str) -> Iterator[ConsoleSite]:
    """In development mode, unless `env` says otherwise."""
    with RunningServer(folder / "data", env=env) as server:
        headers = {"Authorization": f"Bearer {ADMIN}"} if "SEMEL_TOKENS" in env else {}
        with httpx.Client(base_url=server.url, headers=headers) as client:
            yield ConsoleSite(server, client)


def tokens(folder: Path) -> str:
    """A token file with an administrator and a reader."""
    entries = {"ada": (ADMIN, ("admin",), ()), "bob": (READER, ("read",), ())}
    return str(token_file(folder, entries))


def submit_job(client: httpx.Client, kind: str = "send", **more: Any) -> dict[str, Any]:
    """A submitted job."""
    answer = client.post("/v1/jobs", json={"kind": kind, "params": {}} | more)
    answer.raise_for_status()
    return dict(answer.json())

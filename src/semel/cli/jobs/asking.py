"""HTTP calls of the jobs commands, with retries; answers as JSON objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import click

from semel.cli.connection import Answer, Connection
from semel.cli.failures import not_semel
from semel.cli.output import Command
from semel.cli.retries import RETRIES, send_until_answered

PATH = "/v1/jobs"
SURFACE = "jobs"
PAGE = 1_000
"""The most that a server lists in one answer."""

Facts = dict[str, Any]


def with_retries(command: Command) -> Command:
    """Adds `--retries`."""
    kind = click.IntRange(min=0)
    return click.option(
        "--retries", type=kind, default=RETRIES, show_default=True, help="Retries after a failed request; 0 is none."
    )(command)


class Server(NamedTuple):
    """Whom to ask, and how often a request is sent again."""

    connection: Connection
    retries: int = RETRIES

    def get(self, path: str) -> Facts:
        """A GET, which may be repeated."""
        return self._facts(lambda: self.connection.request("GET", path))

    def put(self, path: str, body: Facts | bytes) -> Facts:
        """A PUT, which is idempotent."""
        return self._facts(self._sending("PUT", path, body))

    def delete(self, path: str) -> Facts:
        """The same."""
        return self._facts(lambda: self.connection.request("DELETE", path))

    def post(self, path: str, body: Facts | bytes, *, has_identity: bool = True) -> Facts:
        """A POST; without an identity of its own it is repeated only if it had no effect."""
        return self._facts(self._sending("POST", path, body), has_identity=has_identity)

    def post_once(self, path: str, body: Facts) -> Facts:
        """The answer to the first try."""
        return self._read(self._sending("POST", path, body)())

    def pages(self, path: str, member: str, filters: Facts, most: int | None) -> Iterator[list[Facts]]:
        """A list page by page, at most `most` items; None is all."""
        after: str | None = None
        while most is None or most > 0:
            limit = PAGE if most is None else min(most, PAGE)
            cursor = {} if after is None else {"after": after}
            page = self.get(f"{path}?{urlencode({**filters, **cursor, 'limit': limit}, errors='surrogateescape')}")
            listed, following = page.get(member), page.get("next")
            goes_round = after is not None and following == after
            if not isinstance(listed, list) or goes_round:
                raise not_semel(self.connection.address, SURFACE)
            yield listed
            if following is None:
                return
            after = following
            most = None if most is None else most - len(listed)

    def _sending(self, method: str, path: str, body: Facts | bytes) -> Callable[[], Answer]:
        headers = {"Content-Type": b"application/json"}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return lambda: self.connection.request(method, path, headers, content)

    def _facts(self, send: Callable[[], Answer], *, has_identity: bool = True) -> Facts:
        return self._read(send_until_answered(send, self.retries, has_identity=has_identity))

    def _read(self, answer: Answer) -> Facts:
        try:
            facts = json.loads(answer.body)
        except ValueError as error:
            raise not_semel(self.connection.address, SURFACE) from error
        if not isinstance(facts, dict) or "ok" not in facts:
            raise not_semel(self.connection.address, SURFACE)
        return facts


def job_path(job_id: str, call: str = "") -> str:
    """The path of a job, or of a call on it."""
    return f"{PATH}/{quote(job_id, safe='')}" + (f"/{call}" if call else "")


def named_path(collection: str, name: str) -> str:
    """The path of a queue or a schedule."""
    return f"{PATH}/{collection}/{quote(name, safe='', errors='surrogateescape')}"

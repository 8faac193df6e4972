"""A caller over plain HTTP that lives on when servers do not: no answer is told apart from every answer.

Only the standard library, because a worker process that is killed every second must start quickly.
"""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

HOST = "127.0.0.1"
ANSWER_SECONDS = 15.0
PAUSE_SECONDS = 0.03
MOVES = 0.1
"""Of the requests to several servers, these are made over a new connection, to any of them."""
Body = dict[str, Any]


class Told(NamedTuple):
    """An answer."""

    status: int
    body: Body

    @property
    def is_final(self) -> bool:
        """Whether asking again would only get the same: neither a refusal for lack of room nor an unknown outcome."""
        return self.status not in (429, 503)


class Line:
    """One connection at a time, to any of the servers; for one thread.

    A caller that stayed with the server that answers it would leave one that was killed for good: nothing would be
    asked of its next life, which then never comes to the point at which it is to die.
    """

    def __init__(self, ports: Sequence[int], chance: random.Random) -> None:
        self._ports = ports
        self._chance = chance
        self._open: http.client.HTTPConnection | None = None
        self.lost = 0
        """Requests that nobody answered."""

    def ask(self, method: str, path: str, body: Any = None, headers: Body | None = None) -> Told | None:
        """One request; None if no whole answer came, which says nothing about what was done."""
        try:
            return self._ask(method, path, body, headers)
        except (OSError, http.client.HTTPException):
            self.lost += 1
            self.close()
            return None

    def insist(self, method: str, path: str, body: Any = None, headers: Body | None = None) -> Told:
        """The same request until an answer comes that stands."""
        while True:
            told = self.ask(method, path, body, headers)
            if told is not None and told.is_final:
                return told
            time.sleep(PAUSE_SECONDS * self._chance.uniform(0.5, 1.5))

    def send_only(self, method: str, path: str, body: Any) -> None:
        """Send a request and do not wait for its answer."""
        try:
            self._request(method, path, body, {})
        except (OSError, http.client.HTTPException):
            self.close()

    def close(self) -> None:
        """Hang up."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _ask(self, method: str, path: str, body: Any, headers: Body | None) -> Told:
        answer = self._request(method, path, body, headers or {}).getresponse()
        content = answer.read()
        return Told(answer.status, json.loads(content) if content else {})

    def _request(self, method: str, path: str, body: Any, headers: Body) -> http.client.HTTPConnection:
        if len(self._ports) > 1 and self._chance.random() < MOVES:
            self.close()
        if self._open is None:
            self._open = http.client.HTTPConnection(HOST, self._chance.choice(self._ports), timeout=ANSWER_SECONDS)
        content = None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if content is not None else {}
        self._open.request(method, path, content, given | headers)
        return self._open

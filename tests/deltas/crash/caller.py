"""Pushes and pulls over plain HTTP, with a record of every number that was given out."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

from semel.kernel.hashes import json_text
from semel.surfaces.deltas.model import Delta, DeltaEntry, DeltaOp
from tests.deltas.model.rig import Pulled
from tests.harness.caller import Body, Line, Told

UNKNOWN = (500, 503, 504)
RETRY_SECONDS = (0.03, 0.15)
MOST_ASKED = 2_000
"""A server that does not answer after so many tries is down for good."""


class Given(NamedTuple):
    """A number that somebody was given, and when the question went and the answer came."""

    gateway: str
    is_push: bool
    """Whether it was the answer of a push that brought something new."""
    asked_at: float
    told_at: float
    number: int


class DeltaLine:
    """One caller; for one thread."""

    def __init__(self, ports: Sequence[int], chance: Random) -> None:
        self._line = Line(ports, chance)
        self._chance = chance
        self.given: list[Given] = []

    @property
    def lost(self) -> int:
        """How many requests went without an answer."""
        return self._line.lost

    def push(self, gateway: str, client: str, deltas: Sequence[Delta]) -> Told | None:
        """One push; None when nobody knows what became of it."""
        body = {"clientId": json.loads(client), "deltas": [write_delta(delta) for delta in deltas]}
        return self._ask("POST", gateway, f"/v1/sync/{gateway}/push", body)

    def insist(self, gateway: str, client: str, deltas: Sequence[Delta]) -> Told:
        """The same push until an answer comes."""
        for _ in range(MOST_ASKED):
            told = self.push(gateway, client, deltas)
            if told is not None:
                return told
            self.pause()
        raise TimeoutError(f"nobody has answered a push to {gateway}")

    def pull(self, gateway: str, client: str, since: int, limit: int) -> Pulled:
        """The same pull until a page comes."""
        name = quote(json.loads(client), safe="")
        path = f"/v1/sync/{gateway}/pull?since={since}&clientId={name}&limit={limit}"
        for _ in range(MOST_ASKED):
            told = self._ask("GET", gateway, path, None)
            if told is not None:
                assert told.status == 200, f"{path} was answered {told}"
                entries = tuple(map(read_entry, told.body["deltas"]))
                return Pulled(entries, int(told.body["serverHlc"]), told.body["hasMore"])
            self.pause()
        raise TimeoutError(path)

    def pause(self) -> None:
        """Before another try."""
        time.sleep(self._chance.uniform(*RETRY_SECONDS))

    def close(self) -> None:
        """Hang up."""
        self._line.close()

    def _ask(self, method: str, gateway: str, path: str, body: Any) -> Told | None:
        asked_at = time.monotonic()
        told = self._line.ask(method, path, body)
        if told is None or told.status in UNKNOWN:
            return None
        if told.status == 200:
            number = int(told.body["serverHlc"])
            # A push of nothing new writes nothing, and may be answered with a number of before.
            is_push = method == "POST" and told.body["duplicates"] < told.body["accepted"]
            self.given.append(Given(gateway, is_push, asked_at, time.monotonic(), number))
        return told


def write_delta(delta: Delta) -> Body:
    """As a client sends it."""
    return {
        "op": delta.op.name,
        "table": delta.table,
        "rowId": json.loads(delta.row),
        "clientId": json.loads(delta.client),
        "columns": json.loads(delta.columns_text),
        "hlc": str(delta.hlc),
        "deltaId": delta.id.hex(),
    }


def read_entry(entry: Body) -> DeltaEntry:
    """As a server delivers it; its position is not told."""
    return DeltaEntry(
        0,
        DeltaOp[entry["op"]],
        entry["table"],
        json_text(entry["rowId"]),
        json_text(entry["clientId"]),
        int(entry["hlc"]),
        bytes.fromhex(entry["deltaId"]),
        json_text(entry["columns"]).encode(),
        entry.get("resolved", False),
    )

"""A program with a function that runs once, which dies where it is told to: `python -m tests.once.charging JSON`.

The function charges by a request to a service that counts. It is killed (-9) at one of these points:

| point | is |
|---|---|
| before claim | the key is not claimed |
| behind claim | the key is claimed, the function has not begun |
| before effect | the function runs, the request is not sent |
| behind effect | the service has answered |
| before note | the function has returned, its result is not stored |
| behind note | its result is stored, the caller does not have it |

One process dies for each point and kind of function, each with a key of its own. The JSON says what is done: `dying`
plays them all, and `again` calls each function twice and prints what it was told.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from semel.once import Happened, Once, OnceError, current_key
from semel.once.claims import Act, ReceiptChange
from semel.once.table import Row

POINTS = ("before claim", "behind claim", "before effect", "behind effect", "before note", "behind note")
KINDS = ("function", "coroutine")
AMOUNT = 5
ACTS = {Act.CLAIM: "claim", Act.FINISH: "note"}
SECONDS = 25


def die_at(here: str, point: str) -> None:
    """As a power cut would."""
    if here == point:
        os.kill(os.getpid(), signal.SIGKILL)


def asked(url: str, key: str, method: Literal["GET", "POST"]) -> bytes:
    """Ask the service that counts."""
    body = str(AMOUNT).encode() if method == "POST" else None
    request = urllib.request.Request(url, body, {"Idempotency-Key": key}, method=method)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return bytes(answer.read())


@dataclass(frozen=True)
class Charging:
    """A place for receipts, the service that counts, and the policy."""

    place: str
    table: str
    counter: str
    on_crash: Literal["refuse", "retry", "ask"]

    def store(self, point: str) -> Once:
        """A store, which dies before or behind its own changes."""
        found = Once(self.place, table=self.table)
        change = found.store.change

        def dying(one: ReceiptChange) -> Sequence[Row]:
            name = ACTS.get(one.act, "other")
            die_at(f"before {name}", point)
            rows = change(one)
            die_at(f"behind {name}", point)
            return rows

        found.store.change = dying  # type: ignore[assignment,method-assign] # this store alone
        return found

    def function(self, kind: str, point: str = "") -> Callable[[str], int]:
        """The function that charges."""
        store = self.store(point)
        more: dict[str, Any] = {"ask": self.found} if self.on_crash == "ask" else {}
        once = store.once(key=lambda key: key, scope="shop", lease="0.6s", wait="20s", on_crash=self.on_crash, **more)

        def charge(key: str) -> int:
            assert key == current_key()
            die_at("before effect", point)
            asked(f"{self.counter}/charges", key, "POST")
            die_at("behind effect", point)
            return AMOUNT

        async def charge_async(key: str) -> int:
            return await asyncio.to_thread(charge, key)

        if kind == "function":
            return once(charge)
        charge_once = once(charge_async)
        return lambda key: asyncio.run(charge_once(key))

    def found(self, key: str) -> Happened | None:
        """Ask the service whether the key took effect."""
        try:
            return Happened(int(asked(f"{self.counter}/charges", key, "GET")))
        except urllib.error.HTTPError as answer:
            answer.close()
            if answer.code != 404:
                raise
            return None

    def dying(self, kind: str, point: str) -> int:
        """Play one death, in a process of its own; its id."""
        child = os.fork()
        if child == 0:
            try:
                self.function(kind, point)(f"{kind} {point}")
            except BaseException:  # noqa: BLE001 - the parent sees only the exit code
                traceback.print_exc()
            finally:
                os._exit(1)
        return child

    def told(self, kind: str, point: str) -> list[object]:
        """What two more calls are told."""
        charge, answers = self.function(kind), list[object]()
        for _ in range(2):
            try:
                answers.append(charge(f"{kind} {point}"))
            except OnceError as error:
                answers.append(type(error).__name__)
        return answers


def main() -> None:
    """Do what the JSON says."""
    facts = json.loads(sys.argv[1])
    what = facts.pop("what")
    charging = Charging(**facts)
    if charging.place.startswith("postgresql"):
        importlib.import_module("psycopg")  # once, and not by each of the processes that follow
    cases = [(kind, point) for kind in KINDS for point in POINTS]
    if what == "dying":
        for case, child in [(case, charging.dying(*case)) for case in cases]:
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, case
    else:
        sys.stdout.write(json.dumps({" ".join(case): charging.told(*case) for case in cases}))


if __name__ == "__main__":
    main()

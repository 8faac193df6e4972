"""A published Insieme client in a Node.js process of its own, as its application sees it."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.events.insieme.packages import HERE, installed_node

PATIENCE_SECONDS = 25.0
"""Less than the time after which a server looks by itself: what comes in time has come because it was told."""
"""How long the client may take for any one thing before the test gives up on it."""
SETTLE_SECONDS = 90.0
"""How long it may take for all that it was given during an outage."""

Told = dict[str, Any]


class Client:
    """Everything the client tells comes in order; an error that it tells of fails the test unless it is expected."""

    def __init__(
        self,
        url: str,
        name: str,
        *,
        release: str = "2.1.0",
        project: str = "",
        partitions: Sequence[str] = (),
        data: Path | None = None,
        gate: bool = False,
        reconnect: bool = False,
        expected_errors: Sequence[str] = (),
    ) -> None:
        command = [installed_node(), "client.mjs", "--url", url, "--release", release, "--client", name]
        command += ["--project", project] if project else []
        for partition in partitions:
            command += ["--partition", partition]
        command += ["--data", str(data)] if data is not None else []
        command += ["--gate"] if gate else []
        command += ["--reconnect"] if reconnect else []
        self.name = name
        self.told: list[Told] = []
        """All that was told so far and looked at, in order."""
        self._unclaimed: list[Told] = []
        self._expected_errors = {*expected_errors}
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def command(self, what: str, **fields: Any) -> None:
        """Tell the client to do something; its answer comes among the rest."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what} | fields) + "\n")
        self._process.stdin.flush()

    def did(self, what: str, **fields: Any) -> Told:
        """Do something and wait until it is done."""
        self.command(what, **fields)
        return self.wait(lambda told: told["type"] == "done" and told["payload"]["do"] == what, f"{what} is done")

    def started(self) -> Told:
        """Start, and wait until the first cycle has ended; its pages are told of, and claimed."""
        self.did("start")
        synced = self.event("synced")
        self._unclaimed = [told for told in self._unclaimed if told["type"] not in ("connected", "sync_page")]
        return synced

    def submit(self, *events: Mapping[str, Any]) -> None:
        """Give events to the client; what becomes of them comes as events."""
        self.did("submit", events=events)

    def event(self, kind: str, **fields: Any) -> Told:
        """The payload of the first event of this kind, and with these fields, that nobody has claimed yet."""

        def fits(told: Told) -> bool:
            payload = told["payload"]
            return told["type"] == kind and all(payload.get(name) == value for name, value in fields.items())

        return self.wait(fits, f"{kind} {fields}")

    def results(self, kind: str, ids: Sequence[str]) -> dict[str, Told]:
        """The events of this kind, one for each id, by id."""
        found: dict[str, Told] = {}
        while len(found) < len(ids):
            payload = self.wait(lambda told: told["type"] == kind and told["payload"]["id"] in ids, f"{kind} {ids}")
            found[payload["id"]] = payload
        return found

    def state(self) -> Told:
        """Drafts, history, cursor and status, as the client's store has them."""
        return self.did("state")

    def state_when(self, check: Callable[[Told], bool], what: str) -> Told:
        """The state, as soon as it fulfils a condition."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while not check(state := self.state()):
            assert time.monotonic() < deadline, f"{self.name}: not in {SETTLE_SECONDS} s: {what}; {state['status']}"
            time.sleep(0.05)
        return state

    def wait(self, check: Callable[[Told], bool], what: str) -> Told:
        """The payload of the first thing told that fulfils a condition and that nobody has claimed yet."""
        for place, told in enumerate(self._unclaimed):
            if check(told):
                return self._claim(place)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{self.name}: not in {PATIENCE_SECONDS} s: {what}; {self.told[-20:]}") from None
            assert line, f"{self.name}: Node.js ended, waiting for {what}"
            if check(self._look_at(line)):
                return self._claim(-1)

    def of_kind(self, kind: str) -> list[Told]:
        """The payloads of all events of a kind that were looked at so far."""
        return [told["payload"] for told in self.told if told["type"] == kind]

    def look_at_the_rest(self) -> None:
        """Whatever has been told by now."""
        while not self._lines.empty():
            if line := self._lines.get():
                self._look_at(line)

    def kill(self) -> None:
        """End the process as a crash would."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        if error is None:
            self.look_at_the_rest()

    def _claim(self, place: int) -> Told:
        payload: Told = self._unclaimed.pop(place)["payload"]
        return payload

    def _look_at(self, line: str) -> Told:
        told: Told = json.loads(line)
        self.told.append(told)
        self._unclaimed.append(told)
        assert told["type"] not in ("failed", "unknown_message"), f"{self.name}: {told}"
        unexpected = told["type"] == "error" and told["payload"]["code"] not in self._expected_errors
        assert not unexpected, f"{self.name}: {told}"
        return told

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

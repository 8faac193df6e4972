"""Send a server what no client should send, on many connections, and hold every answer against the oracle.

Cases go out in groups, each followed by a message that is right, so that every answer can be told apart; a case that
may end its connection ends its group. Beside all that, a healthy client goes on and must get its answers, and at the
end the server must be the same process, with no fault counted or logged, and with about the memory it began with.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import httpx

from tests.events.fuzz.bad_frames import FIRST_KINDS, HANDSHAKES, FrameMutator, first_frame
from tests.events.fuzz.breakages import UNREADABLE
from tests.events.fuzz.mutations import Case, Mutator
from tests.events.fuzz.oracle import UPGRADES, Outcome
from tests.events.fuzz.requests import RequestLane
from tests.events.fuzz.verdict import MOST_FAULTS, SHOWN_BYTES, FuzzVerdict, token
from tests.events.raw_frames import PING, PONG, Ended, FrameError, RawSocket, SilenceError, resident_bytes, unframed
from tests.events.shapes import Dialect, misshape
from tests.events.wire import Peer, item
from tests.harness.server import RunningServer

GROUP = 16
CASES_A_CONNECTION = 400
EARLY_CASES = 30
"""Before the handshake of a camel dialect no message is right, and too many wrong ones in a row end a connection."""
PATIENCE_SECONDS = 60.0
STALL_SECONDS = 0.2
GROWTH_BYTES = 96_000_000
PATIENT = {"SEMEL_EVENTS_IDLE_MS": "3600000"}
"""Some lanes never say who they are; on a slow machine that may take longer than a server usually lets them."""
SILENT = Outcome("")
WILD_ENDS = {1000, 1002, 1007, 1008, 1009}

_numbers = itertools.count(1)


class Source(Protocol):
    """Makes the cases of one lane."""

    dialect: Dialect

    def case(self) -> Case: ...
    def mark(self, message_id: str) -> bytes: ...
    def hello(self) -> bytes: ...


class Lane:
    """One connection after another, all of one sort."""

    def __init__(self, port: int, source: Source, verdict: FuzzVerdict, *, connects: bool = False) -> None:
        self._port = port
        self._source = source
        self._verdict = verdict
        self._connects = connects
        self._shapes = {source.dialect}
        if connects and source.dialect is not Dialect.SEED:
            self._shapes = {Dialect.PROJECT, Dialect.FLAT}
        self._socket: RawSocket | None = None
        self._left = 0
        self._next: Case | None = None
        self._sent: list[tuple[Case, str]] = []

    def send(self, most: int) -> int:
        """Send a group of cases; how many. A case that may end the connection waits until the others are answered."""
        web = self._socket or self._open()
        self._sent = []
        data = []
        while len(self._sent) < most:
            case, mark = self._next or self._source.case(), f"mark-{next(_numbers)}"
            self._next = case if self._sent and case.may_end else None
            if self._next is not None:
                break
            self._sent.append((case, mark))
            data += [case.data, self._source.mark(mark)]
            if case.may_end or len(case.data) > 65_536:
                break
        web.send(b"".join(data))
        self._left -= len(self._sent)
        return len(self._sent)

    def collect(self) -> None:
        """Take the answers to the group."""
        for case, mark in self._sent:
            assert self._socket is not None
            outcome = self._outcome(case, mark)
            self._verdict.kinds[case.kind] += 1
            self._verdict.outcomes[f"{outcome.answer or 'nothing'} {outcome.end or ''}".strip()] += 1
            if outcome not in case.expected:
                self._blame(case, f"{outcome}, not {sorted(case.expected, key=str)}")
            if outcome.end is not None or outcome.answer == "connected" or self._socket is None:
                return self.close()
        return None if self._left > 0 else self.close()

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _open(self) -> RawSocket:
        web = RawSocket(self._port, PATIENCE_SECONDS)
        self._verdict.connections += 1
        status = web.upgrade()
        web.send(self._source.hello())
        greeting = web.receive() if status == 101 else status
        if isinstance(greeting, int | Ended) or json.loads(greeting.payload)["type"] != self._greeting():
            self._verdict.blame(f"a handshake was answered with {greeting}")
        self._socket = web
        self._left = EARLY_CASES if self._connects and self._source.dialect is not Dialect.SEED else CASES_A_CONNECTION
        return web

    def _greeting(self) -> str:
        if not self._connects:
            return "connected"
        return "heartbeat_ack" if self._source.dialect is Dialect.SEED else "error"

    def _outcome(self, case: Case, mark: str) -> Outcome:
        """Read up to the answer to the mark, or to the end."""
        tokens: list[str] = []
        assert self._socket is not None
        while True:
            try:
                got = self._socket.receive()
            except SilenceError:
                self._blame(case, f"nothing in {PATIENCE_SECONDS} s after {tokens}")
                raise
            except FrameError as error:
                self._blame(case, f"{error!r} after {tokens}")
                return Outcome("unreadable", 0)
            if isinstance(got, Ended):
                return Outcome(self._only(case, tokens), got.code)
            if got.opcode == PONG:
                self._verdict.pongs += 1  # comes when it comes: only messages have an order
            elif got.opcode != PING:
                message = self._message(case, got.payload)
                if message is None or message["type"] == "event_broadcast":
                    continue
                if self._answers(message, mark, bool(tokens) or SILENT in case.expected):
                    return Outcome(self._only(case, tokens))
                tokens.append(token(message))

    def _answers(self, message: dict[str, Any], mark: str, is_answered: bool) -> bool:
        """Whether a message answers the mark: it says so, or the case has had its answer."""
        if self._source.dialect is not Dialect.SEED:
            return bool(message.get("msgId") == mark)
        says_so = message.get("reply_to") == mark
        return message["type"] == "heartbeat_ack" and (says_so or ("reply_to" not in message and is_answered))

    def _only(self, case: Case, tokens: list[str]) -> str:
        if len(tokens) > 1:
            self._blame(case, f"more than one answer: {tokens}")
        return tokens[0] if tokens else ""

    def _message(self, case: Case, payload: bytes) -> dict[str, Any] | None:
        try:
            message: dict[str, Any] = json.loads(payload)
        except ValueError:
            self._blame(case, f"the answer is no JSON: {payload[:SHOWN_BYTES]!r}")
            return None
        faults = [misshape(message, dialect) for dialect in self._shapes]
        if all(faults):
            self._blame(case, f"{faults[0]}: {payload[:SHOWN_BYTES]!r}")
            return None
        return message

    def _blame(self, case: Case, what: str) -> None:
        self._verdict.blame(f"{self._source.dialect.value}, {case.kind}: {what}; sent {_shown(case.data)}")


def _shown(data: bytes) -> str:
    """What was sent, readable if it is a whole frame."""
    return f"{data[:2].hex()} {unframed(data)[:SHOWN_BYTES]!r}" if len(data) > 5 else data.hex()


class Healthy(threading.Thread):
    """A client that does nothing wrong, and must not notice the others."""

    def __init__(self, port: int, verdict: FuzzVerdict) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._verdict = verdict
        self._is_over = threading.Event()

    def run(self) -> None:
        """Write and ask until told to stop."""
        try:
            with Peer(self._port, "healthy") as peer:
                peer.connect()
                peer.subscribe("healthy")
                while not self._is_over.wait(0.02):
                    peer.commit(item(["healthy"]))
                    peer.heartbeat()
                    self._verdict.healthy += 2
                    peer.pushed.clear()
        except (AssertionError, OSError) as error:
            self._verdict.blame(f"a healthy client: {error}")

    def finish(self) -> None:
        """Stop, and wait for the end."""
        self._is_over.set()
        self.join(PATIENCE_SECONDS)


class Fuzz:
    """One run against one server."""

    def __init__(
        self, folder: Path, frames: int, seed: int, report: Callable[[FuzzVerdict], None] = lambda verdict: None
    ) -> None:
        self._server = RunningServer(folder / "data", env=PATIENT)
        self._frames = frames
        self._seed = seed
        self._chance = random.Random(seed)
        self._report = report
        self.verdict = FuzzVerdict()

    def run(self) -> FuzzVerdict:
        """Send so many frames, then look at the server."""
        with self._server:
            try:
                self._send_all()
            except (SilenceError, TimeoutError, httpx.TimeoutException) as error:
                self.verdict.blame(f"the server stands still: {error!r}")
                self._server.kill()
        output = self._server.output.read_text(errors="replace")
        for mark in ("Traceback", '"level":"error"', "fault"):
            if mark in output:
                self.verdict.blame(f"{mark!r} in the log: {output[output.index(mark) - 500 :][:2_000]}")
        return self.verdict

    def _send_all(self) -> None:
        pid, began = self._server.pid, 0
        healthy = Healthy(self._server.port, self.verdict)
        healthy.start()
        lanes = self._lanes()
        requests = RequestLane(self._server.url, self._chance, self.verdict)
        try:
            while self.verdict.frames < self._frames and self.verdict.wrong < 10 * MOST_FAULTS:
                self._round(lanes)
                requests.send()
                began = began or (resident_bytes(pid) if self.verdict.frames > self._frames // 5 else 0)
                self._report(self.verdict)
        finally:
            for lane in lanes:
                lane.close()
            requests.close()
            healthy.finish()
        self._check_server(pid, began)

    def _lanes(self) -> list[Lane]:
        port, verdict = self._server.port, self.verdict
        lanes: list[Lane] = []
        sorts = [(Dialect.SEED, False)] * 4 + [(Dialect.PROJECT, False)] * 3 + [(Dialect.FLAT, False)]
        for dialect, connects in [*sorts, (Dialect.SEED, True), (Dialect.PROJECT, True)]:
            chance = random.Random(f"{self._seed} {len(lanes)}")
            mutator = Mutator(chance, dialect, f"fuzz-{len(lanes)}", connects=connects)
            lanes.append(Lane(port, mutator, verdict, connects=connects))
        return [*lanes, Lane(port, FrameMutator(random.Random(self._seed), "fuzz-frames"), verdict)]

    def _round(self, lanes: list[Lane]) -> None:
        """A group on every lane, all under way at once; then some that need a connection of their own."""
        for lane in lanes:
            self.verdict.frames += lane.send(GROUP)
        for lane in lanes:
            lane.collect()
        self._first_frame()
        if self._chance.random() < 0.3:
            self._handshake()
        if self._chance.random() < 0.1:
            self._wild_frame()

    def _first_frame(self) -> None:
        """Nothing is known of the dialect: the refusal speaks both, and the handshake is still possible."""
        case = first_frame(self._chance.choice(FIRST_KINDS), self._chance, UNREADABLE)
        mutator = Mutator(self._chance, Dialect.SEED, "fuzz-first")
        web = self._connect()
        web.send(case.data + mutator.hello())
        self.verdict.frames += 1
        outcome = self._first_outcome(web, case)
        self.verdict.kinds[f"first: {case.kind}"] += 1
        if outcome not in case.expected:
            self.verdict.blame(f"first frame, {case.kind}: {outcome}, not {case.expected}; sent {_shown(case.data)}")
        web.close()

    def _first_outcome(self, web: RawSocket, case: Case) -> Outcome:
        got = web.receive()
        if isinstance(got, Ended):
            return Outcome("", got.code)
        message = json.loads(got.payload)
        told = case.kind == "unknown type"  # it told its dialect, which need not be the one of the handshake after it
        fault = "" if told else misshape(message, Dialect.UNKNOWN)
        if fault:
            return Outcome(fault)
        following = web.receive()
        if isinstance(following, Ended):
            return Outcome(token(message), following.code)
        is_connected = told or json.loads(following.payload)["type"] == "connected"
        return Outcome(token(message)) if is_connected else Outcome(f"no handshake after it: {following}")

    def _handshake(self) -> None:
        kind = self._chance.choice(sorted(HANDSHAKES))
        data = HANDSHAKES[kind](self._chance)
        web = RawSocket(self._server.port, PATIENCE_SECONDS)
        try:
            status = web.upgrade(data)
        except (FrameError, SilenceError) as error:
            return self.verdict.blame(f"handshake, {kind}: {error!r}; sent {data[:SHOWN_BYTES]!r}")
        finally:
            web.close()
        self.verdict.frames += 1
        self.verdict.kinds[f"handshake: {kind}"] += 1
        if status not in UPGRADES[kind]:
            self.verdict.blame(f"handshake, {kind}: {status}, not {UPGRADES[kind]}; sent {data[:SHOWN_BYTES]!r}")
        return None

    def _wild_frame(self) -> None:
        """Bits of the frame itself: the server may wait for the rest of it, so silence is an answer too."""
        mutator = Mutator(self._chance, Dialect.SEED, "fuzz-wild")
        data = bytearray(mutator.mark("wild"))
        for _ in range(self._chance.choice((1, 2, 8))):
            data[self._chance.randrange(min(len(data), 14))] ^= 1 << self._chance.randrange(8)
        web = self._connect()
        web.send(mutator.hello() + bytes(data) + mutator.mark("after") * 3)
        self.verdict.frames += 1
        self.verdict.kinds["wild frame"] += 1
        try:
            while not isinstance(got := web.receive(STALL_SECONDS), Ended):
                fault = got.opcode not in (PING, PONG) and misshape(json.loads(got.payload), Dialect.SEED)
                if fault:
                    self.verdict.blame(f"wild frame: {fault}; sent {bytes(data)!r}")
            if got.code not in WILD_ENDS:
                self.verdict.blame(f"wild frame: ended with {got.code}; sent {bytes(data)!r}")
        except SilenceError:
            pass
        except FrameError as error:
            self.verdict.blame(f"wild frame: {error!r}; sent {bytes(data)!r}")
        web.close()

    def _connect(self) -> RawSocket:
        web = RawSocket(self._server.port, PATIENCE_SECONDS)
        self.verdict.connections += 1
        status = web.upgrade()
        if status != 101:
            self.verdict.blame(f"a handshake was answered with {status}")
        return web

    def _check_server(self, pid: int, began: int) -> None:
        verdict = self.verdict
        if self._server.pid != pid or self._server.wait_for_death(0.0) is not None:
            return verdict.blame(f"the server has died: {self._server.output_tail()}")
        with httpx.Client(base_url=self._server.url, timeout=PATIENCE_SECONDS) as http:
            if http.get("/livez").status_code != httpx.codes.OK:
                verdict.blame("/livez does not answer 200")
            counts = http.get("/metrics").json()
        for name, count in counts.items():
            if count and ("engine_faults" in name or "status=500" in name):
                verdict.blame(f"{name} is {count}")
        if not verdict.pongs:
            verdict.blame("no ping was answered")
        verdict.grown_bytes = resident_bytes(pid) - began if began else 0
        if verdict.grown_bytes > GROWTH_BYTES:
            verdict.blame(f"the server has grown by {verdict.grown_bytes} bytes")
        return None

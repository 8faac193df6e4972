"""Replicas of the SDK, and beside them a client that believes whatever it is sent; at the end all hold the same rows.

Every answer may be lost: of a push, of a pull, a checkpoint in the middle, and a page over a WebSocket, which may also
come late, after the answer of a push that was sent behind it. Processes of the server die at named points of the commit
path, clocks differ, files are opened again, and older copies take their place. The log is cut, or rules say who sees
what; then the other client is not there. At the end there are some quiet rounds; then everyone, and a device that comes
new, must hold the fold of all deltas, as far as it may see it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from semel.engine.contract import EngineError
from semel.engine.engine import POINTS
from semel.engine.reading import Reading
from semel.kernel.errors import Refusal, Refused
from semel.kernel.hashes import json_text
from semel.surfaces.deltas.commands import DeltasPushed, PushDeltas, SaveSyncRules, TrimLog
from semel.surfaces.deltas.limits import PAGE_BYTES
from semel.surfaces.deltas.model import Delta
from semel.surfaces.deltas.model import DeltaReplica as Caller
from semel.surfaces.deltas.plain_dialect import PlainCaller, PlainStart, plain_checkpoint, plain_page, settle
from semel.surfaces.deltas.reading import DeltaPage
from semel.surfaces.deltas.wire.answers import plain_page_body, plain_pushed_body
from tests.deltas.model.device import Device
from tests.deltas.model.fold import fold
from tests.deltas.model.replicas import PUSHED_AT_ONCE, TABLE, PlainReplica, Row
from tests.deltas.model.rig import Pulled, Rig
from tests.deltas.model.shown import shown
from tests.deltas.pushed_log import delta_log
from tests.harness.simulation import Simulation

GATEWAY = "gw"
SHARED = Path("/dev/shm")
STEPS = 70
QUIET_ROUNDS = 3
NAMES = ("ann", "b\ue000", "b\U0001f389")
ORGS = ("a", "a", "b")
RULES = {
    "version": 1,
    "buckets": [{"name": "own", "tables": [], "filters": [{"column": "org", "op": "eq", "value": "jwt:org"}]}],
}


class Devices(Simulation):
    """One run; `only` are the numbers of the steps that happen."""

    def __init__(
        self,
        seed: int,
        steps: int = STEPS,
        only: Collection[int] | None = None,
        *,
        reuses_rows: bool = False,
        cuts_log: bool = False,
        has_rules: bool = False,
    ) -> None:
        super().__init__(seed, steps, only)
        chance = self._chance
        self._reuses_rows, self._cuts_log, self._has_rules = reuses_rows, cuts_log, has_rules
        self._losses = chance.choice((0.0, 0.15, 0.35))
        self._deaths = chance.choice((0.0, 0.05))
        self._page = chance.choice((1, 2, 5, 1_000))
        self._budget = chance.choice((1, 600, PAGE_BYTES))
        self._ahead_ms = {name: chance.choice((-3_000, 0, 0, 4_000)) for name in (*NAMES, "other")}
        self._rig = Rig()
        self._other = None if cuts_log or has_rules else PlainReplica("other", hears=chance.random() < 0.5)
        self._written: list[Delta] = []

    async def _start(self) -> None:
        self._place = tempfile.TemporaryDirectory(dir=SHARED if SHARED.is_dir() else None)  # noqa: ASYNC240
        self._folder = Path(self._place.name)
        self._devices = [Device(name, self._folder, _claims(org)) for name, org in zip(NAMES, ORGS, strict=True)]
        self._rig.start()

    async def _stop(self) -> None:
        await self._rig.stop()
        for device in self._devices:
            device.close()
        self._place.cleanup()

    async def _prepare(self) -> None:
        if self._has_rules:
            await self._rig.send(SaveSyncRules(GATEWAY, json_text(RULES).encode()))  # type: ignore[arg-type]

    async def _step(self, number: int) -> None:
        device, draw = self._chance.choice(self._devices), self._chance.random()
        device.physical_ms = self._rig.world.wall + self._ahead_ms[device.name]
        if draw < 0.06:
            self._rig.world.pass_ms(self._chance.choice((1, 50, 2_000)))
        elif draw < 0.09:
            self._ahead_ms[device.name] = self._chance.choice((-20_000, -3_000, -1, 0, 4_000))
        elif draw < 0.17:
            await self._open_again(device, number)
        elif draw < 0.2 and self._cuts_log:
            await self._cut()
        elif draw < 0.3 and self._other is not None:
            await self._step_of_other(self._other, number)
        elif draw < 0.55:
            self._write(device, number)
        elif draw < 0.7:
            await self._push(device)
        elif draw < 0.85:
            await self._pull(device)
        else:
            await self._listen(device)

    def _write(self, device: Device, number: int) -> None:
        fresh = json_text(f"shared-{number % 3}" if self._reuses_rows else f"r{number}")
        org = self._chance.choice(ORGS)
        delta = device.write(self._chance, fresh, {"org": org} if self._has_rules else {})
        if delta is not None:
            self._written.append(delta)
            self._tell(f"{device.name} writes {shown(delta)}")

    async def _open_again(self, device: Device, number: int) -> None:
        """After the end of a process; or an older copy takes the place of a file that has nothing to send."""
        draw = self._chance.random()
        if draw < 0.2:
            device.reopen()
        elif draw < 0.5:
            device.copy()
            self._tell(f"{device.name} is copied")
        else:
            if draw < 0.75:
                device.copy()
                self._tell(f"{device.name} is copied")
                self._write(device, number)
            while device.queued():
                if not await self._push(device):
                    return
            if device.go_back():
                self._tell(f"{device.name} goes back to its copy")
                self._verdict.seen["older copies"] += 1
                self._write(device, number)
                await self._push(device)

    async def _cut(self) -> None:
        log = await self._rig.look(partial(_positions))
        some = log[: self._chance.randrange(len(log) + 1)][:20]
        if some:
            await self._rig.send(TrimLog(GATEWAY, tuple(some)))
            self._verdict.seen["cuts"] += 1

    # -- Between a device and the server -------------------------------------------------------------------------------

    def _is_lost(self) -> bool:
        return self._chance.random() < self._losses

    async def _push(self, device: Device, *, is_calm: bool = False) -> bool:
        """The oldest few; whether they were acknowledged."""
        batch = device.batch()
        if not batch or (not is_calm and self._is_lost()):
            return False
        will_die = not is_calm and self._arm()
        body = device.push_body(batch)
        caller = Caller(GATEWAY, body.client, "default")
        answer = await self._rig.send(PushDeltas(caller, body.deltas, is_plain=True))
        await self._restart(will_die)
        self._tell(f"{device.name} pushes {shown(body.deltas)} -> {shown(answer)}")
        if isinstance(answer, Refusal):
            self._require(answer.name == "CLOCK_DRIFT", f"refused {answer}")
        if not isinstance(answer, DeltasPushed):
            return False
        assert body.cursor is not None
        asker, budget = self._asker(device), PAGE_BYTES if is_calm else self._budget
        look = partial(settle, asker=asker, deltas=body.deltas, cursor=body.cursor, budget=budget)
        settlement = await self._rig.look(look)
        if not is_calm and self._is_lost():
            return False
        self._verdict.seen["corrections"] += len(settlement.entries)
        self._verdict.seen["settled in part"] += settlement.settled < len(batch)
        self._tell(f"{device.name} is told {shown(settlement)}")
        device.pushed(batch, plain_pushed_body(answer, settlement))
        return True

    async def _pull(self, device: Device, *, is_calm: bool = False) -> bool:
        """The checkpoint or a page; whether there may be more."""
        since = device.replica.progress.cursor
        if not since and not await self._begin(device, is_calm=is_calm):
            return False
        since = device.replica.progress.cursor
        try:
            page = await self._page_of(device, since, device.replica.progress.own_after)
        except Refused as refused:
            self._require(refused.refusal.name == "CURSOR_EXPIRED", f"refused {refused}")
            self._verdict.seen["expired"] += 1
            device.line = device.on_its_way = None
            device.replica.lose_place()
            return True
        if not is_calm and self._is_lost():
            return False
        own = [entry for entry in page.entries if entry.client == json_text(device.name)]
        self._verdict.seen["own entries"] += len(own)
        self._tell(f"{device.name} pulls from {shown(since)} -> {shown(page)}")
        self._require(device.apply(since, plain_page_body(page)), "a page was not taken")
        return page.has_more

    async def _begin(self, device: Device, *, is_calm: bool) -> bool:
        """Take the checkpoint, of which the end may be lost; whether it came whole."""
        lines = await self._rig.look(partial(_lines, asker=self._asker(device), size=self._page))
        kept = lines if is_calm or not self._is_lost() else lines[: self._chance.randrange(len(lines))]
        self._tell(f"{device.name} takes {len(kept)} of {len(lines)} lines of the checkpoint")
        self._verdict.seen["checkpoints"] += 1
        device.take_checkpoint(kept)
        return len(kept) == len(lines)

    async def _listen(self, device: Device) -> None:
        """Open a WebSocket; or a page comes over it, some time after it was sent; or the line is cut."""
        if device.on_its_way is not None and device.line is not None:
            body, device.on_its_way = device.on_its_way, None
            if not device.apply(device.line, body):
                device.line = None
                return
            device.line = int(json.loads(body)["serverHlc"])
            self._tell(f"{device.name} hears {body!r}")
            self._verdict.seen["heard"] += 1
        elif device.line is None:
            if not await self._pull(device) and device.replica.progress.cursor:
                device.line = device.replica.progress.cursor
        elif self._is_lost():
            device.line = None
        else:
            try:
                # The first page over a line leaves out what the device says; behind it all that is its own.
                device.on_its_way = plain_page_body(await self._page_of(device, device.line, self._known(device)))
            except Refused:
                device.line = None

    def _known(self, device: Device) -> int | None:
        return device.replica.progress.own_after

    async def _page_of(self, device: Device, since: int, own_after: int | None) -> DeltaPage:
        found: DeltaPage | PlainStart = PlainStart(since)
        while isinstance(found, PlainStart):
            look = partial(
                plain_page,
                asker=self._asker(device),
                start=found,
                own_after=own_after,
                limit=self._page,
                budget=PAGE_BYTES,
            )
            found = await self._rig.look(look)
        return found

    @staticmethod
    def _asker(device: Device) -> PlainCaller:
        return PlainCaller(GATEWAY, json_text(device.name), device.claims)

    def _arm(self) -> bool:
        will_die = self._chance.random() < self._deaths
        if will_die:
            self._rig.arm(self._chance.choice(POINTS))
        return will_die

    async def _restart(self, will_die: bool) -> None:
        if will_die:
            self._verdict.crashes += await self._rig.stop()
            self._rig.start()

    # -- The other client ----------------------------------------------------------------------------------------------

    async def _step_of_other(self, other: PlainReplica, number: int) -> None:
        if self._chance.random() < 0.5:
            fresh = json_text(f"shared-{number % 3}" if self._reuses_rows else f"o{number}")
            delta = other.write(self._chance, fresh, self._rig.world.wall + self._ahead_ms["other"])
            if delta is not None:
                self._written.append(delta)
                self._tell(f"other writes {shown(delta)}")
        else:
            await self._sync_other(other, is_calm=False)

    async def _sync_other(self, other: PlainReplica, *, is_calm: bool) -> None:
        caller = Caller(GATEWAY, other.name, "default")
        while other.pending:
            sent = tuple(other.pending[:PUSHED_AT_ONCE])
            answer = await self._rig.push(caller, sent)
            if not isinstance(answer, DeltasPushed) or (not is_calm and self._is_lost()):
                return
            other.pushed(sent, answer.server_hlc)
        has_more = True
        while has_more:
            page = await self._rig.pull(caller, other.cursor, self._page)
            if isinstance(page, EngineError) or (not is_calm and self._is_lost()):
                return
            assert isinstance(page, Pulled)
            other.apply(page, self._rig.world.wall + self._ahead_ms["other"])
            has_more = page.has_more

    # -- The end -------------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """No trouble any more, and time enough for whoever was ahead."""
        self._rig.world.pass_ms(200_000)
        self._ahead_ms = dict.fromkeys(self._ahead_ms, 0)
        reader = Device("reader", self._folder, _claims("a"))
        self._devices.append(reader)
        for number in range(QUIET_ROUNDS):
            self._where = f"round {number}"
            for device in self._devices:
                device.physical_ms = self._rig.world.wall
                while device.queued():
                    assert await self._push(device, is_calm=True), f"{self._where}: not pushed"
                while await self._pull(device, is_calm=True):
                    pass
            if self._other is not None:
                await self._sync_other(self._other, is_calm=True)
        for device in self._devices:
            expected = self._expected(device.claims["org"][0])
            self._compare(device.name, device.rows, expected)
        if self._other is not None:
            self._compare("other", _without_nulls(self._other.rows), self._expected(""))

    def _compare(self, name: str, found: Mapping[str, Row], expected: Mapping[str, Row]) -> None:
        wrong = [row for row in sorted({*found, *expected}) if found.get(row) != expected.get(row)]
        self._verdict.require(
            not wrong,
            f"{name}: {[(TABLE, row, found.get(row), expected.get(row)) for row in wrong[:1]]} (found, expected)",
        )

    def _expected(self, org: str) -> dict[str, Row]:
        deltas: dict[str, list[Delta]] = {}
        for delta in self._written:
            deltas.setdefault(delta.row, []).append(delta)
        folded = {row: fold(some) for row, some in deltas.items()}
        rows = {row: state.columns for row, state in folded.items() if state.is_live}
        if self._has_rules:
            rows = {row: columns for row, columns in rows.items() if columns.get("org") == json_text(org)}
        return _without_nulls(rows)


def _without_nulls(rows: Mapping[str, Row]) -> dict[str, Row]:
    return {row: {name: value for name, value in columns.items() if value != "null"} for row, columns in rows.items()}


def _claims(org: str) -> Mapping[str, tuple[str, ...]]:
    return {"org": (org,)}


def _positions(reading: Reading) -> list[int]:
    return [one.position for one in delta_log(reading, GATEWAY, 0, 10_000)]


def _lines(reading: Reading, *, asker: PlainCaller, size: int) -> list[bytes]:
    """A checkpoint as the host writes it, in lines of that many rows."""
    found, epoch = plain_checkpoint(reading, asker)
    rows: list[Any] = list(found.entries)
    pieces = [rows[start : start + size] for start in range(0, len(rows), size)]
    lines = [plain_page_body(DeltaPage(piece, found.cursor, True, epoch=epoch)) for piece in pieces]
    return [*lines, plain_page_body(DeltaPage((), found.cursor, False, epoch=epoch))]

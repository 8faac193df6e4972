"""Answers of deltas as JSON. Stored texts are copied unchanged: they were made canonical when they were pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson

from semel.kernel.errors import Refusal
from semel.surfaces.deltas.commands import DeltasPushed, flaws_of
from semel.surfaces.deltas.model import DeltaEntry
from semel.surfaces.deltas.plain_dialect import PushSettlement
from semel.surfaces.deltas.reading import DeltaPage

_AT_ONCE, _LARGE_BYTES = 1_024, 64 * 1024


def entry_parts(entry: DeltaEntry, more: str = "") -> tuple[bytes, bytes, bytes]:
    """The parts of one entry as JSON, to be joined; `more` has additional members."""
    resolved = ',"resolved":true' if entry.is_resolved else ""
    before = (
        f'{{"op":"{entry.op.name}","table":"{entry.table}","rowId":{entry.row},"clientId":{entry.client},"columns":'
    )
    behind = f',"hlc":"{entry.hlc}","deltaId":"{entry.id.hex()}"{resolved}{more}}}'
    return before.encode(), entry.columns, behind.encode()


def pushed_body(pushed: DeltasPushed) -> bytes:
    """The answer to a push."""
    head = f'{{"serverHlc":"{pushed.server_hlc}","accepted":{pushed.accepted},"duplicates":{pushed.duplicates}'
    return b"".join((head.encode(), b',"deltas":[', *_entries(pushed.entries), b"]}"))


def page_body(page: DeltaPage) -> bytes:
    """The answer to a pull."""
    has_more = "true" if page.has_more else "false"
    epoch = f',"epoch":{page.epoch}' if page.epoch else ""
    rest = f'],"serverHlc":"{page.cursor}","hasMore":{has_more}{epoch}}}'
    return b"".join((b'{"deltas":[', *_entries(page.entries), rest.encode()))


def plain_page_body(page: DeltaPage) -> bytes:
    """The answer to a pull in the plain dialect; also one line of its checkpoint."""
    head = f'{{"serverHlc":"{page.cursor}","hasMore":{"true" if page.has_more else "false"},"epoch":{page.epoch}'
    return b"".join((f'{head},"deltas":['.encode(), *_entries(page.entries, _position), b"]}"))


def plain_pushed_body(pushed: DeltasPushed, settlement: PushSettlement) -> bytes:
    """The answer to a push in the plain dialect."""
    head = f'{{"serverHlc":"{settlement.position}","accepted":{pushed.accepted},"duplicates":{pushed.duplicates}'
    first = f',"first":"{pushed.first}"' if pushed.first else ""
    place = f'"settled":{settlement.settled},"cursor":"{settlement.cursor}","epoch":{settlement.epoch}{first}'
    return b"".join((f'{head},{place},"deltas":['.encode(), *_entries(settlement.entries, _position), b"]}"))


def refusal_body(refusal: Refusal, request_id: str) -> bytes:
    """The body of a refusal."""
    told: dict[str, Any] = {"error": refusal.message, "code": refusal.name, "requestId": request_id}
    flaws = flaws_of(refusal)
    if flaws:
        told["details"] = [
            {"index": flaw.place, "deltaId": flaw.delta_id, "code": flaw.code, "message": flaw.message}
            for flaw in flaws
        ]
    if "server_hlc" in refusal.facts:
        told["serverHlc"] = str(refusal.facts["server_hlc"])
    return orjson.dumps(told)


def _no_more(entry: DeltaEntry) -> str:
    return ""


def _position(entry: DeltaEntry) -> str:
    """The member with the position of an entry, in the plain dialect."""
    return f',"position":"{entry.position}"'


def _entries(entries: Sequence[DeltaEntry], more: Callable[[DeltaEntry], str] = _no_more) -> Iterator[bytes]:
    """The entries as JSON: small ones joined, large ones in parts without a copy."""
    some: list[bytes] = []
    comma = b""
    for entry in entries:
        some += comma, *entry_parts(entry, more(entry))
        comma = b","
        if len(some) > _AT_ONCE or len(entry.columns) > _LARGE_BYTES:
            yield from some if len(entry.columns) > _LARGE_BYTES else (b"".join(some),)
            some = []
    yield b"".join(some)

"""A reader of an event stream that does not read, over a real socket: cut off, and back where it stood."""

from __future__ import annotations

import re
import socket
from functools import partial

from tests.harness.server import HOST
from tests.harness.together import at_once, eventually
from tests.ledger.http_wire import Route, place_path
from tests.ledger.rig import Ledger, SiteOf, request
from tests.ledger.words import PATIENCE_SECONDS, Place, put

WRITERS, EACH = 8, 300
TOTAL = 1 + WRITERS * EACH
"""More than a reader may be behind, and fewer than the buffers of the system would take."""
SMALL = 2_048
WAIT_SECONDS = 60.0
_EVENT = re.compile(rb"id: (\d+)\ndata: \{[^\n]*\}\n\n")


def events(received: bytes) -> list[int]:
    """The heights in what came, as far as whole events did; the lengths of chunks are taken out."""
    return [int(height) for height in _EVENT.findall(re.sub(rb"\r\n[0-9a-f]+\r\n", b"", received))]


def cut_off(ledger: Ledger) -> float:
    """How many watchers the server has cut off."""
    [found] = re.findall(r"^semel_ledger_slow_watchers_total (\S+)$", metrics_of(ledger), re.MULTILINE)
    return float(found)


def metrics_of(ledger: Ledger) -> str:
    return ledger.http.send(Route("GET", "/metrics"), {"Accept": "text/plain"}).text


def write(ledger: Ledger, place: Place, client: str) -> None:
    for number in range(1, EACH + 1):
        ledger.http.ask("Write", request(place, client, [put("k")], sequence=number))


def test_a_reader_that_does_not_read_is_cut_off(site_of: SiteOf) -> None:
    ledger = site_of("sqlite").ledger("http")
    place = ledger.new_place()
    ledger.commit(place, "first", put("k"), sequence=1)
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        reader.settimeout(PATIENCE_SECONDS)
        reader.connect((HOST, ledger.nodes[0].port))
        target = f"{place_path(place.fields)}/blocks:watch?from=1"
        reader.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while events(received) != [1]:
            received += reader.recv(SMALL)
        before = cut_off(ledger)
        at_once([partial(write, ledger, place, f"client-{number}") for number in range(WRITERS)])
        eventually(lambda: cut_off(ledger) > before, "it is cut off", WAIT_SECONDS)
        received += the_rest(reader)
    seen = events(received)
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) < TOTAL - 1_024
    asked = place.fields | {"startHeight": "1"}
    with ledger.http.watch(asked, {"Last-Event-ID": str(len(seen))}) as blocks:
        heights = [int(next(blocks)["height"]) for _ in range(TOTAL - len(seen))]
    assert heights == list(range(len(seen) + 1, TOTAL + 1))


def the_rest(reader: socket.socket) -> bytes:
    """What still comes until the server has ended the connection."""
    found = b""
    try:
        while piece := reader.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return found

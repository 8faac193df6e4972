"""A chain whose head does not match says so: nothing is built on it, and nobody is told to try again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.harness.server import RunningServer
from tests.ledger.rig import Ledger, Site
from tests.ledger.words import WIRES, Place, new_key, put, refused

CLIENT = "c"
BLOCKS = 3
TAMPERED = {
    "a tip of another hash": "UPDATE ledger_place SET tip_hash = zeroblob(32) WHERE vault = ?",
    "a tip of another state": "UPDATE ledger_place SET state_root = zeroblob(32) WHERE vault = ?",
    "a tip below the last block": "UPDATE ledger_place SET height = height - 1 WHERE vault = ?",
    "a tip above the last block": "UPDATE ledger_place SET height = height + 2 WHERE vault = ?",
    "a last block that was changed": (
        f"UPDATE ledger_block SET tx_root = zeroblob(32) WHERE vault = ? AND height = {BLOCKS}"
    ),
    "a last block that is gone": f"DELETE FROM ledger_block WHERE vault = ? AND height = {BLOCKS}",
}
ROLLED_BACK = (
    "UPDATE ledger_place SET height = height - 1, tip_hash = (SELECT previous_hash FROM ledger_block b WHERE"
    f" b.vault = ledger_place.vault AND b.height = {BLOCKS}), state_root = (SELECT state_root FROM ledger_block b WHERE"
    f" b.vault = ledger_place.vault AND b.height = {BLOCKS - 1}) WHERE vault = ?"
)
"""A tip that fits the block before the last one: what is built on it meets a block that is there."""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A server on SQLite, which a test starts."""
    return Site(RunningServer(tmp_path / "data", grpc=True))


def broken(site: Site, statement: str) -> Place:
    """A vault with three blocks whose rows were changed while the server was stopped; it runs again."""
    server = site.nodes[0]
    server.start()
    ledger = site.ledger("http")
    place = ledger.new_place()
    for sequence in range(1, BLOCKS + 1):
        ledger.commit(place, CLIENT, put("k", str(sequence)), sequence=sequence)
    server.stop()
    with sqlite3.connect(server.data / "semel.db") as connection:
        changed = connection.execute(statement, (place.vault,)).rowcount
    connection.close()
    assert changed == 1
    server.start()
    for via in WIRES:
        site.ledger(via).redial()
    return place


def check_told(site: Site, call: Callable[[], Any]) -> None:
    """A loss of data, not worth another try, with an id that the log has."""
    with refused("DATA_LOSS", "DATA_LOSS") as caught:
        call()
    told = caught.value
    error_id = told.details["context"]["error_id"]
    assert error_id in told.message
    assert f'"error_id":"{error_id}"' in site.nodes[0].output.read_text()
    advice = {name: told.details[name] for name in ("retry", "is_retryable") if name in told.details}
    assert advice in ({"retry": "never"}, {"is_retryable": False})
    assert not {"retry_after_ms", "retry-after-ms", "suggested_action"} & set(told.details)


def write(ledger: Ledger, place: Place, **identity: Any) -> Any:
    return ledger.write(place, CLIENT, put("k", "new"), **identity)


@pytest.mark.parametrize("name", TAMPERED)
def test_e5_nothing_is_built_on_a_head_that_does_not_match(site: Site, name: str) -> None:
    place = broken(site, TAMPERED[name])
    try:
        for ledger in map(site.ledger, WIRES):
            check_told(site, partial(write, ledger, place, key=new_key()))
            check_told(site, partial(write, ledger, place, sequence=BLOCKS + 1))
            check_told(site, partial(ledger.ask, "GetTip", place))
            check_told(site, partial(ledger.ask, "VerifiedRead", place, key="k"))
            assert ledger.value(place, "k") == str(BLOCKS).encode()  # what is there can still be read
            other = ledger.new_vault(place)
            ledger.commit(other, CLIENT, put("k"), sequence=1)  # and other chains go on
    finally:
        site.close()
        site.nodes[0].stop()


def test_e5_a_block_behind_the_tip_is_told_instead_of_a_retry_for_ever(site: Site) -> None:
    place = broken(site, ROLLED_BACK)
    try:
        for ledger in map(site.ledger, WIRES):
            check_told(site, partial(write, ledger, place, key=new_key()))
            check_told(site, partial(write, ledger, place, sequence=BLOCKS + 1))
    finally:
        site.close()
        site.nodes[0].stop()


def test_e5_a_whole_chain_goes_on(site: Site) -> None:
    """The rows as they are pass: what is told of broken ones is not told of others."""
    place = broken(site, "UPDATE ledger_place SET status = status WHERE vault = ?")
    try:
        for sequence, ledger in enumerate(map(site.ledger, WIRES), BLOCKS + 1):
            ledger.commit(place, CLIENT, put("k", str(sequence)), sequence=sequence)
            assert ledger.height(place) == sequence
    finally:
        site.close()
        site.nodes[0].stop()

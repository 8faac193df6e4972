"""`semel ledger block`: one block, a range of blocks, or new blocks live, each with its hash.

A watch reconnects after the last height received, and prints each block once and in order.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress

import click

from semel.cli.connection import CliConnection, RequestError, not_semel
from semel.cli.ledger.requests import (
    SURFACE,
    CliLedger,
    CliLedgerScope,
    Facts,
    ScopeType,
    content_words,
    encoded,
    hex_of,
    inner,
)
from semel.cli.output import printable, with_json
from semel.cli.requests import parse_events, pause_seconds, with_connection, with_retries
from semel.client.proofs import ProofError, block_hash


def follow(connection: CliConnection, place: CliLedgerScope, height: int) -> Iterator[Facts]:
    """The announced blocks from a height on, without an end."""
    failures = 0
    while True:
        try:
            for block in _one_connection(connection, place, height):
                failures, height = 0, height + 1
                yield block
        except RequestError as error:
            if not error.may_pass:
                raise
            if failures == 0:
                click.echo(f"{error.message} Trying again.", err=True)
            failures += 1
        time.sleep(pause_seconds(failures))


def _one_connection(connection: CliConnection, place: CliLedgerScope, height: int) -> Iterator[Facts]:
    path = f"{place.path}/blocks:watch?{encoded({'from': height})}"
    with connection.events(path, surface=SURFACE) as response:
        for event in parse_events(iter(response.readline, b"")):
            try:
                block = json.loads(event.data)
                is_next = int(block["height"]) == height
            except (ValueError, KeyError, TypeError) as error:
                raise not_semel(connection.address, SURFACE) from error
            if not is_next:
                raise click.ClickException(f"The server sent block {int(block['height'])} instead of {height}.")
            height += 1
            yield block


MOST_BLOCKS = 1_000
_HEIGHTS = re.compile(r"([0-9]{1,20})(?:\.\.([0-9]{1,20}))?")


@click.command()
@click.argument("place", type=ScopeType())
@click.argument("heights", required=False, metavar="[HEIGHT|FROM..TO]")
@click.option("--watch", is_flag=True, help="Print each new block from HEIGHT or the tip on, until Control-C.")
@click.option("--hashes", is_flag=True, help="Print only place, height and hash, in the format of --trust-file.")
@with_retries
@with_json
@with_connection
def block(
    connection: CliConnection,
    place: CliLedgerScope,
    heights: str | None,
    watch: bool,
    hashes: bool,
    retries: int,
    as_json: bool,
) -> None:
    """Show blocks of a chain: the last one, the one at HEIGHT, or FROM..TO. PLACE is ORG or ORG/VAULT.

    Each starts with its place, height and hash, in the format of `semel ledger verify`.
    """
    ledger = CliLedger(connection, retries)
    wanted = None if heights is None else _parsed(heights)
    if watch:
        if wanted is not None and wanted[1] is not None:
            raise click.UsageError("Give --watch one HEIGHT or none: it does not end.")
        _watch(connection, place, wanted[0] if wanted else max(1, _tip(ledger, place)), as_json)
        return
    start, stop = (_tip(ledger, place), None) if wanted is None else wanted
    if start == 0:
        raise click.ClickException(f"There are no blocks in {place} yet.")
    for one in [_one(ledger, place, start)] if stop is None else _many(ledger, place, start, stop):
        if as_json:
            click.echo(json.dumps({**one, "blockHash": _hash_of(one)}))
        else:
            click.echo("\n".join([_name(place, one), *(() if hashes else _lines(one))]))


def _parsed(heights: str) -> tuple[int, int | None]:
    found = _HEIGHTS.fullmatch(heights)
    if found is None or int(found[1]) == 0 or (found[2] is not None and int(found[2]) < int(found[1])):
        raise click.UsageError("Give one height of at least 1, or two as FROM..TO.")
    return int(found[1]), None if found[2] is None else int(found[2])


def _tip(ledger: CliLedger, place: CliLedgerScope) -> int:
    height = ledger.get(f"{place.path}/tip").get("height")
    if not isinstance(height, str) or not height.isdecimal():
        raise ledger.stranger()
    return int(height)


def _one(ledger: CliLedger, place: CliLedgerScope, height: int) -> Facts:
    found = ledger.get(place.named("blocks", str(height))).get("block")
    if not isinstance(found, dict):
        raise ledger.stranger()
    return found


def _many(ledger: CliLedger, place: CliLedgerScope, start: int, stop: int) -> Iterator[Facts]:
    """All requested blocks, in several answers if needed."""
    while start <= stop:
        upto = min(stop, start + MOST_BLOCKS - 1)
        found = ledger.get(f"{place.path}/blocks", {"from": start, "to": upto}).get("blocks", [])
        if not isinstance(found, list):
            raise ledger.stranger()
        if not found:
            return
        yield from found
        start += len(found)


def _hash_of(one: Facts) -> str:
    """The hash of a block, computed here instead of trusting the server's."""
    header = one.get("header")
    try:
        return block_hash(header if isinstance(header, dict) else {}).hex()
    except ProofError as error:
        raise click.ClickException(f"A block header is not valid: {error}") from None


def _name(place: CliLedgerScope, one: Facts) -> str:
    return click.style(printable(f"{place} {inner(one, 'header', 'height')}:{_hash_of(one)}"), bold=True)


def _lines(one: Facts) -> Iterator[str]:
    yield printable(f"  at       {inner(one, 'header', 'timestamp')}, term {inner(one, 'header', 'term')}")
    transactions = one.get("transactions")
    if not isinstance(transactions, list):
        yield "  (its transactions were pruned)"
        return
    for transaction in transactions:
        yield printable(f"  tx       {hex_of(inner(transaction, 'id', 'id'))}")
        client, sequence = inner(transaction, "clientId", "id"), inner(transaction, "sequence")
        yield printable(f"  by       {inner(transaction, 'actor')} as {client}, sequence {sequence}")
        operations = inner(transaction, "operations")
        for operation in operations if isinstance(operations, list) else ():
            yield printable(f"  {_words(operation)}")


def _words(operation: object) -> str:
    for kind in ("createRelationship", "deleteRelationship"):
        found = inner(operation, kind)
        if found is not None:
            names = " ".join(str(inner(found, name)) for name in ("resource", "relation", "subject"))
            return f"{'relate' if kind.startswith('create') else 'unrelate':<8} {names}"
    for kind, word in (("deleteEntity", "delete"), ("expireEntity", "expire")):
        if inner(operation, kind) is not None:
            return f"{word:<8} {inner(operation, kind, 'key')}"
    return (
        f"{'set':<8} {inner(operation, 'setEntity', 'key')} = {content_words(inner(operation, 'setEntity', 'value'))}"
    )


def _watch(connection: CliConnection, place: CliLedgerScope, height: int, as_json: bool) -> None:
    with suppress(KeyboardInterrupt):
        for one in follow(connection, place, height):
            hash_words = hex_of(inner(one, "blockHash", "value"))
            line = printable(f"{place} {inner(one, 'height')}:{hash_words}  {inner(one, 'timestamp')}")
            click.echo(json.dumps(one) if as_json else line)

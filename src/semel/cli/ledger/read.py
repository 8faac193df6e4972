"""`semel ledger read` and `block`: values byte for byte, at any height and with proofs; lists; blocks, also live."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import click

from semel.cli.command import Json, MaybeArg, Opt, Positional, Retrying, command
from semel.cli.ledger.places import HEIGHT, AnyPlace, base64_words, content_words
from semel.cli.ledger.proof import ProofFile, add_chain, checked, save
from semel.cli.output import Listing, content_out, printable
from semel.cli.source import STDIN
from semel.client.ledger.answers import octets_in
from semel.client.ledger.values import ChainBlock, EntityValue
from semel.client.proofs import ProvedRead, verify_read

HEAD = ("KEY", "VERSION", "EXPIRES", "VALUE")


@command()
def read(
    client: Retrying,
    place: AnyPlace,
    key: MaybeArg = None,
    prefix: Annotated[
        str | None, Opt("List the entities whose keys start with this, instead of reading one; '' lists all.")
    ] = None,
    at_height: Annotated[int | None, Opt("Read the state after block N.", "", "N", HEIGHT)] = None,
    proof: ProofFile = None,
    trusted_height: Annotated[
        int | None, Opt("With --proof: add the headers that lead to block N.", "", "N", HEIGHT)
    ] = None,
    as_json: Json = False,
) -> Listing[EntityValue] | None:
    """Print the value of an entity, byte for byte. PLACE is ORG or ORG/VAULT.

    The exit code is 1 for a missing key; with --proof its absence is proved. A proof is verified before it is saved: it
    is valid if its block hash is trusted.
    """
    if (key is None) == (prefix is None):
        raise click.UsageError("Give a KEY, or --prefix for a list.")
    if (proof is not None and key is None) or (trusted_height is not None and proof is None):
        raise click.UsageError("--proof needs a KEY, and --trusted-height needs --proof.")
    asked = client.ledger.place(*place)
    if key is None:
        return Listing(asked.entities(prefix or "", at_height=at_height), HEAD, _entity_row, "No entities match.")
    if proof is None:
        found = asked.read(key, at_height=at_height)
        if found is None:
            raise click.ClickException("There is no entity of this key. [NOT_FOUND]")
        _tell(found.value, dict(found.facts), as_json)
    else:
        document = asked.proof_of_key(key, at_height=at_height)
        add_chain(asked, document, trusted_height)
        _, shown = checked(document, place, partial(verify_read, document, key))
        save(proof, document)
        if "value" not in document:
            raise click.ClickException(printable(f"{key} {_absence(shown)}."))
        if str(proof) != STDIN:
            _tell(octets_in(document["value"]), document, as_json)
    return None


def _entity_row(one: EntityValue) -> tuple[object, ...]:
    return one.key, one.version, one.expires_at or "never", content_words(one.value)


def _absence(shown: ProvedRead) -> str:
    """The sentence for a missing key: proved, or only the server's statement."""
    height, entry = shown.header.height, shown.entry
    if height == 0:
        return "does not exist: there is no block yet"
    if entry is None or not shown.is_withheld:
        return f"does not exist after block {height}"
    return f"is there after block {height}, and was not told: it expires at {entry.expires_at}, in seconds since 1970"


def _tell(content: bytes, facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts))
        return
    with content_out() as out:
        out.write(content)


_HEIGHTS = re.compile(r"([0-9]{1,20})(?:\.\.([0-9]{1,20}))?")


@command()
def block(
    client: Retrying,
    place: AnyPlace,
    heights: Annotated[str | None, Positional("[HEIGHT|FROM..TO]")] = None,
    watch: Annotated[bool, Opt("Print each new block from HEIGHT or the tip on, until Control-C.")] = False,
    hashes: Annotated[bool, Opt("Print only place, height and hash, in the format of --trust-file.")] = False,
    as_json: Json = False,
) -> None:
    """Show blocks of a chain: the last one, the one at HEIGHT, or FROM..TO. PLACE is ORG or ORG/VAULT.

    Each starts with its place, height and hash, in the format of `semel ledger verify`.
    """
    asked = client.ledger.place(*place)
    start, stop = (None, None) if heights is None else _parsed(heights)
    if watch:
        if stop is not None:
            raise click.UsageError("Give --watch one HEIGHT or none: it does not end.")
        with suppress(KeyboardInterrupt):
            for notice in asked.notices(start or max(1, asked.tip().height)):
                line = printable(f"{place} {notice.height}:{notice.block_hash}  {notice.timestamp}")
                click.echo(json.dumps(notice.facts) if as_json else line)
        return
    start = asked.tip().height if start is None else start
    if start == 0:
        raise click.ClickException(f"There are no blocks in {place} yet.")
    for one in [asked.block(start)] if stop is None else asked.blocks(start, stop):
        if as_json:
            click.echo(json.dumps({**one.facts, "blockHash": one.block_hash}))
            continue
        name = click.style(f"{place} {one.height}:{one.block_hash}", bold=True)
        click.echo("\n".join([name, *(() if hashes else map(printable, _lines(one)))]))


def _parsed(heights: str) -> tuple[int, int | None]:
    found = _HEIGHTS.fullmatch(heights)
    if found is None or int(found[1]) == 0 or (found[2] is not None and int(found[2]) < int(found[1])):
        raise click.UsageError("Give one height of at least 1, or two as FROM..TO.")
    return int(found[1]), None if found[2] is None else int(found[2])


def _lines(one: ChainBlock) -> Iterator[str]:
    yield f"  at       {one.timestamp}, term {one.term}"
    if one.transactions is None:
        yield "  (its transactions were pruned)"
        return
    for transaction in one.transactions:
        yield f"  tx       {transaction.tx_id}"
        yield f"  by       {transaction.actor} as {transaction.client}, sequence {transaction.sequence}"
        for operation in transaction.operations:
            for kind, about in operation.items():
                yield f"  {_words(kind, about)}"


_VERBS = {
    "createRelationship": "relate",
    "deleteRelationship": "unrelate",
    "deleteEntity": "delete",
    "expireEntity": "expire",
    "setEntity": "set",
}


def _words(kind: str, about: dict[str, Any]) -> str:
    verb = f"{_VERBS.get(kind, kind):<8}"
    if "Relationship" in kind:
        return f"{verb} {about.get('resource')} {about.get('relation')} {about.get('subject')}"
    value = f" = {base64_words(about.get('value', ''))}" if kind == "setEntity" else ""
    return f"{verb} {about.get('key')}{value}"

"""`semel find`: the life of a write, by any of its identities, as a timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import click

from semel.cli.command import Opt, Positional, Retrying, command
from semel.cli.output import Said
from semel.client.writes import WriteLife, WriteLives

NOT_FOUND = 1
WIDTH = len("2026-01-31T08:05:09.007Z")


@command()
def find(
    client: Retrying,
    identity: Annotated[str, Positional("ID")],
    place: Annotated[
        str | None, Opt("Stream, partition, principal, organization or gateway to look in.", "--in", "PLACE")
    ] = None,
) -> Said:
    """Show what became of a write.

    ID is any identity: an idempotency key, the id of an event, job, transaction, delta, producer or request, a
    committed_id, CLIENT/SEQUENCE, or the name of a stream. The exit code is 1 if no write is found.
    """
    found = client.writes.find(identity, place)
    if not found.writes:
        Said(found.facts, _none(found)).show(_wants_json())
        click.get_current_context().exit(NOT_FOUND)
    return Said(found.facts, list(_lines(found)))


def _wants_json() -> bool:
    return bool(click.get_current_context().params.get("as_json"))


def _none(found: WriteLives) -> list[str]:
    return ["No write of this identity was found.", *([found.hint] if found.hint else [])]


def _lines(found: WriteLives) -> Iterator[str]:
    for number, write in enumerate(found.writes):
        if number:
            yield ""
        yield from _life(write)
    if found.hint:
        yield ""
        yield found.hint


def _life(write: WriteLife) -> Iterator[str]:
    yield f"{write.surface}  {write.identity}" + (f"  in {write.place}" if write.place else "")
    yield _at(write.at, "took effect" + (f", sent by {write.principal}" if write.principal else ""))
    left_out = write.retries - len(write.last_retries)
    if left_out:
        yield _at("", f"{left_out} earlier {'retry' if left_out == 1 else 'retries'}")
    for retry in write.last_retries:
        by, origin = retry.principal or "an unnamed caller", f" from {retry.address}" if retry.address else ""
        yield _at(retry.at, f"retry by {by}{origin}")
    yield _at("now", _answer(write.answer))
    if write.expires_at:
        yield _at(write.expires_at, "the receipt expires")
    path = write.effect.get("path")
    yield _at("effect", f"{write.effect['kind']} at {path}" if path else f"{write.effect['kind']}, no longer shown")


def _answer(answer: Mapping[str, Any] | None) -> str:
    if answer is None:
        return "a retry would be a new write"
    more = [f"{name} {value}" for name, value in answer.items() if name not in ("verdict", "status")]
    return ", ".join([f"a retry gets {answer['status']} {answer['verdict']}", *more])


def _at(time: str | None, words: str) -> str:
    return f"  {time or '':<{WIDTH}}  {words}"

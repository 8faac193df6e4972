"""`semel events groups` and `semel events snapshots`: consumer groups, their parked events, and snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, BinaryIO, Literal

import click

from semel.cli.command import RETRIES, Arg, DryRun, Json, Opt, Positional, Retries, Yes, command, group
from semel.cli.output import confirmed, content_out, printable, say, show_table
from semel.cli.source import read_whole
from semel.client import Client
from semel.client.events.group_values import GroupInfo, ParkedEvent
from semel.client.events.snapshots import BYTES
from semel.kernel.json.fragment import dump

groups = group("groups", "Consumer groups, whose position the server keeps.")
snapshots = group("snapshots", "States of partitions, from which a reader can start.")

Ids = Annotated[tuple[int, ...], Positional("COMMITTED_ID...")]
Start = Annotated[str, Opt("beginning, now, or the committed_id to start after.")]
HEAD = ("GROUP", "PARTITIONS", "ORDER", "POSITION", "PENDING", "LEASED", "PARKED")
PARKED_HEAD = ("COMMITTED ID", "DELIVERIES", "PARKED AT", "EVENT", "REASON")


@command(groups)
def ls(client: Client, as_json: Json = False) -> None:
    """List the groups with their positions and counts."""
    found: list[GroupInfo] = []
    after: str | None = ""
    while after is not None:
        page = client.events.groups.list(after=after)
        found += page.groups
        after = page.next_after
    if as_json:
        for one in found:
            click.echo(dump(one.facts).decode())
        return
    rows = [
        (one.name, ", ".join(one.partitions), one.order, one.floor_committed_id, one.pending, one.leased, one.parked)
        for one in found
    ]
    show_table(HEAD, rows, "There are no groups.")


@command(groups)
def create(
    client: Client,
    name: Arg,
    partitions: Annotated[tuple[str, ...], Positional("PARTITION...")],
    order: Annotated[
        Literal["strict", "unordered"], Opt("One lease of a partition at a time, or any number.", show_default=True)
    ] = "strict",
    lease: Annotated[float, Opt("Time of a lease.", metavar="SECONDS", show_default=True)] = 30.0,
    max_deliveries: Annotated[int, Opt("Deliveries until an event is parked; 0 means never.", show_default=True)] = 10,
    max_in_flight: Annotated[int, Opt("Maximum leased events.", show_default=True)] = 100,
    batch: Annotated[int, Opt("Events of one fetch.", show_default=True)] = 10,
    max_parked: Annotated[int, Opt("Maximum parked events.", show_default=True)] = 100,
    start: Start = "beginning",
    as_json: Json = False,
) -> None:
    """Create a group, or confirm that an equal one exists."""
    made = client.events.groups.create(
        name,
        partitions,
        order=order,
        lease=lease,
        max_deliveries=max_deliveries,
        max_in_flight=max_in_flight,
        batch=batch,
        max_parked=max_parked,
        start=_start(start),
    )
    outcome = "Already there:" if made.replayed else "Created"
    say(as_json, dict(made.facts), printable(f"{outcome} group {name} at {made.floor_committed_id}"))


def _start(given: str) -> Literal["beginning", "now"] | int:
    if given not in ("beginning", "now") and not given.isdecimal():
        raise click.UsageError("Give --start beginning, now, or a committed_id.")
    return int(given) if given.isdecimal() else "now" if given == "now" else "beginning"


@command(groups)
def reset(client: Client, name: Arg, start: Start, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """Set the position of a group: every lease ends."""
    one = client.events.groups.reset(name, _start(start))
    say(as_json, dict(one.facts), printable(f"Group {name} is at {one.floor_committed_id}"))


@command(groups)
def rm(client: Client, name: Arg, dry_run: DryRun = False, yes: Yes = False, as_json: Json = False) -> None:
    """Delete a group, its position and its parked events; the events stay."""

    def about() -> str:
        one = client.events.groups.get(name)
        return f"group {name} (at {one.floor_committed_id}, {one.pending} pending, {one.parked} parked)"

    if confirmed(about, {"group": name}, yes=yes, dry_run=dry_run, as_json=as_json):
        is_deleted = client.events.groups.delete(name)
        words = f"Deleted group {name}" if is_deleted else f"There is no group {name}"
        say(as_json, {"group": name, "deleted": is_deleted, "dry_run": False}, printable(words))


@command(groups)
def parked(client: Client, name: Arg, as_json: Json = False) -> None:
    """List the events of a group that were delivered too often."""
    rows: list[tuple[object, ...]] = []
    for one in _parked(client, name):
        if as_json:
            click.echo(dump(one.facts).decode())
        event = "(deleted)" if one.event is None else one.event.id
        rows.append((one.committed_id, one.deliveries, one.parked_at.isoformat(), event, one.reason))
    if not as_json:
        show_table(PARKED_HEAD, rows, "No events are parked.")


def _parked(client: Client, name: str) -> Iterator[ParkedEvent]:
    after: int | None = 0
    while after is not None:
        page = client.events.groups.parked(name, after=after)
        yield from page.events
        after = page.next_after


@command(groups)
def replay(client: Client, name: Arg, ids: Ids, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """Hand parked events over again."""
    count = client.events.groups.replay(name, ids)
    say(as_json, {"group": name, "replayed": count}, f"{count} of {len(ids)} events are handed over again")


@command(groups)
def drop(client: Client, name: Arg, ids: Ids, dry_run: DryRun = False, yes: Yes = False, as_json: Json = False) -> None:
    """Forget parked events: the group does not get them again."""

    def about() -> str:
        return f"{sum(one.committed_id in ids for one in _parked(client, name))} parked events of group {name}"

    if confirmed(about, {"group": name}, yes=yes, dry_run=dry_run, as_json=as_json):
        count = client.events.groups.drop(name, ids)
        say(as_json, {"group": name, "dropped": count}, f"{count} of {len(ids)} events are dropped")


@command(snapshots, "ls")
def list_snapshots(client: Client, partition: Arg, as_json: Json = False) -> None:
    """List the snapshots of a partition, the newest first."""
    rows = [
        (one.committed_id, one.content_type, one.size, one.sha256) for one in client.events.snapshots.list(partition)
    ]
    if as_json:
        for row in rows:
            click.echo(json.dumps(dict(zip(("committed_id", "media_type", "size", "sha256"), row, strict=True))))
        return
    show_table(("COMMITTED ID", "TYPE", "BYTES", "SHA-256"), rows, "There are no snapshots.")


@command(snapshots, "get")
def get_snapshot(
    client: Client,
    partition: Arg,
    at_most: Annotated[int | None, Opt("Newest snapshot at or before this committed_id.", metavar="N")] = None,
) -> None:
    """Print the newest snapshot of a partition, byte for byte; standard error says its position."""
    found = client.events.snapshots.get(partition, at_most=at_most)
    click.echo(f"Snapshot at {found.committed_id} ({printable(found.content_type)})", err=True)
    with content_out() as out:
        out.write(found.data)


@command(snapshots, "put")
def put_snapshot(
    client: Client,
    partition: Arg,
    committed_id: Annotated[int, Positional(type=click.IntRange(min=1))],
    file: Annotated[BinaryIO, Opt("File with the content; - is standard input.")],
    content_type: Annotated[str, Opt("Media type of the content.", "--type", "MIME", show_default=True)] = BYTES,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Store the state of a partition after the event COMMITTED_ID."""
    stored = client.events.snapshots.put(partition, committed_id, read_whole(file), content_type=content_type)
    outcome = "Already stored (replayed)" if stored.replayed else "Stored"
    outcome = "Not stored, because a newer one exists" if stored.superseded else outcome
    facts = {"partition": partition, "committed_id": committed_id, "replayed": stored.replayed}
    say(as_json, {**facts, "superseded": stored.superseded}, printable(f"{outcome}: {partition} at {committed_id}"))

"""`semel events groups` and `semel events snapshots`: consumer groups, their parked events, and snapshots."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO, Literal

import click

from semel.cli.command import AT_LEAST_1, Arg, Opt, OptionSet, Positional, Retrying, Sure, command, group
from semel.cli.output import Listing, Said, content_out, printable
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


def _text(one: GroupInfo | ParkedEvent) -> str:
    return dump(one.facts).decode()


@command(groups)
def ls(client: Client) -> Listing[GroupInfo]:
    """List the groups with their positions and counts."""
    return Listing(client.events.groups.walk(), HEAD, _row, "There are no groups.", _text)


def _row(one: GroupInfo) -> tuple[object, ...]:
    counts = one.floor_committed_id, one.pending, one.leased, one.parked
    return one.name, ", ".join(one.partitions), one.order, *counts


@dataclass(frozen=True)
class GroupSettings(OptionSet):
    """The settings of a group, by the names that the client gives them."""

    order: Annotated[
        Literal["strict", "unordered"], Opt("One lease of a partition at a time, or any number.", show_default=True)
    ] = "strict"
    lease: Annotated[float, Opt("Time of a lease.", metavar="SECONDS", show_default=True)] = 30.0
    max_deliveries: Annotated[int, Opt("Deliveries until an event is parked; 0 means never.", show_default=True)] = 10
    max_in_flight: Annotated[int, Opt("Maximum leased events.", show_default=True)] = 100
    batch: Annotated[int, Opt("Events of one fetch.", show_default=True)] = 10
    max_parked: Annotated[int, Opt("Maximum parked events.", show_default=True)] = 100


@command(groups)
def create(
    client: Client,
    name: Arg,
    partitions: Annotated[tuple[str, ...], Positional("PARTITION...")],
    settings: GroupSettings,
    start: Start = "beginning",
) -> Said:
    """Create a group, or confirm that an equal one exists."""
    made = client.events.groups.create(name, partitions, **vars(settings), start=_start(start))
    outcome = "Already there:" if made.replayed else "Created"
    return Said(made.facts, f"{outcome} group {name} at {made.floor_committed_id}")


def _start(given: str) -> Literal["beginning", "now"] | int:
    if given not in ("beginning", "now") and not given.isdecimal():
        raise click.UsageError("Give --start beginning, now, or a committed_id.")
    return int(given) if given.isdecimal() else "now" if given == "now" else "beginning"


@command(groups)
def reset(client: Retrying, name: Arg, start: Start) -> Said:
    """Set the position of a group: every lease ends."""
    one = client.events.groups.reset(name, _start(start))
    return Said(one.facts, f"Group {name} is at {one.floor_committed_id}")


@command(groups)
def rm(client: Client, name: Arg, sure: Sure) -> Said:
    """Delete a group, its position and its parked events; the events stay."""

    def about() -> str:
        one = client.events.groups.get(name)
        return f"group {name} (at {one.floor_committed_id}, {one.pending} pending, {one.parked} parked)"

    if plan := sure.plan({"group": name}, about):
        return plan
    is_deleted = client.events.groups.delete(name)
    words = f"Deleted group {name}" if is_deleted else f"There is no group {name}"
    return Said({"group": name, "deleted": is_deleted, "dry_run": False}, words)


@command(groups)
def parked(client: Client, name: Arg) -> Listing[ParkedEvent]:
    """List the events of a group that were delivered too often."""
    return Listing(client.events.groups.walk_parked(name), PARKED_HEAD, _parked_row, "No events are parked.", _text)


def _parked_row(one: ParkedEvent) -> tuple[object, ...]:
    event = "(deleted)" if one.event is None else one.event.id
    return one.committed_id, one.deliveries, one.parked_at.isoformat(), event, one.reason


@command(groups)
def replay(client: Retrying, name: Arg, ids: Ids) -> Said:
    """Hand parked events over again."""
    count = client.events.groups.replay(name, ids)
    return Said({"group": name, "replayed": count}, f"{count} of {len(ids)} events are handed over again")


@command(groups)
def drop(client: Client, name: Arg, ids: Ids, sure: Sure) -> Said:
    """Forget parked events: the group does not get them again."""

    def about() -> str:
        count = sum(one.committed_id in ids for one in client.events.groups.walk_parked(name))
        return f"{count} parked events of group {name}"

    if plan := sure.plan({"group": name}, about):
        return plan
    count = client.events.groups.drop(name, ids)
    return Said({"group": name, "dropped": count}, f"{count} of {len(ids)} events are dropped")


@command(snapshots, "ls")
def list_snapshots(client: Client, partition: Arg) -> Listing[dict[str, Any]]:
    """List the snapshots of a partition, the newest first."""
    found = [
        {"committed_id": one.committed_id, "media_type": one.content_type, "size": one.size, "sha256": one.sha256}
        for one in client.events.snapshots.list(partition)
    ]
    head = ("COMMITTED ID", "TYPE", "BYTES", "SHA-256")
    return Listing(found, head, lambda one: tuple(one.values()), "There are no snapshots.", json.dumps)


@command(snapshots, "get")
def get_snapshot(
    client: Client,
    partition: Arg,
    at_most: Annotated[int | None, Opt("Newest snapshot at or before this committed_id.", "", "N")] = None,
) -> None:
    """Print the newest snapshot of a partition, byte for byte; standard error says its position."""
    found = client.events.snapshots.get(partition, at_most=at_most)
    click.echo(f"Snapshot at {found.committed_id} ({printable(found.content_type)})", err=True)
    with content_out() as out:
        out.write(found.data)


@command(snapshots, "put")
def put_snapshot(
    client: Retrying,
    partition: Arg,
    committed_id: Annotated[int, Positional(type=AT_LEAST_1)],
    file: Annotated[BinaryIO, Opt("File with the content; - is standard input.")],
    content_type: Annotated[str, Opt("Media type of the content.", "--type", "MIME", show_default=True)] = BYTES,
) -> Said:
    """Store the state of a partition after the event COMMITTED_ID."""
    stored = client.events.snapshots.put(partition, committed_id, read_whole(file), content_type=content_type)
    outcome = "Already stored (replayed)" if stored.replayed else "Stored"
    outcome = "Not stored, because a newer one exists" if stored.superseded else outcome
    facts = {"partition": partition, "committed_id": committed_id, "replayed": stored.replayed}
    return Said({**facts, "superseded": stored.superseded}, f"{outcome}: {partition} at {committed_id}")

"""`semel streams subscriptions`: durable cursors over many streams, with wakes by webhook or through a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

from semel.cli.command import Arg, Opt, Positional, Sure, command, group
from semel.cli.output import Listing, Said
from semel.client import Client
from semel.client.streams.subscriptions import Subscription

Id = Annotated[str, Positional("ID")]
subscriptions = group("subscriptions", "Cursors over many streams that wake a receiver.")


def _lines(one: Subscription) -> Iterator[str]:
    yield f"{one.id}: {one.status}, wakes {one.webhook_url or one.wake_stream}, lease {one.lease_ms / 1_000:g} s"
    if one.pattern:
        yield f"  pattern {one.pattern}"
    for stream in one.streams:
        yield f"  {stream.path} ({stream.link_type}) acknowledged up to {stream.acked_offset}"


@command(subscriptions)
def create(
    client: Client,
    name: Id,
    pattern: Annotated[str | None, Opt("Streams to watch: * is one part of a name, ** any number.", "", "GLOB")] = None,
    stream: Annotated[tuple[str, ...], Opt("Stream to watch; may be given several times.", "", "NAME")] = (),
    webhook: Annotated[str | None, Opt("URL to call when there is content.", "", "URL")] = None,
    wake_stream: Annotated[str | None, Opt("Stream that gets a message when there is content.", "", "NAME")] = None,
    lease: Annotated[float, Opt("Time of a lease.", "", "SECONDS", show_default=True)] = 30.0,
    description: Annotated[str | None, Opt("A note.", "", "TEXT")] = None,
) -> Said:
    """Create a subscription, or confirm that an equal one exists."""
    options: dict[str, Any] = {"pattern": pattern, "streams": stream, "webhook": webhook, "wake_stream": wake_stream}
    made = client.streams.subscriptions.create(name, **options, lease=lease, description=description)
    outcome = "Created" if made.is_created else "Already there:"
    return Said({**made.facts, "created": made.is_created}, f"{outcome} subscription {name}")


@command(subscriptions)
def ls(client: Client) -> Listing[dict[str, Any]]:
    """List subscriptions with the state of their wakes."""
    head = ("ID", "STATUS", "PHASE", "FAILED ATTEMPTS", "WAKES")
    return Listing(client.streams.subscriptions.walk(), head, _row, "There are no subscriptions.", json.dumps)


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    wake = one["wake"]
    return one["id"], one["status"], wake["phase"], wake["attempts"], one["webhook_url"] or one["wake_stream"]


@command(subscriptions)
def show(client: Client, name: Id) -> Said:
    """Show a subscription and the acknowledged offset of each of its streams."""
    one = client.streams.subscriptions.get(name)
    return Said(one.facts, _lines(one))


@command(subscriptions)
def rm(client: Client, name: Id, sure: Sure) -> Said:
    """Delete a subscription and its cursors; the streams stay."""

    def about() -> str:
        one = client.streams.subscriptions.get(name)
        return f"subscription {name} ({one.status}, {len(one.streams)} streams)"

    if plan := sure.plan({"id": name}, about):
        return plan
    client.streams.subscriptions.delete(name)
    return Said({"id": name, "deleted": True, "dry_run": False}, f"Deleted subscription {name}")


@command(subscriptions)
def link(client: Client, name: Id, streams: Annotated[tuple[str, ...], Positional("STREAM...")]) -> Said:
    """Watch further streams, from their present tails on."""
    client.streams.subscriptions.add_streams(name, streams)
    return Said({"id": name, "linked": list(streams)}, f"{name} watches {', '.join(streams)}")


@command(subscriptions)
def unlink(client: Client, name: Id, stream: Arg) -> Said:
    """Stop watching a stream, unless the pattern matches it."""
    client.streams.subscriptions.remove_stream(name, stream)
    return Said({"id": name, "unlinked": stream}, f"{name} has no link to {stream}")

"""The table of calls: events, streams, the ledger and gateways, beside those of jobs."""

from __future__ import annotations

import asyncio
from typing import Any

from semel.client import AsyncClient, EventDraft, NotFoundError
from semel.client.identity import EventSubmission, LedgerWrite, ProducerAppend, StreamAppend
from semel.client.ledger.operations import BulkTransaction, SetKey
from tests.client import call_rows, job_calls  # noqa: F401 - it fills the table
from tests.client.call_rows import Play, State, count, is_replayed, named, row
from tests.client.names import fresh

CALLS = call_rows.CALLS
JSON = "application/json"
KEY = "01234567-89ab-cdef-0123-456789abcdef"
SET = [SetKey("a", b"1")]


# -- Events ------------------------------------------------------------------------------------------------------------


async def known(semel: AsyncClient, room: str) -> int:
    """How many events a partition has."""
    return len((await semel.events.read(room)).events)


@row("POST /v1/events")
async def submit_event(semel: AsyncClient) -> Play:
    room = fresh("room")
    return Play(
        lambda c: c.events.submit("set", {"n": 1}, partitions=room, id=f"{room}-1"),
        EventSubmission(f"{room}-1"),
        lambda: known(semel, room),
        told=lambda found: (found.committed_id, found.status_updated_at),
        replayed=is_replayed,
    )


@row("POST /v1/events")
async def submit_events(semel: AsyncClient) -> Play:
    room = fresh("room")
    drafts = [EventDraft("n", number, room, f"{room}-{number}") for number in range(3)]
    return Play(
        lambda c: c.events.submit_many(drafts),
        EventSubmission(f"{room}-0"),
        lambda: known(semel, room),
        3,
        told=lambda found: [one.committed_id for one in found],
        replayed=lambda found: all(one.replayed for one in found),
    )


# -- Streams -----------------------------------------------------------------------------------------------------------


async def stream(semel: AsyncClient, **options: Any) -> str:
    """A new stream."""
    name = fresh("s")
    await semel.streams.create(name, **options)
    return name


def content(semel: AsyncClient, name: str) -> State:
    """The bytes of a stream."""

    async def read() -> bytes:
        return (await semel.streams.read(name)).data

    return read


@row("POST /v1/stream/")
async def append(semel: AsyncClient) -> Play:
    name = await stream(semel)
    return Play(
        lambda c: c.streams.append(name, b"x", key="k"),
        StreamAppend(name, "k"),
        content(semel, name),
        b"x",
        told=lambda found: found.offset,
        replayed=is_replayed,
    )


@row("POST /v1/stream/")
async def append_many(semel: AsyncClient) -> Play:
    name = await stream(semel, content_type=JSON)
    return Play(
        lambda c: c.streams.append_many(name, [1, 2], key="k"),
        StreamAppend(name, "k"),
        content(semel, name),
        b"[1,2]",
        told=lambda found: found.offset,
        replayed=is_replayed,
    )


@row("POST /v1/stream/")
async def close_stream(semel: AsyncClient) -> Play:
    name = await stream(semel)

    async def is_closed() -> bool:
        return (await semel.streams.info(name)).is_closed

    return Play(
        lambda c: c.streams.close(name, key="k"),
        StreamAppend(name, "k"),
        is_closed,
        True,
        told=lambda found: found.is_closed,
    )


@row("POST /v1/stream/")
async def append_by_number(semel: AsyncClient) -> Play:
    name = await stream(semel)
    return Play(
        lambda c: c.streams.producer(name, "p", epoch=0).append(b"x"),
        ProducerAppend(name, "p", 0, 0),
        content(semel, name),
        b"x",
        told=lambda found: found.seq,
        replayed=is_replayed,
    )


@row("PUT /v1/stream/")
async def create_stream(semel: AsyncClient) -> Play:
    name = fresh("s")

    async def stored() -> int:
        return await count(semel.streams.walk(name))

    return Play(
        lambda c: c.streams.create(name, data=b"x"),
        named("PUT", f"/v1/stream/{name}"),
        stored,
        told=lambda found: found.tail,
        replayed=lambda found: not found.is_created,
    )


@row("PUT /v1/stream/")
async def fork(semel: AsyncClient) -> Play:
    source, name = await stream(semel, data=b"x"), fresh("s")

    async def stored() -> int:
        return await count(semel.streams.walk(name))

    return Play(
        lambda c: c.streams.fork(source, name),
        named("PUT", f"/v1/stream/{name}"),
        stored,
        told=lambda found: found.tail,
        replayed=lambda found: not found.is_created,
    )


@row("DELETE /v1/stream/", is_bare=True)
async def delete_stream(semel: AsyncClient) -> Play:
    name = await stream(semel)
    return Play(
        lambda c: c.streams.delete(name),
        named("DELETE", f"/v1/stream/{name}"),
        lambda: count(semel.streams.walk(name)),
        0,
        again=NotFoundError,
    )


SUBSCRIPTIONS = "/v1/stream/__ds/subscriptions"


async def subscription(semel: AsyncClient) -> tuple[str, str]:
    """A subscription, and the stream that it is for."""
    name, source = fresh("sub"), await stream(semel)
    await semel.streams.create("wakes", content_type=JSON)
    await semel.streams.subscriptions.create(name, streams=[source], wake_stream="wakes")
    return name, source


async def links(semel: AsyncClient, name: str) -> list[tuple[str, str]]:
    """The streams of a subscription, and how far they are acknowledged."""
    return [(one.path, one.acked_offset) for one in (await semel.streams.subscriptions.get(name)).streams]


@row("PUT .*/subscriptions/")
async def create_subscription(semel: AsyncClient) -> Play:
    name, source = fresh("sub"), await stream(semel)
    await semel.streams.create("wakes", content_type=JSON)

    async def stored() -> int:
        return [one["id"] async for one in semel.streams.subscriptions.walk()].count(name)

    return Play(
        lambda c: c.streams.subscriptions.create(name, streams=[source], wake_stream="wakes"),
        named("PUT", f"{SUBSCRIPTIONS}/{name}"),
        stored,
        told=lambda found: (found.id, found.created_at),
        replayed=lambda found: not found.is_created,
    )


@row("POST .*/streams$", is_bare=True)
async def add_streams(semel: AsyncClient) -> Play:
    (name, _), other = await subscription(semel), fresh("s")

    async def linked() -> int:
        return [path for path, _ in await links(semel, name)].count(other)

    identity = named("POST", f"{SUBSCRIPTIONS}/{name}/streams")
    return Play(lambda c: c.streams.subscriptions.add_streams(name, [other]), identity, linked)


@row("DELETE .*/streams/", is_bare=True)
async def remove_stream(semel: AsyncClient) -> Play:
    name, source = await subscription(semel)

    async def linked() -> int:
        return [path for path, _ in await links(semel, name)].count(source)

    identity = named("DELETE", f"{SUBSCRIPTIONS}/{name}/streams/{source}")
    return Play(lambda c: c.streams.subscriptions.remove_stream(name, source), identity, linked, 0)


@row("DELETE .*/subscriptions/", is_bare=True)
async def delete_subscription(semel: AsyncClient) -> Play:
    name, _ = await subscription(semel)

    async def stored() -> int:
        return [one["id"] async for one in semel.streams.subscriptions.walk()].count(name)

    identity = named("DELETE", f"{SUBSCRIPTIONS}/{name}")
    return Play(lambda c: c.streams.subscriptions.delete(name), identity, stored, 0)


async def held_claim(semel: AsyncClient) -> tuple[str, Any, str]:
    """A claim of one append: its stream, itself, and the offset that it is to acknowledge."""
    name, source = await subscription(semel)
    stored = await semel.streams.append(source, b"x")
    for _ in range(3_000):
        if (held := await semel.streams.subscriptions.claim(name, "w")) is not None:
            return source, held, stored.offset
        await asyncio.sleep(0.02)
    raise AssertionError("no work is pending")


@row("POST .*/ack$")
async def acknowledge(semel: AsyncClient) -> Play:
    source, held, offset = await held_claim(semel)
    return Play(
        lambda c: c.streams.subscriptions.ack(held, {source: offset}),
        named("POST", f"{SUBSCRIPTIONS}/{held.subscription_id}/ack"),
        lambda: links(semel, held.subscription_id),
        [(source, offset)],
        told=bool,
    )


@row("POST .*/claim$", is_single=True)
async def claim_subscription(semel: AsyncClient) -> Play:
    _, held, _ = await held_claim(semel)
    await semel.streams.subscriptions.release(held)
    return Play(lambda c: c.streams.subscriptions.claim(held.subscription_id, "w"))


# -- Ledger ------------------------------------------------------------------------------------------------------------

ORGS = "/ledger/v1/orgs"


async def organization(semel: AsyncClient) -> str:
    """A new organization."""
    return (await semel.ledger.create_organization(fresh("org"))).place.org


def blocks(semel: AsyncClient, org: str) -> State:
    """How many blocks an organization has."""

    async def height() -> int:
        return (await semel.ledger.place(org).tip()).height

    return height


@row("POST .*/writes$")
async def write_by_sequence(semel: AsyncClient) -> Play:
    org = await organization(semel)
    return Play(
        lambda c: c.ledger.place(org).write(SET, client="w", sequence=1),
        LedgerWrite(org, None, "w", 1, None),
        blocks(semel, org),
        told=lambda found: (found.tx_id, found.height, found.sequence),
        replayed=is_replayed,
    )


@row("POST .*/writes$")
async def write_by_key(semel: AsyncClient) -> Play:
    org = await organization(semel)
    return Play(
        lambda c: c.ledger.place(org).write(SET, client="w", key=KEY),
        LedgerWrite(org, None, "w", None, KEY),
        blocks(semel, org),
        told=lambda found: (found.tx_id, found.height, found.sequence),
        replayed=is_replayed,
    )


@row("POST .*/writes:bulk$")
async def write_many(semel: AsyncClient) -> Play:
    org = await organization(semel)
    some = [BulkTransaction((SetKey("k", str(number)),), "w", number + 1) for number in range(3)]

    async def act(client: Any) -> Any:
        return [one async for one in client.ledger.place(org).write_many(some)]

    return Play(
        act,
        LedgerWrite(org, None, "w", 1, None),
        blocks(semel, org),
        3,
        told=lambda found: [one.tx_id for one in found],
        replayed=lambda found: all(one.replayed for one in found),
    )


@row("POST .*/orgs$")
async def create_organization(semel: AsyncClient) -> Play:
    name, key = fresh("org"), fresh("key")

    async def stored() -> int:
        return [one.name async for one in semel.ledger.organizations()].count(name)

    return Play(
        lambda c: c.ledger.create_organization(name, key=key),
        named("POST", ORGS),
        stored,
        told=lambda found: found.place,
        replayed=is_replayed,
        key=key,
    )


@row("POST .*/vaults$")
async def create_vault(semel: AsyncClient) -> Play:
    org, key = await organization(semel), fresh("key")
    return Play(
        lambda c: c.ledger.create_vault(org, key=key),
        named("POST", f"{ORGS}/{org}/vaults"),
        lambda: count(semel.ledger.vaults(org)),
        told=lambda found: found.place,
        replayed=is_replayed,
        key=key,
    )


@row("PATCH .*/orgs/")
async def change_organization(semel: AsyncClient) -> Play:
    org = await organization(semel)

    async def has_fence() -> bool:
        return (await semel.ledger.organization(org)).fence

    identity = named("PATCH", f"{ORGS}/{org}")
    return Play(
        lambda c: c.ledger.change_organization(org, fence=True), identity, has_fence, True, told=lambda one: one.fence
    )


async def vault(semel: AsyncClient) -> tuple[str, str]:
    """A new vault, and its organization."""
    made = (await semel.ledger.create_vault(await organization(semel))).place
    assert made.vault is not None
    return made.org, made.vault


@row("PATCH .*/vaults/")
async def change_vault(semel: AsyncClient) -> Play:
    org, name = await vault(semel)

    async def status() -> str:
        return (await semel.ledger.vault(org, name)).status

    return Play(
        lambda c: c.ledger.change_vault(org, name, status="read-only"),
        named("PATCH", f"{ORGS}/{org}/vaults/{name}"),
        status,
        "read-only",
        told=lambda found: found.status,
    )


@row("DELETE .*/vaults/", is_loose=True)
async def delete_vault(semel: AsyncClient) -> Play:
    org, name = await vault(semel)

    async def status() -> str:
        return (await semel.ledger.vault(org, name)).status

    identity = named("DELETE", f"{ORGS}/{org}/vaults/{name}")
    return Play(lambda c: c.ledger.delete_vault(org, name), identity, status, "deleted")


@row("DELETE .*/orgs/", is_loose=True)
async def delete_organization(semel: AsyncClient) -> Play:
    org = await organization(semel)

    async def status() -> str:
        return (await semel.ledger.organization(org)).status

    identity = named("DELETE", f"{ORGS}/{org}")
    return Play(lambda c: c.ledger.delete_organization(org), identity, status, "deleted")


# -- Gateways of deltas ------------------------------------------------------------------------------------------------

ADMIN = "/v1/admin"


@row("POST .*/flush/")
async def flush(semel: AsyncClient) -> Play:
    gateway = fresh("gw")
    return Play(lambda c: c.deltas_admin.flush(gateway), named("POST", f"{ADMIN}/flush/{gateway}"))


@row("POST .*/schema/")
async def save_schema(semel: AsyncClient) -> Play:
    gateway = fresh("gw")
    identity = named("POST", f"{ADMIN}/schema/{gateway}")
    return Play(lambda c: c.deltas_admin.save_schema("t", {"a": "string"}, gateway), identity)


@row("POST .*/sync-rules/")
async def save_rules(semel: AsyncClient) -> Play:
    gateway, rules = fresh("gw"), {"version": 1, "buckets": [{"name": "all", "tables": ["t"], "filters": []}]}
    return Play(lambda c: c.deltas_admin.save_rules(rules, gateway), named("POST", f"{ADMIN}/sync-rules/{gateway}"))


@row("POST .*/forget-clients/")
async def forget_clients(semel: AsyncClient) -> Play:
    gateway = fresh("gw")
    identity = named("POST", f"{ADMIN}/forget-clients/{gateway}")
    return Play(lambda c: c.deltas_admin.forget_clients(["a"], gateway), identity, told=int)


# -- Reads -------------------------------------------------------------------------------------------------------------


@row("GET /v1/events", is_read=True)
async def read_events(semel: AsyncClient) -> Play:
    room = fresh("room")
    await semel.events.submit("set", 1, partitions=room)
    return Play(lambda c: c.events.read(room), told=lambda found: [one.id for one in found.events])


@row("GET /v1/stream/", is_read=True)
async def read_stream(semel: AsyncClient) -> Play:
    name = await stream(semel, data=b"all")
    return Play(lambda c: c.streams.read(name), told=lambda found: found.data)


@row("HEAD /v1/stream/", is_read=True)
async def look_at_stream(semel: AsyncClient) -> Play:
    name = await stream(semel, data=b"all")
    return Play(lambda c: c.streams.info(name), told=lambda found: found.tail)


@row("GET /v1/streams", is_read=True)
async def list_streams(semel: AsyncClient) -> Play:
    name = await stream(semel)
    return Play(lambda c: c.streams.list(name), told=lambda found: [one["name"] for one in found.streams])


@row("GET .*/orgs/", is_read=True)
async def read_organization(semel: AsyncClient) -> Play:
    org = await organization(semel)
    return Play(lambda c: c.ledger.organization(org), told=lambda found: found.org)


@row("entities:batchRead$", is_read=True)
async def read_keys(semel: AsyncClient) -> Play:
    org = await organization(semel)
    await semel.ledger.place(org).write(SET, client="w")
    return Play(lambda c: c.ledger.place(org).read_many(["a"]), told=lambda found: found["a"].value)


@row("GET .*/metrics/", is_read=True)
async def read_stats(semel: AsyncClient) -> Play:
    gateway = fresh("gw")
    return Play(lambda c: c.deltas_admin.stats(gateway), told=lambda found: found.entries)

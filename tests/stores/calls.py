"""Generated calls that use every surface as its clients do: each follows on what the calls before it were told.

A call is written with marks for what only a server knows: `@job:3@` is a job id that an earlier answer had, `@held:3@`
and `@lease:3@` are a claimed job and its lease token, and so on; `@held:-1@` is the latest one. Each party puts in what
it was told itself, so one call is the same call for all of them, though their ids differ.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.deltas.vectors import columns, delta, stamp

NOTHING: Mapping[str, str] = MappingProxyType({})
LONG_AGO_MS = 1_770_000_000_000
"""Of the clocks of replicas: a moment in February 2026."""
PAGE = 2
"""Things on a page of a list: most lists have several pages."""


class Call(NamedTuple):
    """One request; a body that is not bytes is sent as JSON."""

    method: str
    path: str
    body: Any = None
    fields: Mapping[str, str] = NOTHING


Make = Callable[[random.Random], Call]


def mark(chance: random.Random, kind: str) -> str:
    """Something that the party was told, most often of late."""
    return f"@{kind}:{chance.randrange(40)}@"


def _page(chance: random.Random, path: str, **query: object) -> Call:
    """A page of a list, the first or one behind another."""
    given = query | {"limit": PAGE} | ({"after": mark(chance, "next")} if chance.random() < 0.4 else {})
    return Call("GET", path + "?" + "&".join(f"{name}={value}" for name, value in given.items()))


# -- streams ----------------------------------------------------------------------------------------------------------


STREAM_NAMES = ("t0", "t1", "t2", "t3", "fork0", "fork1")


def _stream(chance: random.Random) -> str:
    return f"/v1/stream/{chance.choice(STREAM_NAMES)}"


def _stream_made(chance: random.Random) -> Call:
    path = _stream(chance)
    if "fork" in path:
        return Call("PUT", path, b"", {"stream_forked_from": f"/v1/stream/t{chance.randrange(4)}"})
    fields = {"content_type": chance.choice((*["application/json"] * 8, "text/plain"))}
    return Call("PUT", path, b"", fields | ({"stream_retention_bytes": "100000"} if path.endswith("3") else {}))


def _appended(chance: random.Random) -> Call:
    number = chance.randrange(30)
    fields = {"content_type": "application/json"}
    kind = chance.randrange(4)
    if kind == 0:
        fields |= {"idempotency_key": f"key-{number}"}
    if kind == 1:
        epoch = str(chance.choice((0, 0, 0, 1)))
        fields |= {"producer_id": f"p{chance.randrange(2)}", "producer_epoch": epoch}
        fields |= {"producer_seq": str(chance.randrange(4))}
    if kind == 2:
        fields |= {"stream_seq": f"{number:04}"}
    if chance.random() < 0.03:
        fields |= {"stream_closed": "true"}
    return Call("POST", _stream(chance), [{"n": number}] * chance.randrange(1, 4), fields)


def _looked_up(chance: random.Random) -> Call:
    looked = chance.choice(({"lookup_key": f"key-{chance.randrange(30)}"}, {"lookup_producer": "p0"}))
    return Call("HEAD", _stream(chance), None, looked)


STREAMS: tuple[tuple[Make, float], ...] = (
    (_stream_made, 3),
    (_appended, 10),
    (lambda chance: Call("GET", _stream(chance) + "?offset=-1"), 3),
    (lambda chance: Call("GET", f"{_stream(chance)}?offset=@offset:-{chance.randrange(9)}@"), 2),
    (_looked_up, 2),
    (lambda chance: Call("DELETE", _stream(chance)), 0.6),
    (lambda chance: _page(chance, "/v1/streams", prefix=chance.choice("tf")), 2),
    (lambda chance: _page(chance, "/v1/streams/producers", stream=chance.choice(STREAM_NAMES)), 1),
    (lambda chance: Call("GET", f"/v1/streams?source=t{chance.randrange(4)}"), 1),
)


# -- jobs -------------------------------------------------------------------------------------------------------------


def _job(chance: random.Random) -> dict[str, Any]:
    body: dict[str, Any] = {"kind": f"kind{chance.randrange(2)}", "queue": f"q{chance.randrange(3)}"}
    body |= {"params": {"n": chance.randrange(2)}, "priority": chance.randrange(10)}
    if chance.random() < 0.5:
        body |= {"idempotency_key": f"job-{chance.randrange(12)}", "on_failed": chance.choice(("return", "retry"))}
    kind = chance.randrange(8)
    if kind == 0:
        body |= {"delay_ms": 31_536_000_000}
    if kind == 1:
        body |= {"unique": {"key": f"u{chance.randrange(2)}"}}
    if kind == 2:
        body |= {"join": {"on_failure": chance.choice(("wait", "cancel"))}}
    if kind == 3:
        body |= {"group": f"@join:-{chance.randrange(1, 3)}@"}
    if kind == 4:
        body |= {"max_attempts": 1}
    return body


def _reported(chance: random.Random) -> Call:
    number = -chance.choice((1, 1, 1, 2, 3))
    what, fields = chance.choice(
        (
            ("complete", {"result": {"n": chance.randrange(3)}}),
            ("complete", {"result": "x" * 2_000}),
            ("fail", {"error": {"code": "boom", "message": "it broke"}}),
            ("fail", {"error": {"code": "boom", "message": "for good"}, "retryable": False}),
            ("heartbeat", {"progress": {"n": chance.randrange(3)}}),
            ("defer", {"delay_ms": 86_400_000}),
            ("steps", {"step_key": f"step-{chance.randrange(2)}", "result": {"n": chance.randrange(3)}}),
            ("steps", {"step_key": f"step-{chance.randrange(2)}"}),
        )
    )
    return Call("POST", f"/v1/jobs/@held:{number}@/{what}", {"lease_token": f"@lease:{number}@"} | fields)


def _claim(chance: random.Random) -> Call:
    body: dict[str, Any] = {"worker_id": f"worker-{chance.randrange(2)}", "max": chance.randrange(1, 4)}
    if chance.random() < 0.4:
        body |= {"queues": [f"q{chance.randrange(3)}"]}
    if chance.random() < 0.3:
        body |= {"claim_id": f"claim-{chance.randrange(6)}"}
    return Call("POST", "/v1/jobs/claim", body)


def _ordered(chance: random.Random) -> Call:
    if chance.random() < 0.3:
        return Call("POST", f"/v1/jobs/@join:-{chance.randrange(1, 4)}@/close", {})
    return Call("POST", f"/v1/jobs/{mark(chance, 'job')}/{chance.choice(('cancel', 'requeue', 'requeue'))}", {})


def _released(chance: random.Random) -> Call:
    return Call("POST", "/v1/jobs/keys/release", {"idempotency_key": f"job-{chance.randrange(12)}", "principal": "-"})


def _queue_limits(chance: random.Random) -> Call:
    path = f"/v1/jobs/queues/q{chance.randrange(3)}"
    if chance.random() < 0.3:
        return Call("DELETE", path)
    return Call("PUT", path, {"max_inflight": chance.randrange(1, 6)})


def _schedule(chance: random.Random) -> Call:
    path = f"/v1/jobs/schedules/sched{chance.randrange(3)}"
    made = Call("PUT", path, {"cron": "0 0 29 2 *", "kind": "leap", "params": {"n": chance.randrange(2)}})
    return chance.choice((made, made, Call("GET", path), Call("DELETE", path)))


def _jobs_listed(chance: random.Random) -> Call:
    query = chance.choice(({}, {"state": "queued"}, {"state": "completed"}, {"queue": "q1"}, {"kind": "kind0"}))
    return _page(chance, "/v1/jobs", **query)


JOBS: tuple[tuple[Make, float], ...] = (
    (lambda chance: Call("POST", "/v1/jobs", _job(chance)), 8),
    (lambda chance: Call("POST", "/v1/jobs/batch", {"jobs": [_job(chance) for _ in range(3)]}), 1),
    (_claim, 7),
    (_reported, 10),
    (_ordered, 2),
    (lambda chance: Call("GET", f"/v1/jobs/{mark(chance, 'job')}"), 2),
    (lambda chance: Call("GET", f"/v1/jobs/{mark(chance, 'job')}/result"), 1),
    (lambda chance: _page(chance, f"/v1/jobs/@join:-{chance.randrange(1, 4)}@/members"), 1),
    (_jobs_listed, 4),
    (lambda chance: _page(chance, "/v1/jobs/dead"), 1),
    (lambda chance: Call("POST", "/v1/jobs/lookup", {"idempotency_key": f"job-{chance.randrange(12)}"}), 1),
    (_released, 0.5),
    (_queue_limits, 1),
    (lambda chance: Call("GET", "/v1/jobs/queues"), 1),
    (_schedule, 1),
    (lambda chance: Call("GET", "/v1/jobs/schedules"), 0.5),
)


# -- events -----------------------------------------------------------------------------------------------------------


def _event(chance: random.Random) -> dict[str, Any]:
    partitions = sorted({f"part-{chance.randrange(4)}" for _ in range(chance.randrange(1, 3))})
    event = {"type": f"type-{chance.randrange(2)}", "n": chance.randrange(2)}
    item: dict[str, Any] = {"id": f"event-{chance.randrange(60)}", "partitions": partitions, "event": event}
    return item | ({"if_watermark": chance.randrange(8)} if chance.random() < 0.1 else {})


def _submitted(chance: random.Random) -> Call:
    client = f"?client_id=client-{chance.randrange(2)}"
    return Call("POST", "/v1/events" + client, {"events": [_event(chance) for _ in range(chance.randrange(1, 4))]})


def _events_read(chance: random.Random) -> Call:
    query = f"partition=part-{chance.randrange(4)}&limit={PAGE}"
    query += chance.choice(("", f"&since={chance.randrange(30)}", "&order=desc", "&type=type-1"))
    return Call("GET", "/v1/events?" + chance.choice((query, query, "partition=part-1&last=3")))


EVENTS: tuple[tuple[Make, float], ...] = (
    (_submitted, 6),
    (_events_read, 5),
    (lambda chance: Call("GET", f"/v1/events/id/event-{chance.randrange(60)}?client_id=client-0"), 2),
    (lambda chance: Call("GET", f"/v1/events/partitions?limit={PAGE}&after=part-{chance.randrange(4)}"), 1),
    (lambda chance: Call("GET", "/v1/events/partitions?prefix=part"), 1),
)


# -- ledger -----------------------------------------------------------------------------------------------------------


def _place(chance: random.Random) -> str:
    """A vault, or an organization; the vaults of a conversation are in any of its organizations."""
    return f"@{chance.choice(('place', 'place', 'place', 'org'))}:{chance.randrange(3)}@"


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def operation(chance: random.Random) -> dict[str, Any]:
    """One operation of a write of the ledger."""
    key = f"entity-{chance.randrange(8)}"
    relation = {"resource": f"doc:{chance.randrange(3)}", "relation": chance.choice(("viewer", "owner"))}
    relation |= {"subject": f"user:{chance.randrange(3)}"}
    set_it: dict[str, Any] = {"key": key, "value": _coded(f"value {chance.randrange(3)}" * chance.choice((1, 1, 800)))}
    condition = chance.choice(({"notExists": True}, {"mustExists": True}, {"version": str(chance.randrange(1, 9))}))
    return chance.choice(
        (
            {"setEntity": set_it},
            {"setEntity": set_it},
            {"setEntity": set_it | {"condition": condition}},
            {"deleteEntity": {"key": key}},
            {"createRelationship": relation},
            {"deleteRelationship": relation},
        )
    )


def _written(chance: random.Random) -> Call:
    body: dict[str, Any] = {"clientId": f"client-{chance.randrange(2)}"}
    operations = [operation(chance) for _ in range(chance.randrange(1, 4))]
    if chance.random() < 0.2:
        body |= {"sequence": str(chance.randrange(1, 5))}
    else:
        body |= {"idempotencyKey": base64.b64encode(bytes([1, chance.randrange(60)]) * 8).decode()}
    if chance.random() < 0.3:
        return Call("POST", f"{_place(chance)}/batches", body | {"operations": [{"operations": operations}]})
    return Call("POST", f"{_place(chance)}/writes", body | {"operations": operations})


def _ledger_read(chance: random.Random) -> Call:
    height = chance.randrange(1, 8)
    what = chance.choice(
        (
            f"entities/entity-{chance.randrange(8)}",
            f"entities/entity-{chance.randrange(8)}?atHeight={height}",
            f"entities/entity-{chance.randrange(8)}?proof=true",
            f"entities?limit={PAGE}",
            f"entities?limit={PAGE}&atHeight={height}",
            f"entities?limit={PAGE}&pageToken={mark(chance, 'page')}",
            f"relationships?limit={PAGE}",
            "relationships?subject=user:1",
            f"resources?type=doc&limit={PAGE}",
            "tip",
            f"blocks/{height}",
            f"blocks?from=1&to={height}",
            f"blocks/{height}/proof",
            f"clients/client-{chance.randrange(2)}/state",
        )
    )
    return Call("GET", f"{_place(chance)}/{what}")


def _ended(chance: random.Random) -> Call:
    return Call("DELETE", _place(chance))


LEDGER: tuple[tuple[Make, float], ...] = (
    (lambda chance: Call("POST", "/ledger/v1/orgs", {"name": f"org{chance.randrange(3)}"}), 1),
    (lambda chance: Call("POST", f"{mark(chance, 'org')}/vaults", {}), 1.5),
    (_written, 9),
    (_ledger_read, 9),
    (_ended, 0.3),
    (lambda chance: Call("GET", mark(chance, "org")), 0.5),
    (lambda chance: Call("GET", mark(chance, "place")), 0.5),
)


# -- deltas -----------------------------------------------------------------------------------------------------------


def _delta(chance: random.Random, client: str) -> dict[str, Any]:
    op = chance.choice(("INSERT", "UPDATE", "UPDATE", "DELETE"))
    cells = [] if op == "DELETE" else columns(**{f"col{chance.randrange(3)}": chance.randrange(4)})
    row, table = f"row-{chance.randrange(6)}", f"table{chance.randrange(2)}"
    return delta(op, cells, row=row, table=table, client=client, hlc=stamp(LONG_AGO_MS, chance.randrange(200)))


def _gateway(chance: random.Random) -> str:
    return f"gw{chance.randrange(2)}"


def _pushed(chance: random.Random) -> Call:
    client = f"replica-{chance.randrange(3)}"
    deltas = [_delta(chance, client) for _ in range(chance.randrange(1, 4))]
    return Call("POST", f"/v1/sync/{_gateway(chance)}/push", {"clientId": client, "deltas": deltas})


def _pulled(chance: random.Random) -> Call:
    since = chance.choice(("0", mark(chance, "hlc")))
    # Those who pull push nothing: how far a replica has read is noted softly, and decides about repairs for its pushes.
    query = f"since={since}&clientId=reader-{chance.randrange(2)}&limit={chance.choice((PAGE, 100))}"
    return Call("GET", f"/v1/sync/{_gateway(chance)}/pull?{query}")


TYPED = [{"name": f"col{number}", "type": "number"} for number in range(3)]


def _administered(chance: random.Random) -> Call:
    gateway, table = _gateway(chance), f"table={f'table{chance.randrange(2)}'}"
    return chance.choice(
        (
            Call("GET", f"/v1/admin/metrics/{gateway}"),
            Call("GET", f"/v1/admin/tables/{gateway}?limit=1"),
            Call("GET", f"/v1/admin/rows/{gateway}?{table}&limit={PAGE}"),
            Call("GET", f"/v1/admin/rows/{gateway}?{table}&row=row-{chance.randrange(6)}"),
            Call("GET", f"/v1/admin/entries/{gateway}?{table}&row=row-{chance.randrange(6)}&limit={PAGE}"),
            Call("GET", f"/v1/admin/clients/{gateway}?limit={PAGE}"),
            Call("GET", "/v1/admin/gateways?limit=1"),
            Call("POST", f"/v1/admin/forget-clients/{gateway}", {"clients": ["replica-2"]}),
            Call("POST", f"/v1/admin/schema/{gateway}", {"table": "table1", "columns": TYPED}),
        )
    )


DELTAS: tuple[tuple[Make, float], ...] = ((_pushed, 6), (_pulled, 5), (_administered, 3))

SURFACES = (STREAMS, JOBS, EVENTS, LEDGER, DELTAS)
LISTS: tuple[str, ...] = (
    "/v1/streams?limit=100",
    *(f"/v1/stream/{name}?offset=-1" for name in (*STREAM_NAMES, "s0", "s1", "s2")),
    "/v1/jobs?limit=100",
    "/v1/jobs/dead?limit=100",
    "/v1/jobs/queues",
    "/v1/jobs/schedules",
    *(f"/v1/events?partition=part-{number}" for number in range(4)),
    "/v1/events/partitions",
    *(f"@{kind}:{number}@" for kind in ("org", "place") for number in range(10)),
    *(f"@place:{number}@/{what}" for number in range(10) for what in ("entities", "relationships", "tip")),
    *(f"/v1/sync/gw{number}/pull?since=0&clientId=newcomer" for number in range(2)),
    *(f"/v1/admin/rows/gw{number}?table=table{other}" for number in range(2) for other in range(2)),
)
"""What there is, read in the end; organizations and vaults are listed by their slugs, which are random."""


FIRST: tuple[Call, ...] = (
    *(Call("PUT", f"/v1/stream/t{number}", b"", {"content_type": "application/json"}) for number in range(4)),
    *(Call("POST", "/ledger/v1/orgs", {"name": f"first{number}"}) for number in range(2)),
    *(Call("POST", f"@org:{number}@/vaults", {}) for number in (0, 0, 1)),
    *(Call("POST", "/v1/jobs", {"kind": "kind0", "join": {"on_failure": name}}) for name in ("wait", "cancel")),
)
"""Made first: without them there would be little to do."""


def calls(seed: int, length: int) -> Iterator[Call]:
    """Calls of all surfaces in turn."""
    yield from FIRST
    chance = random.Random(seed)
    for number in range(length):
        surface = SURFACES[number % len(SURFACES)]
        makes, weights = zip(*surface, strict=True)
        [make] = chance.choices(makes, weights)
        yield make(chance)


def json_of(call: Call) -> bytes | None:
    """The body as it is sent, with its marks."""
    if call.body is None or isinstance(call.body, bytes):
        return call.body
    return json.dumps(call.body).encode()

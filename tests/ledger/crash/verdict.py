"""What a run is judged by, when everything has ended: every answer that anybody was given, against the blocks.

| must hold | |
|---|---|
| orders | each that was answered is one block, with the id, height and sequence of every answer; nobody else's, but |
| | those of the server, which remove what has expired, and nothing else |
| sequences | those of a client in a place are 1, 2, 3 ... in the order of the blocks, and its state tells the last |
| chain | heights 1, 2, 3 ...; each names the hash of the one before; the tip is the last; terms and times never fall |
| log | over all places of an organization the indexes of the blocks have no hole and no repeat |
| state | the root in each header is that of the entities which the blocks up to it have made; lists say the same |
| retries | after the last kill each order gets the same answer again, marked as a replay |

All hashes are made again by `tests.ledger.model.hashing`. Where bodies are compacted, the orders are what the state is
made from.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from semel.surfaces.ledger.model import BlockHeader, Entity, ExpireEntity, LedgerPlace, LedgerTransaction, Operation
from tests.harness.crash.verdict import Verdict
from tests.ledger.crash.documents import Json, from_base64, path_of, read_header
from tests.ledger.crash.writer import Heard, Order
from tests.ledger.model.hashing import ZERO, block_hash, state_root, transaction_hash
from tests.ledger.model.model import apply

BLOCKS, EXPIRED = "blocks", "expired"
ACTOR = b"client:anonymous"
GC = b"system:gc"
MOST_EXPIRED = 256
"""Entities that one block of the server removes at most."""


@dataclass(frozen=True)
class Chain:
    """One place, as it is read at the end."""

    place: LedgerPlace
    retain: int
    """How many bodies are kept; 0 for all."""
    headers: Sequence[BlockHeader]
    bodies: Mapping[int, LedgerTransaction]
    """By height."""
    tip: Json
    entities: Sequence[Entity]
    """Listed, relationships among them under the keys that they are hashed with."""
    clients: Mapping[str, Json]
    """Their states."""


def judge_ledger(
    verdict: Verdict, chains: Sequence[Chain], orders: Sequence[Order], again: Sequence[Heard], others: int
) -> None:
    """Hold everything that was told against what is there.

    `again` has one more answer for each order; `others` is how many entries of each log are no transactions.
    """
    verdict.count("transactions", len(orders))
    verdict.count(BLOCKS, sum(len(chain.headers) for chain in chains))
    verdict.count("answers", sum(len(order.answers) for order in orders))
    verdict.count("replays", sum(heard.is_replay for order in orders for heard in order.answers))
    verdict.count("terms", len({header.term for chain in chains for header in chain.headers}))
    for order, last in zip(orders, again, strict=True):
        _judge_answers(verdict, order, last)
    told = _by_place(orders)
    for chain in chains:
        here = told.pop(chain.place, {})
        _judge_chain(verdict, chain)
        _judge_orders(verdict, chain, here)
        _judge_sequences(verdict, chain, here)
        _judge_state(verdict, chain, here)
    verdict.require(not told, f"nobody has read {list(told)}")
    _judge_logs(verdict, chains, others)


def facts_of(heard: Heard) -> tuple[str, int, int]:
    """What every answer to one order must have in common."""
    success = heard.body.get("success", {})
    height, sequence = int(success.get("blockHeight", 0)), int(success.get("assignedSequence", 0))
    return success.get("txId", {}).get("id"), height, sequence


def _by_place(orders: Iterable[Order]) -> dict[LedgerPlace, dict[int, Order]]:
    """The orders of each place by the height that was told first."""
    told: dict[LedgerPlace, dict[int, Order]] = defaultdict(dict)
    for order in orders:
        if order.answers:
            told[order.place].setdefault(facts_of(order.answers[0])[1], order)
    return told


def _judge_answers(verdict: Verdict, order: Order, again: Heard) -> None:
    told = {facts_of(heard) for heard in (*order.answers, again)}
    verdict.require(len(told) == 1, f"{order.name} was told {told}")
    firsts = [heard.is_replay for heard in order.answers].count(False)
    verdict.require(firsts <= 1, f"{order.name} was committed {firsts} times")
    verdict.require(again.status == 200 and again.is_replay, f"{order.name} got {again.status} {again.body} at last")
    for _, _, sequence in told:
        verdict.require(order.sequence in (None, sequence), f"{order.name} became number {sequence}")


def _judge_chain(verdict: Verdict, chain: Chain) -> None:
    what, before, previous = path_of(chain.place), None, ZERO
    for height, header in enumerate(chain.headers, 1):
        verdict.require(header.height == height, f"{what}: height {header.height} where {height} should be")
        verdict.require(header.place == chain.place, f"{what}: block {height} is of {header.place}")
        verdict.require(header.previous_hash == previous, f"{what}: block {height} does not follow the one before")
        if before is not None:
            falls = header.term < before.term or header.at < before.at
            falls = falls or header.committed_index <= before.committed_index
            verdict.require(not falls, f"{what}: term, time or index falls with {header}")
        body = chain.bodies.get(height)
        verdict.require(body is not None or _is_compacted(chain, height), f"{what}: block {height} has no body")
        if body is not None:
            verdict.require(transaction_hash(body) == header.tx_root, f"{what}: block {height} is not of {body}")
            verdict.require(body.at == header.at, f"{what}: block {height} has two times")
            verdict.require(
                body.actor == (GC if body.client == GC else ACTOR), f"{what}: block {height} is by {body.actor!r}"
            )
        before, previous = header, block_hash(header)
    tip, height = chain.tip, len(chain.headers)
    told = int(tip["height"]), from_base64(tip["blockHash"]["value"])
    verdict.require(not height or told == (height, previous), f"{what}: the tip is told as {tip}")


def _is_compacted(chain: Chain, height: int) -> bool:
    return bool(chain.retain) and height <= len(chain.headers) - chain.retain


def _judge_orders(verdict: Verdict, chain: Chain, told: Mapping[int, Order]) -> None:
    """One block for one order, and the other way round."""
    what = path_of(chain.place)
    heights = set(range(1, len(chain.headers) + 1))
    verdict.require(not told.keys() - heights, f"{what}: acknowledged, and not there: {sorted(told.keys() - heights)}")
    strange = sorted(heights - told.keys() - {height for height, body in chain.bodies.items() if body.client == GC})
    verdict.require(not strange, f"{what}: nobody has ordered {strange}")
    for height, order in told.items():
        tx_id, _, sequence = facts_of(order.answers[0])
        for heard in order.answers:
            told_header = heard.body["success"].get("blockHeader")
            is_same = told_header is None or [read_header(told_header)] == list(chain.headers[height - 1 : height])
            verdict.require(is_same, f"{order.name} was given another header: {told_header}")
        body = chain.bodies.get(height)
        if body is not None:
            there = body.id, body.sequence, body.client, body.operations
            wanted = from_base64(tx_id), sequence, order.client.encode(), order.operations
            verdict.require(there == wanted, f"{order.name} was told {wanted}, and there is {there}")


def _judge_sequences(verdict: Verdict, chain: Chain, told: Mapping[int, Order]) -> None:
    """From the blocks and, for those without a body, from what was told."""
    what, lasts = path_of(chain.place), Counter[str]()
    for height in range(1, len(chain.headers) + 1):
        body, order = chain.bodies.get(height), told.get(height)
        if body is not None:
            client, sequence = body.client.decode(), body.sequence
        elif order is not None:
            client, sequence = order.client, facts_of(order.answers[0])[2]
        else:
            continue
        expected = lasts[client] + 1
        verdict.require(sequence == expected, f"{what}: {client} has {sequence} where {expected} is due")
        lasts[client] = sequence
    states = {client: int(state["lastCommittedSequence"]) for client, state in chain.clients.items()}
    del lasts[GC.decode()]
    verdict.require(states == dict(lasts), f"{what}: states {states}, blocks {dict(lasts)}")


def _judge_state(verdict: Verdict, chain: Chain, told: Mapping[int, Order]) -> None:
    what, state = path_of(chain.place), dict[bytes, Entity]()
    for height, header in enumerate(chain.headers, 1):
        body, order = chain.bodies.get(height), told.get(height)
        operations: Sequence[Operation] = body.operations if body else order.operations if order else ()
        if body is not None and body.client == GC:
            _judge_expiry(verdict, what, state, body)
        for operation in operations:
            failed = apply(state, operation, height, header.at.seconds)
            verdict.require(failed is None, f"{what}: block {height} has been committed in spite of {failed}")
        verdict.require(state_root(state.values()) == header.state_root, f"{what}: block {height} has another state")
    listed = {entity.key: entity for entity in chain.entities}
    verdict.require(len(listed) == len(chain.entities), f"{what}: an entity is listed twice")
    wanted = {key: entity if key[0] else entity._replace(version=0) for key, entity in state.items()}
    verdict.require(listed == wanted, f"{what}: {len(listed)} entities are listed, {len(wanted)} are there")


def _judge_expiry(verdict: Verdict, what: str, state: Mapping[bytes, Entity], body: LedgerTransaction) -> None:
    """A block of the server removes entities that are there and have expired, and not too many."""
    keys = [one.key for one in body.operations if isinstance(one, ExpireEntity)]
    ends = {one.key: one.expired_at for one in body.operations if isinstance(one, ExpireEntity)}
    is_fine = 0 < len(keys) == len(ends) == len(body.operations) <= MOST_EXPIRED
    there = {key: state[key].expires_at for key in keys if key in state}
    is_fine = is_fine and ends == there and all(0 < end <= body.at.seconds for end in ends.values())
    verdict.require(is_fine, f"{what}: {body} removes what has not expired: {there}")
    verdict.count(EXPIRED, len(keys))


def _judge_logs(verdict: Verdict, chains: Sequence[Chain], others: int) -> None:
    logs: dict[int, list[BlockHeader]] = defaultdict(list)
    for chain in chains:
        logs[chain.place.org] += chain.headers
    for org, headers in logs.items():
        headers.sort(key=lambda header: header.committed_index)
        wanted = range(others + 1, others + 1 + len(headers))
        found = [header.committed_index for header in headers]
        wrong = [one for one, due in zip(found, wanted, strict=True) if one != due]
        verdict.require(not wrong, f"organization {org}: the log has a hole or a repeat at {wrong[:1]}")
        for before, after in pairwise(headers):
            verdict.require(before.at <= after.at, f"organization {org}: time falls with entry {after.committed_index}")

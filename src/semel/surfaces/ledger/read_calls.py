"""Reads over HTTP: entities and lists, blocks and transactions, proofs, and the state of a client.

An answer is converted to JSON in the thread that reads its rows: a page of large values does not hold the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.server.http.answer import Answer
from semel.server.thread_pool import apart
from semel.surfaces.ledger.commands import CommittedTransaction, invalid
from semel.surfaces.ledger.exchange import LedgerRequest, answer_json
from semel.surfaces.ledger.limits import MAX_CHAIN_HEADERS
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.pagination import list_entities, list_relationships, list_resources
from semel.surfaces.ledger.proofs import ProvedEntity, prove_entity, prove_relationship
from semel.surfaces.ledger.reading import (
    block,
    blocks,
    client_state,
    headers,
    read_entities,
    read_entity,
    tip,
    tx_proof,
)
from semel.surfaces.ledger.reading import transaction as find_transaction
from semel.surfaces.ledger.service import LedgerService
from semel.surfaces.ledger.validation import check_client, check_key, check_relationship
from semel.surfaces.ledger.wire import answers
from semel.surfaces.ledger.wire.bodies import parse_batch_read
from semel.surfaces.ledger.wire.urls import (
    ProofQuery,
    ReadQuery,
    RelationshipsQuery,
    height_in,
    parse_entities,
    parse_nothing,
    parse_proof,
    parse_range,
    parse_read,
    parse_relationships,
    parse_resources,
    tx_id,
)


class LedgerReadCalls:
    """The HTTP handlers of reads."""

    def __init__(self, service: LedgerService) -> None:
        self._service = service

    async def client_state(self, request: LedgerRequest) -> Answer:
        """The last sequence of a client, and the next one."""
        parse_nothing(request.query)
        client = request.name.encode()
        check_client(client)

        def look(reading: Reading) -> Answer:
            state = client_state(reading, request.place, client)
            told: answers.Json = {"lastCommittedSequence": str(state.last)}
            if state.tx_id is not None:
                told["lastTxId"] = {"id": answers.base64(state.tx_id)}
            told |= {"lastBlockHeight": str(state.height or 0), "lastSeen": str(state.last_seen or 0)}
            return answer_json(told)

        return await self._look(request, look)

    async def entity(self, request: LedgerRequest) -> Answer:
        """One entity, at the current height or an older one, with a proof if requested."""
        wanted = parse_read(request.query)
        key = request.name.encode()
        check_key(self._service.limits, key)

        def look(reading: Reading) -> Answer:
            if wanted.wants_proof:
                return _proved(reading, request.place, key, wanted)
            found = read_entity(reading, request.place, key, wanted.height)
            if found.entity is None:
                raise Refused("ledger:not_found", "There is no entity of this key.", {"height": str(found.height)})
            return answer_json(answers.read_json(found.entity, found.height))

        return await self._look(request, look)

    async def batch_read(self, request: LedgerRequest) -> Answer:
        """Several entities, read in one snapshot."""
        parse_nothing(request.query)
        keys = await apart(request.body.size, self._keys, request.body.take())

        def look(reading: Reading) -> Answer:
            found, height = read_entities(reading, request.place, keys)
            results = [answers.result_json(key, entity) for key, entity in zip(keys, found, strict=True)]
            return answer_json(({"results": results} if results else {}) | {"blockHeight": str(height)})

        return await self._look(request, look)

    def _keys(self, body: bytes) -> list[bytes]:
        keys = parse_batch_read(body)
        for key in keys:
            check_key(self._service.limits, key)
        return keys

    async def entities(self, request: LedgerRequest) -> Answer:
        """A list of entities."""
        wanted = parse_entities(request.query)

        def look(reading: Reading) -> Answer:
            page = list_entities(
                reading, request.place, wanted.prefix, wanted.height, wanted.include_expired, *wanted.page
            )
            return _listed("entities", page.items, answers.entity_json, page.token, page.height)

        return await self._look(request, look)

    async def relationships(self, request: LedgerRequest) -> Answer:
        """A list of relationships, or one relationship with a proof of presence or absence."""
        wanted = parse_relationships(request.query)
        _needs_vault(request.place)
        if wanted.proved is not None:
            check_relationship(self._service.limits, *wanted.proved)

        def look(reading: Reading) -> Answer:
            if wanted.proved is not None:
                return _proved_relationship(reading, request.place, wanted.proved, wanted)
            page = list_relationships(
                reading,
                request.place,
                wanted.resource,
                wanted.relation,
                wanted.subject,
                wanted.height,
                *wanted.page,
            )
            return _listed("relationships", page.items, answers.triple_json, page.token, page.height)

        return await self._look(request, look)

    async def resources(self, request: LedgerRequest) -> Answer:
        """A list of resources that have relationships."""
        wanted = parse_resources(request.query)
        _needs_vault(request.place)

        def look(reading: Reading) -> Answer:
            page = list_resources(reading, request.place, wanted.type, wanted.height, *wanted.page)
            return _listed("resources", page.items, bytes.decode, page.token, page.height)

        return await self._look(request, look)

    async def tip(self, request: LedgerRequest) -> Answer:
        """The tip of the chain."""
        parse_nothing(request.query)

        def look(reading: Reading) -> Answer:
            found = tip(reading, request.place)
            return answer_json(
                {
                    "height": str(found.height),
                    "blockHash": answers.hash_json(found.block_hash),
                    "stateRoot": answers.hash_json(found.state_root),
                }
            )

        return await self._look(request, look)

    async def block(self, request: LedgerRequest) -> Answer:
        """One block."""
        parse_nothing(request.query)
        height = height_in(request.name)

        def look(reading: Reading) -> Answer:
            found = block(reading, request.place, height)
            if found is None:
                raise _no_block(height)
            return answer_json({"block": answers.block_json(*found)})

        return await self._look(request, look)

    async def blocks(self, request: LedgerRequest) -> Answer:
        """A range of blocks."""
        wanted = parse_range(request.query)

        def look(reading: Reading) -> Answer:
            found, height = blocks(reading, request.place, wanted.start, wanted.stop)
            told = {"blocks": [answers.block_json(*one) for one in found]} if found else {}
            return answer_json(told | {"currentTip": str(height)})

        return await self._look(request, look)

    async def proof(self, request: LedgerRequest) -> Answer:
        """The proof that a transaction is in its block; with a trusted height, also the chain from it to the block."""
        wanted = parse_proof(request.query)
        height = height_in(request.name)
        return await self._look(request, lambda reading: _block_proof(reading, request.place, height, wanted))

    async def transaction(self, request: LedgerRequest) -> Answer:
        """One transaction with its block."""
        parse_nothing(request.query)
        wanted = tx_id(request.name)

        def look(reading: Reading) -> Answer:
            committed = find_transaction(reading, request.place, wanted)
            if committed is None:
                raise Refused("ledger:not_found", "There is no transaction of this id, or its body is no longer kept.")
            transaction, header = committed
            return answer_json(
                {
                    "transaction": answers.transaction_json(transaction),
                    "blockHeight": str(header.height),
                    "blockHeader": answers.header_json(header),
                    "txProof": answers.tx_proof_json(tx_proof(committed)),
                }
            )

        return await self._look(request, look)

    async def _look(self, request: LedgerRequest, look: Callable[[Reading], Answer]) -> Answer:
        return await self._service.read(request.asked, request.place, look)


def _listed(name: str, items: Sequence[object], told: Callable[..., object], token: str, height: int) -> Answer:
    return answer_json(answers.list_json(name, [told(item) for item in items], token, height))


def _proved(reading: Reading, place: LedgerPlace, key: bytes, wanted: ReadQuery) -> Answer:
    found = prove_entity(reading, place, key, wanted.height)
    told: answers.Json = {} if found.entity is None else {"value": answers.base64(found.entity.value)}
    told |= _proof(reading, place, found, wanted.trusted)
    return answer_json(told, 404 if found.entity is None else 200)


def _proved_relationship(
    reading: Reading, place: LedgerPlace, parts: tuple[bytes, bytes, bytes], wanted: RelationshipsQuery
) -> Answer:
    """A list of one relationship or none, with status 200 in both cases, as without a proof."""
    found = prove_relationship(reading, place, *parts, wanted.height)
    told: answers.Json = {} if found.entity is None else {"relationships": [answers.triple_json(parts)]}
    return answer_json(told | _proof(reading, place, found, wanted.trusted))


def _proof(reading: Reading, place: LedgerPlace, found: ProvedEntity, trusted: int | None) -> answers.Json:
    return {
        "blockHeight": str(found.header.height),
        "blockHeader": answers.header_json(found.header),
        "merkleProof": answers.proof_json(found.proof.leaf, found.proof.siblings),
        "stateProof": answers.state_proof_json(found.proof),
        **_chain(reading, place, trusted, found.header.height),
    }


def _block_proof(reading: Reading, place: LedgerPlace, height: int, wanted: ProofQuery) -> Answer:
    found = block(reading, place, height)
    if found is None:
        raise _no_block(height)
    header, transaction = found
    if transaction is None:
        raise Refused("ledger:height_unavailable", f"The body of block {height} is no longer kept.")
    if wanted.tx_id not in (None, transaction.id):
        raise Refused("ledger:not_found", f"Block {height} does not hold this transaction.")
    committed = CommittedTransaction(transaction, header)
    return answer_json(
        {
            "blockHeader": answers.header_json(header),
            "txProof": answers.tx_proof_json(tx_proof(committed)),
            "transaction": answers.transaction_json(transaction),
            **_chain(reading, place, wanted.trusted, height),
        }
    )


def _chain(reading: Reading, place: LedgerPlace, trusted: int | None, height: int) -> answers.Json:
    """The headers above a trusted height, up to the proved block."""
    if trusted is None:
        return {}
    if trusted > height:
        raise invalid(f"trustedHeight must not be above the block that is proved, {height}.", "trustedHeight")
    if height - trusted > MAX_CHAIN_HEADERS:
        message = f"trustedHeight may be at most {MAX_CHAIN_HEADERS} blocks below the one that is proved, {height}."
        raise invalid(message, "trustedHeight")
    return {"chainProof": answers.chain_json(headers(reading, place, trusted, height))}


def _needs_vault(place: LedgerPlace) -> None:
    if place.vault == 0:
        raise invalid("Relationships stand in a vault: name one in the path.", "vault")


def _no_block(height: int) -> Refused:
    return Refused("ledger:not_found", f"There is no block at height {height}.")

"""Reads over gRPC: entities with and without proofs, blocks, lists, and the state of a client.

An answer is serialized in the thread that reads its rows. Every read includes what was acknowledged before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from google.protobuf.message import Message

from semel.engine.reading import Reading
from semel.server.grpc.call import GrpcCall, GrpcMethod
from semel.server.grpc.messages import check_fields, parser, same
from semel.surfaces.ledger.commands import invalid
from semel.surfaces.ledger.grpc import answers
from semel.surfaces.ledger.grpc.answers import Parts, block_parts, chain_parts, parts_of
from semel.surfaces.ledger.grpc.requests import (
    BATCH_READ_BYTES,
    READ_BYTES,
    caller_of_call,
    check_consistency,
    place_of,
)
from semel.surfaces.ledger.limits import MAX_BATCH_KEYS
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.pagination import MAX_TOKEN_CHARACTERS, list_entities, list_relationships, list_resources
from semel.surfaces.ledger.proofs import ProvedEntity, prove_entity, prove_relationship
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from semel.surfaces.ledger.reading import block, blocks, client_state, headers, read_entities, read_entity, tip
from semel.surfaces.ledger.service import LedgerService
from semel.surfaces.ledger.validation import check_client, check_key, check_relationship

_PATH = b"/ledger.v1.ReadService/%s"
_AROUND_BYTES = 1_024
"""Bytes allowed for the small fields of a message."""
WATCH_SECONDS = 60.0
"""Longest time between two checks whether the client of a watch is still connected, in seconds."""


class ReadService:
    """ledger.v1.ReadService."""

    def __init__(self, service: LedgerService) -> None:
        self._service = service

    def methods(self) -> Iterator[GrpcMethod]:
        """The methods of the service."""
        for kind, run in (
            (pb.ReadRequest, self._read),
            (pb.VerifiedReadRequest, self._verified_read),
            (pb.HistoricalReadRequest, self._historical_read),
            (pb.WatchBlocksRequest, self._watch),
            (pb.GetBlockRequest, self._block),
            (pb.GetBlockRangeRequest, self._blocks),
            (pb.GetTipRequest, self._tip),
            (pb.GetClientStateRequest, self._client_state),
            (pb.ListRelationshipsRequest, self._relationships),
            (pb.ListResourcesRequest, self._resources),
            (pb.ListEntitiesRequest, self._entities),
        ):
            name = kind.DESCRIPTOR.name.removesuffix("Request")
            yield GrpcMethod(_PATH % name.encode(), parser(kind, same), run, max_bytes=self._largest())
        check = partial(check_fields, repeated=MAX_BATCH_KEYS)
        parse = parser(pb.BatchReadRequest, self._batch, check)
        largest = max(BATCH_READ_BYTES, MAX_BATCH_KEYS * (self._service.limits.max_key_bytes + _AROUND_BYTES))
        yield GrpcMethod(_PATH % b"BatchRead", parse, self._batch_read, max_bytes=largest)

    def _largest(self) -> int:
        """Limit of bytes of a request: its names at the configured limits, and a page token."""
        limits = self._service.limits
        names = limits.max_key_bytes + 4 * (2 * limits.max_resource_characters + limits.max_relation_characters)
        return max(READ_BYTES, names + MAX_TOKEN_CHARACTERS + _AROUND_BYTES)

    async def _read(self, call: GrpcCall, request: pb.ReadRequest) -> bytes:
        check_consistency(request.consistency)
        place, key = place_of(request), self._key(request.key)
        return await self._look(call, place, lambda reading: answers.read_pb(*read_entity(reading, place, key, None)))

    def _batch(self, request: pb.BatchReadRequest) -> tuple[LedgerPlace, list[bytes]]:
        """The query of a batch of reads; a large one is parsed in a thread."""
        check_consistency(request.consistency)
        if len(request.keys) > MAX_BATCH_KEYS:
            raise invalid(f"At most {MAX_BATCH_KEYS} keys are read at once.", "keys")
        return place_of(request), [self._key(key) for key in request.keys]

    async def _batch_read(self, call: GrpcCall, asked: tuple[LedgerPlace, list[bytes]]) -> bytes:
        place, keys = asked

        def look(reading: Reading) -> pb.BatchReadResponse:
            found, height = read_entities(reading, place, keys)
            results = [answers.result_pb(key.decode(), entity) for key, entity in zip(keys, found, strict=True)]
            return pb.BatchReadResponse(results=results, block_height=height)

        return await self._look(call, place, look)

    async def _verified_read(self, call: GrpcCall, request: pb.VerifiedReadRequest) -> bytes:
        place, key = place_of(request), self._key(request.key)

        def look(reading: Reading) -> Parts:
            found = prove_entity(reading, place, key, request.at_height or None)
            told = pb.VerifiedReadResponse(
                value=None if found.entity is None else found.entity.value,
                block_height=found.header.height,
                block_header=answers.header_pb(found.header),
                merkle_proof=answers.proof_pb(found.proof.leaf, found.proof.siblings),
                state_proof=answers.state_proof_pb(found.proof),
            )
            return parts_of(told, chain_proof=_chain(reading, place, found, request))

        return await self._look(call, place, look)

    async def _historical_read(self, call: GrpcCall, request: pb.HistoricalReadRequest) -> bytes:
        place, key = place_of(request), self._key(request.key)
        if request.at_height == 0:
            raise invalid("A historical read is of a height, and at least of 1.", "at_height")

        def look(reading: Reading) -> pb.HistoricalReadResponse | Parts:
            if not request.include_proof and not request.include_chain_proof:
                entity, height = read_entity(reading, place, key, request.at_height)
                return pb.HistoricalReadResponse(value=None if entity is None else entity.value, block_height=height)
            found = prove_entity(reading, place, key, request.at_height)
            told = pb.HistoricalReadResponse(
                value=None if found.entity is None else found.entity.value,
                block_height=found.header.height,
                block_header=answers.header_pb(found.header),
            )
            if request.include_proof:
                told.merkle_proof.CopyFrom(answers.proof_pb(found.proof.leaf, found.proof.siblings))
                told.state_proof.CopyFrom(answers.state_proof_pb(found.proof))
            return parts_of(told, chain_proof=_chain(reading, place, found, request))

        return await self._look(call, place, look)

    async def _watch(self, call: GrpcCall, request: pb.WatchBlocksRequest) -> None:
        place = place_of(request)
        await self._service.read(caller_of_call(call), place, lambda reading: tip(reading, place))
        asked = caller_of_call(call)
        with (
            self._service.context.live_reader(asked.caller.principal),
            self._service.follow(asked, place, request.start_height) as watch,
        ):
            call.begin()
            while not watch.is_over:
                for header in await watch.next(WATCH_SECONDS):
                    await call.send(answers.announcement_pb(header).SerializeToString())

    async def _block(self, call: GrpcCall, request: pb.GetBlockRequest) -> bytes:
        place = place_of(request)

        def look(reading: Reading) -> Parts:
            found = block(reading, place, request.height)
            return parts_of(pb.GetBlockResponse(), block=[] if found is None else [block_parts(found)])

        return await self._look(call, place, look)

    async def _blocks(self, call: GrpcCall, request: pb.GetBlockRangeRequest) -> bytes:
        place = place_of(request)

        def look(reading: Reading) -> Parts:
            found, height = blocks(reading, place, request.start_height, request.end_height)
            return parts_of(pb.GetBlockRangeResponse(current_tip=height), blocks=map(block_parts, found))

        return await self._look(call, place, look)

    async def _tip(self, call: GrpcCall, request: pb.GetTipRequest) -> bytes:
        place = place_of(request)

        def look(reading: Reading) -> pb.GetTipResponse:
            found = tip(reading, place)
            return pb.GetTipResponse(
                height=found.height,
                block_hash=answers.hash_pb(found.block_hash),
                state_root=answers.hash_pb(found.state_root),
            )

        return await self._look(call, place, look)

    async def _client_state(self, call: GrpcCall, request: pb.GetClientStateRequest) -> bytes:
        place, client = place_of(request), request.client_id.id.encode()
        check_client(client)

        def look(reading: Reading) -> pb.GetClientStateResponse:
            state = client_state(reading, place, client)
            return pb.GetClientStateResponse(
                last_committed_sequence=state.last,
                last_tx_id=None if state.tx_id is None else pb.TxId(id=state.tx_id),
                last_block_height=state.height or 0,
                last_seen=state.last_seen or 0,
            )

        return await self._look(call, place, look)

    async def _relationships(self, call: GrpcCall, request: pb.ListRelationshipsRequest) -> bytes:
        check_consistency(request.consistency)
        place = place_of(request)
        resource, relation, subject = (
            getattr(request, name).encode() if request.HasField(name) else None
            for name in ("resource", "relation", "subject")
        )
        at_height = request.at_height or None
        if request.include_proof:
            return await self._proved_relationship(call, place, (resource, relation, subject), request)
        if request.include_chain_proof or request.HasField("trusted_height"):
            raise invalid("include_chain_proof and trusted_height go with include_proof.", "include_proof")

        def look(reading: Reading) -> pb.ListRelationshipsResponse:
            page = list_relationships(
                reading, place, resource, relation, subject, at_height, request.limit, request.page_token
            )
            return pb.ListRelationshipsResponse(
                relationships=map(answers.relationship_pb, page.items),
                block_height=page.height,
                next_page_token=page.token,
            )

        return await self._look(call, place, look)

    async def _proved_relationship(
        self, call: GrpcCall, place: LedgerPlace, parts: tuple[bytes | None, ...], request: pb.ListRelationshipsRequest
    ) -> bytes:
        resource, relation, subject = parts
        if resource is None or relation is None or subject is None:
            raise invalid(
                "A proof is about one relationship: name its resource, relation and subject.", "include_proof"
            )
        if request.limit or request.page_token:
            raise invalid("A proof is about one relationship and has no pages.", "include_proof")
        check_relationship(self._service.limits, resource, relation, subject)

        def look(reading: Reading) -> Parts:
            found = prove_relationship(reading, place, resource, relation, subject, request.at_height or None)
            there = [] if found.entity is None else [answers.relationship_pb((resource, relation, subject))]
            told = pb.ListRelationshipsResponse(
                relationships=there,
                block_height=found.header.height,
                block_header=answers.header_pb(found.header),
                merkle_proof=answers.proof_pb(found.proof.leaf, found.proof.siblings),
                state_proof=answers.state_proof_pb(found.proof),
            )
            return parts_of(told, chain_proof=_chain(reading, place, found, request))

        return await self._look(call, place, look)

    async def _resources(self, call: GrpcCall, request: pb.ListResourcesRequest) -> bytes:
        check_consistency(request.consistency)
        place = place_of(request)

        def look(reading: Reading) -> pb.ListResourcesResponse:
            kind, at_height = request.resource_type.encode(), request.at_height or None
            page = list_resources(reading, place, kind, at_height, request.limit, request.page_token)
            return pb.ListResourcesResponse(
                resources=[resource.decode() for resource in page.items],
                block_height=page.height,
                next_page_token=page.token,
            )

        return await self._look(call, place, look)

    async def _entities(self, call: GrpcCall, request: pb.ListEntitiesRequest) -> bytes:
        check_consistency(request.consistency)
        place = place_of(request)

        def look(reading: Reading) -> pb.ListEntitiesResponse:
            page = list_entities(
                reading,
                place,
                request.key_prefix.encode(),
                request.at_height or None,
                request.include_expired,
                request.limit,
                request.page_token,
            )
            return pb.ListEntitiesResponse(
                entities=map(answers.entity_pb, page.items), block_height=page.height, next_page_token=page.token
            )

        return await self._look(call, place, look)

    def _key(self, key: str) -> bytes:
        encoded = key.encode()
        check_key(self._service.limits, encoded)
        return encoded

    async def _look(self, call: GrpcCall, place: LedgerPlace, look: Callable[[Reading], Message | Parts]) -> bytes:
        return await self._service.read(caller_of_call(call), place, lambda reading: _serialized(look(reading)))


def _serialized(told: Message | Parts) -> bytes:
    return b"".join(told) if isinstance(told, list) else told.SerializeToString()


def _chain(reading: Reading, place: LedgerPlace, found: ProvedEntity, request: Any) -> list[Parts]:
    """The headers above the trusted height, up to the proved block; from the first block if no height is trusted."""
    if not request.include_chain_proof:
        return []
    return [chain_parts(headers(reading, place, request.trusted_height, found.header.height))]

"""Organizations and vaults over gRPC: create, show and delete."""

from __future__ import annotations

from collections.abc import Iterator

from semel.contracts.ledger.commands import OrgSettings
from semel.contracts.ledger.listing import orgs, vaults
from semel.contracts.ledger.model import Place, Status
from semel.contracts.ledger.orders import check_quota
from semel.contracts.ledger.reading import org, vault
from semel.contracts.ledger.wire.requests import creation_key
from semel.engine.reading import Reading
from semel.server.grpc.call import GrpcCall, GrpcMethod
from semel.server.grpc.messages import parser, same
from semel.server.ledger.desk import Desk
from semel.server.ledger.exchange import REPLAYED
from semel.server.ledger.grpc import outbound
from semel.server.ledger.grpc.inbound import READ_BYTES, asked_of, place_of, retained_blocks, slug_of
from semel.server.ledger.proto import ledger_pb2 as pb


class AdminService:
    """The data part of ledger.v1.AdminService; nodes and snapshots are managed elsewhere."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._node = desk.node

    def methods(self) -> Iterator[GrpcMethod]:
        """All of them."""
        for kind, run in (
            (pb.CreateOrganizationRequest, self._make_org),
            (pb.GetOrganizationRequest, self._org),
            (pb.ListOrganizationsRequest, self._orgs),
            (pb.DeleteOrganizationRequest, self._end_org),
            (pb.CreateVaultRequest, self._make_vault),
            (pb.GetVaultRequest, self._vault),
            (pb.ListVaultsRequest, self._vaults),
            (pb.DeleteVaultRequest, self._end_vault),
        ):
            name = kind.DESCRIPTOR.name.removesuffix("Request")
            yield GrpcMethod(b"/ledger.v1.AdminService/" + name.encode(), parser(kind, same), run, max_bytes=READ_BYTES)

    async def _make_org(self, call: GrpcCall, request: pb.CreateOrganizationRequest) -> bytes:
        asked = request.quota
        quota = check_quota(
            asked.max_storage_bytes, asked.max_vaults, asked.max_write_ops_per_sec, asked.max_read_ops_per_sec
        )
        made = await self._desk.make_org(asked_of(call), request.name, creation_key(call.fields), quota)
        _mark(call, is_replay=made.is_replay)
        slug = pb.OrganizationSlug(slug=made.place.org)
        return pb.CreateOrganizationResponse(slug=slug, shard_id=pb.ShardId(id=0)).SerializeToString()

    async def _org(self, call: GrpcCall, request: pb.GetOrganizationRequest) -> bytes:
        slug = slug_of(request)

        def look(reading: Reading) -> bytes:
            return outbound.org_pb(org(reading, slug)).SerializeToString()

        return await self._desk.look(asked_of(call), Place(slug), look)

    async def _orgs(self, call: GrpcCall, request: pb.ListOrganizationsRequest) -> bytes:
        asked = asked_of(call)

        def look(reading: Reading) -> bytes:
            page = orgs(reading, request.limit, request.page_token, lambda slug: self._desk.sees(asked, Place(slug)))
            told = pb.ListOrganizationsResponse(
                organizations=map(outbound.org_pb, page.items), next_page_token=page.token
            )
            return told.SerializeToString()

        return await self._desk.look(asked, None, look)

    async def _end_org(self, call: GrpcCall, request: pb.DeleteOrganizationRequest) -> bytes:
        await self._desk.change_org(asked_of(call), slug_of(request), OrgSettings(status=Status.DELETED))
        return pb.DeleteOrganizationResponse().SerializeToString()

    async def _make_vault(self, call: GrpcCall, request: pb.CreateVaultRequest) -> bytes:
        retain, key = retained_blocks(request), creation_key(call.fields)
        made = await self._desk.make_vault(asked_of(call), place_of(request).org, retain, key)
        _mark(call, is_replay=made.is_replay)
        told = pb.CreateVaultResponse(
            vault=pb.VaultSlug(slug=made.place.vault),
            genesis=None if made.header is None else outbound.header_pb(made.header),
        )
        return told.SerializeToString()

    async def _vault(self, call: GrpcCall, request: pb.GetVaultRequest) -> bytes:
        place = place_of(request)

        def look(reading: Reading) -> bytes:
            return outbound.vault_pb(vault(reading, place), self._node).SerializeToString()

        return await self._desk.look(asked_of(call), place, look)

    async def _vaults(self, call: GrpcCall, request: pb.ListVaultsRequest) -> bytes:
        place, asked = place_of(request), asked_of(call)

        def look(reading: Reading) -> bytes:
            page = vaults(
                reading, place.org, request.limit, request.page_token, lambda one: self._desk.sees(asked, one)
            )
            seen = [outbound.vault_pb(one, self._node) for one in page.items]
            return pb.ListVaultsResponse(vaults=seen, next_page_token=page.token).SerializeToString()

        return await self._desk.look(asked, place, look)

    async def _end_vault(self, call: GrpcCall, request: pb.DeleteVaultRequest) -> bytes:
        await self._desk.change_vault(asked_of(call), place_of(request), Status.DELETED)
        return pb.DeleteVaultResponse().SerializeToString()


def _mark(call: GrpcCall, *, is_replay: bool) -> None:
    if is_replay:
        call.head.append(REPLAYED)

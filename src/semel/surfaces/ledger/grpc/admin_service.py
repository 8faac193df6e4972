"""Organizations and vaults over gRPC, and the ledger's own health service.

Health needs no credential, as the health paths of HTTP do not. A health request that names an organization or a vault
needs one: whether it exists is not told to strangers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from semel.engine.reading import Reading
from semel.server.grpc.call import GrpcCall, GrpcMethod
from semel.server.grpc.messages import OPEN_BYTES, parser, same
from semel.server.ops.health import liveness, readiness
from semel.surfaces.ledger.commands import OrgSettings
from semel.surfaces.ledger.exchange import REPLAYED
from semel.surfaces.ledger.grpc import answers
from semel.surfaces.ledger.grpc.requests import READ_BYTES, caller_of_call, place_of, retained_blocks, slug_of
from semel.surfaces.ledger.model import LedgerPlace, LedgerStatus
from semel.surfaces.ledger.pagination import list_orgs, list_vaults
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from semel.surfaces.ledger.reading import org, tip, vault
from semel.surfaces.ledger.service import LedgerCaller, LedgerService
from semel.surfaces.ledger.validation import check_quota
from semel.surfaces.ledger.wire.bodies import creation_key


class AdminService:
    """The data part of ledger.v1.AdminService; nodes and snapshots are managed elsewhere."""

    def __init__(self, service: LedgerService) -> None:
        self._service = service
        self._node = service.node

    def methods(self) -> Iterator[GrpcMethod]:
        """The methods of the service."""
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
        made = await self._service.make_org(caller_of_call(call), request.name, creation_key(call.fields), quota)
        _mark(call, is_replay=made.is_replay)
        slug = pb.OrganizationSlug(slug=made.place.org)
        return pb.CreateOrganizationResponse(slug=slug, shard_id=pb.ShardId(id=0)).SerializeToString()

    async def _org(self, call: GrpcCall, request: pb.GetOrganizationRequest) -> bytes:
        slug = slug_of(request)

        def look(reading: Reading) -> bytes:
            return answers.org_pb(org(reading, slug)).SerializeToString()

        return await self._service.read(caller_of_call(call), LedgerPlace(slug), look)

    async def _orgs(self, call: GrpcCall, request: pb.ListOrganizationsRequest) -> bytes:
        asked = caller_of_call(call)

        def look(reading: Reading) -> bytes:
            page = list_orgs(
                reading, request.limit, request.page_token, lambda slug: self._service.sees(asked, LedgerPlace(slug))
            )
            told = pb.ListOrganizationsResponse(
                organizations=map(answers.org_pb, page.items), next_page_token=page.token
            )
            return told.SerializeToString()

        return await self._service.read(asked, None, look)

    async def _end_org(self, call: GrpcCall, request: pb.DeleteOrganizationRequest) -> bytes:
        await self._service.change_org(caller_of_call(call), slug_of(request), OrgSettings(status=LedgerStatus.DELETED))
        return pb.DeleteOrganizationResponse().SerializeToString()

    async def _make_vault(self, call: GrpcCall, request: pb.CreateVaultRequest) -> bytes:
        retain, key = retained_blocks(request), creation_key(call.fields)
        made = await self._service.make_vault(caller_of_call(call), place_of(request).org, retain, key)
        _mark(call, is_replay=made.is_replay)
        told = pb.CreateVaultResponse(
            vault=pb.VaultSlug(slug=made.place.vault),
            genesis=None if made.header is None else answers.header_pb(made.header),
        )
        return told.SerializeToString()

    async def _vault(self, call: GrpcCall, request: pb.GetVaultRequest) -> bytes:
        place = place_of(request)

        def look(reading: Reading) -> bytes:
            return answers.vault_pb(vault(reading, place), self._node).SerializeToString()

        return await self._service.read(caller_of_call(call), place, look)

    async def _vaults(self, call: GrpcCall, request: pb.ListVaultsRequest) -> bytes:
        place, asked = place_of(request), caller_of_call(call)

        def look(reading: Reading) -> bytes:
            page = list_vaults(
                reading, place.org, request.limit, request.page_token, lambda one: self._service.sees(asked, one)
            )
            seen = [answers.vault_pb(one, self._node) for one in page.items]
            return pb.ListVaultsResponse(vaults=seen, next_page_token=page.token).SerializeToString()

        return await self._service.read(asked, place, look)

    async def _end_vault(self, call: GrpcCall, request: pb.DeleteVaultRequest) -> bytes:
        await self._service.change_vault(caller_of_call(call), place_of(request), LedgerStatus.DELETED)
        return pb.DeleteVaultResponse().SerializeToString()


def _mark(call: GrpcCall, *, is_replay: bool) -> None:
    if is_replay:
        call.head.append(REPLAYED)


class LedgerHealthService:
    """ledger.v1.HealthService."""

    def __init__(self, service: LedgerService, judge: Callable[[GrpcCall], LedgerCaller]) -> None:
        self._service = service
        self._judge = judge

    def methods(self) -> Iterator[GrpcMethod]:
        """The methods of the service: only Check."""
        parse = parser(pb.HealthCheckRequest, same)
        yield GrpcMethod(b"/ledger.v1.HealthService/Check", parse, self._check, is_open=True, max_bytes=OPEN_BYTES)

    async def _check(self, call: GrpcCall, request: pb.HealthCheckRequest) -> bytes:
        context = self._service.context
        facts, ready = liveness(context), readiness(context)
        status = pb.HEALTH_STATUS_HEALTHY if ready == "ok" else pb.HEALTH_STATUS_UNAVAILABLE
        if ready == "ok" and "audit" in facts:
            status, ready = pb.HEALTH_STATUS_DEGRADED, "the audit log cannot be written"
        told = pb.HealthCheckResponse(status=status, message=ready, details={"version": facts["version"]})
        if request.HasField("organization"):
            place = place_of(request)
            height = (await self._service.read(self._judge(call), place, lambda reading: tip(reading, place))).height
            told.details["height"] = str(height)
        return told.SerializeToString()

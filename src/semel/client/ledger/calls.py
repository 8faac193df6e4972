"""`client.ledger`: organizations and vaults, and the handle of each place.

Promise: an organization or a vault that was created once per key is created once, however often the call was retried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

from semel.client.errors import CallError, InvalidArgumentError, KeyCollisionError, WriteConditionError
from semel.client.identity import LedgerWrite, NamedCall, Resolution
from semel.client.json_answer import Facts, facts_of, read
from semel.client.ledger import answers
from semel.client.ledger.answers import COMPACTED, ORG_STATUS, VAULT_STATUS, full_status
from semel.client.ledger.chain import PlaceChain
from semel.client.ledger.lists import PAGE_ITEMS, PagedItems
from semel.client.ledger.operations import MAX_U64, IfVersion, SetKey
from semel.client.ledger.place import AsyncPlace, Place
from semel.client.ledger.trusted_head import TrustedHead
from semel.client.ledger.values import ROOT, CreatedScope, ItemPage, OrganizationInfo, PlaceName, VaultInfo
from semel.client.ledger.write_call import fresh_key
from semel.client.retry import ClientCaller, json_request
from semel.client.sync_calls import BlockingCalls, blocking, blocking_iterator
from semel.client.transport.http_transport import ClientAnswer, ClientRequest
from semel.kernel.json.fragment import dump

T = TypeVar("T")


class Quota(TypedDict, total=False):
    """What a new organization may use; a missing member is no limit of its own."""

    max_storage_bytes: int
    max_vaults: int
    max_write_ops_per_sec: int


_QUOTA = {
    "max_storage_bytes": "maxStorageBytes",
    "max_vaults": "maxVaults",
    "max_write_ops_per_sec": "maxWriteOpsPerSec",
}


class AsyncLedger:
    """The ledger of one server, from asyncio code. `tenant` of the client is the default organization."""

    def __init__(self, caller: ClientCaller, tenant: str | None = None) -> None:
        self._caller = caller
        self._tenant = tenant

    def place(
        self,
        org: str | int | None = None,
        vault: str | int | None = None,
        *,
        head: TrustedHead | None = None,
        verify: bool = False,
    ) -> AsyncPlace:
        """The calls of an organization's own place, or of a vault in it.

        With a `head` everything that is read is verified and must extend it. With `verify` alone the head is kept in
        memory: the first block is trusted as it comes, and later ones must extend it.
        """
        return AsyncPlace(self._caller, self._place(org, vault), head or (TrustedHead() if verify else None))

    def _place(self, org: str | int | None, vault: str | int | None = None) -> PlaceName:
        if org is None and self._tenant is None:
            raise InvalidArgumentError("Name an organization, or give the client a tenant.")
        return PlaceName.of(self._tenant or "" if org is None else org, vault)

    async def create_organization(
        self, name: str, *, quota: Quota | None = None, key: str | None = None
    ) -> CreatedScope:
        """Create an organization once per key; the server assigns its number."""
        body: dict[str, Any] = {"name": name}
        if quota:
            body["quota"] = {_QUOTA[member]: str(value) for member, value in quota.items()}
        return await self._created(lambda facts: PlaceName.of(facts["slug"]["slug"]), ROOT, body, key)

    async def list_organizations(self, *, limit: int = PAGE_ITEMS, token: str = "") -> ItemPage[OrganizationInfo]:
        """A page of the organizations that the caller may read."""
        facts = await self._get(ROOT, {"limit": limit, "pageToken": token or None})
        return read(lambda: answers.page(facts, "organizations", answers.organization))

    def organizations(self) -> PagedItems[OrganizationInfo]:
        """All organizations that the caller may read."""
        return PagedItems(lambda token: self.list_organizations(token=token))

    async def organization(self, org: str | int | None = None) -> OrganizationInfo:
        """An organization and its settings."""
        facts = await self._get(self._place(org).path)
        return read(lambda: answers.organization(facts))

    async def change_organization(
        self,
        org: str | int | None = None,
        *,
        ttl_seconds: int | None = None,
        eviction_interval: int | None = None,
        fence: bool | None = None,
        status: str | None = None,
    ) -> OrganizationInfo:
        """Change settings or the status; `suspended` stops writes and `active` allows them again."""
        wanted = {
            "ttlSeconds": None if ttl_seconds is None else str(ttl_seconds),
            "evictionInterval": None if eviction_interval is None else str(eviction_interval),
            "fence": fence,
            "status": None if status is None else full_status(status, ORG_STATUS),
        }
        return await self._change(answers.organization, self._place(org).path, wanted)

    async def delete_organization(self, org: str | int) -> None:
        """Delete an organization: its data can no longer be read or written."""
        await self._delete(self._place(org).path)

    async def create_vault(
        self, org: str | int | None = None, *, retained_blocks: int | None = None, key: str | None = None
    ) -> CreatedScope:
        """Create a vault once per key; with `retained_blocks`, older blocks keep only their headers."""
        policy = {"mode": COMPACTED, "retentionBlocks": str(retained_blocks)}
        place = self._place(org)
        body = {} if retained_blocks is None else {"retentionPolicy": policy}
        return await self._created(
            lambda facts: PlaceName.of(place.org, facts["vault"]["slug"]), f"{place.path}/vaults", body, key
        )

    async def list_vaults(
        self, org: str | int | None = None, *, limit: int = PAGE_ITEMS, token: str = ""
    ) -> ItemPage[VaultInfo]:
        """A page of the vaults of an organization."""
        facts = await self._get(f"{self._place(org).path}/vaults", {"limit": limit, "pageToken": token or None})
        return read(lambda: answers.page(facts, "vaults", answers.vault))

    def vaults(self, org: str | int | None = None) -> PagedItems[VaultInfo]:
        """All vaults of an organization."""
        return PagedItems(lambda token: self.list_vaults(org, token=token))

    async def vault(self, org: str | int | None, vault: str | int) -> VaultInfo:
        """A vault."""
        facts = await self._get(self._place(org, vault).path)
        return read(lambda: answers.vault(facts))

    async def change_vault(self, org: str | int | None, vault: str | int, *, status: str) -> VaultInfo:
        """Freeze a vault (`read-only`), or allow writes again (`active`)."""
        wanted = {"status": full_status(status, VAULT_STATUS)}
        return await self._change(answers.vault, self._place(org, vault).path, wanted)

    async def delete_vault(self, org: str | int | None, vault: str | int) -> None:
        """Delete a vault: its data can no longer be read or written."""
        await self._delete(self._place(org, vault).path)

    async def resolve(self, identity: LedgerWrite) -> Resolution:
        """Whether a transaction is committed, without sending it again.

        By sequence, the state of the client tells. By key, a write of that key is sent which cannot be executed,
        because its condition never holds: the server says whether the key was used before.
        """
        place = AsyncPlace(self._caller, PlaceName.of(identity.org, identity.vault), None)
        if identity.key is None:
            state = await place.state(identity.client)
            is_committed = identity.sequence is not None and state.last_sequence >= identity.sequence
            return Resolution(identity, is_committed, {"last_sequence": state.last_sequence})
        never = SetKey("semel:resolve", b"", IfVersion(MAX_U64))
        try:
            await place.write([never], client=identity.client, key=identity.key)
        except KeyCollisionError as used:
            facts = used.facts
            return read(lambda: Resolution(identity, True, _commit_of(facts)))
        except WriteConditionError:
            return Resolution(identity, False, {})
        return Resolution(identity, True, {})

    async def _get(self, path: str, query: dict[str, Any] | None = None) -> Facts:
        return await PlaceChain(self._caller, PlaceName("0")).get(path, query)

    async def _created(
        self, place: Callable[[Facts], PlaceName], path: str, body: Facts, key: str | None
    ) -> CreatedScope:
        used = fresh_key() if key is None else key
        request = json_request("POST", path, dump(body), headers={"Idempotency-Key": used})

        def created(answer: ClientAnswer) -> CreatedScope:
            facts, is_replayed = facts_of(answer.body), answer.is_true("idempotency-replayed")
            return read(lambda: CreatedScope(place(facts), is_replayed, used, facts))

        try:
            return await self._caller.answer_as(created, request, NamedCall("POST", path))
        except CallError as error:
            error.key = used  # the same call with it creates no second one
            raise

    async def _change(self, make: Callable[[Facts], T], path: str, wanted: dict[str, Any]) -> T:
        """A change that may be repeated: it sets."""
        given = {name: value for name, value in wanted.items() if value is not None}
        if not given:
            raise InvalidArgumentError("Give something to change.")
        return await self._caller.facts_as(make, json_request("PATCH", path, dump(given)), NamedCall("PATCH", path))

    async def _delete(self, path: str) -> None:
        await self._caller.facts(ClientRequest("DELETE", path), NamedCall("DELETE", path))


def _commit_of(facts: Facts) -> dict[str, Any]:
    error = facts["error"]
    return {"tx_id": answers.hex_in(error["committedTxId"]["id"]), "sequence": int(error["assignedSequence"])}


class Ledger(BlockingCalls[AsyncLedger]):
    """The ledger of one server, from synchronous code. `tenant` of the client is the default organization."""

    create_organization = blocking(AsyncLedger.create_organization)
    list_organizations = blocking(AsyncLedger.list_organizations)
    organizations = blocking_iterator(AsyncLedger.organizations)
    organization = blocking(AsyncLedger.organization)
    change_organization = blocking(AsyncLedger.change_organization)
    delete_organization = blocking(AsyncLedger.delete_organization)
    create_vault = blocking(AsyncLedger.create_vault)
    list_vaults = blocking(AsyncLedger.list_vaults)
    vaults = blocking_iterator(AsyncLedger.vaults)
    vault = blocking(AsyncLedger.vault)
    change_vault = blocking(AsyncLedger.change_vault)
    delete_vault = blocking(AsyncLedger.delete_vault)
    resolve = blocking(AsyncLedger.resolve)

    def place(
        self,
        org: str | int | None = None,
        vault: str | int | None = None,
        *,
        head: TrustedHead | None = None,
        verify: bool = False,
    ) -> Place:
        """The calls of an organization's own place, or of a vault in it.

        With a `head` everything that is read is verified and must extend it. With `verify` alone the head is kept in
        memory: the first block is trusted as it comes, and later ones must extend it.
        """
        return Place(self._calls.place(org, vault, head=head, verify=verify))

"""Reads of one place: keys, relationships, lists, the state of a client, blocks and transactions, with their proofs.

With a trusted head every answer is verified before it is returned: values and their absence, relationships, blocks,
transactions. Lists have no proof, so a verifying place refuses them; the state of a client is the server's word.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from semel.client.errors import InvalidArgumentError, NotFoundError
from semel.client.json_answer import Facts, facts_of, read
from semel.client.ledger import answers
from semel.client.ledger.chain import MOST_BYTES, ChainVerifier, PlaceChain, no_progress
from semel.client.ledger.lists import PAGE_ITEMS, BlockRange, PagedItems, verify_blocks
from semel.client.ledger.trusted_head import TrustedHead
from semel.client.ledger.values import (
    BlockTransaction,
    ChainBlock,
    EntityValue,
    ItemPage,
    PlaceName,
    PlaceTip,
    RelationshipName,
    SequenceState,
)
from semel.client.proofs import ProofError, ProvedRead, verify_read, verify_relationship, verify_write
from semel.client.retry import ClientCaller, json_request
from semel.client.transport.http_transport import ClientAnswer, ClientRequest
from semel.kernel.json.fragment import dump

CLOCK_SECONDS = 60
"""How far the server's clock may be ahead when it withholds a value as expired."""
MOST_KEYS = 1_000


class AsyncPlaceReads:
    """The reads of one organization or vault."""

    def __init__(self, caller: ClientCaller, place: PlaceName, head: TrustedHead | None) -> None:
        self._caller = caller
        self._chain = PlaceChain(caller, place)
        self._verifier = None if head is None else ChainVerifier(self._chain, head)
        self.name = place
        self.head = head
        """The trusted head; None if answers are not verified."""

    async def read(self, key: str, *, at_height: int | None = None) -> EntityValue | None:
        """The value of a key, now or after a block; None if it has none."""
        if self._verifier is not None:
            return await self._read_proved(key, at_height)
        try:
            facts = await self._chain.get(self.name.named("entities", key), {"atHeight": at_height})
        except NotFoundError as error:
            if error.facts.get("error_code") != "NOT_FOUND":
                raise  # its place does not exist
            return None
        return read(lambda: answers.entity(facts, key, int(facts["blockHeight"])))

    async def _read_proved(self, key: str, at_height: int | None) -> EntityValue | None:
        assert self._verifier is not None
        facts = await self.proof_of_key(key, at_height=at_height)
        proved = await self._verifier.proved(
            facts.get("blockHeader"), lambda trusted: _shown(verify_read(facts, key, trusted))
        )
        entry, height = proved.entry, proved.header.height
        if entry is None or "value" not in facts:
            return None
        return EntityValue(key, entry.value, entry.version, entry.expires_at, height, facts)

    async def read_many(self, keys: Iterable[str]) -> dict[str, EntityValue]:
        """The values of up to 1,000 keys at one height; those without a value are left out. With proofs, one by one."""
        wanted = list(keys)
        if len(wanted) > MOST_KEYS:
            raise InvalidArgumentError(f"At most {MOST_KEYS} keys can be read in one call.")
        if self._verifier is not None:
            found = [await self.read(key) for key in wanted]
            return {one.key: one for one in found if one is not None}
        if not wanted:
            return {}
        path = f"{self.name.path}/entities:batchRead"
        facts = await self._asked(json_request("POST", path, dump({"keys": wanted}), most_bytes=MOST_BYTES))
        return read(
            lambda: {
                str(one["key"]): answers.listed_entity(one, int(facts["blockHeight"]))
                for one in facts["results"]
                if one["found"]
            }
        )

    async def _asked(self, request: ClientRequest) -> Facts:
        """The JSON of a read that is a POST, which may be repeated."""

        async def once(answer_seconds: float) -> ClientAnswer:
            return self._caller.checked(await self._caller.transport.request(request, answer_seconds))

        answer = await self._caller.insist(once, lambda error: None)
        return read(lambda: facts_of(answer.body))

    async def list_entities(
        self,
        prefix: str = "",
        *,
        at_height: int | None = None,
        include_expired: bool = False,
        limit: int = PAGE_ITEMS,
        token: str = "",
    ) -> ItemPage[EntityValue]:
        """A page of the keys that begin with `prefix`, in order."""
        query = {"prefix": prefix or None, "atHeight": at_height, "includeExpired": "true" if include_expired else None}
        facts = await self._listed("entities", query, limit, token)
        return read(lambda: answers.page(facts, "entities", answers.listed_entity))

    def entities(
        self, prefix: str = "", *, at_height: int | None = None, include_expired: bool = False
    ) -> PagedItems[EntityValue]:
        """All keys that begin with `prefix`, in order, at one height."""
        return PagedItems(
            lambda token: self.list_entities(prefix, at_height=at_height, include_expired=include_expired, token=token)
        )

    async def list_relationships(
        self,
        resource: str | None = None,
        relation: str | None = None,
        subject: str | None = None,
        *,
        at_height: int | None = None,
        limit: int = PAGE_ITEMS,
        token: str = "",
    ) -> ItemPage[RelationshipName]:
        """A page of the relationships of a vault with these names."""
        query = {"resource": resource, "relation": relation, "subject": subject, "atHeight": at_height}
        facts = await self._listed("relationships", query, limit, token)
        return read(lambda: answers.page(facts, "relationships", answers.relationship))

    def relationships(
        self,
        resource: str | None = None,
        relation: str | None = None,
        subject: str | None = None,
        *,
        at_height: int | None = None,
    ) -> PagedItems[RelationshipName]:
        """All relationships of a vault with these names, at one height."""
        return PagedItems(
            lambda token: self.list_relationships(resource, relation, subject, at_height=at_height, token=token)
        )

    async def list_resources(
        self, type_name: str | None = None, *, limit: int = PAGE_ITEMS, token: str = ""
    ) -> ItemPage[str]:
        """A page of the resources of a vault that have relationships; `type_name` is what is before the colon."""
        facts = await self._listed("resources", {"type": type_name}, limit, token)
        return read(lambda: answers.page(facts, "resources", lambda one, height: str(one)))

    async def _listed(self, collection: str, query: Mapping[str, object], limit: int, token: str) -> Facts:
        if self._verifier is not None:
            raise InvalidArgumentError(
                "A list has no proof: list with a place that does not verify, then read each key."
            )
        return await self._chain.get(
            f"{self.name.path}/{collection}", {**query, "limit": limit, "pageToken": token or None}
        )

    async def has_relationship(
        self, resource: str, relation: str, subject: str, *, at_height: int | None = None
    ) -> bool:
        """Whether a relationship exists, now or after a block; in a vault only."""
        if self._verifier is None:
            page = await self.list_relationships(resource, relation, subject, at_height=at_height, limit=1)
            return bool(page.items)
        facts = await self.proof_of_relationship(resource, relation, subject, at_height=at_height)
        wanted = (resource, relation, subject)
        proved = await self._verifier.proved(
            facts.get("blockHeader"), lambda trusted: verify_relationship(facts, wanted, trusted)
        )
        return proved.entry is not None

    async def state(self, client: str) -> SequenceState:
        """The last committed sequence of a client. It includes every write that was answered before."""
        facts = await self._chain.get(self.name.named("clients", client, "state"))
        return read(lambda: answers.sequence_state(facts))

    async def tip(self) -> PlaceTip:
        """The end of the chain."""
        facts = await self._chain.get(f"{self.name.path}/tip")
        tip = read(lambda: answers.tip(facts))
        if self._verifier is not None:
            self._verifier.refuse_below(tip.height)
            if tip.height and (await self.block(tip.height)).block_hash != tip.block_hash:
                raise ProofError("The hash of the tip is not that of its block.")
        return tip

    async def block(self, height: int) -> ChainBlock:
        """A block. One that does not exist raises `NotFoundError`."""
        facts = await self._chain.get(self.name.named("blocks", str(height)))
        block = read(lambda: answers.block(facts["block"]))
        if block.height != height:
            raise ProofError(f"The server sent block {block.height} instead of {height}.")
        if self._verifier is not None:
            await verify_blocks(self._verifier, [block])
        return block

    def blocks(self, start: int = 1, stop: int | None = None) -> BlockRange:
        """The blocks from one height to another, inclusive, or to the tip."""
        return BlockRange(self._chain, self._verifier, _height(start), stop)

    async def transaction(self, tx_id: str) -> BlockTransaction:
        """A transaction by its id in hexadecimal, as a UUID or in base64; `facts` has its block's header and proof."""
        facts = await self.proof_of_transaction(tx_id)
        if self._verifier is not None:
            await self._verifier.proved(facts.get("blockHeader"), lambda trusted: verify_write(facts, None, trusted))
        return read(lambda: answers.transaction(facts["transaction"], int(facts["blockHeader"]["height"]), facts))

    async def proof_of_key(
        self, key: str, *, at_height: int | None = None, trusted_height: int | None = None
    ) -> dict[str, Any]:
        """The document that proves the value of a key, or its absence, unverified: for `semel.client.proofs`."""
        query = {"atHeight": at_height, "proof": "true"}
        try:
            facts = await self._chain.get(self.name.named("entities", key), query)
        except NotFoundError as error:
            if "stateProof" not in error.facts:
                raise
            facts = error.facts  # absence is an answer, too: status 404, with the proof as its body
        return await self._with_chain(facts, trusted_height)

    async def proof_of_relationship(
        self,
        resource: str,
        relation: str,
        subject: str,
        *,
        at_height: int | None = None,
        trusted_height: int | None = None,
    ) -> dict[str, Any]:
        """The document that proves that a relationship exists, or that it does not, unverified."""
        query = {"resource": resource, "relation": relation, "subject": subject, "proof": "true", "atHeight": at_height}
        facts = await self._chain.get(f"{self.name.path}/relationships", query)
        return await self._with_chain(facts, trusted_height)

    async def proof_of_transaction(self, tx_id: str, *, trusted_height: int | None = None) -> dict[str, Any]:
        """The document that proves a transaction, unverified."""
        name = tx_id.replace("+", "-").replace("/", "_")
        return await self._with_chain(await self._chain.get(self.name.named("transactions", name)), trusted_height)

    async def headers(
        self, lower: int, upper: int, advance: Callable[[int], None] = no_progress
    ) -> list[Mapping[str, Any]]:
        """The headers above one height, up to another, unverified; `advance` is called with the size of each piece."""
        return await self._chain.headers(lower, upper, advance)

    async def _with_chain(self, facts: Facts, trusted_height: int | None) -> dict[str, Any]:
        """The document, with the headers that lead to a trusted block."""
        document = dict(facts)
        if trusted_height is None:
            return document
        own = read(lambda: int(document["blockHeader"]["height"]))
        lower, upper = sorted((_height(trusted_height), own))
        if lower != upper:
            document["chainProof"] = {"headers": await self._chain.headers(lower, upper)}
        return document


def _height(height: int) -> int:
    if height < 1:
        raise InvalidArgumentError("The first block has height 1.")
    return height


def _shown(proved: ProvedRead) -> ProvedRead:
    """Refuse an answer that withholds a value before its expiry."""
    if proved.is_withheld and proved.entry is not None and proved.entry.expires_at > time.time() + CLOCK_SECONDS:
        raise ProofError("The answer leaves out a value that has not expired.")
    return proved

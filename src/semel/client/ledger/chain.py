"""The chain of a place: headers between two blocks, and the check that a block belongs to the trusted chain.

Above the trusted head a block must be built on it; below it, the head's hash must cover the block. The headers between
the two are fetched in pieces, so memory is bounded whatever the distance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from semel.client.errors import ConflictError, NotFoundError
from semel.client.json_answer import Facts, read
from semel.client.ledger.trusted_head import ChainForkError, TrustedHead
from semel.client.ledger.values import PlaceName
from semel.client.proofs import BEFORE_BLOCKS, ProofError, Trusted, block_hash, verify_chain
from semel.client.retry import ClientCaller
from semel.client.transport.http_transport import ClientRequest
from semel.client.transport.network import Network

T = TypeVar("T")
PIECE_HEADERS = 1_000
MOST_BLOCKS = 1_000
MOST_BYTES = 1 << 30
"""Limit of an answer with blocks: a block has up to the server's limit of a request."""


def no_progress(count: int) -> None:
    """Progress is not reported."""


class PlaceChain:
    """Headers of one place."""

    def __init__(self, caller: ClientCaller, place: PlaceName) -> None:
        self._caller = caller
        self.place = place

    @property
    def network(self) -> Network:
        """The network of the calls."""
        return self._caller.transport.network

    async def get(self, path: str, query: Mapping[str, object] | None = None) -> Facts:
        """The JSON of a GET; members of the query that are None are left out."""
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        full = f"{path}?{urlencode(asked)}" if asked else path
        return await self._caller.facts(ClientRequest("GET", full, most_bytes=MOST_BYTES))

    async def headers(
        self, lower: int, upper: int, advance: Callable[[int], None] = no_progress
    ) -> list[Mapping[str, Any]]:
        """The headers above one height, up to another, in order."""
        found: list[Mapping[str, Any]] = []
        while lower < upper:
            piece = await self._piece(lower, min(upper, lower + PIECE_HEADERS))
            found += piece
            lower += len(piece)
            advance(len(piece))
        return found

    async def _piece(self, lower: int, upper: int) -> list[Mapping[str, Any]]:
        path = self.place.named("blocks", str(upper), "proof")
        try:
            facts = await self.get(path, {"trustedHeight": lower})
        except ConflictError:
            # The body of the upper block was pruned, and so were those below it: whole blocks are headers only.
            facts = await self.get(f"{self.place.path}/blocks", {"from": lower + 1, "to": upper})
            return read(lambda: _headers([one["header"] for one in facts["blocks"]], upper - lower, is_partial=True))
        return read(lambda: _headers(facts["chainProof"]["headers"], upper - lower))


def _headers(found: Sequence[Any], most: int, *, is_partial: bool = False) -> list[Mapping[str, Any]]:
    if not all(isinstance(one, Mapping) for one in found):
        raise TypeError("a header is not an object")
    if not 0 < len(found) <= most or (len(found) < most and not is_partial):
        raise ValueError("headers are missing")
    return list(found)


class ChainVerifier:
    """Checks blocks of one place against its trusted head, and moves the head up."""

    def __init__(self, chain: PlaceChain, head: TrustedHead) -> None:
        self._chain = chain
        self._head = head
        self._place = chain.place

    async def proved(self, header: Any, check: Callable[[Trusted], T]) -> T:
        """The result of a check against a block of the trusted chain; the head moves up to it if it is higher.

        Raises `ChainForkError` if the header is not of that chain, and what `check` raises; then the head is unchanged.
        An answer of a place without blocks is checked against the empty state, and leaves the head as it is.
        """
        if isinstance(header, Mapping) and header.get("height") == "0":
            self.refuse_below(0)
            return check(Trusted(*BEFORE_BLOCKS[:2], *self._place.numbers))
        return await self.proved_run([header], lambda trusted: check(trusted[0]))

    async def proved_run(self, headers: Sequence[Any], check: Callable[[list[Trusted]], T]) -> T:
        """The same for consecutive headers."""
        while True:
            base = self._head.of(self._place)
            try:
                trusted = [Trusted(int(one["height"]), block_hash(one), *self._place.numbers) for one in headers]
                scopes = {(int(one["organization"]["slug"]), int(one["vault"]["slug"])) for one in headers}
            except (KeyError, TypeError, ValueError):
                raise ProofError("The answer has no header of a block.") from None
            if scopes != {self._place.numbers}:
                raise ProofError(f"The answer has a block of another place than {self._place}.")
            if base is not None:
                await self._link(base, trusted[-1], headers)
            self._match_run(trusted, headers)
            result = check(trusted)
            if base is not None and trusted[-1].height <= base.height:
                return result
            if await self._has_advanced(base, trusted[-1]):
                return result

    async def _has_advanced(self, base: Trusted | None, verified: Trusted) -> bool:
        """Move the head, in a thread if it waits for a disk; False if another call has moved it before."""
        if not self._head.has_file:
            return self._head.advance(self._place, base, verified)
        return await self._chain.network.apart(lambda: self._head.advance(self._place, base, verified))

    def _match_run(self, trusted: Sequence[Trusted], headers: Sequence[Any]) -> None:
        """The last header covers the others."""
        last = trusted[-1]
        verify_chain(last.hash, last.height, headers[1:], headers[0])

    def refuse_below(self, height: int) -> None:
        """Refuse a chain that ends below the trusted head."""
        base = self._head.of(self._place)
        if base is not None and height < base.height:
            raise self._fork(base, f"it ends at height {height}")

    async def _link(self, base: Trusted, last: Trusted, headers: Sequence[Any]) -> None:
        try:
            if last.height == base.height:
                if last.hash != base.hash:
                    raise ProofError(f"block {last.height} has the hash {last.hash.hex()}.")
            elif last.height > base.height:
                await self._upwards(base, last.height, headers)
            else:
                await self._downwards(base, last.height, headers[-1])
        except ProofError as error:
            raise self._fork(base, str(error)) from None
        except NotFoundError:
            raise self._fork(base, "a block between them does not exist") from None

    async def _upwards(self, base: Trusted, height: int, headers: Sequence[Any]) -> None:
        known = [one for one in headers if int(one["height"]) > base.height]
        first = int(known[0]["height"]) - 1
        while base.height < first:
            piece = await self._chain.headers(base.height, min(first, base.height + PIECE_HEADERS))
            verify_chain(base.hash, base.height, piece, piece[-1])
            base = Trusted(base.height + len(piece), block_hash(piece[-1]))
        verify_chain(base.hash, base.height, known, known[-1])

    async def _downwards(self, base: Trusted, height: int, header: Any) -> None:
        while base.height - height > PIECE_HEADERS:
            piece = await self._chain.headers(base.height - PIECE_HEADERS, base.height)
            verify_chain(base.hash, base.height, piece[1:], piece[0])
            base = Trusted(base.height - PIECE_HEADERS + 1, block_hash(piece[0]))
        links = await self._chain.headers(height, base.height)
        verify_chain(base.hash, base.height, links, header)

    def _fork(self, base: Trusted, why: str) -> ChainForkError:
        name = f"the trusted block {base.height}:{base.hash.hex()}"
        return ChainForkError(f"The server's chain of {self._place} does not extend {name}: {why.rstrip('.')}.")

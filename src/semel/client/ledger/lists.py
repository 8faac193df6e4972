"""Iterators over lists and over blocks: page by page, each item once and in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, Self, TypeVar

from semel.client.errors import BadAnswerError
from semel.client.json_answer import Facts, read
from semel.client.ledger import answers
from semel.client.ledger.chain import MOST_BLOCKS, ChainVerifier, PlaceChain
from semel.client.ledger.values import ChainBlock, ItemPage
from semel.client.proofs import ProofError, Trusted, verify_whole_block

T = TypeVar("T")
PAGE_ITEMS = 1_000
"""Most items that the server lists in one answer."""


class PagedItems(Generic[T]):
    """Iterator over all items of a list."""

    def __init__(self, fetch: Callable[[str], Awaitable[ItemPage[T]]]) -> None:
        self._fetch = fetch
        self._items: deque[T] = deque()
        self._token: str | None = ""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._token is None:
                raise StopAsyncIteration
            page = await self._fetch(self._token)
            if page.next_token and page.next_token == self._token:
                raise BadAnswerError("The server's list does not end: it names the same page again.")
            self._items.extend(page.items)
            self._token = page.next_token or None
        return self._items.popleft()

    async def aclose(self) -> None:
        """End it. No connection is held between pages."""
        self._items.clear()
        self._token = None


class BlockRange:
    """Iterator over the blocks from one height to another, or to the tip; `height` is the next one."""

    def __init__(self, chain: PlaceChain, verifier: ChainVerifier | None, start: int, stop: int | None) -> None:
        self._chain = chain
        self._verifier = verifier
        self._stop = stop
        self._blocks: deque[ChainBlock] = deque()
        self._has_ended = False
        self.height = start

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChainBlock:
        if not self._blocks and not self._has_ended:
            self._blocks.extend(await self.page())
            self._has_ended = not self._blocks
        if not self._blocks:
            raise StopAsyncIteration
        return self._blocks.popleft()

    async def aclose(self) -> None:
        """End it. No connection is held between pages."""
        self._blocks.clear()
        self._has_ended = True

    async def page(self) -> list[ChainBlock]:
        """The next blocks that are there, verified if wanted."""
        most = self.height + MOST_BLOCKS - 1
        upto = most if self._stop is None else min(most, self._stop)
        if upto < self.height:
            return []
        facts = await self._chain.get(f"{self._chain.place.path}/blocks", {"from": self.height, "to": upto})
        blocks = read(lambda: [answers.block(one) for one in facts.get("blocks", [])])
        if [one.height for one in blocks] != list(range(self.height, self.height + len(blocks))):
            raise BadAnswerError(f"The server's blocks do not continue at height {self.height}.")
        if blocks and self._verifier is not None:
            await verify_blocks(self._verifier, blocks)
        self.height += len(blocks)
        return blocks


async def verify_blocks(verifier: ChainVerifier, blocks: list[ChainBlock]) -> None:
    """Check consecutive blocks with their transactions; of a pruned one, the header. Raises `ProofError`."""

    def check(trusted: list[Trusted]) -> None:
        for block, own in zip(blocks, trusted, strict=True):
            if block.transactions is not None:
                verify_whole_block({"block": _plain(block.facts)}, own)

    await verifier.proved_run([block.facts["header"] for block in blocks], check)


def _plain(facts: Facts) -> dict[str, object]:
    if not isinstance(facts.get("transactions"), list):
        raise ProofError("The block has no list of transactions.")
    return dict(facts)

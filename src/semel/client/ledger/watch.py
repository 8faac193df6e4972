"""Follow the chain of a place: every block once and in order, first those that are there, then new ones.

The server announces blocks as server-sent events. After a lost connection the iterator continues behind the last block
that it returned. After a crash of the program, begin at the height behind the last one that was handled.
"""

from __future__ import annotations

from collections import deque
from contextlib import AsyncExitStack
from typing import Self

from semel.client.errors import BadAnswerError, CallError
from semel.client.json_answer import facts_of, read
from semel.client.ledger import answers
from semel.client.ledger.chain import MOST_BYTES, ChainVerifier, PlaceChain
from semel.client.ledger.lists import BlockRange
from semel.client.ledger.values import BlockNotice, ChainBlock, PlaceName
from semel.client.retry import ClientCaller
from semel.client.transport.http_transport import ClientRequest
from semel.client.transport.server_sent_events import EVENT_STREAM, EventReader

NOTICE_BYTES = 65_536


class BlockNotices:
    """Iterator over the announcements of blocks from a height on; it does not end. `height` is the next one."""

    def __init__(self, caller: ClientCaller, place: PlaceName, height: int) -> None:
        self._caller = caller.endless()
        self._place = place
        self._open = AsyncExitStack()
        self._reader: EventReader | None = None
        self._has_ended = False
        self.height = height

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BlockNotice:
        if self._has_ended:
            raise StopAsyncIteration
        try:
            notice = await self._caller.insist(self._next, lambda error: None)
        except BaseException:
            await self._hang_up()
            raise
        self.height = notice.height + 1
        return notice

    def skip_to(self, height: int) -> None:
        """Continue at a higher block, if no connection is open that announces earlier ones."""
        if self._reader is None:
            self.height = height

    async def aclose(self) -> None:
        """End it, and close its connection."""
        self._has_ended = True
        await self._hang_up()

    async def _next(self, answer_seconds: float) -> BlockNotice:
        transport = self._caller.transport
        try:
            reader = self._reader or await self._connect(answer_seconds)
            event = await reader.next()
        except OSError as error:
            await self._hang_up()
            raise transport.no_answer(error, is_unsettled=False) from None
        except CallError:
            await self._hang_up()
            raise
        if event is None:  # the server stops, or this reader was too slow
            await self._hang_up()
            raise transport.no_answer(ConnectionResetError(), is_unsettled=False)
        notice = read(lambda: answers.notice(facts_of(event.data)))
        if notice.height != self.height:
            raise BadAnswerError(f"The server announced block {notice.height} instead of {self.height}.")
        return notice

    async def _connect(self, answer_seconds: float) -> EventReader:
        headers = {"Accept": EVENT_STREAM}
        request = ClientRequest("GET", f"{self._place.path}/blocks:watch?from={self.height}", None, headers)
        answer = await self._open.enter_async_context(self._caller.transport.open(request, answer_seconds))
        if answer.status != 200:
            self._caller.checked(await self._caller.transport.whole(answer, MOST_BYTES))
            raise self._caller.transport.not_semel()
        self._reader = EventReader(answer, NOTICE_BYTES)
        return self._reader

    async def _hang_up(self) -> None:
        self._reader = None
        opened, self._open = self._open, AsyncExitStack()
        await opened.aclose()


class BlockFollower:
    """Iterator over whole blocks from a height on, verified if wanted; it does not end. `height` is the next one."""

    def __init__(self, caller: ClientCaller, chain: PlaceChain, verifier: ChainVerifier | None, height: int) -> None:
        self._blocks: deque[ChainBlock] = deque()
        patient = PlaceChain(caller.endless(), chain.place)
        self._range = BlockRange(patient, verifier, height, None)
        self._notices = BlockNotices(caller, chain.place, height)
        self._has_ended = False

    @property
    def height(self) -> int:
        """The height of the next block."""
        return self._blocks[0].height if self._blocks else self._range.height

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChainBlock:
        while not self._blocks and not self._has_ended:
            self._blocks.extend(await self._range.page())
            if not self._blocks:
                await self._announced()
        if self._has_ended:
            raise StopAsyncIteration
        return self._blocks.popleft()

    async def aclose(self) -> None:
        """End it, and close its connection."""
        self._has_ended = True
        self._blocks.clear()
        await self._notices.aclose()

    async def _announced(self) -> None:
        """Wait until the next block is there."""
        self._notices.skip_to(self._range.height)
        while (await self._notices.__anext__()).height < self._range.height:
            pass  # blocks that a page had already

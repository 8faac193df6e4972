"""The dispatcher of one node: carries marks to subscriptions, starts wakes that are due, and frees what has ended.

It decides nothing: it reads what there is to do and submits writes, which the rules decide under their locks. All of
its work is found again by a scan, so a crash at any point costs time only. With several nodes each has one; the leader
reacts at once, the others after a short pause, so that they rarely do the same work. The row of a subscription names
the node that is making an attempt, and no other node makes one before the time of that attempt is up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from semel.engine.contract import EngineError, Write
from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.kernel.clock import World
from semel.kernel.keys import pack
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.subscriptions.commands import (
    LINKS_AT_ONCE,
    WAKE_STREAMS,
    LinksAdopt,
    LinksFree,
    MarkSettle,
    PendingMark,
    StreamLinksFree,
    SubscriptionCommand,
    WakeStart,
    WakeStarted,
)
from semel.surfaces.streams.subscriptions.contract import SubscriptionContract
from semel.surfaces.streams.subscriptions.delivery import WebhookDelivery
from semel.surfaces.streams.subscriptions.reading import (
    PAGE,
    MarkedStream,
    backlog,
    grave_scopes,
    marked,
    marks,
    new_links,
    orphans,
)
from semel.surfaces.streams.subscriptions.tables import TOPIC, WEBHOOK, LinkRow, MovedRow, SubscriptionRow

T = TypeVar("T")

_log = logging.getLogger("semel.streams")

POLL_SECONDS = 1.0
"""Longest pause on a shared store: a notification of another node may be lost."""
REST_SECONDS = 60.0
"""Longest pause on a store of one process, which hears of all its commits."""
FOLLOWER_SECONDS = 0.2
"""Pause of a node that is not the leader before it looks for work."""
LEAD_MS = 2_000
FAILURE_SECONDS = 1.0
LINKS_PAGE = 128
MAX_PAGES = 256
FREED_AT_ONCE = 500
WRITES_AT_ONCE = 64
AGAIN_SECONDS = 0.01
GATHER_SECONDS = 0.005


class SubscriptionDispatcher:
    """The background task of subscriptions."""

    def __init__(
        self,
        engine: Engine,
        contract: SubscriptionContract,
        world: World,
        delivery: WebhookDelivery,
        metrics: StreamsMetrics,
    ) -> None:
        self._engine = engine
        self._contract = contract
        self._world = world
        self._delivery = delivery
        self._metrics = metrics
        self._one_at_a_time = asyncio.Lock()
        self._orphans: list[SubscriptionRow] = []
        """Attempts of an earlier process that are repeated at once."""
        self._costs: Mapping[bytes, int] = {}
        """The costs of the wakes that are due, by the lives of their subscriptions."""
        self._led_at: int | None = None
        self._leads = False

    async def run(self) -> None:
        """Run until cancelled."""
        watch = self._engine.signals.watch(TOPIC, is_own=True)
        self._delivery.on_free = watch.wake
        is_new = not self._engine.is_shared
        try:
            while True:
                watch.arm()
                try:
                    if is_new:
                        await self._find_orphans()
                        is_new = False
                    pause = await self._pass()
                except EngineError as error:
                    _log.warning("subscriptions wait for the store", extra={"reason": str(error)})
                    pause = FAILURE_SECONDS
                except Exception:  # noqa: BLE001 - the next pass tries again
                    _log.exception("a pass over subscriptions failed")
                    pause = FAILURE_SECONDS
                await watch.wait(pause)
                await self._rest()
        finally:
            self._delivery.stop()

    async def drain(self) -> None:
        """Carry every mark that was left before this call: then a claim finds what was appended before it."""
        async with self._one_at_a_time:
            await self._adopt_all()
            await self._settle_marks()

    async def _rest(self) -> None:
        """Let marks gather for a moment, so that a busy stream does not cost a pass for each append."""
        await asyncio.sleep(GATHER_SECONDS)
        if not self._engine.is_shared:
            return
        now_ms = self._world.monotonic_ms()
        if self._led_at is None or now_ms - self._led_at > LEAD_MS:
            self._led_at = now_ms
            try:
                self._leads = await self._engine.leads()
            except Exception:  # noqa: BLE001 - a store that is away has no leader
                self._leads = False
        if not self._leads:
            await asyncio.sleep(FOLLOWER_SECONDS)

    async def _pass(self) -> float:
        """Do what there is to do now; returns the seconds until there may be more."""
        await self.drain()
        found = await self._engine.read(backlog)
        for grave in found.graves:
            await self._free(grave.name, grave.life)
        self._costs = found.costs
        await self._all(self._start(row) for row in found.pulls)
        blocked = not await self._start_webhooks(found.webhooks)
        if found.graves or found.pulls or (found.webhooks and not blocked):
            return AGAIN_SECONDS  # there may be more, and what was started is due again at some time
        most = POLL_SECONDS if self._engine.is_shared or blocked else REST_SECONDS
        return most if found.next_ms is None else min(most, max(found.next_ms, 1) / 1_000)

    async def _start_webhooks(self, rows: Sequence[SubscriptionRow]) -> bool:
        """Start the webhooks for which there is a free place; false if some have none."""
        waiting = [*((row, True) for row in self._orphans), *((row, False) for row in rows)]
        fitting: list[tuple[SubscriptionRow, bool]] = []
        for one in waiting:
            if not self._delivery.reserve():
                break
            fitting.append(one)
        self._orphans = self._orphans[len(fitting) :]
        await self._all(self._start_webhook(row, takes_over=is_orphan) for row, is_orphan in fitting)
        return len(fitting) == len(waiting)

    async def _find_orphans(self) -> None:
        """Find the attempts in which an earlier process of this store died: no other node can be making them."""
        behind: bytes | None = None
        page: Sequence[SubscriptionRow] = ()
        while behind is None or len(page) == PAGE:
            page = await self._engine.read(partial(orphans, behind=behind, limit=PAGE))
            self._orphans += [row for row in page if row.owner]
            behind = page[-1].name if page else b""

    async def _start_webhook(self, row: SubscriptionRow, *, takes_over: bool = False) -> None:
        """Start a wake in a reserved place."""
        started = None
        try:
            started = await self._start(row, takes_over=takes_over)
        finally:
            if started is None:
                self._delivery.cancel()
        if started is not None:
            self._delivery.deliver(started)

    async def _start(self, row: SubscriptionRow, *, takes_over: bool = False) -> WakeStarted | None:
        wake_id = self._world.random_bytes(16).hex().encode()
        chance = int.from_bytes(self._world.random_bytes(4), "big")
        scope = None if row.wake_stream is None else pack(row.wake_stream)
        command = WakeStart(row.name, row.life, self._delivery.node, wake_id, chance, scope, takes_over)
        started: WakeStarted | None = await self._submit(command, self._costs.get(row.life, 3 * WAKE_STREAMS))
        if started is not None and started.is_new:
            self._metrics.wakes["webhook" if row.kind == WEBHOOK else "pull-wake"] += 1
        return started

    async def _adopt_all(self) -> None:
        for _ in range(MAX_PAGES):
            found = await self._engine.read(new_links)
            groups = _grouped(found)
            for (name, life), scopes in groups.items():
                for some in _batches(scopes):
                    await self._submit(LinksAdopt(name, life, tuple(some)), 2 * len(some))
            if len(found) < PAGE:
                return

    async def _settle_marks(self) -> None:
        behind: bytes | None = None
        for _ in range(MAX_PAGES):
            page = await self._engine.read(partial(marks, behind=behind))
            if page:
                await self._carry(page)
            if len(page) < PAGE:
                return
            behind = page[-1].scope

    async def _carry(self, page: Sequence[MovedRow]) -> None:
        """Carry marks to all links of their streams, then delete them."""
        waiting: dict[bytes, bytes | None] = {mark.scope: None for mark in page}
        while waiting:
            found = await self._engine.read(partial(_first_links, wanted=dict(waiting)))
            alive = [link for one in found.values() if one.is_present for link in one.links]
            groups = _grouped(alive)
            await self._all(
                self._submit(PendingMark(name, life, tuple(scopes)), len(scopes))
                for (name, life), scopes in groups.items()
            )
            for scope, one in found.items():
                if not one.is_present:
                    await self._free_stream(scope, one.links)
                if len(one.links) < LINKS_PAGE:
                    del waiting[scope]
                else:
                    waiting[scope] = one.links[-1].life
        await self._all(self._submit(MarkSettle(mark.scope, mark.stream_id, mark.tail), 2) for mark in page)

    async def _free_stream(self, scope: bytes, links: Sequence[LinkRow]) -> None:
        for some in _batches(links):
            await self._submit(StreamLinksFree(scope, tuple((link.name, link.life) for link in some)), len(some))

    async def _free(self, name: bytes, life: bytes) -> None:
        while True:
            scopes = await self._engine.read(partial(grave_scopes, life=life, limit=FREED_AT_ONCE))
            is_last = len(scopes) < FREED_AT_ONCE
            await self._submit(LinksFree(name, life, tuple(scopes), is_last), len(scopes) + 1)
            if is_last:
                return

    async def _all(self, work: Iterable[Coroutine[Any, Any, Any]]) -> None:
        """Run these, several at once, so that they share a commit; the first error is raised after all have ended."""
        waiting = list(work)
        failures: list[BaseException] = []
        for start in range(0, len(waiting), WRITES_AT_ONCE):
            results = await asyncio.gather(*waiting[start : start + WRITES_AT_ONCE], return_exceptions=True)
            failures += [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise failures[0]

    async def _submit(self, command: SubscriptionCommand, cost: int) -> Any:
        return await self._engine.submit(Write(self._contract, command, cost=max(1, cost)))


def _first_links(reading: Reading, wanted: dict[bytes, bytes | None]) -> dict[bytes, MarkedStream]:
    return {scope: marked(reading, scope, behind, LINKS_PAGE) for scope, behind in wanted.items()}


def _batches(items: Sequence[T]) -> Iterable[Sequence[T]]:
    return (items[start : start + LINKS_AT_ONCE] for start in range(0, len(items), LINKS_AT_ONCE))


def _grouped(links: Iterable[LinkRow]) -> dict[tuple[bytes, bytes], list[bytes]]:
    """The scopes of links by their subscription."""
    groups: dict[tuple[bytes, bytes], list[bytes]] = {}
    for link in links:
        groups.setdefault((link.name, link.life), []).append(link.scope)
    return groups

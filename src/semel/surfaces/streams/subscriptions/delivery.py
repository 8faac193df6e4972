"""Webhook attempts: sign, send, and write the result. Also the keys, which all nodes share.

An attempt begins after the commit that names this node as its owner. If the process dies in it, the row still names the
owner and the time at which another node, or the next start, makes the attempt again. So a wake may be sent twice, and
is never lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from semel.engine.contract import EngineError, Write
from semel.engine.engine import Engine
from semel.kernel.clock import World
from semel.kernel.errors import Refused
from semel.server.thread_pool import COPIED_BYTES, apart
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.subscriptions.commands import (
    AttemptResult,
    SubscriptionKeys,
    WakeOutcome,
    WakeStarted,
)
from semel.surfaces.streams.subscriptions.contract import SubscriptionContract
from semel.surfaces.streams.subscriptions.rules.webhook_url import parse_target
from semel.surfaces.streams.subscriptions.signature import (
    SECRET_BYTES,
    TOKEN_MS,
    WakeToken,
    format_token,
    new_keys,
    signature_of,
)
from semel.surfaces.streams.subscriptions.tables import SubscriptionRow
from semel.surfaces.streams.subscriptions.webhook_client import WebhookClient, WebhookError
from semel.surfaces.streams.subscriptions.wire import is_done, webhook_body

_log = logging.getLogger("semel.streams")

RECORD_TRIES = 5
RECORD_SECONDS = 0.2
BYTES_PER_STREAM = 256


class SubscriptionSecrets:
    """The signing key and the token secret of the store, read or made once for each process."""

    def __init__(self, engine: Engine, contract: SubscriptionContract, world: World) -> None:
        self._engine = engine
        self._contract = contract
        self._world = world
        self._keys: SubscriptionKeys | None = None

    async def get(self) -> SubscriptionKeys:
        """The keys; made on first use."""
        if self._keys is None:
            random = self._world.random_bytes
            command = new_keys(random(SECRET_BYTES), random(SECRET_BYTES))
            self._keys = await self._engine.submit(Write(self._contract, command))
        return self._keys

    async def token(self, row: SubscriptionRow) -> str:
        """A token for the present wake of a subscription."""
        keys = await self.get()
        expires_ms = self._world.wall_ms() + TOKEN_MS
        return format_token(keys.secret, WakeToken(row.name, row.life, row.generation, expires_ms))


class WebhookDelivery:
    """The attempts that this node is making; at most `most` at a time."""

    def __init__(
        self,
        engine: Engine,
        contract: SubscriptionContract,
        world: World,
        secrets: SubscriptionSecrets,
        client: WebhookClient,
        metrics: StreamsMetrics,
        node: bytes,
        most: int,
    ) -> None:
        self._engine = engine
        self._contract = contract
        self._world = world
        self._secrets = secrets
        self._client = client
        self._metrics = metrics
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserved = 0
        self.node = node
        self.on_free: Callable[[], None] = lambda: None
        """Called when an attempt has ended."""

    def reserve(self) -> bool:
        """Take a free place for an attempt that may begin; `cancel` or `deliver` follows."""
        if len(self._tasks) + self._reserved >= self._most:
            return False
        self._reserved += 1
        return True

    def cancel(self) -> None:
        """Give a reserved place back."""
        self._reserved -= 1

    def deliver(self, started: WakeStarted) -> None:
        """Make the attempt, in a reserved place."""
        self._reserved -= 1
        task = asyncio.get_running_loop().create_task(self._attempt(started))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def stop(self) -> None:
        """The server is stopping: attempts end without a result, and are repeated after the next start."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a webhook attempt failed", exc_info=task.exception())
        self.on_free()

    async def _attempt(self, started: WakeStarted) -> None:
        row = started.row
        result = await self._send(started)
        self._metrics.deliveries[result.value] += 1
        chance = int.from_bytes(self._world.random_bytes(4), "big")
        command = WakeOutcome(row.name, row.life, row.generation, row.attempts, self.node, result, chance)
        for left in reversed(range(RECORD_TRIES)):
            try:
                await self._engine.submit(Write(self._contract, command, cost=2 * len(started.items) + 1))
                return
            except EngineError as error:
                if not left:
                    _log.warning("the result of a webhook attempt was not stored", extra={"reason": str(error)})
                    return
            await asyncio.sleep(RECORD_SECONDS)

    async def _send(self, started: WakeStarted) -> AttemptResult:
        row = started.row
        assert row.url is not None
        try:
            target = parse_target(row.url.decode())
            token = await self._secrets.token(row)
            keys = await self._secrets.get()
            size = BYTES_PER_STREAM * len(started.items)
            body = await apart(size, webhook_body, started, token, most=COPIED_BYTES)
            signature = signature_of(keys.key, body, self._world.wall_ms())
            answer = await self._client.post(target, body, (("Webhook-Signature", signature),))
        except (WebhookError, Refused, EngineError) as error:
            facts = {"subscription": row.id.decode(), "attempt": row.attempts + 1, "reason": str(error)}
            _log.warning("a webhook was not delivered", extra=facts)
            return AttemptResult.FAILED
        if not 200 <= answer.status < 300:
            facts = {"subscription": row.id.decode(), "attempt": row.attempts + 1, "status": answer.status}
            _log.warning("a webhook was refused", extra=facts)
            return AttemptResult.FAILED
        return AttemptResult.DONE if is_done(answer.body) else AttemptResult.ACCEPTED

"""Pushes of a replica: sends the queue oldest first, byte for byte as stored, until it is empty or blocked.

Only permanently refused deltas become dead letters: those that the server names, or the one that is left after a batch
was halved repeatedly. Deltas that need a correct clock, a valid token or a reachable server stay in the queue, and the
error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence

from semel.client.deltas import answers
from semel.client.deltas.outbox import Queued, ReplicaVerdict
from semel.client.deltas.replica import LocalReplica
from semel.client.deltas.values import Change, DeadLetter, Pushed
from semel.client.errors import CallError, ClockSkewError, InvalidRequestError, RefusedError, SemelError, TooLargeError
from semel.client.identity import NamedCall
from semel.client.retry import ClientCaller, json_request
from semel.kernel.hlc import wall_of

BATCH_DELTAS = 100
BATCH_BYTES = 512 * 1024
OnDead = Callable[[DeadLetter], None]


class Pusher:
    """Pushes of one replica."""

    def __init__(
        self,
        replica: LocalReplica,
        caller: ClientCaller,
        path: str,
        client: str,
        on_dead: OnDead,
        wall_ms: Callable[[], int],
        most_bytes: int,
    ) -> None:
        self._replica = replica
        self._caller = caller
        self._path = path
        self._client = client
        """The client id as canonical JSON."""
        self._on_dead = on_dead
        self._wall_ms = wall_ms
        self._most_bytes = most_bytes

    async def push(self, changes: MutableSequence[Change]) -> Pushed:
        """Send everything that is queued now; later changes wait, so that the push ends.

        Rows in which other replicas won are added to `changes`.
        """
        accepted = duplicates = 0
        dead: list[DeadLetter] = []
        most, end = BATCH_DELTAS, self._replica.outbox.end()
        while batch := self._replica.take(end, most, BATCH_BYTES):
            try:
                receipt = await self._send(batch)
            except ClockSkewError as error:
                most = self._before_drift(batch, error)
            except (InvalidRequestError, TooLargeError) as error:
                letters = await self._set_aside(batch, error)
                dead += letters
                most = most if letters else len(batch) // 2
            else:
                changes.extend(self._replica.acknowledge(batch, receipt))
                accepted, duplicates = accepted + receipt.settled, duplicates + receipt.duplicates
                most = min(BATCH_DELTAS, most * 2)
        return Pushed(accepted, duplicates, tuple(dead))

    async def _send(self, batch: Sequence[Queued]) -> answers.ReplicaReceipt:
        try:
            return await self._post(batch)
        except SemelError as error:
            is_unsettled = not isinstance(error, CallError) or error.is_unsettled
            self._replica.fail(batch, str(error), is_unsettled=is_unsettled)
            raise

    async def _post(self, batch: Sequence[Queued]) -> answers.ReplicaReceipt:
        """Send a push; the ids of its deltas make it repeatable."""
        request = json_request("POST", self._path, self._body(batch), most_bytes=self._most_bytes)
        identity = NamedCall("POST", self._path)
        return await self._caller.facts_as(lambda facts: answers.receipt(facts, len(batch)), request, identity)

    def _body(self, batch: Sequence[Queued]) -> bytes:
        head = f'{{"clientId":{self._client},"cursor":"{self._replica.progress.cursor}","deltas":['
        return b"%s%s]}" % (head.encode(), b",".join(one.body for one in batch))

    def _before_drift(self, batch: Sequence[Queued], error: ClockSkewError) -> int:
        """The number of deltas before the first one whose timestamp is too far ahead. Raises if there are none.

        Later deltas have even later timestamps.
        """
        named = answers.flaws(error, [one.delta_id for one in batch])
        if named:
            self._replica.keep_drifted(batch[named[0].at :])
        before = named[0].at if named else len(batch) // 2
        if before:
            return before
        if not named:
            self._replica.keep_drifted(batch)
        server = answers.server_hlc(error)
        error.skew_ms = None if server is None else self._wall_ms() - wall_of(server)
        raise error

    async def _set_aside(self, batch: Sequence[Queued], error: RefusedError) -> list[DeadLetter]:
        """Turn permanently refused deltas into dead letters. Returns none if the batch must be halved to find them."""
        named = answers.flaws(error, [one.delta_id for one in batch])
        if not named and len(batch) > 1 and (error.code or isinstance(error, TooLargeError)):
            return []
        if not error.code:
            raise error  # not an answer of the server: a proxy in between refuses this
        if named:
            verdicts = [(batch[flaw.at], ReplicaVerdict(error.status, flaw.code, flaw.message)) for flaw in named]
        else:
            # An empty push tells whether only this delta is refused, or every request; it raises in that case.
            await self._post([])
            verdicts = [(batch[0], ReplicaVerdict(error.status, error.code, str(error)))]
        letters = self._replica.bury(verdicts)
        for letter in letters:
            self._on_dead(letter)
        return letters

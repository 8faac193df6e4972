"""Pushes the outbox: oldest first, byte for byte as stored, until it is empty or blocked.

What the server refuses for good is set aside, and only that: the deltas that it names, or the one that is left after a
batch was halved again and again. What a wrong clock, a wrong token or a server that is away stands in the way of, stays
in the queue, and the error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from semel.client.calling import Caller
from semel.client.deltas import answers
from semel.client.deltas.outbox import Queued, Verdict
from semel.client.deltas.replica import Replica
from semel.client.deltas.values import Change, DeadLetter, Pushed
from semel.client.errors import CallError, ClockSkewError, InvalidRequestError, RefusedError, SemelError, TooLargeError
from semel.kernel.hlc import wall_of

BATCH_DELTAS = 100
BATCH_BYTES = 512 * 1024
OnDead = Callable[[DeadLetter], None]


class Pusher:
    """Pushes of one replica."""

    def __init__(
        self, replica: Replica, caller: Caller, path: str, client: str, on_dead: OnDead, wall_ms: Callable[[], int]
    ) -> None:
        self._replica = replica
        self._caller = caller
        self._path = path
        self._client = client
        """As canonical JSON."""
        self._on_dead = on_dead
        self._wall_ms = wall_ms

    async def push(self, changes: list[Change]) -> Pushed:
        """Send everything that is queued by now; later changes wait, so that the push ends.

        Rows in which others have won come to `changes`.
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
                changes += self._replica.acknowledge(batch, receipt)
                accepted, duplicates = accepted + receipt.settled, duplicates + receipt.duplicates
                most = min(BATCH_DELTAS, most * 2)
        return Pushed(accepted, duplicates, tuple(dead))

    async def _send(self, batch: Sequence[Queued]) -> answers.Receipt:
        try:
            facts = await self._caller.post(self._path, self._body(batch))
            return answers.receipt(facts, len(batch))
        except SemelError as error:
            is_unsettled = not isinstance(error, CallError) or error.is_unsettled
            self._replica.fail(batch, str(error), is_unsettled=is_unsettled)
            raise

    def _body(self, batch: Sequence[Queued]) -> bytes:
        head = f'{{"clientId":{self._client},"cursor":"{self._replica.progress.cursor}","deltas":['
        return b"%s%s]}" % (head.encode(), b",".join(one.body for one in batch))

    def _before_drift(self, batch: Sequence[Queued], error: ClockSkewError) -> int:
        """The number of deltas to send next: those before the first one dated too late; raises if there is none.

        Those behind it are dated even later.
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
        """The deltas that the server will never take, set aside; none when the batch has to be halved to find them."""
        named = answers.flaws(error, [one.delta_id for one in batch])
        if not named and len(batch) > 1 and (error.code or isinstance(error, TooLargeError)):
            return []
        if not error.code:
            raise error  # not a word of the server: something between us and it does not let this through
        if named:
            verdicts = [(batch[flaw.at], Verdict(error.status, flaw.code, flaw.message)) for flaw in named]
        else:
            # Is it the delta, or everything that we say? A push of nothing tells, and raises if it is refused too.
            await self._caller.post(self._path, self._body([]))
            verdicts = [(batch[0], Verdict(error.status, error.code, str(error)))]
        letters = self._replica.bury(verdicts)
        for letter in letters:
            self._on_dead(letter)
        return letters

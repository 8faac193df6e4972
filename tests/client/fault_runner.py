"""Plays a call under a fault and checks the law: one effect, the first answer, and no unknown outcome called known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from semel.client import AsyncClient, BusyError, NoAnswerError, OutcomeUnknown, Patience, RefusedError, identity_of
from semel.client.identity import NamedCall
from tests.client.both import client_of
from tests.client.call_rows import Call, Play
from tests.client.faults import Faulty
from tests.client.line import Line
from tests.client.names import PATIENCE_SECONDS
from tests.harness.server import RunningServer

PATIENT = Patience(tries=4)
ONCE = Patience(tries=1)
AT_ONCE = 8
"""How many calls are played side by side."""


async def ending(call: Awaitable[Any]) -> Any:
    """What a call returns or raises; the error of the first of many."""
    try:
        found = await call
    except Exception as error:  # noqa: BLE001 - which one it is, is what is tested
        return error
    if isinstance(found, list) and found and isinstance(found[0], Exception):
        return found[0]
    return found


class Runner:
    """Plays one call under one fault, with a client of one kind."""

    def __init__(self, server: RunningServer, semel: AsyncClient, kind: str, call: Call, faulty: Faulty) -> None:
        self._port = server.port
        self._semel = semel
        self._kind = kind
        self.call = call
        self.faulty = faulty
        looks_done = (faulty.is_answer and call.is_bare) or (faulty.is_object and call.is_loose)
        self.error = None if looks_done else faulty.read if call.is_read else faulty.write
        self.is_open = not call.is_read and self.error is OutcomeUnknown

    def _client(self, line: Line, patience: Patience) -> Any:
        return client_of(self._kind, line.url, patience=patience, on_retry=line.mend)

    def _is_retried(self) -> bool:
        if self.error is None or self.faulty.is_final or (self.call.is_single and self.is_open):
            return False
        return not (self.call.is_read and self.faulty.is_strange)

    async def insist(self) -> None:
        """With retries: one effect, and the first answer."""
        play = await self.call.prepare(self._semel)
        async with (
            Line(self._port, is_kept=self.faulty.fault.is_refused) as line,
            self._client(line, PATIENT) as client,
        ):
            line.play(self.faulty.fault, on=self.call.on)
            found = await ending(play.act(client))
            if self._is_retried():
                expected = 1 if self.faulty.fault.is_refused else 2
                assert len(line.asked) == expected or (self.call.is_looking and self.faulty.is_done), line.targets
                assert len(set(line.asked)) == 1, "it was not repeated unchanged"
                if self.faulty.after:
                    assert line.times[1] - line.times[0] > 0.9 * self.faulty.after, "it did not wait as it was asked to"
            else:
                assert len(line.asked) == 1, line.targets
            if self.error is not None and not self._is_retried():
                self._check_error(found, play)
                return
            assert not isinstance(found, Exception), repr(found)
            await self._check_effect(play, is_done=True)
            await self._check_answer(client, play, found, is_replay=self._is_retried() and self.faulty.is_done)

    async def give_up(self) -> None:
        """Without retries: the error says what is known, and the same call once more tells the rest."""
        play = await self.call.prepare(self._semel)
        patience = Patience(tries=1, seconds=1.0) if self.faulty.fault.is_silent else ONCE
        async with (
            Line(self._port, is_kept=self.faulty.fault.is_refused) as line,
            self._client(line, patience) as client,
        ):
            line.play(self.faulty.fault, on=self.call.on)
            found = await ending(play.act(client))
            line.mend()
            if self.faulty.fault.is_silent:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await line.fell_silent.wait()
            if self.error is None:
                assert not isinstance(found, Exception), repr(found)
                return
            self._check_error(found, play)
            patient = client.with_options(patience=PATIENT)
            if play.identity is not None:
                assert play.state is None or (await play.state() == play.done) is self.faulty.is_done
                await self._check_identity(patient, play)
            if self.call.is_single or self.call.is_read:
                return
            again = await ending(play.act(patient))
            if play.again is not None and self.faulty.is_done:
                assert isinstance(again, play.again), repr(again)
                return
            assert not isinstance(again, Exception), repr(again)
            await self._check_effect(play, is_done=True)
            await self._check_answer(patient, play, again, is_replay=self.faulty.is_done)

    def _check_error(self, found: Any, play: Play) -> None:
        if self.is_open and not self.call.is_single:
            assert type(found) is OutcomeUnknown, repr(found)
            assert found.identity == play.identity
            assert play.key is None or found.key == play.key
            assert found.is_unsettled
            assert found.__cause__ is not None
        elif self.is_open:
            assert isinstance(found, NoAnswerError | RefusedError), repr(found)
            assert not isinstance(found, OutcomeUnknown)
            assert found.is_unsettled
        else:
            assert self.error is not None
            error = NoAnswerError if self.call.is_listed else self.error
            assert isinstance(found, (error, BusyError) if self.call.is_listed else error), repr(found)
            assert not isinstance(found, OutcomeUnknown), repr(found)
            assert self.call.is_read or not getattr(found, "is_unsettled", False)
            assert self.call.is_listed or getattr(found, "retry_after", 0) == self.faulty.after

    async def _check_identity(self, client: Any, play: Play) -> None:
        """A text of the identity, which an application may have stored, tells what became of the write."""
        assert play.identity is not None
        identity = identity_of(play.identity.text())
        assert identity == play.identity
        if not isinstance(identity, NamedCall):
            assert (await client.resolve(identity)).is_committed is self.faulty.is_done

    async def _check_effect(self, play: Play, *, is_done: bool) -> None:
        if play.state is not None:
            assert (await play.state() == play.done) is is_done, "it was not done once"

    async def _check_answer(self, client: Any, play: Play, found: Any, *, is_replay: bool) -> None:
        if play.replayed is not None:
            assert bool(play.replayed(found)) is is_replay, f"{found} is no first answer, or no repetition"
        if play.again is not None or self.call.is_single:
            return
        again = await play.act(client)
        assert play.told(again) == play.told(found), "the repetition has another answer"
        assert play.replayed is None or play.replayed(again)
        await self._check_effect(play, is_done=True)


async def side_by_side(plays: Mapping[str, Coroutine[Any, Any, Any]]) -> None:
    """Run these, some at once; an error is told with its name."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * AT_ONCE))
    turn = asyncio.Semaphore(AT_ONCE)

    async def in_turn(name: str, play: Coroutine[Any, Any, Any]) -> None:
        async with turn:
            try:
                await play
            except Exception as error:
                error.add_note(f"it was {name}")
                raise

    ended = await asyncio.gather(*(in_turn(name, play) for name, play in plays.items()), return_exceptions=True)
    failed = [one for one in ended if isinstance(one, Exception)]
    if failed:
        raise ExceptionGroup("plays", failed)


async def play_all(server: RunningServer, kind: str, faulty: Faulty, calls: Mapping[str, Call]) -> None:
    """Every call under one fault."""

    async def play(call: Call) -> None:
        runner = Runner(server, semel, kind, call, faulty)
        if not (faulty.fault.is_silent or faulty.is_answer):
            await runner.insist()
        await runner.give_up()

    async with AsyncClient(server.url, connections=2 * AT_ONCE) as semel:
        await side_by_side({name: play(call) for name, call in calls.items()})

"""Following blocks: every one, once, in order; and the ends that a watch may come to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from semel.kernel.errors import Refused
from semel.server.auth.principals import DEVELOPER, Principal, Role
from semel.surfaces.ledger import block_watch
from semel.surfaces.ledger.limits import WATCH_BEHIND
from semel.surfaces.ledger.model import LedgerPlace, LedgerStatus
from semel.surfaces.ledger.service import LedgerCaller
from tests.ledger.wire.refusals import refused
from tests.ledger.wire.rig import Office, in_office

LONG = 30.0


async def heights(office: Office, asked: LedgerCaller, place: LedgerPlace, start: int, upto: int) -> list[int]:
    """The heights that a watch tells until it has told this one."""
    told: list[int] = []
    with office.desk.follow(asked, place, start) as watch:
        while not watch.is_over and upto not in told:
            told += [header.height for header in await watch.next(LONG)]
    return told


def test_a_watch_replays_and_then_goes_on_live(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        place, other = await office.vault(), await office.org()
        await office.fill(place, 5)
        watchers = [
            asyncio.create_task(heights(office, office.asked(), place, start, 60)) for start in (1, 3, 6, 20, 60)
        ]
        await asyncio.sleep(0)
        writers = [office.fill(place, 11, f"client-{number}") for number in range(5)]
        await asyncio.gather(*writers, office.fill(other, 3))
        told = await asyncio.gather(*watchers)
        assert told == [list(range(start, 61)) for start in (1, 3, 6, 20, 60)]

    in_office(tmp_path, work)


def test_a_long_history_comes_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_watch, "PAGE_HEADERS", 4)

    async def work(office: Office) -> None:
        place = await office.org()
        await office.fill(place, 10)
        with office.desk.follow(office.admin, place, 2) as watch:
            pages = [[header.height for header in await watch.next(LONG)] for _ in range(3)]
            assert pages == [[2, 3, 4, 5], [6, 7, 8, 9], [10]]
            assert await watch.next(0) == []
            assert office.desk.audit_trail.metrics.watchers() == 1
        assert office.desk.audit_trail.metrics.watchers() == 0

    in_office(tmp_path, work)


def test_a_watch_begins_at_a_block_of_a_place_within_reach(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        place = await office.vault()
        with refused("startHeight"):
            office.desk.follow(office.admin, place, 0)
        with refused("", "permission_denied"):
            office.desk.follow(office.asked(Principal("w", "client", frozenset({Role.WRITE}))), place, 1)
        for unknown, code in (
            (LedgerPlace(1), "organization_not_found"),
            (LedgerPlace(place.org, 1), "vault_not_found"),
        ):
            with refused("", code):
                await heights(office, office.admin, unknown, 1, 1)

    in_office(tmp_path, work)


def test_a_slow_client_is_cut_off_when_it_falls_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_watch, "SLOW_SECONDS", 0.0)  # whoever comes back for more has been slow

    async def work(office: Office) -> None:
        place = await office.org()
        await office.fill(place, 1)
        with (
            office.desk.follow(office.admin, place, 1) as up_to_date,
            office.desk.follow(office.admin, place, 1) as lost,
        ):
            for watch in (up_to_date, lost):
                assert [header.height for header in await watch.next(LONG)] == [1]
            await office.fill(place, WATCH_BEHIND)
            assert (await up_to_date.next(LONG))[0].height == 2
            await office.fill(place, 1)
            with pytest.raises(Refused, match="go on at height 2") as caught:
                await lost.next(LONG)
            assert caught.value.refusal.code == "ledger:unavailable"
        assert office.desk.audit_trail.metrics.counts["slow_watchers"] == 1
        with office.desk.follow(office.admin, place, 1) as newcomer:
            told: list[int] = []
            while len(told) < WATCH_BEHIND + 2:
                told += [header.height for header in await newcomer.next(LONG)]
            assert told == list(range(1, WATCH_BEHIND + 3)), "history is no backlog, however slowly it is read"

    in_office(tmp_path, work)


def test_a_client_that_takes_nothing_is_cut_off_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_watch, "SLOW_SECONDS", 0.01)

    async def work(office: Office) -> None:
        place = await office.org()
        await office.fill(place, 2)
        taken = asyncio.Event()
        with office.desk.follow(office.admin, place, 1) as stuck, office.desk.follow(office.admin, place, 1) as late:
            for watch in (stuck, late):
                assert len(await watch.next(LONG)) == 2
            delivery = asyncio.create_task(late.deliver(_until(taken)))
            await office.fill(place, WATCH_BEHIND - 2)
            taken.set()
            await delivery
            assert (await late.next(LONG))[0].height == 3, "what was taken in time is not told again"
            await office.fill(place, 1)
            with pytest.raises(Refused, match="go on at height 1") as caught:
                await stuck.deliver(_until(asyncio.Event()))
            assert caught.value.refusal.code == "ledger:unavailable"
        assert office.desk.audit_trail.metrics.counts["slow_watchers"] == 1

    in_office(tmp_path, work)


async def _until(event: asyncio.Event) -> None:
    await event.wait()


def test_a_delivery_ends_with_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_watch, "SLOW_SECONDS", 0.01)

    async def work(office: Office) -> None:
        place = await office.org()
        await office.fill(place, 1)
        with office.desk.follow(office.admin, place, 1) as watch:
            await watch.next(LONG)
            office.context.is_stopping = True
            with pytest.raises(Refused, match="go on at height 1"):
                await watch.deliver(_until(asyncio.Event()))

    in_office(tmp_path, work)


def test_a_quick_client_is_never_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_watch, "SLOW_SECONDS", 3_600.0)

    async def work(office: Office) -> None:
        place = await office.org()
        await office.fill(place, 1)
        with office.desk.follow(office.admin, place, 1) as watch:
            await watch.next(LONG)
            await office.fill(place, WATCH_BEHIND + 1)
            assert (await watch.next(LONG))[0].height == 2

    in_office(tmp_path, work)


def test_a_watch_ends_with_the_server(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        place = await office.org()
        waiting = asyncio.create_task(heights(office, office.admin, place, 1, 1))
        await asyncio.sleep(0)
        office.context.is_stopping = True
        office.context.engine.signals.send_all()
        with refused("", "unavailable"):
            await waiting

    in_office(tmp_path, work)


def test_a_watch_ends_with_its_credential(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        place = await office.org()
        await office.fill(place, 1)
        soon = replace(DEVELOPER, expires_at_ms=office.context.world.wall_ms() + 500)
        with refused("", "unauthenticated"):
            await heights(office, office.asked(soon), place, 1, 2)

    in_office(tmp_path, work)


def test_a_watch_ends_when_nobody_listens(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        place, asked = await office.org(), office.asked()
        waiting = asyncio.create_task(heights(office, asked, place, 1, 1))
        await asyncio.sleep(0)
        asked.caller.leave()
        assert await waiting == []

    in_office(tmp_path, work)


def test_a_watch_ends_with_its_vault(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        place = await office.vault()
        with office.desk.follow(office.admin, place, 1) as watch:
            assert await watch.next(0) == []
            await office.desk.change_vault(office.admin, place, LedgerStatus.DELETED)
            with refused("", "vault_not_found"):
                await watch.next(LONG)

    in_office(tmp_path, work)

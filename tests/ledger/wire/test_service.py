"""The desk: what every wire comes to, judged for who asks and counted."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from semel.server.auth.principals import AccessScope, Principal, Principals, Role
from semel.server.ops import audit_log
from semel.surfaces.ledger import pagination
from semel.surfaces.ledger.commands import OrgSettings, WriteCommitted, WriteDeclined, WriteErrorCode, WriteReplayed
from semel.surfaces.ledger.model import ExpireEntity, LedgerPlace, LedgerStatus, SetEntity
from semel.surfaces.ledger.pagination import list_orgs, list_vaults
from semel.surfaces.ledger.reading import client_state, tip
from semel.surfaces.ledger.service import FIRST_SLUG, SLUGS_END, make_service
from tests.ledger.wire.refusals import KEY, KEY_UUID, refused
from tests.ledger.wire.rig import SET, Office, in_office

OTHER = (SetEntity(b"k", b"w"),)
TILL = Principal("till", "client", frozenset({Role.READ, Role.WRITE}))
KNOWN = Principals({b"": TILL})


@pytest.fixture(autouse=True)
def patient_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server goes on without a file that stands still for a second; here the machine may stand still."""
    monkeypatch.setattr(audit_log, "WAIT_SECONDS", 60.0)


def test_a_write_is_committed_once_and_replayed(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        desk, place = office.desk, await office.vault()
        first = await desk.write(office.admin, desk.prepare(place, "app", 1, KEY, SET))
        assert isinstance(first, WriteCommitted)
        assert first.committed.transaction.actor == b"client:anonymous"
        again = await desk.write(office.admin, desk.prepare(place, "app", None, KEY, SET))
        assert again == WriteReplayed(first.committed)
        assert desk.was_answered(first.committed)
        assert dict(office.desk.audit_trail.metrics.counts) == {"committed": 1, "operations": 1, "replayed": 1}

    in_office(tmp_path, work)


def test_an_answer_is_cold_until_this_process_has_told_it(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        place = await office.vault()
        first = await office.desk.write(office.admin, office.desk.prepare(place, "app", 1, KEY, SET))
        assert isinstance(first, WriteCommitted)
        after_restart = make_service(office.context)
        again = await after_restart.write(office.admin, after_restart.prepare(place, "app", 1, KEY, SET))
        assert isinstance(again, WriteReplayed)
        assert not after_restart.was_answered(again.committed)
        assert after_restart.was_answered(again.committed)

    in_office(tmp_path, work)


def test_a_key_for_other_operations_is_on_record_before_the_answer(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        place = await office.vault()
        await office.desk.write(office.admin, office.desk.prepare(place, "app", None, KEY, SET))
        answer = await office.desk.write(office.admin, office.desk.prepare(place, "app", None, KEY, OTHER))
        assert isinstance(answer, WriteDeclined)
        assert answer.code is WriteErrorCode.IDEMPOTENCY_KEY_REUSED
        (line,) = office.audited()
        assert line["event"] == "LEDGER_KEY_COLLISION"
        assert line["details"] == {
            "organization": str(place.org),
            "vault": str(place.vault),
            "client_id": "app",
            "sequence": None,
            "key_prefix": KEY_UUID[:8],
            "rule": "R1",
            "remote_addr": "192.0.2.7",
        }
        assert office.desk.audit_trail.metrics.declined == {"IDEMPOTENCY_KEY_REUSED": 1}

    in_office(tmp_path, work)


def test_gaps_are_on_record_rarely(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        place = await office.org()
        for sequence in (7, 8, 9):
            await office.desk.write(office.admin, office.desk.prepare(place, "app", sequence, b"", SET))
        await office.context.audit.written()
        lines = [line for line in office.audited() if line["event"] == "LEDGER_SEQUENCE_GAP"]
        assert [line["details"]["sequence"] for line in lines] == [7]
        assert lines[0]["details"]["key_prefix"] == ""

    in_office(tmp_path, work)


def test_what_is_no_write_changes_nothing(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        desk, asked, place = office.desk, office.admin, await office.vault()
        with refused("sequence"):
            await desk.write(asked, desk.prepare(place, "app", None, bytes(16), SET))
        with refused("idempotency_key"):
            await desk.write(asked, desk.prepare(place, "app", None, b"short", SET))
        with refused("client_id"):
            await desk.write(asked, desk.prepare(place, "", 1, b"", SET))
        with refused("client_id"):
            await desk.write(asked, desk.prepare(place, "\ud800", 1, b"", SET))
        with refused("operations"):
            await desk.write(asked, desk.prepare(place, "app", 1, b"", ()))
        with refused("value"):
            await desk.write(asked, desk.prepare(place, "app", 1, b"", (SetEntity(b"k", b"12345"),)))
        with refused("", "permission_denied"):
            await desk.write(asked, desk.prepare(place, "app", 1, b"", (ExpireEntity(b"k", 1),)))
        for unknown in (LedgerPlace(1), LedgerPlace(2**63), LedgerPlace(2**64 - 1, 1)):
            with refused("", "organization_not_found"):
                await desk.write(asked, desk.prepare(unknown, "app", 1, b"", SET))
        for unknown in (place._replace(vault=1), place._replace(vault=2**64 - 1)):
            with refused("", "vault_not_found"):
                await desk.write(asked, desk.prepare(unknown, "app", 1, b"", SET))
        state = await desk.read(asked, place, lambda reading: client_state(reading, place, b"app"))
        assert state.last == 0
        assert (await desk.read(asked, place, lambda reading: tip(reading, place))).height == 0

    in_office(tmp_path, work, ledger_max_value_bytes=4)


def test_a_caller_is_held_to_its_own(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        desk, place, till = office.desk, await office.vault(), office.asked(TILL)
        written = await desk.write(till, desk.prepare(place, "till/3", 1, b"", SET))
        assert isinstance(written, WriteCommitted)
        assert written.committed.transaction.actor == b"client:till"
        with refused("clientId", "permission_denied"):
            await desk.write(till, desk.prepare(place, "other", 1, b"", SET))
        with refused("", "permission_denied"):
            await desk.make_org(till, "mine", b"")
        with refused("", "permission_denied"):
            await desk.make_vault(till, place.org, 0, b"")
        with refused("", "permission_denied"):
            await desk.change_org(till, place.org, OrgSettings(fence=True))
        with refused("", "permission_denied"):
            await desk.change_vault(till, place, LedgerStatus.READ_ONLY)
        await office.context.audit.written()
        assert [line["event"] for line in office.audited()] == ["AUTH_FAILURE"] * 5

    in_office(tmp_path, work, KNOWN)


def test_the_longest_name_owns_a_client_id(tmp_path: Path) -> None:
    wide, narrow = (replace(TILL, name=name, client_id=name) for name in ("a", "a/b"))
    namesake = replace(TILL, name="a", kind="user", client_id="a")

    async def work(office: Office) -> None:
        desk, place = office.desk, await office.vault()
        for own, client in ((wide, "a/c"), (narrow, "a/b"), (namesake, "user:a")):
            assert isinstance(
                await desk.write(office.asked(own), desk.prepare(place, client, 1, b"", SET)), WriteCommitted
            )
        for other, client in ((wide, "a/b"), (narrow, "a/c"), (namesake, "a")):
            with refused("clientId", "permission_denied"):
                await desk.write(office.asked(other), desk.prepare(place, client, 1, b"", SET))

    in_office(tmp_path, work, Principals({b"1": wide, b"2": narrow}))


def test_a_list_of_vaults_tells_nothing_of_those_out_of_reach(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        place = await office.org()
        made = [(await office.desk.make_vault(office.admin, place.org, 0, b"")).place for _ in range(7)]
        order = sorted(made)
        mine, others = order[1:6:2], order[0:7:2]
        told, token, tokens = [], "", []
        while True:
            read = partial(list_vaults, slug=place.org, limit=1, token=token, reach=lambda one: one in mine)
            page = await office.desk.read(office.admin, place, read)
            told += [one.place for one in page.items]
            token = page.token
            if not token:
                break
            tokens.append(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        assert told == mine
        assert len(tokens) == 2, "there is no page behind the last that is within reach"
        assert not [one for one in others for content in tokens if b"%d" % one.vault in content]

    in_office(tmp_path, work)


def test_vaults_within_reach_are_found_behind_many_that_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pagination, "FIRST_VAULTS", 2)

    async def work(office: Office) -> None:
        place = await office.org()
        made = [(await office.desk.make_vault(office.admin, place.org, 0, b"")).place for _ in range(6)]
        last = max(made)
        for wanted in ([last], [], made):
            read = partial(list_vaults, slug=place.org, limit=100, token="", reach=frozenset(wanted).__contains__)
            page = await office.desk.read(office.admin, place, read)
            assert ([one.place for one in page.items], page.token) == (sorted(wanted), "")

    in_office(tmp_path, work)


def test_an_actor_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        place = await office.org()
        known = Principal("x" * 124, "user", frozenset({Role.WRITE}))
        with refused("actor"):
            await office.desk.write(office.asked(known), office.desk.prepare(place, "x" * 124, 1, b"", SET))

    in_office(tmp_path, work, KNOWN)


def test_a_creation_with_a_key_happens_once_for_each_caller(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        desk, asked = office.desk, office.admin
        other = office.asked(Principal("other", "client", frozenset(Role)))
        first = await desk.make_org(asked, "shop", b"k")
        assert FIRST_SLUG <= first.place.org < SLUGS_END
        assert await desk.make_org(asked, "shop", b"k") == first._replace(is_replay=True)
        assert (await desk.make_org(other, "shop", b"k")).place != first.place
        assert (await desk.make_org(asked, "shop", b"")).place != first.place
        with refused("", "failed_precondition"):
            await desk.make_org(asked, "another", b"k")
        vault = await desk.make_vault(asked, first.place.org, 7, b"v" * 256)
        assert await desk.make_vault(asked, first.place.org, 7, b"v" * 256) == vault._replace(is_replay=True)

    in_office(tmp_path, work, KNOWN)


@pytest.mark.parametrize("name", ["", "x" * 257, "a\0b", "\ud800"], ids=ascii)
def test_an_organization_has_a_name(tmp_path: Path, name: str) -> None:
    async def work(office: Office) -> None:
        with refused("name"):
            await office.desk.make_org(office.admin, name, b"")

    in_office(tmp_path, work)


def test_settings_have_bounds(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        org = (await office.org()).org
        changed = await office.desk.change_org(office.admin, org, OrgSettings(ttl_seconds=1, eviction_interval=2**40))
        assert (changed.ttl_seconds, changed.eviction_interval) == (1, 2**40)
        for value in (0, 2**40 + 1):
            with refused("ttl_seconds"):
                await office.desk.change_org(office.admin, org, OrgSettings(ttl_seconds=value))
            with refused("eviction_interval"):
                await office.desk.change_org(office.admin, org, OrgSettings(eviction_interval=value))
        with refused("retention_blocks"):
            await office.desk.make_vault(office.admin, org, 2**63, b"")

    in_office(tmp_path, work)


def test_lists_hold_what_the_caller_may_see(tmp_path: Path) -> None:
    async def work(office: Office) -> None:
        desk, mine, _ = office.desk, await office.vault(), await office.vault()
        limited = office.asked(Principal("eve", "user", TILL.roles, ()))
        seen = await desk.read(
            limited, None, lambda reading: list_orgs(reading, 0, "", lambda slug: desk.sees(limited, LedgerPlace(slug)))
        )
        assert not seen.items
        some = office.asked(Principal("ann", "user", TILL.roles, (AccessScope("ledger", b"%d" % mine.org, False),)))
        seen = await desk.read(
            some, None, lambda reading: list_orgs(reading, 0, "", lambda slug: desk.sees(some, LedgerPlace(slug)))
        )
        assert [one.slug for one in seen.items] == [mine.org]
        with refused("", "permission_denied"):
            await desk.read(limited, mine, lambda reading: list_vaults(reading, mine.org, 0, ""))

    in_office(tmp_path, work, KNOWN)

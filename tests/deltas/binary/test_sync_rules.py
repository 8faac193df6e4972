"""Sync rules over HTTP: what a client is told of rows that come into its view, change in it, and leave it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deltas.rig import signed
from tests.deltas.vectors import Message, columns, delta
from tests.deltas.wire import Deltas, fresh, hlcs, serving

SECRET = "a secret of at least thirty-two bytes"


def rules(*buckets: Message) -> Message:
    return {"version": 1, "buckets": [{"name": str(place), **bucket} for place, bucket in enumerate(buckets)]}


def bucket(*filters: tuple[str, str, str], tables: tuple[str, ...] = ()) -> Message:
    return {
        "tables": list(tables),
        "filters": [{"column": column, "op": op, "value": value} for column, op, value in filters],
    }


OPEN = bucket(("state", "eq", "open"))


class Room:
    """A gateway with rules, somebody who writes, and a reader who pulls from its cursor."""

    def __init__(self, deltas: Deltas, made: Message) -> None:
        self.deltas = deltas
        self.gateway = fresh("gw")
        self._hlcs = hlcs()
        self.save(made)
        self.cursor = 0

    def save(self, made: Message) -> None:
        self.deltas.post(f"/v1/admin/sync-rules/{self.gateway}", made)

    def push(self, op: str, row: str, /, client: str = "writer", table: str = "todos", **cells: Any) -> str:
        made = delta(op, columns(**cells), row=row, client=client, table=table, hlc=next(self._hlcs))
        self.deltas.push(self.gateway, [made], client=client)
        name: str = made["deltaId"]
        return name

    def pull(self, client: str = "reader") -> list[tuple[str, str, Message]]:
        """What is new: operation, row and cells of each entry."""
        page = self.deltas.pull(self.gateway, self.cursor, client=client)
        self.cursor = page.hlc
        return told(page["deltas"])


def told(entries: list[Message]) -> list[tuple[str, str, Message]]:
    return [
        (entry["op"], entry["rowId"], {one["column"]: one["value"] for one in entry["columns"]}) for entry in entries
    ]


def applied(rows: dict[str, Message], entries: list[tuple[str, str, Message]]) -> dict[str, Message]:
    """What a client that takes every entry at its word has in the end."""
    held = {row: dict(cells) for row, cells in rows.items()}
    for op, row, cells in entries:
        if op == "DELETE":
            held.pop(row, None)
        elif op == "INSERT":
            assert row not in held, entries
            held[row] = cells
        elif row in held:
            held[row] |= cells
    return held


def test_a_row_comes_and_changes_and_leaves(deltas: Deltas) -> None:
    room = Room(deltas, rules(OPEN))
    room.push("INSERT", "r", state="draft", title="t")
    assert room.pull() == []
    room.push("UPDATE", "r", title="u")
    assert room.pull() == []
    room.push("UPDATE", "r", state="open")
    assert room.pull() == [("INSERT", "r", {"state": "open", "title": "u"})]
    room.push("UPDATE", "r", title="v")
    assert room.pull() == [("UPDATE", "r", {"title": "v"})]
    room.push("UPDATE", "r", state="closed", title="w")
    assert room.pull() == [("DELETE", "r", {})]
    room.push("UPDATE", "r", title="x")
    assert room.pull() == []
    room.push("UPDATE", "r", state="open")
    assert room.pull() == [("INSERT", "r", {"state": "open", "title": "x"})]
    room.push("DELETE", "r")
    assert room.pull() == [("DELETE", "r", {})]
    room.push("UPDATE", "r", state="open")
    assert room.pull() == [("INSERT", "r", {"state": "open"})]


def test_what_nobody_may_see_is_deleted_in_silence(one: Deltas) -> None:
    room = Room(one, rules(OPEN))
    room.push("INSERT", "r", state="draft")
    room.push("DELETE", "r")
    assert room.pull() == []


def test_a_new_row_that_is_seen_comes_as_it_was_pushed(one: Deltas) -> None:
    room = Room(one, rules(OPEN))
    name = room.push("INSERT", "r", state="open", title="t")
    [entry] = one.pull(room.gateway)["deltas"]
    assert entry["deltaId"] == name
    assert "resolved" not in entry


def test_a_page_has_only_what_is_seen_and_the_cursor_passes_the_rest(one: Deltas) -> None:
    room = Room(one, rules(OPEN))
    for number in range(30):
        room.push("INSERT", f"r{number}", state="open" if number % 10 == 9 else "draft")
    seen: list[str] = []
    page = one.pull(room.gateway, 0, limit=2)
    while True:
        seen += [entry["rowId"] for entry in page["deltas"]]
        if not page["hasMore"]:
            break
        page = one.pull(room.gateway, page.hlc, limit=2)
    assert seen == ["r9", "r19", "r29"]
    assert one.pull(room.gateway, page.hlc)["deltas"] == []


def test_tables_of_a_bucket(one: Deltas) -> None:
    room = Room(one, rules(bucket(tables=("lists",)), bucket(("n", "gte", "10"), tables=("todos", "notes"))))
    room.push("INSERT", "a", table="lists", n=1)
    room.push("INSERT", "b", table="todos", n=9)
    room.push("INSERT", "c", table="todos", n=10)
    room.push("INSERT", "d", table="notes", n="11 pieces")
    room.push("INSERT", "e", table="plans", n=99)
    assert [row for _, row, _ in room.pull()] == ["a", "c", "d"]


def test_without_buckets_everything_is_seen(one: Deltas) -> None:
    room = Room(one, rules())
    room.push("INSERT", "r", state="draft")
    assert [row for _, row, _ in room.pull()] == ["r"]


def test_rules_that_come_later_hold_from_then_on_and_for_who_begins(one: Deltas) -> None:
    room = Room(one, rules())
    room.push("INSERT", "hidden", state="draft")
    room.push("INSERT", "shown", state="open")
    room.save(rules(OPEN))
    assert [row for _, row, _ in room.pull()] == ["shown"]
    room.push("UPDATE", "hidden", state="open", title="t")
    assert room.pull() == [("INSERT", "hidden", {"state": "open", "title": "t"})]
    room.push("UPDATE", "shown", state="closed")
    assert room.pull() == [("DELETE", "shown", {})]
    room.save(rules())
    room.cursor = 0
    held = {row for op, row, _ in room.pull("another") if op != "DELETE"}
    assert held == {"hidden", "shown"}


def test_an_author_is_told_the_truth_about_a_row_that_it_sees(one: Deltas) -> None:
    """The write of a client that lost is repaired under rules as without them."""
    room = Room(one, rules(OPEN))
    early = next(room._hlcs)
    room.push("INSERT", "r", state="open", title="t")
    room.pull("late")
    lost = delta("UPDATE", columns(title="lost"), row="r", client="late", hlc=early)
    room.cursor = one.push(room.gateway, [lost], client="late").hlc
    assert applied({"r": {"state": "open", "title": "lost"}}, room.pull("late")) == {
        "r": {"state": "open", "title": "t"}
    }


def test_an_author_whose_row_is_out_of_its_view_is_not_told_what_is_in_it(one: Deltas) -> None:
    room = Room(one, rules(OPEN))
    early = next(room._hlcs)
    room.push("INSERT", "r", state="secret", title="t")
    room.pull("late")
    lost = delta("UPDATE", columns(title="lost"), row="r", client="late", hlc=early)
    room.cursor = one.push(room.gateway, [lost], client="late").hlc
    entries = room.pull("late")
    assert applied({}, entries) == {}
    assert all(cells == {} for _, _, cells in entries)


# -- claims ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deltas]:
    """A server that knows its callers; what is called here is called as an administrator of the gateway."""
    with serving(tmp_path_factory.mktemp("rules") / "guarded", DELTAS_JWT_SECRET=SECRET) as deltas:
        yield deltas


def caller(guarded: Deltas, gateway: str, sub: str, **claims: Any) -> Deltas:
    facts = {"sub": sub, "gw": gateway, "exp": time.time() + 3_600} | claims
    return guarded.with_token(signed(facts, SECRET))


CLAIMS: dict[str, tuple[tuple[str, str, str], dict[str, Any], list[str]]] = {
    "of the caller": (("owner", "eq", "jwt:sub"), {}, ["ann's"]),
    "a string": (("org", "eq", "jwt:org"), {"org": "acme"}, ["ann's", "bob's"]),
    "a list": (("owner", "in", "jwt:team"), {"team": ["bob", "cyd"]}, ["bob's", "cyd's"]),
    "missing": (("org", "eq", "jwt:org"), {}, []),
    "missing, and not": (("org", "neq", "jwt:org"), {}, []),
    "a number, which is no claim": (("n", "eq", "jwt:level"), {"level": 2}, []),
    "a list with a number, which is none either": (("n", "eq", "jwt:level"), {"level": ["2", 3]}, []),
    "an empty list": (("org", "neq", "jwt:team"), {"team": []}, []),
    "compared": (("n", "gte", "jwt:level"), {"level": "2"}, ["bob's", "cyd's"]),
    "not": (("org", "neq", "jwt:org"), {"org": "acme"}, ["cyd's"]),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claims(guarded: Deltas, name: str) -> None:
    wanted, claims, seen = CLAIMS[name]
    gateway, hlc = fresh("gw"), hlcs()
    admin, reader = caller(guarded, gateway, "root", role="admin"), caller(guarded, gateway, "ann", **claims)
    admin.post(f"/v1/admin/sync-rules/{gateway}", rules(bucket(wanted)))
    facts = {"ann's": ("ann", "acme", 1), "bob's": ("bob", "acme", 2), "cyd's": ("cyd", "other", 3)}
    made = [
        delta("INSERT", columns(owner=owner, org=org, n=n), row=row, client="root", hlc=next(hlc))
        for row, (owner, org, n) in facts.items()
    ]
    admin.push(gateway, made, client="root")
    assert [entry["rowId"] for entry in reader.log(gateway, client="ann")] == seen
    admin.close()
    reader.close()


def test_a_row_changes_hands(guarded: Deltas) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    admin = caller(guarded, gateway, "root", role="admin")
    ann, bob = caller(guarded, gateway, "ann"), caller(guarded, gateway, "bob")
    admin.post(f"/v1/admin/sync-rules/{gateway}", rules(bucket(("owner", "eq", "jwt:sub"))))
    mine = delta("INSERT", columns(owner="ann", title="t"), row="r", client="ann", hlc=next(hlc))
    ann.push(gateway, [mine], client="ann")
    cursors = {who: client.pull(gateway, 0, client=who).hlc for who, client in (("ann", ann), ("bob", bob))}
    admin.push(gateway, [delta("UPDATE", columns(owner="bob"), row="r", client="root", hlc=next(hlc))], client="root")
    assert told(ann.pull(gateway, cursors["ann"], client="ann")["deltas"]) == [("DELETE", "r", {})]
    assert told(bob.pull(gateway, cursors["bob"], client="bob")["deltas"]) == [
        ("INSERT", "r", {"owner": "bob", "title": "t"})
    ]
    for client in (admin, ann, bob):
        client.close()

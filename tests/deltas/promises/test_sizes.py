"""How much a push may be: bytes as they arrive, deltas, pages."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.deltas.rig import check_nothing_stored, digest_of
from tests.deltas.wire import CLIENT, Deltas, Message, columns, delta, hlcs, serving

MIB = 1024 * 1024
MOST = 10_000


def sized(size: int) -> tuple[bytes, Message]:
    """A push of so many bytes, and its delta."""
    made = delta("INSERT", columns(title="x"))
    bare = json.dumps({"clientId": CLIENT, "deltas": [made]}).encode()
    title = "x" * (size - len(bare) + 1)
    made = delta("INSERT", columns(title=title))
    body = json.dumps({"clientId": CLIENT, "deltas": [made]}).encode()
    assert len(body) == size
    return body, made


def pieces(body: bytes, size: int = 10_007) -> Iterator[bytes]:
    """The same bytes chunked: nothing says beforehand how many there are."""
    return (body[start : start + size] for start in range(0, len(body), size))


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_push_of_one_mebibyte(deltas: Deltas, gateway: str, framing: str) -> None:
    body, made = sized(MIB)
    told = deltas.push_raw(gateway, body if framing == "length" else pieces(body))
    assert told.ids == [made["deltaId"]]
    assert deltas.log(gateway) == [made]


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("more", [1, MIB, 16 * MIB], ids=["one byte", "twice", "beyond every limit"])
def test_a_larger_push_is_refused(anywhere: Deltas, gateway: str, more: int, framing: str) -> None:
    body = sized(MIB)[0] + b" " * more
    told = anywhere.push_raw(gateway, body if framing == "length" else pieces(body), expect=413)
    assert told.code == "VALIDATION_ERROR"
    check_nothing_stored(anywhere, gateway)


@pytest.mark.parametrize("piece", [1, 3, 64])
def test_a_push_in_small_pieces(deltas: Deltas, gateway: str, piece: int) -> None:
    """Cut in the middle of characters and escapes."""
    made = delta("INSERT", columns(title="caf\u00e9 \U0001f389 \ud800"))
    text = json.dumps({"clientId": CLIENT, "deltas": [made]}, ensure_ascii=False).replace("\ud800", "\\ud800")
    assert deltas.push_raw(gateway, pieces(text.encode(), piece))["deltas"] == [made]


# -- rows --------------------------------------------------------------------------------------------------------------


def test_a_row_of_a_thousand_columns(deltas: Deltas, gateway: str) -> None:
    stamps = hlcs()
    names = [f"c{number}" for number in range(1_000)]
    for part in (names[:600], names[600:]):
        deltas.push(gateway, [delta("UPDATE", columns(**dict.fromkeys(part, 1)), hlc=next(stamps))])
    one_more = delta("UPDATE", columns(c999=2, c1000=1), hlc=next(stamps))
    before = digest_of(deltas, gateway)
    told = deltas.push(gateway, [delta("INSERT", row="other"), one_more], expect=413)
    assert (told.code, told.blamed) == ("VALIDATION_ERROR", [(1, "VALIDATION_ERROR")])
    assert digest_of(deltas, gateway) == before
    assert deltas.push(gateway, [delta("UPDATE", columns(c999=2), hlc=next(stamps))])["accepted"] == 1


@pytest.mark.parametrize("op", ["INSERT", "UPDATE", "DELETE"])
def test_a_delta_wider_than_any_row(anywhere: Deltas, gateway: str, op: str) -> None:
    wide = delta(op, columns(**{f"c{number}": 1 for number in range(1_001)}))
    told = anywhere.push(gateway, [delta("INSERT", row="other"), wide], expect=413)
    assert (told.code, told.blamed) == ("VALIDATION_ERROR", [(1, "VALIDATION_ERROR")])
    check_nothing_stored(anywhere, gateway)


def test_a_row_of_two_mebibytes(deltas: Deltas, gateway: str) -> None:
    stamps = hlcs()
    large = "x" * 900_000
    for name in ("a", "b"):
        deltas.push(gateway, [delta("UPDATE", columns(**{name: large}), hlc=next(stamps))])
    before = digest_of(deltas, gateway)
    told = deltas.push(gateway, [delta("UPDATE", columns(c=large), hlc=next(stamps))], expect=413)
    assert (told.code, told.blamed) == ("VALIDATION_ERROR", [(0, "VALIDATION_ERROR")])
    assert digest_of(deltas, gateway) == before
    for name in ("b", "c"):
        deltas.push(gateway, [delta("UPDATE", columns(**{name: "x" if name == "b" else large}), hlc=next(stamps))])


# -- as many as may be -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deltas]:
    """Takes bodies in which ten thousand deltas have room."""
    data = tmp_path_factory.mktemp("sizes") / "data"
    with serving(data, "sqlite", DELTAS_MAX_BODY_BYTES=4 * MIB) as deltas:
        yield deltas


def test_ten_thousand_deltas(roomy: Deltas, gateway: str) -> None:
    stamps = hlcs()
    made = [delta("INSERT", row=str(number), hlc=next(stamps)) for number in range(MOST + 1)]
    refused = roomy.push(gateway, made, expect=400)
    assert (refused.code, refused.get("details", [])) == ("VALIDATION_ERROR", [])
    check_nothing_stored(roomy, gateway)
    told = roomy.push(gateway, made[:-1])
    assert (told["accepted"], told["duplicates"]) == (MOST, 0)
    again = roomy.push(gateway, made[:-1])
    assert (again["accepted"], again["duplicates"], again["deltas"]) == (MOST, MOST, [])
    assert roomy.push(gateway, made[-1:])["duplicates"] == 0
    page = roomy.pull(gateway, limit=50_000)
    assert (len(page["deltas"]), page["hasMore"]) == (MOST, True)
    assert roomy.pull(gateway, page["serverHlc"], limit=50_000).ids == [made[-1]["deltaId"]]
    assert page["deltas"] == made[:-1]

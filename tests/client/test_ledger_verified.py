"""A place with a trusted head: what a real server answers is proved, and nothing else is accepted or stored."""

from __future__ import annotations

import copy
import shutil
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from semel.client.errors import FileInUseError, InvalidArgumentError, LocalFileError
from semel.client.ledger import chain
from semel.client.ledger.operations import BulkTransaction, DeleteKey, Relate, SetKey
from semel.client.ledger.trust_file import read_trust_file
from semel.client.ledger.trusted_head import ChainForkError, TrustedHead
from semel.client.ledger.values import PlaceName
from semel.client.proofs import ProofError
from tests.client.both import BOTH, client_of
from tests.client.forging_proxy import ForgingProxy
from tests.client.ledger_place import VaultRoom, new_place
from tests.harness.server import RunningServer

BLOCKS = 12


def height_of(head: TrustedHead, name: PlaceName) -> int:
    """The height of the trusted block; 0 if there is none."""
    known = head.of(name)
    return 0 if known is None else known.height


async def written(place: Any) -> None:
    """Some blocks, with values and relationships."""
    for number in range(BLOCKS):
        operations = [SetKey(f"key:{number % 5}", str(number)), Relate(f"doc:{number}", "viewer", "user:ada")]
        await place.write([*operations, DeleteKey("key:9")], client="c", sequence=number + 1)


@BOTH
async def test_everything_that_a_real_server_answers_is_proved(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    room = new_place(server.url)
    name, path = PlaceName(room.org, room.vault), tmp_path / "heads"
    async with client_of(kind, server.url) as client:
        with TrustedHead(path) as head:
            place = client.ledger.place(*name, head=head)
            assert (await place.tip()).height == 0
            await written(place)
            assert height_of(head, name) == BLOCKS
            assert (await place.read("key:1")).value == b"11"
            assert (await place.read("key:1", at_height=2)).value == b"1"
            assert await place.read("none") is None
            assert {key: one.value for key, one in (await place.read_many(["key:0", "none"])).items()} == {
                "key:0": b"10"
            }
            assert await place.has_relationship("doc:1", "viewer", "user:ada")
            assert not await place.has_relationship("doc:1", "viewer", "user:eve")
            assert not await place.has_relationship("doc:1", "viewer", "user:ada", at_height=1)
            assert (await place.block(3)).height == 3
            assert [one.height async for one in place.blocks(4, 7)] == [4, 5, 6, 7]
            assert (await place.transaction((await place.block(5)).transactions[0].tx_id)).sequence == 5
            replayed = await place.write([DeleteKey("key:0")], client="other", key="1" * 32)
            again = await place.write([DeleteKey("key:0")], client="other", sequence=7, key="1" * 32)
            assert (again.height, again.note is None) == (replayed.height, False)
            some = [BulkTransaction((SetKey("bulk", str(number)),), "bulk") for number in range(3)]
            assert [one.height async for one in place.write_many(some)] == [14, 15, 16]
            with pytest.raises(InvalidArgumentError, match="A list has no proof"):
                await place.list_entities()
        assert read_trust_file(path)[0].height == 16
        with TrustedHead(path) as head:
            place = client.ledger.place(*name, head=head)
            for number in range(4):
                assert room.write("stranger", number + 1, "k", "MQ==").status_code == 200
            watching = place.watch(1)
            seen = [await watching.__anext__() for _ in range(20)]
            await watching.aclose()
            assert [one.height for one in seen] == list(range(1, 21))
            assert (await place.tip()).block_hash == seen[-1].block_hash
            assert height_of(head, name) == 20


@BOTH
async def test_far_blocks_are_linked_in_pieces_upwards_and_downwards(
    server: RunningServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "PIECE_HEADERS", 3)
    policy = {"mode": "BLOCK_RETENTION_MODE_COMPACTED", "retentionBlocks": "4"}
    for room in (new_place(server.url), new_place(server.url, retentionPolicy=policy)):
        async with client_of(kind, server.url) as client:
            await written(client.ledger.place(room.org, room.vault))
            head = TrustedHead()
            first = await client.ledger.place(room.org, room.vault).block(1)
            head.trust(PlaceName(room.org, room.vault), 1, first.block_hash)
            place = client.ledger.place(room.org, room.vault, head=head)
            assert (await place.read("key:1")).value == b"11"
            assert height_of(head, PlaceName(room.org, room.vault)) == BLOCKS
            assert (await place.block(1)).block_hash == first.block_hash
            assert (await place.block(2)).height == 2
            assert [one.height async for one in place.blocks()] == list(range(1, BLOCKS + 1))


def forged(path: str, **changes: Any) -> Callable[[str, Any], Any]:
    """Replaces members of the answers to requests whose path has this in it; names are joined by two underscores."""

    def forge(asked: str, facts: Any) -> Any:
        if path not in asked:
            return facts
        facts = copy.deepcopy(facts)
        for name, value in changes.items():
            *holders, last = name.split("__")
            inner = facts
            for holder in holders:
                inner = inner[int(holder) if holder.isdecimal() else holder]
            if value is None:
                inner.pop(last)
            else:
                inner[last] = value
        return facts

    return forge


LIE = b64encode(b"1000000").decode()
HASH = {"value": b64encode(b"x" * 32).decode()}
CALLS: dict[str, tuple[Callable[[Any], Awaitable[Any]], list[Callable[[str, Any], Any]]]] = {
    "read": (
        lambda place: place.read("key:1"),
        [
            forged("/entities/", value=LIE),
            forged("/entities/", value=LIE, stateProof__value=LIE),
            forged("/entities/", value=None),
            forged("/entities/", blockHeader__stateRoot=HASH),
            forged("/entities/", blockHeader__vault={"slug": "5"}),
            forged("/entities/", blockHeader={}),
            forged("/entities/", blockHeader=None),
            forged("/entities/", stateProof__key=LIE),
        ],
    ),
    "absence": (
        lambda place: place.read("none"),
        [forged("/entities/", value=LIE), forged("/entities/", stateProof__version="1", stateProof__value=LIE)],
    ),
    "relationship": (
        lambda place: place.has_relationship("doc:1", "viewer", "user:ada"),
        [forged("/relationships", relationships=None), forged("/relationships", stateProof__version="0")],
    ),
    "block": (
        lambda place: place.block(3),
        [
            forged("/blocks/3", block__transactions__0__actor="client:eve"),
            forged("/blocks/3", block__transactions__0__sequence="7"),
            forged("/blocks/3", block__transactions=[]),
            forged("/blocks/3", block__header__timestamp="2020-01-01T00:00:00Z"),
            forged("/blocks/3", block__header__height="4"),
        ],
    ),
    "tip": (
        lambda place: place.tip(),
        [forged("/tip", height="3"), forged("/tip", blockHash=HASH), forged("/tip", height="0")],
    ),
    "write": (
        lambda place: place.write([SetKey("new", "1")], client="w"),
        [
            forged("/writes", success__assignedSequence="900"),
            forged("/writes", success__blockHeader__previousHash=HASH),
            forged("/writes", success__transaction=None),
            forged("/writes", success__transaction__operations=[{"deleteEntity": {"key": "new"}}]),
        ],
    ),
}


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A place with some blocks, on a server of its own, behind a proxy."""
    with RunningServer(tmp_path_factory.mktemp("verified") / "data") as own, ForgingProxy(own.url) as proxy:
        yield new_place(own.url), proxy


@BOTH
@pytest.mark.parametrize("call", CALLS)
async def test_an_answer_that_was_tampered_with_is_refused_and_nothing_is_stored(
    room: tuple[VaultRoom, ForgingProxy], kind: str, call: str, tmp_path: Path
) -> None:
    place_name, proxy = room
    name, path = PlaceName(place_name.org, place_name.vault), tmp_path / "heads"
    async with client_of(kind, proxy.url) as client:
        proxy.forge = None
        with TrustedHead(path) as head:
            place = client.ledger.place(*name, head=head)
            if (await place.tip()).height == 0:
                await written(place)
            await place.tip()
            ask, forgeries = CALLS[call]
            for number, forge in enumerate(forgeries):
                kept = path.read_text()
                proxy.forge = forge
                with pytest.raises(ProofError):
                    pytest.fail(f"forgery {number} was believed: {await ask(place)}")
                proxy.forge = None
                assert path.read_text() == kept, number
                await ask(place)


EMPTY_PLACE = (
    forged("/entities/", value=LIE),
    forged("/entities/", stateProof__version="1", stateProof__value=LIE, value=LIE),
    forged("/entities/", blockHeader__stateRoot=HASH),
    forged("/entities/", blockHeader__stateRoot=HASH, stateProof__stateRoot=HASH),
    forged("/entities/", blockHeader__previousHash=HASH),
    forged("/entities/", blockHeader__txMerkleRoot=HASH),
    forged("/entities/", blockHeader__vault={"slug": "5"}),
    forged("/entities/", blockHeight="1"),
    forged("/entities/", stateProof__blockHeight="1"),
)


@BOTH
async def test_in_a_place_without_blocks_absence_is_proved(room: tuple[VaultRoom, ForgingProxy], kind: str) -> None:
    place_name, proxy = room
    proxy.forge, head = None, TrustedHead()
    empty = new_place(place_name.url)
    name, answers = PlaceName(empty.org, empty.vault), dict[str, Any]()

    def record(path: str, facts: Any) -> Any:
        answers[path] = facts
        return facts

    async with client_of(kind, proxy.url) as client:
        place = client.ledger.place(*name, head=head)
        for forge in (record, *EMPTY_PLACE):
            proxy.forge = forge
            if forge is record:
                assert await place.read("key:1") is None
                assert await place.read_many(["key:1", "key:2"]) == {}
                assert not await place.has_relationship("doc:1", "viewer", "user:ada")
                assert await client.ledger.place(empty.org, head=head).read("key:1") is None
            else:
                with pytest.raises(ProofError):
                    await place.read("key:1")
        assert head.of(name) is None, "no block is trusted before there is one"
        proxy.forge = None
        await place.write([SetKey("key:1", "1")], client="c")
        assert (await place.read("key:1")).value == b"1"
        proxy.forge = answers.get
        for ask in (place.read("key:1"), place.has_relationship("doc:1", "viewer", "user:ada")):
            with pytest.raises(ChainForkError, match="ends at height 0"):
                await ask
        proxy.forge = None
        assert height_of(head, name) == 1


@BOTH
async def test_a_chain_that_does_not_extend_the_trusted_one_is_refused(kind: str, tmp_path: Path) -> None:
    first = RunningServer(tmp_path / "first")
    first.start()
    room = new_place(first.url)
    name, path = PlaceName(room.org, room.vault), tmp_path / "heads"
    for number in range(3):
        room.write("c", number + 1, "k", "MQ==")
    first.stop()
    shutil.copytree(first.data, tmp_path / "second")
    with first:
        for number in range(3, 6):
            room.write("c", number + 1, "k", "Mg==")
        async with client_of(kind, first.url) as client:
            with TrustedHead(path) as head:
                assert (await client.ledger.place(*name, head=head).read("k")).value == b"2"
    kept = path.read_text()
    with RunningServer(tmp_path / "second") as second, TrustedHead(path) as head:
        other = VaultRoom(second.url, room.org, room.vault)
        async with client_of(kind, second.url) as client:
            place = client.ledger.place(*name, head=head)
            for number in range(3, 9):  # shorter than the trusted chain, as long, and longer
                other.write("c", number + 1, "k", "Mw==")
                for call in (place.tip(), place.read("k"), place.block(number + 1), place.watch(1).__anext__()):
                    with pytest.raises(ChainForkError, match="does not extend the trusted block 6:"):
                        await call
                with pytest.raises(ChainForkError):
                    await place.write([SetKey("mine", str(number))], client=f"w{number}")
                assert path.read_text() == kept


def test_the_file_of_a_trusted_head_is_locked_checked_and_replaced_as_a_whole(tmp_path: Path) -> None:
    path, name = tmp_path / "heads", PlaceName("7001", "9001")
    with TrustedHead(path) as head:
        head.trust(name, 12, "ab" * 32)
        head.trust(PlaceName("7001"), 3, b"x" * 32)
        with pytest.raises(FileInUseError):
            TrustedHead(path)
        for height, digest in ((0, "ab" * 32), (1, "ab"), (1, "zz" * 32)):
            with pytest.raises(InvalidArgumentError):
                head.trust(name, height, digest)
    (tmp_path / "heads.new").write_text("half a l")  # what a crash leaves
    with TrustedHead(path) as head:
        assert (head.of(name).height, head.of(PlaceName("7001")).hash) == (12, b"x" * 32)  # type: ignore[union-attr]
        assert head.advance(name, None, head.of(name)) is False  # type: ignore[arg-type]
    with pytest.raises(LocalFileError):
        head.trust(name, 13, "ab" * 32)
    path.write_text("7001/9001 12:abc\n")
    with pytest.raises(LocalFileError, match="Line 1"):
        TrustedHead(path)
    with pytest.raises(LocalFileError):
        TrustedHead(tmp_path / "none" / "heads")

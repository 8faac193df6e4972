"""Backups in S3-compatible storage: the same promises as for a file, on a real server of the protocol."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from unittest.mock import patch

import pytest

from semel.engine.clock import SystemWorld
from semel.store import object_storage
from semel.store.object_storage import NewObject, ObjectPlace, StoredObject, place_of_object, size_of_object
from semel.store.open import open_store
from semel.store.protocol import Changes, StoreError
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.tables import CHUNK, ChunkRow
from tests.backup.object_server import BUCKET, SECRET, ObjectServer
from tests.backup.spoiled import SPOILED
from tests.cli.command import Semel

MB = 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with ObjectServer(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def semel(server: ObjectServer) -> Semel:
    return Semel("http://127.0.0.1:1", server.env)


@pytest.fixture
def place(server: ObjectServer, request: pytest.FixtureRequest) -> Iterator[ObjectPlace]:
    """A name for the test alone; the library reads the credentials from the environment."""
    with patch.dict(os.environ, server.env):
        yield place_of_object(f"s3://{BUCKET}/{request.node.name}", None)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 40 MB that cannot be compressed: a backup of it has two parts."""
    folder = tmp_path_factory.mktemp("source")
    with closing(open_store(f"sqlite:{folder}", TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store:
        tx = store.begin(())
        for end in range(40):
            tx.flush(Changes({CHUNK: [ChunkRow(b"id", end, os.urandom(MB), 1, 1)]}, {}, {}))
        tx.commit()
    return folder


def test_a_backup_is_written_verified_and_restored(semel: Semel, data: Path, tmp_path: Path) -> None:
    address = f"s3://{BUCKET}/whole.backup"
    made = semel.here("backup", address, "--data", str(data), "--json")
    assert made.facts["file"] == address
    assert made.facts["bytes"] > object_storage.PART_BYTES
    assert semel.here("backup", "verify", address, "--json").facts["sha256"] == made.facts["sha256"]
    restored = semel.here("restore", address, "--data", str(tmp_path / "new"), "--json")
    assert (restored.facts["rows"], restored.facts["sha256"]) == (made.facts["rows"], made.facts["sha256"])
    again = semel.here("backup", address, "--data", str(data))
    assert again.code == 1
    assert "exists: name another one, or give --force" in again.err


def test_a_folder_keeps_the_newest_and_nothing_else_is_deleted(semel: Semel, data: Path, place: ObjectPlace) -> None:
    folder = place._replace(key="daily/")
    others = ("semel-20260101T000000Z.backup.txt", "other", "below/semel-20200101T000000Z.backup")
    for name in ("semel-20260101T000000Z.backup", "semel-20260102T000000Z.backup", *others):
        put(folder.within(name), b"1")
    made = semel.here("backup", folder.shown, "--data", str(data), "--keep", "2", "--json").facts
    assert re.fullmatch(rf"s3://{BUCKET}/daily/semel-\d{{8}}T\d{{6}}Z\.backup", made["file"])
    assert made["deleted"] == ["semel-20260101T000000Z.backup"]
    left = {*object_storage.names_in(folder)}
    assert left == {"semel-20260102T000000Z.backup", made["file"].rpartition("/")[2], *others[:2]}
    assert size_of_object(folder.within(others[2])) == 1


def put(place: ObjectPlace, data: bytes) -> None:
    with NewObject(place, overwrite=True) as target:
        target.write(data)
        target.publish()


def test_an_error_in_the_middle_leaves_what_was_there_before(place: ObjectPlace) -> None:
    put(place, b"before")
    with suppress(EOFError), NewObject(place, overwrite=True) as target:
        for _ in range(40):
            target.write(bytes(MB))
        raise EOFError
    assert StoredObject(place).read(100) == b"before"


def test_content_is_read_in_ranges_and_from_the_beginning_again(place: ObjectPlace) -> None:
    content = os.urandom(2 * object_storage.RANGE_BYTES + 5)
    put(place, content)
    found = StoredObject(place)
    assert found.size == len(content)
    for _ in range(2):
        pieces = []
        while piece := found.read(3 * MB):
            pieces.append(piece)
        assert b"".join(pieces) == content
        found.seek(0)


def test_a_damaged_object_is_refused(semel: Semel, data: Path, place: ObjectPlace, tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert semel.here("backup", str(file), "--data", str(data)).code == 0
    content = file.read_bytes()
    for kind, spoil in SPOILED.items():
        put(place, spoil(content))
        assert semel.here("backup", "verify", place.shown).code == 1, kind
        refused = semel.here("restore", place.shown, "--data", str(tmp_path / "new"))
        assert (refused.code, (tmp_path / "new").exists()) == (1, False), kind


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong_secret"}, "The service refused the credentials"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "cannot be reached"),
        ({"AWS_ENDPOINT_URL": "127.0.0.1"}, "is no URL"),
    ],
)
def test_errors_are_one_sentence_without_secrets(
    server: ObjectServer, data: Path, env: dict[str, str], words: str
) -> None:
    semel = Semel("http://127.0.0.1:1", {**server.env, **env})
    store = ["--data", str(data)]
    address = f"s3://{BUCKET}/x"
    for command in (["backup", address, *store], ["backup", "verify", address]):
        run = semel.here(*command)
        assert run.code == 1
        assert words in run.err
        assert run.err.count("\n") <= 2
        assert SECRET not in run.err
        assert env.get("AWS_SECRET_ACCESS_KEY", SECRET) not in run.err


def test_an_absent_object_and_an_absent_bucket_are_told(semel: Semel, data: Path) -> None:
    for address in (f"s3://{BUCKET}/absent", "s3://nowhere/absent"):
        assert f"There is no object {address}, or no such bucket." in semel.here("backup", "verify", address).err
    assert "no such bucket" in semel.here("backup", "s3://nowhere/x", "--data", str(data)).err
    assert "has no bucket" in semel.here("backup", "verify", "s3://").err


def test_the_endpoint_of_the_option_wins(server: ObjectServer) -> None:
    semel = Semel("http://127.0.0.1:1", {**server.env, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    found = semel.here("backup", "verify", f"s3://{BUCKET}/absent", "--endpoint", server.url)
    assert "There is no object" in found.err


def test_without_the_package_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "obstore.py").write_text("raise ImportError")
    semel = Semel("http://127.0.0.1:1", {"PYTHONPATH": str(tmp_path)})
    assert "pip install 'semel[s3]'" in semel("backup", "verify", "s3://a/b").err


def test_a_size_that_is_not_the_one_that_was_written_is_told(place: ObjectPlace) -> None:
    with (
        patch.object(object_storage, "size_of_object", lambda _: 3),
        NewObject(place, overwrite=True) as target,
    ):
        target.write(b"four")
        with pytest.raises(StoreError, match="do not use it"):
            target.publish()


def test_more_bytes_than_an_object_can_have_are_refused(place: ObjectPlace) -> None:
    with (
        patch.object(object_storage, "MAX_PARTS", 0),
        NewObject(place, overwrite=True) as target,
        pytest.raises(StoreError, match="back up to a file"),
    ):
        target.write(b"1")


def test_an_upload_needs_bounded_memory_and_one_that_is_killed_leaves_no_object(place: ObjectPlace) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from semel.store.object_storage import *\n"
        "def most(): return int(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
        "with NewObject(place_of_object(sys.argv[1], None), overwrite=True) as target:\n"
        "    before = most()\n"
        "    for _ in range(250): target.write(bytes(1024 * 1024))\n"
        "    print(most() - before, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program, place.shown], stdin=pipe, stdout=pipe) as run:
        assert run.stdout is not None
        kilobytes = int(run.stdout.readline())
        run.kill()
    assert 0 < kilobytes < 4 * object_storage.PART_BYTES // 1024
    assert size_of_object(place) is None

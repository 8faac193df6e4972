"""The last verified block of each place, kept in a file: what later answers must extend.

    head = TrustedHead("shop.heads")
    place = client.ledger.place(7001, 9001, head=head)

The file has one line for each place, `ORG/VAULT HEIGHT:HASH`, in the format of `semel ledger verify --trust-file`. It
is replaced as a whole: a new file is written, synced and renamed. A crash leaves the old file or the new one. One
process at a time opens it; the operating system releases the lock when the process ends.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from semel.client.errors import InvalidArgumentError, LocalFileError
from semel.client.file_lock import FileLock
from semel.client.ledger.values import PlaceName
from semel.client.proofs import ProofError, Trusted

_LINE = re.compile(r"(0|[1-9][0-9]{0,19})(?:/([1-9][0-9]{0,19}))? ([1-9][0-9]{0,19}):([0-9a-f]{64})")


class ChainForkError(ProofError):
    """The server's chain does not extend the trusted head; the head is not changed.

    A backup was restored, or the server shows another history. Compare both with other records of the chain.
    """


class TrustedHead:
    """The trusted blocks of any number of places. Several threads may use it.

    Without a path they are kept in memory: then the first block of this process is trusted as it comes.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Open the file, which need not exist. Raises `LocalFileError`, or `FileInUseError` if it is in use."""
        self._path = None if path is None else Path(path).resolve()
        self._guard = threading.Lock()
        self._lock = None if self._path is None else FileLock(self._path)
        try:
            self._heads = {} if self._path is None else _loaded(self._path)
        except BaseException:
            self.close()
            raise

    @property
    def has_file(self) -> bool:
        """Whether a change waits for a disk."""
        return self._path is not None

    def of(self, place: PlaceName) -> Trusted | None:
        """The trusted block of a place; None if there is none yet."""
        return self._heads.get(place)

    def trust(self, place: PlaceName, height: int, block_hash: str | bytes) -> None:
        """Trust a block, in hexadecimal or as bytes, that you know from another source; it replaces the one before."""
        try:
            known = bytes.fromhex(block_hash) if isinstance(block_hash, str) else bytes(block_hash)
        except ValueError:
            known = b""
        if height < 1 or len(known) != 32:
            raise InvalidArgumentError("A trusted block is a height of at least 1 and a hash of 32 bytes.")
        with self._guard:
            self._keep(place, Trusted(height, known, *place.numbers))

    def advance(self, place: PlaceName, base: Trusted | None, verified: Trusted) -> bool:
        """Replace `base` by a block that was verified against it; False if another thread has replaced it before."""
        with self._guard:
            if self._heads.get(place) != base:
                return False
            self._keep(place, verified)
            return True

    def close(self) -> None:
        """Release the file. A second call does nothing."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> TrustedHead:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self, place: PlaceName, block: Trusted) -> None:
        """Store, then remember: a failed write leaves both as they were."""
        heads = {**self._heads, place: block}
        if self._path is not None:
            if self._lock is None:
                raise LocalFileError(f"{self._path} is closed.")
            self._lock.check()
            _stored(self._path, heads)
        self._heads = heads


def _loaded(path: Path) -> dict[PlaceName, Trusted]:
    try:
        lines = path.read_text("ascii").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise LocalFileError(f"{path} cannot be read: {reason}.") from None
    heads: dict[PlaceName, Trusted] = {}
    for number, line in enumerate(lines, start=1):
        found = _LINE.fullmatch(line)
        if found is None:
            raise LocalFileError(f"Line {number} of {path} is not ORG[/VAULT] HEIGHT:HASH.")
        place = PlaceName(found[1], found[2])
        heads[place] = Trusted(int(found[3]), bytes.fromhex(found[4]), *place.numbers)
    return heads


def _stored(path: Path, heads: dict[PlaceName, Trusted]) -> None:
    content = "".join(f"{place} {one.height}:{one.hash.hex()}\n" for place, one in sorted(heads.items(), key=str))
    beside = path.with_name(f"{path.name}.new")
    try:
        with beside.open("wb") as file:
            file.write(content.encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise LocalFileError(f"{path} cannot be written: {error.strerror}.") from None


def sync_folder(folder: Path) -> None:
    """Make a new or renamed file of a folder durable."""
    if os.name == "nt":  # a folder cannot be synced there; the rename is durable with the file system's log
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

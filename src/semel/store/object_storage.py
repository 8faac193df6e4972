"""Objects of an S3-compatible service: written in parts, there whole or not at all, and read in ranges.

An object is visible when all of its parts were uploaded and joined. A crash before that leaves parts that no one sees
and that a rule of the bucket should delete after some days; under the name there is nothing, or the object that was
there before. Every part carries its SHA-256, which the service compares. Memory is bounded by a few parts.

Credentials and region come from the variables that all tools for S3 know. They are in no message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from semel.store.protocol import StoreError

try:
    import obstore
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
    from obstore.store import S3Store
except ImportError as error:
    raise StoreError("S3 needs one more package: install it with pip install 'semel[s3]'.") from error

if TYPE_CHECKING:
    from obstore import ReadableFile, WritableFile

SCHEME = "s3://"

_REFUSED = (UnauthenticatedError, PermissionDeniedError, PermissionError)
PART_BYTES = 32 * 1024 * 1024
MAX_PARTS = 10_000
"""The protocol has no more parts in one object."""
MAX_PARTS_AT_ONCE = 2
RANGE_BYTES = 8 * 1024 * 1024
"""Bytes of one request of a read."""
MAX_TRIES = 5
CONNECT_SECONDS, REQUEST_SECONDS, RETRY_SECONDS = 10, 240, 240
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_METADATA_SERVICE = "169.254.169.254"
_MESSAGE_CHARACTERS = 300


class ObjectPlace(NamedTuple):
    """A bucket, the name of an object or the beginning of names, and the address of the service if it is not AWS."""

    bucket: str
    key: str
    endpoint: str | None

    @property
    def shown(self) -> str:
        """The address as a user writes it."""
        return f"{SCHEME}{self.bucket}/{self.key}"

    def within(self, name: str) -> ObjectPlace:
        """The object of this name below this place."""
        return self._replace(key=self.key + name)


def place_of_object(address: str, endpoint: str | None, env: Mapping[str, str] = os.environ) -> ObjectPlace:
    """The place that `s3://BUCKET/KEY` names. Raises `StoreError`."""
    bucket, _, key = address.removeprefix(SCHEME).partition("/")
    if not bucket:
        raise StoreError("The address has no bucket: write s3://BUCKET/KEY.")
    found = endpoint or next((env[name] for name in _ENDPOINTS if env.get(name)), None)
    if found is not None and not found.startswith(("http://", "https://")):
        raise StoreError(f"The endpoint {found!r} is no URL: it begins with http:// or https://.")
    return ObjectPlace(bucket, key, found)


class NewObject:
    """A context manager: `publish` makes the object visible; leaving the block without it leaves nothing visible."""

    def __init__(self, place: ObjectPlace, *, overwrite: bool) -> None:
        self._place = place
        self._overwrite = overwrite
        self._size = 0
        self._writer: WritableFile | None = None

    def __enter__(self) -> Self:
        self.refuse_existing()
        with _told(self._place):
            self._writer = obstore.open_writer(
                _bucket(self._place), self._place.key, buffer_size=PART_BYTES, max_concurrency=MAX_PARTS_AT_ONCE
            )
        return self

    def refuse_existing(self) -> None:
        """Raise if the bucket cannot be used, or the name is taken and may not be overwritten."""
        if not self._place.key:
            raise StoreError(f"{self._place.shown} has no name of an object: write s3://BUCKET/KEY.")
        if size_of_object(self._place) is not None and not self._overwrite:
            raise StoreError(
                f"The object {self._place.shown} exists: name another one, or give --force to overwrite it."
            )

    def write(self, data: bytes) -> None:
        """Write all of these bytes."""
        self._size += len(data)
        if self._size > MAX_PARTS * PART_BYTES:
            raise StoreError(f"The object would have more than {MAX_PARTS * PART_BYTES:,} bytes: back up to a file.")
        assert self._writer is not None
        with _told(self._place):
            self._writer.write(data)

    def publish(self) -> None:
        """Upload the last part, join all, and compare the size with what the service has."""
        assert self._writer is not None
        with _told(self._place):
            self._writer.close()
        stored = size_of_object(self._place)
        if stored != self._size:
            raise StoreError(f"{self._place.shown} has {stored} bytes instead of {self._size}: do not use it.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer = None  # never closed after an error: that would join the parts


class StoredObject:
    """An object that is read from its beginning to its end, in ranges; a range that fails is tried again."""

    def __init__(self, place: ObjectPlace) -> None:
        self._place = place
        with _told(place):
            self._reader: ReadableFile = obstore.open_reader(_bucket(place), place.key, buffer_size=RANGE_BYTES)
        self.size: int = self._reader.size

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most this number; none at the end."""
        with _told(self._place):
            return bytes(self._reader.read(size))

    def seek(self, offset: int, /) -> int:
        """Go to a byte."""
        return self._reader.seek(offset)


def size_of_object(place: ObjectPlace) -> int | None:
    """The number of bytes of an object; None if there is none. Raises `StoreError`."""
    with _told(place):
        try:
            return int(obstore.head(_bucket(place), place.key)["size"])
        except FileNotFoundError:
            return None


def names_in(place: ObjectPlace) -> Iterator[str]:
    """The names of the objects directly below a place that ends with a slash."""
    with _told(place):
        for page in obstore.list(_bucket(place), place.key):
            for found in page:
                name = found["path"].removeprefix(place.key)
                if name and "/" not in name:
                    yield name


def delete_object(place: ObjectPlace) -> None:
    """Delete an object, if there is one."""
    with _told(place):
        obstore.delete(_bucket(place), place.key)


def _bucket(place: ObjectPlace) -> S3Store:
    is_plain = place.endpoint is not None and place.endpoint.startswith("http://")
    return S3Store(
        place.bucket,
        config={"checksum_algorithm": "sha256", **({"endpoint": place.endpoint} if place.endpoint else {})},
        client_options={
            "allow_http": is_plain,
            "connect_timeout": f"{CONNECT_SECONDS}s",
            "timeout": f"{REQUEST_SECONDS}s",
        },
        retry_config={"max_retries": MAX_TRIES - 1, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
    )


@contextmanager
def _told(place: ObjectPlace) -> Iterator[None]:
    """Turn the errors of the service into one sentence."""
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(f"There is no object {place.shown}, or no such bucket.") from error
    except _REFUSED as error:
        raise StoreError(
            f"The service refused the credentials for {place.shown}: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
            "AWS_REGION and what they may do."
        ) from error
    except (BaseError, OSError) as error:
        text = " ".join(str(error).partition("Debug source")[0].split())
        if _METADATA_SERVICE in text:
            raise StoreError("There are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.") from error
        raise StoreError(f"{place.shown} cannot be reached: {text[:_MESSAGE_CHARACTERS]}") from error

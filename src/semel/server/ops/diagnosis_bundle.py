"""The support bundle: the parts that need no running server, and how they become one zip file.

A bundle is meant to be sent to a supporter. Secrets are shown as `set` or `unset`, environment variables by name
without values, jobs by ids, ages and counts; params, results and keys are never included. Of each log the last lines
are taken unchanged: the server writes no secret into them, and lines of other programs are searched for the configured
secrets. Everything is bounded. Making a bundle changes nothing, and a crash leaves nothing behind.
"""

from __future__ import annotations

import io
import os
import platform
import re
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import orjson

from semel import __version__
from semel.kernel.clock import utc_text
from semel.server.ops.logs import LOG_LINES, MAX_LINE_BYTES
from semel.server.setting_values import is_secret, set_for
from semel.server.settings import PREFIX, ServerSettings, aliases_of
from semel.store.open import shown

MAX_TAIL_BYTES = 1024 * 1024
MAX_LOGS = 20
LEAST_SECRET = 6
"""A secret with fewer characters is not searched for, because it would match ordinary words."""

HIDDEN = b"[hidden]"


def file_name(now_ms: int) -> str:
    """The file name of a bundle."""
    return f"diag_bundle_{datetime.fromtimestamp(now_ms / 1_000, UTC):%Y%m%d_%H%M%S}.zip"


def as_json(facts: Any) -> bytes:
    """A part as indented JSON, because people read it too."""
    return orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def about(now_ms: int, source: str, namespace: str) -> bytes:
    """The origin of the bundle: version, time, source and namespace."""
    return as_json(
        {
            "version": __version__,
            "made_utc": utc_text(now_ms),
            "source": source,
            "namespace": namespace,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "processors": os.cpu_count(),
            "process": os.getpid(),
            "executable": sys.executable,
        }
    )


def configuration(settings: ServerSettings) -> bytes:
    """The settings of the server; secrets as `set` or `unset`."""
    facts = {one.name: getattr(settings, one.name) for one in fields(settings) if not is_secret(one)}
    facts["store"] = shown(settings.store_url)
    for one in fields(settings):
        if is_secret(one):
            facts[one.name] = "set" if getattr(settings, one.name) else "unset"
    return as_json(facts)


def environment(variables: Iterable[str]) -> bytes:
    """The names of the environment variables, without values."""
    return as_json(sorted(variables))


def logs(folder: Path) -> dict[str, bytes]:
    """The last lines of the logs in a folder, by the names of their parts."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in (".jsonl", ".log") and path.is_file())
    except OSError:
        return {}
    return {f"logs/{path.name}": tail(path) for path in files[:MAX_LOGS]}


def tail(path: Path) -> bytes:
    """The last lines of a file; the reason if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_TAIL_BYTES))
            lines = file.read(MAX_TAIL_BYTES).splitlines()
    except OSError as error:
        return f"cannot be read: {error.strerror}\n".encode()
    if size > MAX_TAIL_BYTES:
        del lines[:1]  # its beginning is missing
    return b"".join(line[:MAX_LINE_BYTES] + b"\n" for line in lines[-LOG_LINES:])


class SurfaceDiagnosis(Protocol):
    """The part of one surface in a bundle, read from one snapshot of the store."""

    name: str

    def facts(self) -> Mapping[str, Any]:
        """The file of the surface: counts and ages, no content and no keys."""

    def store_facts(self) -> Mapping[str, Any]:
        """The facts that the surface adds to those about the store."""

    def check(self) -> Mapping[str, Any]:
        """The self-check of the surface: a name, whether it passed, and the finding."""


def store_facts(settings: ServerSettings, found: Sequence[SurfaceDiagnosis]) -> bytes:
    """The size of the store, and the facts that surfaces add."""
    facts: dict[str, Any] = {"store": shown(settings.store_url), "files": _sizes(settings)}
    for one in found:
        facts |= one.store_facts()
    return as_json(facts)


def surface_parts(found: Sequence[SurfaceDiagnosis]) -> dict[str, bytes]:
    """One file for each surface."""
    return {f"{one.name}.json": as_json(one.facts()) for one in found}


def _sizes(settings: ServerSettings) -> dict[str, int]:
    """The bytes of the database files, for a store that has files."""
    scheme, _, folder = settings.store_url.partition(":")
    if scheme != "sqlite":
        return {}
    try:
        place = Path(folder.partition("?")[0].removeprefix("//"))
        return {path.name: path.stat().st_size for path in sorted(place.glob("semel.*"))}
    except OSError:
        return {}


def packed(parts: Mapping[str, bytes], now_ms: int, secrets: Iterable[str]) -> bytes:
    """One zip file of all parts, from which these secrets are removed."""
    hidden = _pattern(secrets)
    moment = datetime.fromtimestamp(now_ms / 1_000, UTC).timetuple()[:6]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(parts.items()):
            clean = content if hidden is None else hidden.sub(HIDDEN, content)
            archive.writestr(zipfile.ZipInfo(name, moment), clean, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def secrets_of(settings: ServerSettings, variables: Mapping[str, str]) -> set[str]:
    """Every configured secret, used or not."""
    names = [one.name for one in fields(settings) if is_secret(one)]
    aliases = aliases_of(type(settings))
    written = {
        named.value for name in names for named in set_for(PREFIX + name.upper(), aliases.get(name, ()), variables)
    }
    return written | {getattr(settings, name) for name in names}


def _pattern(secrets: Iterable[str]) -> re.Pattern[bytes] | None:
    # The longest first, because one secret may be the beginning of another.
    long = sorted((secret for secret in secrets if len(secret) >= LEAST_SECRET), key=len, reverse=True)
    return re.compile(b"|".join(re.escape(secret.encode()) for secret in long)) if long else None

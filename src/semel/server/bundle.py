"""The support bundle: the parts that need no running server, and how they become one zip file.

A bundle is made to be sent to a supporter. Secrets are `set` or `unset`, variables have names and no values, jobs
have ids, ages and counts; nothing has params, results or keys. Of logs the last lines are taken as they are: the server
writes no secret into them, and what another program may have written there is searched for the configured secrets.
Everything is bounded. Making a bundle changes nothing, and a crash leaves nothing behind.
"""

from __future__ import annotations

import io
import os
import platform
import re
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from semel import __version__
from semel.contracts.jobs.ids import job_name
from semel.contracts.jobs.reading import Census, Gauges, census, gauges
from semel.contracts.jobs.tables import JobRow
from semel.engine.reading import Reading
from semel.kernel.utc import utc_text
from semel.server.aliases import set_for
from semel.server.logs import LOG_LINES, MAX_LINE_BYTES
from semel.server.setting_values import is_secret
from semel.server.settings import PREFIX, ServerSettings, aliases_of
from semel.store.open import shown

MAX_TAIL_BYTES = 1024 * 1024
MAX_LOGS = 20
OLDEST_JOBS = 20
LEAST_SECRET = 6
"""A shorter secret is not searched for: it would be found in every other word."""

HIDDEN = b"[hidden]"


def file_name(now_ms: int) -> str:
    """The file name of a bundle."""
    return f"diag_bundle_{datetime.fromtimestamp(now_ms / 1_000, UTC):%Y%m%d_%H%M%S}.zip"


def as_json(facts: Any) -> bytes:
    """A part that people read too."""
    return orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def about(now_ms: int, source: str) -> bytes:
    """The origin of the bundle: version, time and source."""
    return as_json(
        {
            "version": __version__,
            "made_utc": utc_text(now_ms),
            "source": source,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "processors": os.cpu_count(),
            "process": os.getpid(),
            "executable": sys.executable,
        }
    )


def configuration(settings: ServerSettings) -> bytes:
    """What the server runs with; secrets as `set` or `unset`."""
    facts = {one.name: getattr(settings, one.name) for one in fields(settings) if not is_secret(one)}
    facts["store"] = shown(settings.store_url)
    for one in fields(settings):
        if is_secret(one):
            facts[one.name] = "set" if getattr(settings, one.name) else "unset"
    return as_json(facts)


def environment(variables: Iterable[str]) -> bytes:
    """Names, and no values."""
    return as_json(sorted(variables))


def logs(folder: Path) -> dict[str, bytes]:
    """The ends of the logs in a folder, by the names of their parts."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in (".jsonl", ".log") and path.is_file())
    except OSError:
        return {}
    return {f"logs/{path.name}": tail(path) for path in files[:MAX_LOGS]}


def tail(path: Path) -> bytes:
    """The last lines of a file; why not, where it cannot be read."""
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


def store_facts(settings: ServerSettings, found: Census | None) -> bytes:
    """How large the store is, and how old its oldest key."""
    facts: dict[str, Any] = {"store": shown(settings.store_url), "files": _sizes(settings)}
    if found is not None:
        facts["idempotency_records"] = found.records
        oldest = found.oldest_record_at
        facts["oldest_record_utc"] = None if oldest is None else utc_text(oldest)
    return as_json(facts)


def _sizes(settings: ServerSettings) -> dict[str, int]:
    """The bytes of the database's own files, where it has files."""
    scheme, _, folder = settings.store_url.partition(":")
    if scheme != "sqlite":
        return {}
    try:
        place = Path(folder.partition("?")[0].removeprefix("//"))
        return {path.name: path.stat().st_size for path in sorted(place.glob("semel.*"))}
    except OSError:
        return {}


class Jobs:
    """The jobs part of a bundle: counts of all, and the oldest that wait and run."""

    def __init__(self, reading: Reading) -> None:
        self.census: Census = census(reading, OLDEST_JOBS)
        self.gauges: Gauges = gauges(reading)

    def facts(self) -> bytes:
        """Without params, keys and results."""
        found = self.census
        return as_json(
            {
                "by_state": found.by_state,
                "by_queue": found.by_queue,
                "by_kind": found.by_kind,
                "is_complete": found.is_complete,
                "waiting": self.gauges.waiting,
                "leased": self.gauges.leased,
                "dead": self.gauges.dead,
                "oldest_ready": [_job(job, found.now_ms) for job in found.oldest_ready],
                "oldest_leased": [_job(job, found.now_ms) for job in found.oldest_leased],
            }
        )

    def check(self) -> dict[str, Any]:
        """Whether the kept counts are those of the rows; they are written in the same commits."""
        states = self.census.by_state
        counted = (states.get("scheduled", 0) + states.get("queued", 0), states.get("leased", 0))
        kept = (self.gauges.waiting, self.gauges.leased)
        if not self.census.is_complete:
            return {"name": "jobs", "ok": True, "found": "too many to be counted one by one"}
        said = f"waiting and leased: {kept[0]} and {kept[1]} by the counts, {counted[0]} and {counted[1]} by the rows"
        return {"name": "jobs", "ok": counted == kept, "found": said}


def _job(job: JobRow, now_ms: int) -> dict[str, Any]:
    return {
        "job_id": job_name(job.id),
        "age_ms": now_ms - job.created_at,
        "ready_ms": now_ms - job.ready_at,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "epoch": job.epoch,
        "priority": job.priority,
    }


def packed(parts: Mapping[str, bytes], now_ms: int, secrets: Iterable[str]) -> bytes:
    """One zip file of all parts, without these secrets wherever they may have got to."""
    hidden = _pattern(secrets)
    moment = datetime.fromtimestamp(now_ms / 1_000, UTC).timetuple()[:6]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(parts.items()):
            clean = content if hidden is None else hidden.sub(HIDDEN, content)
            archive.writestr(zipfile.ZipInfo(name, moment), clean, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def secrets_of(settings: ServerSettings, variables: Mapping[str, str]) -> set[str]:
    """Every secret that is configured, whether it is used or not."""
    names = [one.name for one in fields(settings) if is_secret(one)]
    aliases = aliases_of(type(settings))
    written = {
        named.value for name in names for named in set_for(PREFIX + name.upper(), aliases.get(name, ()), variables)
    }
    return written | {getattr(settings, name) for name in names}


def _pattern(secrets: Iterable[str]) -> re.Pattern[bytes] | None:
    # The longest first: one may be the beginning of another.
    long = sorted((secret for secret in secrets if len(secret) >= LEAST_SECRET), key=len, reverse=True)
    return re.compile(b"|".join(re.escape(secret.encode()) for secret in long)) if long else None

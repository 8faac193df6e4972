"""`GET /v1/diagnose`: one file with everything that a supporter needs to find a fault of this server, without secrets.

It only reads. The store is read once; if it does not answer, the bundle says so and has the other parts. Only one
bundle is made at a time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from semel.engine.contract import EngineError
from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.server.context import Context
from semel.server.ops import diagnosis_bundle
from semel.server.ops.diagnosis_bundle import SurfaceDiagnosis
from semel.server.ops.health import liveness, readiness_facts
from semel.server.ops.logs import RECENT
from semel.server.ops.metrics import render

LEAST_FREE_BYTES = 1024**3
"""Fewer free bytes on the disk than this are reported as a problem."""


class Bundle(NamedTuple):
    """A bundle file and its name."""

    name: str
    content: bytes


class Diagnosis:
    """Makes bundles of the running server; created once at start."""

    def __init__(self, context: Context, surfaces: Sequence[Callable[[Reading], SurfaceDiagnosis]]) -> None:
        """`surfaces` read their parts from the store."""
        self._context = context
        self._surfaces = surfaces
        self._turn = asyncio.Lock()

    async def bundle(self) -> Bundle:
        """Make a bundle; refused while another is being made."""
        if self._turn.locked():
            raise Refused("OVERLOADED", "A diagnosis is being made; try again in a moment.")
        async with self._turn:
            return await self._made()

    async def _made(self) -> Bundle:
        context = self._context
        now_ms = context.world.wall_ms()
        await context.metrics.measure()
        await context.audit.written()  # so that the latest lines are in the bundle
        began = context.world.monotonic_ms()
        found: list[SurfaceDiagnosis] | None = None
        failure = ""
        try:
            found = await context.engine.read(lambda reading: [diagnose(reading) for diagnose in self._surfaces])
        except EngineError as error:
            failure = str(error)
        took_ms = context.world.monotonic_ms() - began
        parts = {
            "about.json": diagnosis_bundle.about(now_ms, "a running server", context.namespace),
            "health.json": diagnosis_bundle.as_json({"livez": liveness(context), "readyz": readiness_facts(context)}),
            "metrics.json": render(context.metrics, "application/json")[1],
            "metrics.txt": render(context.metrics, "text/plain")[1],
            "self_check.json": diagnosis_bundle.as_json(self._checks(found, failure or f"looked at in {took_ms} ms")),
            "logs/server.log": RECENT.text(),
        }
        parts |= diagnosis_bundle.surface_parts(found or ())
        content = await asyncio.to_thread(self._pack, parts, found or (), now_ms)
        return Bundle(diagnosis_bundle.file_name(now_ms), content)

    def _pack(self, parts: dict[str, bytes], found: Sequence[SurfaceDiagnosis], now_ms: int) -> bytes:
        """Make the parts that read files or take time; runs in a thread."""
        settings = self._context.settings
        parts["configuration.json"] = diagnosis_bundle.configuration(settings)
        parts["environment.json"] = diagnosis_bundle.environment(os.environ)
        parts["store.json"] = diagnosis_bundle.store_facts(settings, found)
        parts.update(diagnosis_bundle.logs(settings.logs))
        return diagnosis_bundle.packed(parts, now_ms, diagnosis_bundle.secrets_of(settings, os.environ))

    def _checks(self, surfaces: Sequence[SurfaceDiagnosis] | None, found: str) -> list[Mapping[str, Any]]:
        """The self-checks of the engine."""
        engine, audit = self._context.engine, self._context.audit
        checks: list[Mapping[str, Any]] = [
            {"name": "engine", "ok": engine.failure is None, "found": "failed" if engine.failure else "running"},
            {"name": "store", "ok": surfaces is not None, "found": found},
            {"name": "queue", "ok": True, "found": f"{engine.waiting_writes} writes wait for a commit"},
            {"name": "audit", "ok": not audit.is_broken, "found": f"{audit.lines} lines, {audit.lost_lines} lost"},
        ]
        checks += [one.check() for one in surfaces or ()]
        free = _free_bytes(self._context.settings.folder)
        if free is not None:
            checks.append({"name": "disk", "ok": free >= LEAST_FREE_BYTES, "found": f"{free} bytes free"})
        return checks


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None

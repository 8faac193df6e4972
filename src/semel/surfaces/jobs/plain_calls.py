"""Passes the commands of jobs to the engine: as plain writes where the command allows it."""

from __future__ import annotations

import asyncio
from typing import Any

from semel.engine.caller import WaitingCaller
from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.surfaces.jobs.commands import JobCommand
from semel.surfaces.jobs.contract import JobContract
from semel.surfaces.jobs.rules.plain_batch import plain_write


async def submit(
    engine: Engine, jobs: JobContract, command: JobCommand, size: int, cost: int, caller: WaitingCaller
) -> Any:
    """Execute a command; returns its answer after the commit is on disk."""
    plain = plain_write(jobs, command, size, caller.principal)
    if plain is None:
        return await engine.submit(Write(jobs, command, size, cost), caller)
    plain.origin = caller.origin
    plain.future = asyncio.get_running_loop().create_future()
    caller.watch(plain.leave)
    try:
        engine.admit_plain(plain)
        return await plain.future
    finally:
        caller.unwatch(plain.leave)

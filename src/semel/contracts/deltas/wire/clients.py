"""The body of the admin call that forgets clients."""

from __future__ import annotations

from semel.contracts.deltas.limits import MAX_CLIENT_CHARACTERS
from semel.contracts.deltas.refusals import RefusedDeltas
from semel.kernel.delta_id import json_text
from semel.kernel.json_error import JsonError
from semel.kernel.json_parse import parse

MAX_CLIENTS = 100
"""Clients that one request names."""


def parse_clients(raw: bytes) -> list[str]:
    """The texts of the ids in `{"clients": [...]}`, each once."""
    try:
        body = parse(raw)
    except JsonError as error:
        raise RefusedDeltas("VALIDATION_ERROR", str(error)) from None
    names = body.get("clients") if isinstance(body, dict) else None
    if not isinstance(names, list) or not 1 <= len(names) <= MAX_CLIENTS:
        raise RefusedDeltas("VALIDATION_ERROR", f"clients is a list of 1 to {MAX_CLIENTS} client ids.")
    found = []
    for index, name in enumerate(names):
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_CLIENT_CHARACTERS:
            message = f"clients[{index}] is not a text of 1 to {MAX_CLIENT_CHARACTERS} characters."
            raise RefusedDeltas("VALIDATION_ERROR", message)
        found.append(json_text(name))
    return list(dict.fromkeys(found))

"""FastAPI: `key: once.fastapi.Key` in a handler reads the `Idempotency-Key` header."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, HTTPException, Request

from semel.kernel.keys import InvalidKeyError, parse_idempotency_key


def required_key(request: Request) -> str:
    """The key of a request. Answers 400 if it is missing or malformed."""
    try:
        key = parse_idempotency_key([value.encode("latin-1") for value in request.headers.getlist("idempotency-key")])
    except InvalidKeyError as error:
        raise HTTPException(400, str(error)) from error
    if key is None:
        raise HTTPException(400, "Send an Idempotency-Key with this request.")
    return key.decode("ascii")


Key = Annotated[str, Depends(required_key)]
"""The type of a handler's parameter for the request's key."""

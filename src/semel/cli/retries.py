"""Retries of requests that carry an identity, so that none takes effect twice.

One without an identity is sent again only after an answer which says that nothing came of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

import click

from semel.cli.failures import RequestError

RETRIES = 6
FIRST_SECONDS = 0.1
LONGEST_SECONDS = 3.0
MOST_PATIENCE_SECONDS = 60.0

Told = TypeVar("Told")


def send_until_answered(send: Callable[[], Told], retries: int, *, has_identity: bool = True) -> Told:
    """The first answer; else the last error, marked unsettled if any of the tries may have taken effect."""
    unsettled = False
    for tried in range(retries + 1):
        try:
            return send()
        except RequestError as error:
            unsettled = unsettled or error.is_unsettled
            if tried == retries or not error.may_pass or (error.is_unsettled and not has_identity):
                error.is_unsettled = unsettled and error.may_pass
                raise
            if tried == 0:
                click.echo(f"{error.message} Trying again.", err=True)
            time.sleep(pause_seconds(tried, error.wait_seconds))
    raise AssertionError("the last try returns or raises")


def pause_seconds(tried: int, asked_seconds: float = 0.0) -> float:
    """Exponential backoff with jitter, so that clients do not retry all at once."""
    own = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(tried, 16))
    chance = random.uniform(0.75, 1.25)  # noqa: S311 - not a secret
    return max(own * chance, min(asked_seconds, MOST_PATIENCE_SECONDS))

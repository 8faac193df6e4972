"""`semel quotas`: what principals have stored, beside their limits; read beside a running server, changing nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import click

from semel.cli.command import Opt, command
from semel.cli.output import Listing
from semel.cli.store_options import StoreOptions

if TYPE_CHECKING:
    from semel.engine.reading import Reading
    from semel.server.quotas.limits import QuotaLimits

MOST_FACTS = 100_000


class PrincipalUsage(NamedTuple):
    """What a principal has stored, and its limits; 0 is no limit."""

    principal: str
    stored_keys: int
    stored_keys_limit: int
    stored_bytes: int
    stored_bytes_limit: int
    subscriptions: int
    subscriptions_limit: int

    @property
    def facts(self) -> Mapping[str, str | int]:
        """The members, for `--json`."""
        return self._asdict()


@command()
def quotas(
    store: StoreOptions,
    tokens: Annotated[Path | None, Opt("Token file with [[quota]] tables.  [SEMEL_TOKENS]", "", "FILE")] = None,
) -> Listing[PrincipalUsage]:
    """List what each principal has stored, beside its quotas.

    A server may be running. Keys and bytes are counted while a quota of them is set; subscriptions always are.
    """
    from semel.server.quotas.limits import default_limits, read_quotas  # noqa: PLC0415
    from semel.server.settings_loader import SettingsError  # noqa: PLC0415

    settings = store.settings()
    default = default_limits(settings)
    try:
        named = read_quotas(str(tokens or settings.tokens), default) or {}
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    with store.reading() as reading:
        found = _usage(reading, default, named)
    head = ("PRINCIPAL", "KEYS", "LIMIT", "BYTES", "LIMIT", "SUBSCRIPTIONS", "LIMIT")
    return Listing(found, head, _row, "No principal has a quota of its own, and nothing is counted.")


def _usage(reading: Reading, default: QuotaLimits, named: Mapping[str, QuotaLimits]) -> list[PrincipalUsage]:
    """The principals that have stored something or have limits of their own, in order."""
    from semel.engine.storage_meter import StorageLimits  # noqa: PLC0415
    from semel.server.quotas.stored_usage import read_used  # noqa: PLC0415

    used, subscriptions = read_used(reading), _subscriptions(reading)
    found = []
    for name in sorted({*used, *subscriptions, *named}):
        own, limits = used.get(name, StorageLimits()), named.get(name, default)
        pairs = (own.keys, limits.stored_keys), (own.size, limits.stored_bytes)
        rest = subscriptions[name], limits.subscriptions
        found.append(PrincipalUsage(name, *pairs[0], *pairs[1], *rest))
    return found


def _subscriptions(reading: Reading) -> Counter[str]:
    from semel.store.protocol import Range  # noqa: PLC0415
    from semel.surfaces.streams.subscriptions.tables import FACT, SubscriptionFactRow, own_count_key  # noqa: PLC0415

    start = own_count_key(b"")[0]
    rows = reading.range(Range(FACT, "", (), MOST_FACTS, start=(start,), stop=(start + b"\xff",)))
    counts: Counter[str] = Counter()
    for row in rows:
        fact = SubscriptionFactRow(*row)
        counts[fact.fact.removeprefix(start).decode()] = fact.number
    return counts


def _row(one: PrincipalUsage) -> tuple[str, ...]:
    limits = [f"{limit:,}" if limit else "none" for limit in one[2::2]]
    used = [f"{number:,}" for number in one[1::2]]
    return one.principal, *(cell for pair in zip(used, limits, strict=True) for cell in pair)

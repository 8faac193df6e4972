"""Django on both databases."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connections, transaction

from semel import once
from tests.once.houses import BUSY_SECONDS, CHARGE_ONE, Play, PostgresHouse, SqliteHouse
from tests.once.script import Call, Effect, Nested, Result

if not settings.configured:
    settings.configure(DATABASES={}, USE_TZ=True)
    django.setup()


@contextmanager
def opened(facts: dict[str, Any]) -> Iterator[Any]:
    """A connection of Django's own, outside of any transaction."""
    alias = f"{facts['ENGINE']}-{threading.get_ident()}"
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: facts})[alias]
    try:
        yield connections[alias]
    finally:
        connections[alias].close()
        del connections[alias]


def _play(facts: dict[str, Any], play: Play) -> once.Attempt:
    fault: BaseException | None = None
    with opened(facts) as connection:
        with transaction.atomic(using=connection.alias):
            if play.works_before:
                _charge(connection)
            try:
                attempt = _block(connection, play)
                play.before_commit()
                return attempt
            except BaseException as error:
                if play.catches is None or not isinstance(error, play.catches):
                    raise
                fault = error
        raise fault


def _charge(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(CHARGE_ONE)


def _block(connection: Any, play: Play) -> once.Attempt:
    block: once.Transaction[Any] = play.begin(connection)
    with block as attempt:
        for action in play.actions if attempt.fresh else ():
            if isinstance(action, Effect):
                _charge(connection)
            elif isinstance(action, Nested):
                with suppress(*[action.catches] if action.catches else []):
                    _block(connection, play.nested(action))
            elif isinstance(action, Result):
                attempt.result = action.value
            elif isinstance(action, Call):
                action.function()
            else:
                connection.commit()
    return attempt


class DjangoPostgres(PostgresHouse):
    """On PostgreSQL, by psycopg 3."""

    can_end_inside = False

    def play(self, play: Play) -> once.Attempt:
        """In an atomic block."""
        return _play(self.facts(play.isolation), play)

    def facts(self, isolation: str | None = None) -> dict[str, Any]:
        """The settings of the database."""
        parts = urlsplit(self.place)
        schema = self.place.partition("search_path%3D")[2]
        options: dict[str, Any] = {"options": f"-c search_path={schema}"}
        if isolation is not None:
            from tests.once.houses_postgres import LEVELS  # noqa: PLC0415

            options["isolation_level"] = LEVELS[isolation]
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path[1:],
            "USER": parts.username,
            "HOST": parts.hostname,
            "PORT": str(parts.port),
            "OPTIONS": options,
        }


class DjangoSqlite(SqliteHouse):
    """On SQLite."""

    can_end_inside = False

    def play(self, play: Play) -> once.Attempt:
        """In an atomic block."""
        return _play(self.facts(), play)

    def facts(self) -> dict[str, Any]:
        """The settings of the database."""
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": self.place,
            "OPTIONS": {"timeout": BUSY_SECONDS},
        }

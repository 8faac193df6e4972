"""Django on both databases."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connections, transaction

from semel import once
from tests.once.houses import BUSY_SECONDS, CHARGE_ONE, Play, PostgresHouse, SqliteHouse
from tests.once.script import Call, Effect, Result

if not settings.configured:
    settings.configure(DATABASES={}, USE_TZ=True)
    django.setup()


def _play(alias: str, facts: dict[str, Any], play: Play) -> once.Attempt:
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: facts})[alias]
    connection = connections[alias]
    fault: BaseException | None = None
    try:
        with transaction.atomic(using=alias):
            try:
                return _block(connection, play)
            except BaseException as error:
                if play.catches is None or not isinstance(error, play.catches):
                    raise
                fault = error
        raise fault
    finally:
        connection.close()
        del connections[alias]


def _block(connection: Any, play: Play) -> once.Attempt:
    with play.begin(connection) as attempt:
        for action in play.actions if attempt.fresh else ():
            if isinstance(action, Effect):
                with connection.cursor() as cursor:
                    cursor.execute(CHARGE_ONE)
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
        parts = urlsplit(self.place)
        schema = self.place.partition("search_path%3D")[2]
        options: dict[str, Any] = {"options": f"-c search_path={schema}"}
        if play.isolation is not None:
            from tests.once.houses_postgres import LEVELS  # noqa: PLC0415

            options["isolation_level"] = LEVELS[play.isolation]
        facts = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path[1:],
            "USER": parts.username,
            "HOST": parts.hostname,
            "PORT": str(parts.port),
            "OPTIONS": options,
        }
        return _play(f"postgres-{threading.get_ident()}", facts, play)


class DjangoSqlite(SqliteHouse):
    """On SQLite."""

    can_end_inside = False

    def play(self, play: Play) -> once.Attempt:
        """In an atomic block."""
        facts = {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": self.place,
            "OPTIONS": {"timeout": BUSY_SECONDS},
        }
        return _play(f"sqlite-{threading.get_ident()}", facts, play)

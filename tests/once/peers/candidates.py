"""How each candidate of the kill schedule is put around the handler, as its documentation says.

A lease, or what it has in the place of one, is one second for every candidate that has one, so that a run is short;
everything else is the default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from tests.once.peers.app import App, BusyError, Charged, Order, Shop, web

LEASE_SECONDS = 1.0

NAIVE = "no idempotency"
TRANSACTION = "semel: once.transaction"
MIDDLEWARE = "semel: once.Middleware"
JOINED = "semel: both, joined"
IDEMKIT = "idemkit"
HEADER = "asgi-idempotency-header"
POWERTOOLS = "AWS Powertools"
DBOS = "DBOS"
RESTATE = "Restate"


def naive(shop: Shop) -> App:
    """The control: every request is handled."""
    return web(shop, shop.plainly)


def transaction(shop: Shop) -> App:
    """The receipt in the handler's transaction."""
    from semel import once  # noqa: PLC0415 - each candidate imports what it needs alone

    def work(order: Order) -> Charged:
        with psycopg.connect(shop.database) as connection:
            with once.transaction(connection, order.key, order.amount, scope=None) as attempt:
                if attempt.fresh:
                    attempt.result = shop.charge(connection, order)
            connection.commit()
            shop.die_at("committed")
        charged: Charged = attempt.result
        return charged

    return web(shop, work)


def middleware(shop: Shop, work: Callable[[Order], Charged] | None = None) -> App:
    """`once.Middleware`, with receipts in the same PostgreSQL, around a handler that knows nothing of it."""
    from semel.once import Middleware, Once  # noqa: PLC0415

    return Middleware(web(shop, work or shop.plainly), Once(shop.database), scope=None, lease=LEASE_SECONDS)


def joined(shop: Shop) -> App:
    """The same around a handler whose transaction joins the request's key."""
    from semel import once  # noqa: PLC0415

    def work(order: Order) -> Charged:
        with psycopg.connect(shop.database) as connection:
            with once.transaction(connection) as attempt:
                if attempt.fresh:
                    attempt.result = shop.charge(connection, order)
            connection.commit()
            shop.die_at("committed")
        charged: Charged = attempt.result
        return charged

    return middleware(shop, work)


def idemkit(shop: Shop) -> App:
    """Its ASGI middleware, with records in the same PostgreSQL."""
    from idemkit import HttpConfig, IdempotencyMiddleware, PostgresBackend  # noqa: PLC0415

    # A waiter does not see that a lease has ended before its own wait has: the client is to ask again soon.
    config = HttpConfig(lease_ttl_seconds=LEASE_SECONDS, wait_timeout_seconds=LEASE_SECONDS, scope_mode="single_tenant")
    backend = PostgresBackend.from_url(shop.database, min_size=1, max_size=4)
    app: Any = IdempotencyMiddleware(web(shop, shop.plainly), backend=backend, config=config)  # type: ignore[arg-type]
    found: App = app
    return found


def header(shop: Shop) -> App:
    """Its ASGI middleware, with keys and answers in Redis; it has no lease."""
    from idempotency_header_middleware import IdempotencyHeaderMiddleware  # noqa: PLC0415
    from idempotency_header_middleware.backends import RedisBackend  # noqa: PLC0415
    from redis.asyncio import Redis  # noqa: PLC0415

    backend = RedisBackend(redis=Redis(port=shop.redis))
    app: App = IdempotencyHeaderMiddleware(web(shop, shop.plainly), backend=backend)
    return app


class _Context:
    """What Lambda tells a function; the invocation has one second left."""

    def get_remaining_time_in_millis(self) -> int:
        """How long it may run."""
        return int(LEASE_SECONDS * 1_000)


def powertools(shop: Shop) -> App:
    """Its decorator for functions, with records in Redis, and the context of a Lambda that ends after a second."""
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function  # noqa: PLC0415
    from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyAlreadyInProgressError  # noqa: PLC0415
    from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer  # noqa: PLC0415
    from redis import Redis  # noqa: PLC0415

    layer = CachePersistenceLayer(client=Redis(port=shop.redis, decode_responses=True))
    config = IdempotencyConfig(event_key_jmespath="key", lambda_context=_Context())

    @idempotent_function(data_keyword_argument="order", config=config, persistence_store=layer)  # type: ignore[untyped-decorator]
    def charged(order: dict[str, Any]) -> Charged:
        return shop.plainly(Order(**order))

    def work(order: Order) -> Charged:
        try:
            found: Charged = charged(order={"key": order.key, "amount": order.amount})
        except IdempotencyAlreadyInProgressError as error:
            raise BusyError from error
        return found

    return web(shop, work)


def dbos(shop: Shop) -> App:
    """A workflow whose id is the key, with the handler in a transaction of its datasource, all in one PostgreSQL."""
    from dbos import DBOS as Runtime  # noqa: PLC0415, N811
    from dbos import SetWorkflowID, SQLAlchemyDatasource  # noqa: PLC0415

    address = shop.database.replace("postgresql://", "postgresql+psycopg://")
    config = {"name": "shop", "log_level": "ERROR", "executor_id": "1", "application_version": "1"}
    Runtime(config={"system_database_url": address, **config})
    source = SQLAlchemyDatasource.create(address)

    @source.transaction()  # type: ignore[untyped-decorator]
    def transacted(key: str, amount: int) -> Charged:
        connection = source.sql_session().connection().connection.driver_connection
        return shop.charge(connection, Order(key, amount))

    @Runtime.workflow()  # type: ignore[untyped-decorator]
    def charged(key: str, amount: int) -> Charged:
        found: Charged = transacted(key, amount)
        shop.die_at("committed")
        return found

    def work(order: Order) -> Charged:
        with SetWorkflowID(order.key):
            found: Charged = charged(order.key, order.amount)
        return found

    Runtime.launch()
    return web(shop, work)


def restate(shop: Shop) -> App:
    """A service whose handler runs as one durable step; the server of Restate is asked, with the key, and calls it."""
    import restate as sdk  # noqa: PLC0415

    service = sdk.Service("shop")

    @service.handler()  # type: ignore[untyped-decorator]
    async def charge(context: Any, asked: dict[str, Any]) -> Charged:
        found: Charged = await context.run_typed("charge", lambda: shop.plainly(Order(**asked)))
        shop.die_at("answering")
        return found

    app: App = sdk.app([service], protocol="request_response")
    return app


BUILDERS: dict[str, Callable[[Shop], App]] = {
    NAIVE: naive,
    TRANSACTION: transaction,
    MIDDLEWARE: middleware,
    JOINED: joined,
    IDEMKIT: idemkit,
    HEADER: header,
    POWERTOOLS: powertools,
    DBOS: dbos,
    RESTATE: restate,
}
"""Every candidate, by its name in the table."""

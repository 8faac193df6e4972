"""What can be killed: `make crash SURFACE=` takes the first table, `make nightly NAME=` the second."""

from __future__ import annotations

CRASHES = {
    "streams": "tests.streams.crash.run:StreamsUnderKills",
    "forks": "tests.streams.forks.run:ForksUnderKills",
    "subscriptions": "tests.streams.crash.subscriptions:SubscriptionsUnderKills",
    "events": "tests.events.crash.run:EventsUnderKills",
    "jobs": "tests.jobs.crash.run:JobsUnderKills",
    "joins": "tests.jobs.crash.joins:JoinsUnderKills",
    "ledger": "tests.ledger.crash.run:LedgerUnderKills",
    "deltas": "tests.deltas.crash.run:DeltasUnderKills",
    "replica": "tests.client.crash.run:ReplicaUnderKills",
    "shop": "tests.once.shop.run:ShopUnderKills",
}
OTHERS = {
    "failover": "tests.failover.run:StreamsUnderFailovers",
    "ha": "tests.ha.run:StreamsUnderFaults",
    "powercut": "tests.store.powercut.history:ServerUnderPowerCuts",
}
"""Lives that end otherwise."""

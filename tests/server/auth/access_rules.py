"""Who may do what: one row for each operation, message and method. The matrix test compares a server with it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Reach(Enum):
    """What scopes mean for a call."""

    NAMED = "the caller must reach the thing that is named"
    FILTERED = "the caller is shown, or given, what it reaches"
    WHOLE = "the caller must be without scopes"
    PROCESS = "the caller must be without scopes, and known in every namespace"
    LEASE = "the lease of the caller decides, and scopes do not"
    OWNER = "it is another caller's: only an administrator without scopes is told of it"


class AccessRule(NamedTuple):
    """The roles that a caller needs, all of them or admin, and what its scopes mean; no roles: any known caller."""

    roles: frozenset[str]
    reach: Reach
    is_hidden: bool = False
    """Whether a caller that may not is told 404, as for a thing that does not exist."""


OPEN = "open to every caller"
WAKE = "only for the token of a wake, which no caller of the matrix has"
Rule = AccessRule | str

NAMED, FILTERED, WHOLE, PROCESS, LEASE, OWNER = Reach


def _rules(roles: str, reach: Reach, *names: str, is_hidden: bool = False) -> dict[str, Rule]:
    rule = AccessRule(frozenset(roles.split(", ") if roles else ()), reach, is_hidden)
    return dict.fromkeys(names, rule)


def _both(names: dict[str, Rule]) -> dict[str, Rule]:
    """With and without the version in the path."""
    return names | {f"{name}Unversioned": rule for name, rule in names.items()}


_PLACES = ("org", "vault")
_LEDGER_READS = (
    *("ClientState", "ListEntities", "ReadEntity", "ReadEntities", "Tip", "ListBlocks", "WatchBlocks"),
    *("GetBlock", "ProveBlock", "GetTransaction"),
)

HTTP: dict[str, Rule] = {
    **dict.fromkeys(("livez", "health", "readyz", "ready", "openapi", "webhookKeys", "console", "consoleFile"), OPEN),
    **_both(dict.fromkeys(("connectorTypes",), OPEN)),
    **_rules("", FILTERED, "metrics", "live", "caller", "getWrite", "findWrite"),
    **_rules("admin", PROCESS, "diagnose", "settings"),
    **_rules("admin", WHOLE, "audit", "listTokens", "createToken", "getToken", "rotateToken", "revokeToken"),
    # Streams.
    **_both(_rules("write", NAMED, "createStream", "appendToStream", "deleteStream")),
    **_both(_rules("read", NAMED, "readStream", "describeStream")),
    **_rules("read", NAMED, "listProducers"),
    **_rules("read", NAMED, "getSubscription", is_hidden=True),
    **_rules("read", FILTERED, "listStreams", "listSubscriptions"),
    **_rules("read, write", NAMED, "putSubscription"),
    **_rules("read, write", NAMED, "addSubscriptionStreams", "claimWake", is_hidden=True),
    **_rules("write", NAMED, "removeSubscriptionStream", is_hidden=True),
    **_rules("write", FILTERED, "deleteSubscription"),  # of one out of reach: 204, as of one that is not there
    **dict.fromkeys(("callbackWake", "ackWake", "releaseWake"), WAKE),
    # Events.
    **_rules("read", NAMED, "readEvents"),
    **_rules("read", NAMED, "getEvent", is_hidden=True),
    **_rules("write", NAMED, "submitEvents"),
    **_rules("read", FILTERED, "listPartitions"),
    # Jobs.
    **_rules("write", NAMED, "submitJob", "submitJobs"),
    **_rules("read", FILTERED, "listJobs", "lookupJob"),
    **_rules("work", NAMED, "claimJobs"),
    **_rules("admin", WHOLE, "listDeadLetters", "releaseKey", "listQueues", "getQueue", "putQueue", "deleteQueue"),
    **_rules("admin", WHOLE, "listSchedules", "getSchedule", "putSchedule", "deleteSchedule", "requeueJob"),
    **_rules("read", OWNER, "getJob", "getJobResult", "listMembers", is_hidden=True),
    **_rules("write", OWNER, "cancelJob", "closeGroup", is_hidden=True),
    **_rules("work", LEASE, "heartbeat", "completeJob", "failJob", "deferJob", "jobStep"),
    **_rules("write", WHOLE, "meshSubmit"),  # its jobs go to one queue, whose name no scope of the matrix has
    **_rules("work", FILTERED, "meshPull"),
    **_rules("work", LEASE, "meshResult", "meshResultOld"),
    # The ledger.
    **_rules("read", FILTERED, "listOrgs"),
    **_rules("admin", WHOLE, "makeOrg"),
    **_rules("read", NAMED, "getOrg", "listVaults", "getVault", "vaultListRelationships", "vaultListResources"),
    **_rules("admin", NAMED, "changeOrg", "deleteOrg", "makeVault", "changeVault", "deleteVault"),
    **_rules("write", NAMED, *(f"{place}{call}" for place in _PLACES for call in ("Write", "WriteBatch", "WriteMany"))),
    **_rules("read", NAMED, *(f"{place}{call}" for place in _PLACES for call in _LEDGER_READS)),
    **_rules("", FILTERED, "orgListRelationships", "orgListResources"),  # 400: relationships stand in a vault
    # Deltas.
    **_both(_rules("write", NAMED, "push")),
    **_both(_rules("read", NAMED, "pull", "checkpoint", "deltasSocket", "actions")),
    **_both(_rules("admin", NAMED, "saveSchema", "saveSyncRules", "flush", "gatewayMetrics", "listClients")),
    **_both(_rules("admin", NAMED, "forgetClients", "listTables", "listRows", "listRowEntries")),
    **_both(_rules("admin", FILTERED, "listGateways")),
}
"""By the id of an operation of the OpenAPI document."""

MESSAGES: dict[str, Rule] = {
    **_rules("", FILTERED, "events connect", "events heartbeat", "events disconnect"),
    **_rules("read", NAMED, "events sync", "deltas pull"),
    **_rules("write", NAMED, "events submit_events"),
    **_rules("read, write", NAMED, "deltas push"),  # the handshake is for readers
}
"""By surface and type of a WebSocket message."""

_READ_CALLS = (
    *("Read", "BatchRead", "VerifiedRead", "HistoricalRead", "WatchBlocks", "GetBlock", "GetBlockRange", "GetTip"),
    *("GetClientState", "ListRelationships", "ListResources", "ListEntities"),
)
GRPC: dict[str, Rule] = {
    **_rules("write", NAMED, *(f"WriteService/{call}" for call in ("Write", "BatchWrite", "StreamWrites"))),
    **_rules("read", NAMED, *(f"ReadService/{call}" for call in _READ_CALLS)),
    **_rules("admin", WHOLE, "AdminService/CreateOrganization"),
    **_rules("read", FILTERED, "AdminService/ListOrganizations"),
    **_rules("read", NAMED, *(f"AdminService/{call}" for call in ("GetOrganization", "GetVault", "ListVaults"))),
    **_rules(
        "admin", NAMED, *(f"AdminService/{call}" for call in ("DeleteOrganization", "CreateVault", "DeleteVault"))
    ),
    "HealthService/Check": OPEN,
    **_rules("read", NAMED, "HealthService/Check of a place"),
}
"""By service and method."""


def is_allowed(rule: Rule, role: str, reach: str, home: str = "") -> bool:
    """Whether a caller with this role ("" is none that the server knows) and reach may do it, in its one namespace
    `home` or, without one, in every namespace.
    """
    if isinstance(rule, str):
        return rule == OPEN
    if not role or not (role == "admin" or rule.roles <= set(role.split(", "))):
        return False
    if rule.reach is Reach.OWNER:
        return role == "admin" and reach == "all"
    if rule.reach is Reach.PROCESS:
        return reach == "all" and not home
    if rule.reach is Reach.WHOLE:
        return reach == "all"
    return reach != "foreign" or rule.reach is not Reach.NAMED

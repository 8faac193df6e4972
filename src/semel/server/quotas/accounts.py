"""The accounts of principals: what each uses now, compared with its limits before a request is looked at.

A rate is a token bucket that holds one second: a burst may use it at once. A body is charged as a whole, also one that
is larger than the bucket; the next request then waits until the debt is paid. A refused request was not looked at: its
body is not parsed, its key is not searched for and nothing is stored, so the same request with the same key is sent
again later. A refusal costs the server less than the request, but not nothing: a principal that is refused more than a
few times a second gets its answers late, and a connection has one request at a time, so a flood slows itself down.

Everything here is in the memory of the process that judges credentials, on the event loop, in constant time. A crash
forgets it. Nodes count apart. With quotas off no account is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol, Self

from semel.kernel.errors import Refused
from semel.kernel.rate_limit import TokenBucket
from semel.server.http.answer import CLOSE, Header
from semel.server.ops.audit_log import AuditLog
from semel.server.quotas.limits import QuotaLimits

MOST_ACCOUNTS = 10_000
"""Above this number idle accounts are dropped: they are as good as new ones."""
SWEEP_SECONDS = 1.0
PROMPT_REFUSALS = 10
"""Refusals of one principal that are answered at once, a second; further ones are answered late."""
LATE_SECONDS = 1.0
"""The shortest time for which a late refusal is held back; the longest is twice that."""
GOLDEN = 0.618_033_988_749_895
"""Multiples of it, without their whole part, are spread evenly over the time from 0 to 1, however many there are."""
COUNT_SECONDS = 1.0
"""The advice of a refusal whose end is not known: when to send the request again."""

REQUESTS, BODY_BYTES, IN_FLIGHT, CONNECTIONS, READERS = QuotaLimits._fields[:5]

SUBSCRIPTIONS = "subscriptions"
_AGAIN = "Nothing was looked at or stored; send the same request again later, with the same key."


class QuotaExceededError(Refused):
    """The refusal of a request beyond a quota; `late_seconds` is how long the answer is held back."""

    def __init__(self, quota: str, limit: int, wait_seconds: float, late_seconds: float) -> None:
        headers: tuple[Header, ...] = (CLOSE,) if quota == CONNECTIONS else ()
        super().__init__(
            "QUOTA_EXCEEDED",
            f"The quota {quota} of this principal is {limit}. {_AGAIN}",
            {"quota": quota},
            headers=headers,
            retry_after_ms=max(1, round(wait_seconds * 1_000)),
            closes=quota == CONNECTIONS,
        )
        self.late_seconds = late_seconds


class QuotaAccount:
    """What one principal uses."""

    __slots__ = ("_body_bytes", "_late", "_prompt", "_requests", "actor", "connections", "limits", "readers", "used_at")

    def __init__(self, actor: str, limits: QuotaLimits) -> None:
        self.actor = actor
        self.limits = limits
        self.connections = 0
        self.readers = 0
        self.used_at = 0.0
        self._requests = TokenBucket(limits.requests_per_second)
        self._body_bytes = TokenBucket(limits.body_bytes_per_second)
        self._prompt = TokenBucket(PROMPT_REFUSALS)
        self._late = 0

    def set_limits(self, limits: QuotaLimits) -> None:
        """Change the limits; what is open beyond a lower one stays open."""
        self.limits = limits
        self._requests.set_rate(limits.requests_per_second)
        self._body_bytes.set_rate(limits.body_bytes_per_second)

    def wait(self, now: float) -> float:
        """The seconds until one more request is allowed; 0 if it is allowed now."""
        return self._requests.wait(now) or self._body_bytes.wait(now)

    def blocking(self, now: float) -> str:
        """The rate that delays a request."""
        return REQUESTS if self._requests.wait(now) else BODY_BYTES

    def spend(self, size: int) -> None:
        """Charge a request with a body of this size."""
        self._requests.spend(1)
        self._body_bytes.spend(size)

    def spend_bytes(self, size: int) -> None:
        """Charge bytes of a body that was not complete when its request was charged."""
        self._body_bytes.spend(size)

    def late_seconds(self, now: float) -> float:
        """How long a refusal at this time is held back."""
        if not self._prompt.take(now):
            return 0.0
        # Connections that all went on at the same instant would use the whole second of the bucket in one batch.
        self._late += 1
        return LATE_SECONDS * (1.0 + self._late * GOLDEN % 1.0)

    def is_idle(self, now: float) -> bool:
        """Whether nothing is open, and both buckets are full again or in no use."""
        return not (self.connections or self.readers) and now - self.used_at > SWEEP_SECONDS and not self.wait(now)


class ReaderSeat:
    """The place of one live reader; a context manager."""

    __slots__ = ("_account",)

    def __init__(self, account: QuotaAccount | None) -> None:
        self._account = account
        if account is not None:
            account.readers += 1

    def close(self) -> None:
        """The reader has ended; a second call does nothing."""
        account, self._account = self._account, None
        if account is not None:
            account.readers -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


NO_SEAT = ReaderSeat(None)
"""For a reader that is not counted."""


class QuotaHolder(Protocol):
    """A connection, which is counted for the principal of its latest request."""

    account: QuotaAccount | None


class Quotas:
    """The accounts of all principals; used on the event loop only."""

    def __init__(self, audit: AuditLog, seconds: Callable[[], float]) -> None:
        """`seconds` is a clock that never falls."""
        self.is_on = False
        """Whether any principal has a limit; otherwise nothing is counted."""
        self.now = seconds
        self.refusals: Counter[str] = Counter(dict.fromkeys(QuotaLimits._fields, 0))
        self._audit = audit
        self._default = QuotaLimits()
        self.named: Mapping[str, QuotaLimits] = {}
        """The limits of principals that differ from the default, by actor."""
        self._accounts: dict[str, QuotaAccount] = {}
        self._swept_at = 0.0

    def __len__(self) -> int:
        return len(self._accounts)

    def replace(self, default: QuotaLimits, named: Mapping[str, QuotaLimits]) -> None:
        """Take other limits, from now on."""
        self._default, self.named = default, named
        self.is_on = any(any(limits) for limits in (default, *named.values()))
        for actor, account in self._accounts.items():
            account.set_limits(named.get(actor, default))

    def limits_of(self, actor: str) -> QuotaLimits:
        """The limits of a principal."""
        return self.named.get(actor, self._default)

    def account(self, actor: str) -> QuotaAccount:
        """The account of a principal."""
        found = self._accounts.get(actor)
        if found is None:
            now = self.now()
            if len(self._accounts) >= MOST_ACCOUNTS and now - self._swept_at >= SWEEP_SECONDS:
                self._swept_at = now
                self._accounts = {name: one for name, one in self._accounts.items() if not one.is_idle(now)}
            found = self._accounts[actor] = QuotaAccount(actor, self.limits_of(actor))
        return found

    def enter(self, holder: QuotaHolder, actor: str, size: int, where: Callable[[], Mapping[str, str]]) -> None:
        """Charge a request on a connection to its principal, or refuse it."""
        account = self.account(actor)
        if holder.account is not account:
            self.join(holder, account, where)
        now = account.used_at = self.now()
        wait = account.wait(now)
        if wait:
            raise self.refusal(account, account.blocking(now), where, wait)
        account.spend(size)

    def may_enter(self, holder: QuotaHolder, actor: str) -> bool:
        """Whether `enter` would charge a request now, on a connection that is counted for its principal already."""
        account = holder.account
        return account is not None and account is self._accounts.get(actor) and not account.wait(self.now())

    def join(self, holder: QuotaHolder, account: QuotaAccount, where: Callable[[], Mapping[str, str]]) -> None:
        """Count a connection for a principal, and no longer for the one before."""
        limit = account.limits.connections
        if limit and account.connections >= limit:
            raise self.refusal(account, CONNECTIONS, where)
        leave_account(holder)
        holder.account = account
        account.connections += 1

    def check_socket(self, actor: str, where: Callable[[], Mapping[str, str]]) -> None:
        """Charge the handshake of a live connection, or refuse it; the conversation then counts itself."""
        account = self.account(actor)
        limits, now = account.limits, self.now()
        wait = account.wait(now)
        if wait:
            raise self.refusal(account, account.blocking(now), where, wait)
        if limits.connections and account.connections >= limits.connections:
            raise self.refusal(account, CONNECTIONS, where)
        if limits.live_readers and account.readers >= limits.live_readers:
            raise self.refusal(account, READERS, where)
        account.spend(0)

    def seat(self, actor: str) -> ReaderSeat:
        """Count a live reader until its seat is closed, or refuse it."""
        account = self.account(actor)
        limit = account.limits.live_readers
        if limit and account.readers >= limit:
            raise self.refusal(account, READERS, dict)
        return ReaderSeat(account)

    def in_flight_refusal(self, actor: str, where: Callable[[], Mapping[str, str]]) -> QuotaExceededError:
        """The refusal of a write that the engine did not take, because too many of its principal wait."""
        return self.refusal(self.account(actor), IN_FLIGHT, where)

    def note_subscription(self, actor: str) -> None:
        """Count a subscription that was refused because its principal has too many, and write an audit line."""
        self.refusals[SUBSCRIPTIONS] += 1
        self._audit.note("QUOTA_EXCEEDED", {"reason": SUBSCRIPTIONS, "principal": actor})

    def refusal(
        self,
        account: QuotaAccount,
        quota: str,
        where: Callable[[], Mapping[str, str]],
        wait_seconds: float = COUNT_SECONDS,
    ) -> QuotaExceededError:
        """The refusal of a request, counted and written to the audit log."""
        self.refusals[quota] += 1
        self._audit.note("QUOTA_EXCEEDED", {"reason": quota, "principal": account.actor, **where()})
        limit = getattr(account.limits, quota)
        return QuotaExceededError(quota, limit, wait_seconds, account.late_seconds(self.now()))


def leave_account(holder: QuotaHolder) -> None:
    """The connection has ended: its principal may open another one."""
    account, holder.account = holder.account, None
    if account is not None:
        account.connections -= 1

"""The answer to a cursor of another history: a message, a problem document, or a server-sent event."""

from __future__ import annotations

from typing import Any

from semel.contracts.events.limits import MAX_COMMITTED_ID
from semel.contracts.events.rules.epochs import Reset
from semel.contracts.events.wire.messages import WireError, bad_request
from semel.kernel.json_print import dump


def sentence(reset: Reset) -> str:
    """For people."""
    agreed = reset.agreed_id
    return f"This cursor is of events that were lost when a backup was restored; go on from {agreed}, in the new epoch."


def reset_payload(reset: Reset) -> bytes:
    """The payload of `reset`, and the data of an event of that name."""
    return dump(_facts(reset))


def reset_frame(reset: Reset) -> bytes:
    """The last event of a stream. Its id is the position from which a client resumes by itself."""
    return b"id: %d\nevent: reset\ndata: %s\n\n" % (reset.agreed_id, reset_payload(reset))


def reset_error(reset: Reset) -> WireError:
    """The same where no message of that name is known: the request is refused, and the connection stays."""
    return WireError("reset", sentence(reset), _facts(reset))


def reset_error_camel(reset: Reset) -> WireError:
    """The same for clients of the camelCase dialects."""
    details = {"logEpoch": reset.log_epoch, "agreedCommittedId": reset.agreed_id}
    return WireError("reset", sentence(reset), details)


def named_epoch(value: Any, where: str) -> int | None:
    """The epoch that a cursor is of, if the client names it."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COMMITTED_ID:
        raise bad_request(f"{where} must be an integer of at least 0")
    return value


def _facts(reset: Reset) -> dict[str, int]:
    return {"log_epoch": reset.log_epoch, "agreed_committed_id": reset.agreed_id}

"""What one principal may hold of the queue."""

from __future__ import annotations

from semel.engine.back_pressure import NO_PRINCIPAL, QueueShare


def test_b7_nothing_is_kept_of_a_principal_whose_writes_are_done() -> None:
    share = QueueShare(max_writes=10, max_bytes=100)
    for number in range(1_000):
        share.add(f"p{number}", 5)
        share.remove(f"p{number}", 5)
    share.add(NO_PRINCIPAL, 5)
    share.remove(NO_PRINCIPAL, 5)
    assert len(share) == 0

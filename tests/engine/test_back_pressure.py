"""What one principal may hold of the queue."""

from __future__ import annotations

from semel.engine.back_pressure import NO_PRINCIPAL, QueueShare


def test_b7_a_principal_holds_no_more_than_its_share_and_others_are_not_counted() -> None:
    share = QueueShare(max_writes=2, max_bytes=100)
    for _ in range(2):
        assert share.has_room("a", 10)
        share.add("a", 10)
    assert not share.has_room("a", 10)
    assert share.has_room("b", 10)
    share.remove("a", 10)
    assert share.has_room("a", 10)


def test_b7_bytes_count_too_but_a_first_write_always_fits() -> None:
    share = QueueShare(max_writes=10, max_bytes=100)
    assert share.has_room("a", 1_000)
    share.add("a", 60)
    assert share.has_room("a", 40)
    assert not share.has_room("a", 41)


def test_b7_nothing_is_kept_of_a_principal_whose_writes_are_done() -> None:
    share = QueueShare(max_writes=10, max_bytes=100)
    for number in range(1_000):
        share.add(f"p{number}", 5)
        share.remove(f"p{number}", 5)
    share.add(NO_PRINCIPAL, 5)
    share.remove(NO_PRINCIPAL, 5)
    assert len(share) == 0

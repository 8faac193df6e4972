"""A backup that is put back twice: the future between the two is lost as well, with the epoch that was raised in it."""

from __future__ import annotations

from pathlib import Path

from tests.epoch.restored import GATEWAY, Premises, Writer, first_life, lost_life, new_life, rows_of


def test_c_epoch_cursors_of_every_lost_future_are_told(tmp_path: Path) -> None:
    premises = Premises("sqlite", tmp_path)
    with premises.serving() as writer:
        kept = first_life(writer)
    premises.back_up()
    with premises.serving() as writer:
        held = lost_life(writer, kept, 0)
    premises.restore()
    first = premises.raise_epoch()
    with premises.serving() as writer:
        ids = new_life(writer)
        offset, cursor = writer.append("log", "gggg"), writer.cursor(held.kept_cursor)
    premises.restore()
    second = premises.raise_epoch()
    assert 0 < first < second
    with premises.serving() as writer:
        new = new_life(writer)
        for lost in (*held.lost_offsets, offset):
            assert writer.read("log", lost).status_code == 410, lost
        assert reread(writer, held.lost_offsets[-1]) == "ddddeeeeffff"
        assert reread(writer, offset) == "aaaaddddeeeeffff", "where an epoch of nobody begins is not known"
        assert writer.read("log", held.kept_offset).text == "ddddeeeeffff"

        for since in (*held.lost_ids, *ids, ids[0] - 1):
            details = {"log_epoch": second, "agreed_committed_id": held.kept_ids[-1]}
            assert writer.events(since).json().get("details") == details, since
        named = writer.events(ids[0], log_epoch=first)
        assert named.json()["details"] == {"log_epoch": second, "agreed_committed_id": 0}
        assert min(new) > max(ids)

        for number in (*held.lost_cursors, cursor):
            assert writer.pull(number).status_code == 410, number
        assert rows_of(writer.pull(held.kept_cursor)) == [("r4", "new"), ("r5", "new"), ("r6", "new")]


def test_c_epoch_a_raise_that_is_repeated_does_no_harm(tmp_path: Path) -> None:
    premises = Premises("sqlite", tmp_path)
    with premises.serving() as writer:
        kept = first_life(writer)
    first, second = premises.raise_epoch(), premises.raise_epoch()
    with premises.serving() as writer:
        assert writer.read("log", kept[0]).status_code == 200
        assert writer.append("log", "bbbb") == f"{second:016d}_{8:016d}"
        assert writer.read("log", kept[0]).text == "bbbb"
        assert [event["committed_id"] for event in writer.events(kept[1][0]).json()["events"]] == kept[1][1:]
        assert writer.events(first * 1_000, log_epoch=first).json()["code"] == "reset"
        watermark = writer.events(0).json()["sync_to_committed_id"]
        assert writer.events(watermark).status_code == 200
        end = writer.cursor(kept[2])
        writer.push("r2", "new")
        assert rows_of(writer.pull(end)) == rows_of(writer.pull(kept[2])) == [("r2", "new")]


def test_c_epoch_each_epoch_of_a_stream_and_of_a_gateway_is_kept_apart(tmp_path: Path) -> None:
    premises = Premises("sqlite", tmp_path)
    with premises.serving() as writer:
        writer.create("log")
        offsets, cursors, epochs = [writer.append("log", "0")], [writer.push("r0", "x")], [0]
    for number in range(1, 4):
        epochs.append(premises.raise_epoch())
        with premises.serving() as writer:
            offsets.append(writer.append("log", str(number)))
            cursors.append(writer.push(f"r{number}", "x"))
            assert offsets == sorted(offsets)
            for place, (epoch, offset) in enumerate(zip(epochs, offsets, strict=True)):
                assert offset == f"{epoch:016d}_{place + 1:016d}"
                assert reread(writer, offset) == "0123"[place + 1 : number + 1]
                rows = [row for row, _ in rows_of(writer.pull(cursors[place], f"new-{place}"))]
                assert rows == [f"r{one}" for one in range(place + 1, number + 1)]
                if place < number:
                    beyond = writer.read("log", f"{epoch:016d}_{place + 2:016d}")
                    assert (beyond.status_code, beyond.headers["Stream-Next-Offset"]) == (410, offset)
            assert writer.pull(0, "all", GATEWAY).json()["epoch"] == epochs[-1]


def reread(writer: Writer, offset: str) -> str:
    """The content that a reader which obeys gets from an offset on."""
    page = writer.read("log", offset)
    if page.status_code == 410:
        page = writer.read("log", page.headers["Stream-Next-Offset"])
    assert (page.status_code, page.headers["Stream-Up-To-Date"]) == (200, "true")
    return page.text

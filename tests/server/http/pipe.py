"""A transport without a socket, for tests that put a connection of the server together by hand."""

from __future__ import annotations

from tests.server.http.wire import answers_in


class Reading:
    """Keeps what is written, and knows whether it is read."""

    is_reading = True

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.unsent = 0
        self.is_closed = False

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.written.append(data)

    def close(self) -> None:
        """The connection ends."""
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        """Whether it has ended."""
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        """What waits for the client to read."""
        return self.unsent

    def get_extra_info(self, name: str) -> None:
        """Nothing is known."""

    def pause_reading(self) -> None:
        """Nothing is read from now on."""
        self.is_reading = False

    def resume_reading(self) -> None:
        """It is read again."""
        self.is_reading = True

    def set_protocol(self, protocol: object) -> None:
        """Another protocol has it."""
        self.protocol = protocol

    @property
    def statuses(self) -> list[int]:
        """Of the answers so far."""
        return answers_in(b"".join(self.written))[0]

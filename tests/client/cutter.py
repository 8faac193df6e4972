"""A line to a server that can be cut: before a request arrives, or between its answer and whoever asked."""

from __future__ import annotations

from collections import Counter

from tests.client.line import CUT_ANSWER, CUT_REQUEST, Fault, Line


class Cutter(Line):
    """Cuts the line at requests that it was told to wait for by the end of their path."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._wanted: dict[Fault, Counter[str]] = {CUT_REQUEST: Counter(), CUT_ANSWER: Counter()}
        self.cuts: list[str] = []
        """The targets of requests that were cut, in order."""

    def cut_request(self, target: str, times: int = 1) -> None:
        """The next requests whose path ends like this do not arrive."""
        self._wanted[CUT_REQUEST][target] += times

    def cut_answer(self, target: str, times: int = 1) -> None:
        """The next requests whose path ends like this arrive; their answers do not."""
        self._wanted[CUT_ANSWER][target] += times

    def forget(self) -> None:
        """Cut nothing more."""
        for wanted in self._wanted.values():
            wanted.clear()

    def due(self, request: bytes) -> Fault:
        """The first cut that waits for this request."""
        found = super().due(request)
        target = self.targets[-1].partition(" ")[2]
        for fault, wanted in self._wanted.items():
            for end in +wanted:
                if target.partition("?")[0].endswith(end):
                    wanted[end] -= 1
                    self.cuts.append(target)
                    return fault
        return found

"""The retry policy of a call: limits of attempts and time for lost answers and a server without room.

Every call that changes something carries a name of its own (a key, a claim id, a lease token), so repeating it does
nothing twice.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 5.0
MOST_ASKED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long to try; None is without end."""

    tries: int | None = 8
    seconds: float | None = 60.0

    def is_over(self, tried: int, elapsed: float, pause: float) -> bool:
        """Whether another try after that pause is one too many."""
        if self.tries is not None and tried >= self.tries:
            return True
        return self.seconds is not None and elapsed + pause > self.seconds


ENDLESS = Patience(None, None)


def pause_seconds(tried: int, asked: float, chance: float) -> float:
    """Exponential backoff with jitter (0 to 1), so that clients do not retry all at once.

    What the server asked for is the least, up to a minute.
    """
    own = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(tried - 1, 16))
    return max(own * (0.5 + chance / 2), min(asked, MOST_ASKED_SECONDS) * (1 + chance / 4))

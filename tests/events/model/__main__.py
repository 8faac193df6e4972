"""Random clients against real servers that are stopped and killed, seed after seed, and what a model says of it.

python -m tests.events.model --seeds 100
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.events.model.cast import Cast, churning_cast, whole_cast
from tests.events.model.simulation import Plan, Simulation, Verdict
from tests.harness.simulation import main

SECONDS = 6.0
PLANS = (
    Plan("memory", SECONDS),  # nothing outlives its servers, so none of them ends
    *(Plan(store, SECONDS, kills=2, stops=1, crashes=1) for store in ("sqlite", "postgres")),
)


class Run(NamedTuple):
    """One simulation, on a store that follows from its seed."""

    cast: Callable[[Cast], None]
    seed: int

    def run(self) -> Verdict:
        """In a folder of its own."""
        with tempfile.TemporaryDirectory() as folder:
            return Simulation(Path(folder), PLANS[self.seed % len(PLANS)], self.seed, self.cast).run()


if __name__ == "__main__":
    sys.exit(main(__doc__, {"whole cast": partial(Run, whole_cast), "churning cast": partial(Run, churning_cast)}))

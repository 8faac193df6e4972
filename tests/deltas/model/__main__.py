"""The rules of deltas against a plain model, and clients with databases that must end equal, seed after seed.

    python -m tests.deltas.model --seeds 500

Each seed is one random history, with crashes at every named point of the commit path and clocks that are set back and
ahead; two runs of three clients on a line that loses requests and answers, in one of which they make the same rows; and
two of clients that lose their databases and begin again, in one of which sync rules say who sees what; and four of
replicas of the SDK, which speak the plain dialect, beside another client, on a log that is cut and under rules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from tests.deltas.model.devices import Devices
from tests.deltas.model.fleet import Fleet
from tests.deltas.model.simulation import Simulation
from tests.deltas.rules.crowd import Crowd
from tests.harness.simulation import Run, main

RUNS: dict[str, Callable[[int], Run]] = {
    "history": Simulation,
    "clients": Fleet,
    "clients with rows in common": partial(Fleet, reuses_rows=True),
    "clients that begin again": Crowd,
    "clients under sync rules": partial(Crowd, has_rules=True),
    "devices": Devices,
    "devices with rows in common": partial(Devices, reuses_rows=True),
    "devices on a log that is cut": partial(Devices, reuses_rows=True, cuts_log=True),
    "devices under sync rules": partial(Devices, reuses_rows=True, has_rules=True),
}

if __name__ == "__main__":
    sys.exit(main(__doc__, RUNS))

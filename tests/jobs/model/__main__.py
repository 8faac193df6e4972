"""The rules of jobs against a plain model, seed after seed, with crashes at every named point of the commit path.

python -m tests.jobs.model --seeds 1000
"""

from __future__ import annotations

import sys

from tests.harness.simulation import main
from tests.jobs.model.simulation import Simulation

if __name__ == "__main__":
    sys.exit(main(__doc__, {"history": Simulation}))

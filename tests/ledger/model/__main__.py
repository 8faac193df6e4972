"""The rules of the ledger against a plain model, seed after seed, with crashes at every named point of the commit path.

python -m tests.ledger.model --seeds 500
"""

from __future__ import annotations

import sys

from tests.harness.simulation import main
from tests.ledger.model.simulation import Simulation

if __name__ == "__main__":
    sys.exit(main(__doc__, {"history": Simulation}))

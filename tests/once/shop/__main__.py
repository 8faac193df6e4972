"""Kill every part of a shop under load, its database included, and count what became of each order.

    python -m tests.once.shop --kills 40

Exit code 1 if an order, a charge, a shipment, an event or a bill is missing or there twice.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.once.shop.run import kill_parts


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        verdict = kill_parts(Path(folder), asked.kills, asked.seed)
    kills = ", ".join(f"{name} {count}" for name, count in sorted(verdict.kills.items()))
    print(f"{asked.kills} kills ({kills}) in {time.monotonic() - began:.0f} s")
    print(f"{verdict.orders} orders, {verdict.retries} requests repeated")
    print(f"lost {verdict.lost or 'nothing'}, doubled {verdict.doubled or 'nothing'}")
    print(f"answered in two ways: {verdict.answers or 'nothing'}")
    return 0 if verdict.is_right else 1


if __name__ == "__main__":
    sys.exit(main())

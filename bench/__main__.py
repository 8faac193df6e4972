"""`python -m bench WHAT [options]` runs one measurement, and `make bench WHAT=...` does the same.

Options after the name are those of the measurement: `python -m bench appends --help` lists them.
"""

from __future__ import annotations

import runpy
import sys

MEASUREMENTS = {
    "all": ("suite.run",),
    "appends": ("suite.run", "appends"),
    "receipts": ("suite.run", "receipts"),
    "latency": ("suite.run", "latency"),
    "jobs": ("suite.run", "jobs"),
    "streams": ("suite.run", "streams"),
    "events": ("suite.run", "events"),
    "ledger": ("suite.run", "ledger"),
    "postgres": ("suite.run", "postgres"),
    "jobs_depth": ("jobs_depth",),
    "once": ("once_costs",),
    "outbox": ("outbox_backlog",),
    "memory": ("memory",),
    "host": ("host_cpu",),
    "key_index": ("key_index",),
}
"""A name, the module of this folder that measures it, and the options that it always has."""


def main() -> None:
    """Run the module that the first argument names, as if it had been called by itself."""
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what not in MEASUREMENTS:
        sys.exit(f"python -m bench WHAT [options], where WHAT is one of: {', '.join(MEASUREMENTS)}")
    module, *fixed = MEASUREMENTS[what]
    sys.argv[1:] = [*fixed, *sys.argv[2:]]
    runpy.run_module(f"bench.{module}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

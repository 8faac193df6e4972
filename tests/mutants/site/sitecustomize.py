"""Plants a bug in every process that a run of `tests.mutants.run` starts.

Python imports a module of this name before anything else runs, if its folder is on PYTHONPATH. It sees to the bug, and
then runs the module of this name that Python would have found without it. Nothing of it stays among the modules.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - it runs in each process: no further import
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))  # noqa: PTH120 - as above


def plant() -> None:
    """See that the bug comes into this process."""
    before = set(sys.modules)
    sys.path.insert(0, ROOT)
    try:
        from tests.mutants.planting import watch_imports  # noqa: PLC0415 - the path is set only now

        watch_imports(FOLDER)
    finally:
        sys.path.remove(ROOT)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "tests":
                del sys.modules[name]  # the program of this process may have a package of that name


def run_next() -> None:
    """Run the `sitecustomize` that this one stands before."""
    others = [path for path in sys.path if os.path.abspath(path) != FOLDER]  # noqa: PTH100 - as above
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if "TEST_PLANT" in os.environ:
    plant()
run_next()

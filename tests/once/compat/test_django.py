"""Django's long-term release and the newest one, with the REST framework and `ATOMIC_REQUESTS`.

The environment of the tests has the newest one for its Python; the other one gets an environment of its own, if the
machine has a Python for it. That is 3.12 or later for Django 6: where there is only 3.11, both are 5.2.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.guardian import ROOT
from tests.harness.postgres.shared import shared_cluster
from tests.once.compat.places import postgres_place, sqlite_place
from tests.once.compat.programs import Django, installed, other_django

DJANGOS = [Django(importlib.metadata.version("django"), sys.executable), *filter(None, [other_django()])]


@pytest.mark.parametrize("wanted", DJANGOS, ids=lambda wanted: wanted.version)
def test_django(wanted: Django, tmp_path: Path) -> None:
    found = wanted if wanted.python == sys.executable and wanted is DJANGOS[0] else installed(wanted)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    places = [postgres_place(shared_cluster().url), sqlite_place(tmp_path)]
    program = [found.python, "-m", "tests.once.compat.in_django", *places]
    done = subprocess.run(program, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    version, refusal = done.stdout.splitlines()
    assert version == wanted.version
    assert "decorate the view itself" in refusal

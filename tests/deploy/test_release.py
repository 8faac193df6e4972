"""What `make release` adds to the packages: the bill of materials names every package of the image, with its hashes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LOCK = ROOT / "deploy/requirements-image.lock"


def locked(path: Path) -> dict[str, str]:
    """Names and versions of a lock file."""
    return dict(re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+)", path.read_text(), flags=re.M))


def test_the_bill_of_materials_names_every_package(tmp_path: Path) -> None:
    told = tmp_path / "semel.cdx.json"
    program = str(Path(sys.executable).parent / "cyclonedx-py")
    command = [program, "requirements", "--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible"]
    done = subprocess.run(
        [*command, "--of", "JSON", "--output-file", str(told), str(LOCK)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    bill = json.loads(told.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert {one["name"]: one["version"] for one in bill["components"]} == locked(LOCK)
    assert all(one["externalReferences"][0]["hashes"] for one in bill["components"])
    assert bill["metadata"]["component"]["name"] == "semel"


def test_the_image_has_what_the_tests_ran_with() -> None:
    tested = locked(ROOT / "requirements-dev.lock")
    assert locked(LOCK).items() <= tested.items()


def test_the_image_has_the_packages_of_its_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {re.split(r"[^\w.-]", one)[0] for name in ("server", "postgres", "grpc") for one in extras[name]}
    assert {re.sub("[._]", "-", name) for name in wanted} <= {re.sub("[._]", "-", name) for name in locked(LOCK)}

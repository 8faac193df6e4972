"""Builds the site: `make docs`, or `python -m docs.site --into FOLDER`.

The site is `FOLDER/VERSION`. Every other version that lies in the folder stays, and `versions.json` names them all, so
that a plain host of static files can serve several versions: copy what is published into the folder, build, and publish
the folder again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from sphinx.cmd.build import main as run_sphinx

from docs.site.inline import palette
from docs.site.repairs import repair
from docs.site.stage import ROOT, Stage

_VERSION = re.compile(r"\d+(?:\.\d+)*(?:[a-z.]+\d+)?")
FORWARD = '<!doctype html><meta charset="utf-8"><title>Semel</title><meta http-equiv="refresh" content="0; url={0}/">\n'


def build(into: Path, work: Path, version: str) -> None:
    """Build the pages; a warning of Sphinx is an error."""
    stage = Stage()
    stage.collect()
    stage.write(work / "pages")
    static = Path(__file__).parent / "static", work / "static"
    static[1].mkdir(parents=True, exist_ok=True)
    (static[1] / "palette.css").write_text(palette(), "utf-8")
    options = ["--quiet", "--write-all", "--fail-on-warning", "--conf-dir", str(Path(__file__).parent)]
    options += ["--doctree-dir", str(work / "doctrees"), "--define", f"html_static_path={static[0]},{static[1]}"]
    options += ["--define", f"version={version}", "--define", f"release={version}"]
    if run_sphinx([*options, str(work / "pages"), str(into / version)]) != 0:
        raise SystemExit("The site was not built: Sphinx says above why.")
    repair(into / version)
    write_versions(into)


def write_versions(into: Path) -> None:
    """Name the versions of a folder, the newest first, and lead from its root to that one."""
    found = [path.name for path in into.iterdir() if path.is_dir() and _VERSION.fullmatch(path.name)]
    newest_first = sorted(found, key=_number, reverse=True)
    (into / "versions.json").write_text(json.dumps(newest_first) + "\n", "utf-8")
    (into / "index.html").write_text(FORWARD.format(newest_first[0]), "utf-8")


def _number(version: str) -> tuple[list[int], bool, str]:
    """A version's place in their order; a pre-release comes before its release."""
    found = re.match(r"[\d.]+", version)
    plain = "" if found is None else found[0].rstrip(".")
    rest = version[len(plain) :]
    return [int(part) for part in plain.split(".")], not rest, rest


def own_version() -> str:
    """The version of the package."""
    found = re.search(r'^version = "([^"]+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def main() -> None:
    """Read the words of the command line and build."""
    parser = argparse.ArgumentParser(prog="python -m docs.site", description="Build the documentation site.")
    parser.add_argument("--into", type=Path, default=ROOT / "build/site", help="folder of all versions")
    parser.add_argument("--work", type=Path, default=ROOT / "build/site-work", help="folder for what can be reused")
    words = parser.parse_args()
    version = own_version()
    build(words.into.resolve(), words.work.resolve(), version)
    sys.stdout.write(f"{words.into / version / 'index.html'}\n")


if __name__ == "__main__":
    main()

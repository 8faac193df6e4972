"""How large the project is: `python -m tests.size` prints it, and `tests/test_tidy.py` holds the ceilings.

A line of code is neither blank nor a comment nor a docstring. Only files that git tracks count, and of the code only
what people write: generated modules are left out.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from docs.commands import command_names
from docs.metrics import exposed
from semel.server.settings_loader import setting_fields
from semel.surfaces.schema import TABLES

ROOT = Path(__file__).parent.parent
MADE = re.compile(r"^<!-- made: .*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


@cache
def tracked(folder: str, suffix: str) -> tuple[str, ...]:
    """The texts of the tracked files of a folder."""
    command = ["git", "ls-files", "-z", "--", f"{folder}/*{suffix}"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=30).stdout
    paths = [ROOT / name for name in listed.split("\0") if name and "_pb2" not in name]
    return tuple(path.read_text("utf-8") for path in paths if path.is_file())


def code_lines(text: str) -> int:
    """The lines of code of a module."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for part in node.body:
                if _is_docstring(part):
                    documented.update(range(part.lineno, (part.end_lineno or part.lineno) + 1))
    lines = enumerate((line.strip() for line in text.split("\n")), start=1)
    return sum(bool(line) and not line.startswith("#") and number not in documented for number, line in lines)


def _is_docstring(part: ast.stmt) -> bool:
    """Whether a statement is a string by itself: the docstring of a module, a function, a class or an attribute."""
    return isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)


def words(texts: Iterable[str]) -> int:
    """The words of pages."""
    return sum(len(text.split()) for text in texts)


def sizes() -> Mapping[str, int]:
    """Every figure by its name."""
    found: dict[str, int] = {}
    for folder in ("src", "tests", "docs", "bench"):
        modules = tracked(folder, ".py")
        found[f"files of {folder}"] = len(modules)
        found[f"lines of {folder}"] = sum(text.count("\n") for text in modules)
        found[f"lines of code of {folder}"] = sum(map(code_lines, modules))
    pages = tracked("docs", ".md")
    return found | {
        "pages of docs": len(pages),
        "words of docs": words(pages),
        "words of docs that people write": words(MADE.sub("", text) for text in pages),
        "commands": len(command_names()),
        "settings": len(setting_fields()),
        "metrics": len(exposed()),
        "tables": len(TABLES),
    }


def main() -> None:
    """Print the figures."""
    for name, value in sizes().items():
        print(f"{value:>9,}  {name}")


if __name__ == "__main__":
    main()

"""Measures source trees: `python -m docs.measure [FOLDER ...]` prints a table, as in `docs/internals/architecture.md`.

Generated protobuf code is left out. Compare two revisions by giving two folders, for instance of a git worktree.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

VAGUE = re.compile(r"\b(?:so many|so much|nobody|somebody|whoever|such a one|what it is to know)\b", re.IGNORECASE)


def modules(folder: Path) -> dict[Path, str]:
    """The text of every module, without generated ones."""
    return {path: path.read_text("utf-8") for path in sorted(folder.rglob("*.py")) if "_pb2" not in path.name}


def import_lines(tree: ast.Module) -> int:
    """Lines that belong to import statements."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in found)


def function_lines(tree: ast.Module) -> Iterator[int]:
    """The length of every function, its docstring included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def measured(folder: Path) -> dict[str, str]:
    """What the table shows, by name."""
    texts = modules(folder)
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lengths = [text.count("\n") for text in texts.values()]
    classes = [node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = [length for tree in trees.values() for length in function_lines(tree)]
    imports = sum(import_lines(tree) for tree in trees.values())
    return {
        "files": str(len(texts)),
        "lines": f"{sum(lengths):,}",
        "median file, lines": f"{median(lengths):g}",
        "files under 50 lines": str(sum(length < 50 for length in lengths)),
        "longest file, lines": str(max(lengths)),
        "import lines": f"{100 * imports / sum(lengths):.1f} %",
        "function: median, 95th percentile, longest": (
            f"{median(functions):g}, {quantiles(functions, n=20)[18]:g}, {max(functions)}"
        ),
        "class names used for more than one class": str(sum(classes.count(name) > 1 for name in set(classes))),
        "vague phrases": str(sum(len(VAGUE.findall(text)) for text in texts.values())),
    }


def main() -> None:
    """Print a Markdown table with a column for each folder."""
    columns = [measured(Path(folder)) for folder in sys.argv[1:] or ["src/semel"]]
    for name in columns[0]:
        sys.stdout.write(f"| {name} | {' | '.join(column[name] for column in columns)} |\n")


if __name__ == "__main__":
    main()

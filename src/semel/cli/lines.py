"""`--lines` of `semel jobs submit` and `semel events submit`: progress, answers, and how to continue after an error."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Self, TypeVar

import click

from semel.cli.output import progress
from semel.cli.session import sentence
from semel.cli.source import line_groups, size_of
from semel.client.errors import CallError, SemelError
from semel.client.imported_lines import ImportedLine, LineImport

D = TypeVar("D")


class CliLineImport(LineImport[D]):
    """An import that prints each answer."""

    def __init__(self, base: str | None, batch: int, as_json: bool) -> None:
        super().__init__(base, batch)
        self.as_json = as_json
        self._advance: Callable[[int], None] = lambda size: None

    @property
    @abstractmethod
    def advice(self) -> str:
        """How to continue an import that ended early."""

    def run(self, source: BinaryIO) -> Self:
        """Send every line."""
        try:
            with progress(size_of(source), "Submitting") as self._advance:
                for lines in line_groups(source):
                    for line in lines:
                        if not self.take(line):
                            self._advance(len(line))
                    self.send()
        except SemelError as error:
            first, last = self.span
            where = f"Line {first}" if first == last else f"Lines {first} to {last}"
            raise click.ClickException(f"{where}: {sentence(error)} {self.advice}") from error
        except KeyboardInterrupt:
            raise click.ClickException(f"Stopped after line {self.done}. {self.advice}") from None
        return self

    def tell(self, line: ImportedLine[D], facts: Mapping[str, Any], refusal: CallError | None) -> None:
        """Print the answer to a line."""
        if self.as_json:
            click.echo(json.dumps({"line": line.number, **facts}))
        elif refusal is not None:
            click.echo(f"Line {line.number}: {sentence(refusal)}", err=True)
        self._advance(line.size)

"""Commands from annotated functions: each option is declared once, as a parameter with its type, default and help text.

    @command(streams)
    def rm(client: Client, name: Arg, sure: Sure) -> Said:
        \"\"\"Delete a stream.\"\"\"

The name of an option is that of its parameter. A parameter of a subclass of `OptionSet` adds the options of that class,
one of the type `Client` those of the server, and `Retrying` also `--retries`. A command that returns `Said` or
`Listing` has `--json`, and its result is printed. An error of the client, or one of the `errors` that the command
names, becomes one sentence and exit code 1.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from semel.cli.help import HelpGroup
from semel.cli.output import Listing, Said, printable
from semel.cli.session import client_of, translated
from semel.client.access import DEFAULT_URL, checked_url
from semel.client.errors import SemelError

if TYPE_CHECKING:
    from semel.client import Client

    Retrying = Client
else:

    class Retrying:
        """The client of a command with `--retries`. Commands without a client do not load its libraries."""


T = TypeVar("T")


@dataclass(frozen=True)
class Opt:
    """How an option is written; without `flag` its name is that of the parameter."""

    help: str
    flag: str = ""
    """The option, such as `--json`; several with a slash or a space between them."""
    metavar: str | None = None
    type: Any = None
    """A click type, if the annotation does not say enough."""
    envvar: str | None = None
    show_default: bool = False
    is_required: bool = False


@dataclass(frozen=True)
class Positional:
    """How an argument is written."""

    metavar: str | None = None
    type: Any = None


class ParsedType(click.ParamType[T]):
    """A value that a function makes of a text; the message of its error is the usage error."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """The value, or a usage error; a default that is no text stays."""
        try:
            found: T = self._parse(value) if isinstance(value, str) else value
        except (ValueError, SemelError) as error:
            self.fail(str(error), param, ctx)
        return found


Arg = Annotated[str, Positional()]
MaybeArg = Annotated[str | None, Positional()]
Json = Annotated[bool, Opt("Print JSON, one object per line.", "--json")]
Yes = Annotated[bool, Opt("Do not ask for confirmation.")]
DryRun = Annotated[bool, Opt("Print what would be done, and change nothing.")]
RETRIES = 6
AT_LEAST_1, SECONDS = click.IntRange(min=1), click.FloatRange(min=0)
Retries = Annotated[
    int, Opt("Maximum retries of a failed request; 0 means none.", type=click.IntRange(min=0), show_default=True)
]
URL = ParsedType("url", checked_url)
TokenFile = Annotated[Path | None, Opt("File with the bearer token; SEMEL_TOKEN by default.")]
InFile = Annotated[BinaryIO | None, Opt("File with the content; - is standard input.")]

_TYPES: dict[Any, Any] = {Path: click.Path(path_type=Path), BinaryIO: click.File("rb")}


def group(name: str, text: str) -> HelpGroup:
    """A group of commands."""
    return HelpGroup(name, help=text, no_args_is_help=True)


UNDONE = "Deleting cannot be undone"


class OptionSet:
    """Options that several commands have: the annotated fields of a dataclass."""


@dataclass(frozen=True)
class _ServerOptions(OptionSet):
    url: Annotated[str, Opt(f"URL of the server.  [SEMEL_URL; {DEFAULT_URL}]", type=URL, envvar="SEMEL_URL")] = (
        DEFAULT_URL
    )
    token_file: TokenFile = None


@dataclass(frozen=True)
class Sure(OptionSet):
    """The options of a command that asks before it acts."""

    dry_run: DryRun = False
    yes: Yes = False

    def refuse_silence(self, why: str, then: str = "give --yes if standard input is not a terminal") -> None:
        """Refuse a command that would have to ask without a terminal; `why` says what it would do."""
        if not (self.yes or self.dry_run or sys.stdin.isatty()):
            raise click.UsageError(f"{why}: {then}.")

    def ask(self, question: str, about: str = "") -> None:
        """Ask, unless `--yes` was given. Any answer but yes ends the command."""
        if not self.yes:
            if about:
                click.echo(about, err=True)
            click.confirm(question, abort=True, err=True)

    def plan(
        self, facts: dict[str, Any], about: Callable[[], str], verb: str = "delete", why: str = UNDONE
    ) -> Said | None:
        """What a dry run says of a deletion; None if the command may delete, after it has asked."""
        self.refuse_silence(why)
        if self.yes and not self.dry_run:
            return None
        words = printable(about())
        if self.dry_run:
            return Said({**facts, f"{verb}d": False, "dry_run": True}, f"Would {verb} {words}")
        self.ask(f"{verb.capitalize()} it?", words)
        return None


def command(
    parent: click.Group | None = None,
    name: str | None = None,
    *,
    errors: tuple[type[Exception], ...] = (),
    cls: type[click.Command] = click.Command,
    **options: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: a command of the group, or one without a group."""

    def register(function: Callable[..., Any]) -> Any:
        hints = get_type_hints(function, include_extras=True)
        made = cls(
            (name or function.__name__).replace("_", "-"),
            callback=translated(_called(function, hints), errors),
            params=list(_parameters(function, hints)),
            help=function.__doc__,
            **options,
        )
        if parent is not None:
            parent.add_command(made)
        return made

    return register


def _is_client(hint: Any) -> bool:
    return hint is Retrying or getattr(hint, "__name__", "") == "Client"


def _is_set(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, OptionSet)


def _called(function: Callable[..., Any], hints: dict[str, Any]) -> Callable[..., None]:
    """The function, called with the values of its options; its result is printed."""
    client = next((name for name, hint in hints.items() if _is_client(hint)), None)
    sets = {name: hint for name, hint in hints.items() if _is_set(hint)}

    @functools.wraps(function)
    def call(**values: Any) -> None:
        as_json = values["as_json"] if "as_json" in hints else values.pop("as_json", False)
        for name, kind in sets.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        with ExitStack() as stack:
            if client is not None:
                access = values.pop("url"), values.pop("token_file"), values.pop("retries", 0)
                values[client] = stack.enter_context(client_of(*access))
            result: Said | Listing[Any] | None = function(**values)
            if result is not None:
                result.show(as_json)

    return call


def _parameters(function: Callable[..., Any], hints: dict[str, Any]) -> Iterator[click.Parameter]:
    """The options and arguments of a function; `--retries`, `--json` and those of the server are the last."""
    client = next((hint for hint in hints.values() if _is_client(hint)), None)
    for name, given in inspect.signature(function).parameters.items():
        if _is_set(hints[name]):
            yield from _set_parameters(hints[name])
        elif name != "as_json" and hints[name] is not client:
            yield _parameter(name, hints[name], given.default)
    if client is Retrying:
        yield _parameter("retries", Retries, RETRIES)
    if "as_json" in hints or any((get_origin(one) or one) in (Said, Listing) for one in _members(hints["return"])):
        yield _parameter("as_json", Json, False)
    if client is not None:
        yield from _set_parameters(_ServerOptions)


def _members(kind: Any) -> tuple[Any, ...]:
    """The types of one that may be None; another type itself."""
    members = get_args(kind)
    return tuple(one for one in members if one is not types.NoneType) if types.NoneType in members else (kind,)


def _set_parameters(kind: type[Any]) -> Iterator[click.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield _parameter(field.name, hints[field.name], default)


def _parameter(name: str, hint: Any, default: Any) -> click.Parameter:
    annotated, about = get_args(hint)
    kind = _members(annotated)[0]
    is_many = get_origin(kind) is tuple
    kind = get_args(kind)[0] if is_many else kind
    choice = click.Choice(get_args(kind)) if get_origin(kind) is Literal else None
    is_given = default is not inspect.Parameter.empty
    more: dict[str, Any] = {"default": default} if is_given and not is_many else {}
    more |= {"type": about.type or choice or _TYPES.get(kind, kind), "metavar": about.metavar}
    if isinstance(about, Positional):
        return click.Argument([name], required=not is_given, nargs=-1 if is_many else 1, **more)
    if kind is bool:
        more["is_flag"] = True
        del more["type"]
    return click.Option(
        [name, *(about.flag.split() or [f"--{name.replace('_', '-')}"])],
        help=about.help,
        multiple=is_many,
        envvar=about.envvar,
        show_default=about.show_default,
        required=about.is_required or not (is_given or is_many),
        **more,
    )

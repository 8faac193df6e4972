"""Commands from annotated functions: each option is declared once, as a parameter with its type, default and help text.

    @command(streams)
    def rm(client: Client, name: Arg, yes: Yes = False, as_json: Json = False) -> None:
        \"\"\"Delete a stream.\"\"\"

The name of an option is that of its parameter. A parameter of the type `Client` adds the options of the server. An
error of the client becomes one sentence and exit code 1.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click

from semel.cli.help import HelpGroup
from semel.cli.session import ClientOptions, translated
from semel.client import Client

Function = TypeVar("Function", bound=Callable[..., Any])


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


Arg = Annotated[str, Positional()]
MaybeArg = Annotated[str | None, Positional()]
Json = Annotated[bool, Opt("Print JSON, one object per line.", "--json")]
Yes = Annotated[bool, Opt("Do not ask for confirmation.")]
DryRun = Annotated[bool, Opt("Print what would be done, and change nothing.")]
RETRIES = 6
Retries = Annotated[
    int, Opt("Maximum retries of a failed request; 0 means none.", type=click.IntRange(min=0), show_default=True)
]
InFile = Annotated[BinaryIO | None, Opt("File with the content; - is standard input.")]

_TYPES: dict[Any, Any] = {Path: click.Path(path_type=Path), BinaryIO: click.File("rb")}


def group(name: str, text: str) -> HelpGroup:
    """A group of commands."""
    return HelpGroup(name, help=text, no_args_is_help=True)


def command(parent: click.Group | None = None, name: str | None = None, **options: Any) -> Callable[[Function], Any]:
    """Decorator: a command of the group, or one without a group."""

    def register(function: Function) -> Any:
        hints = get_type_hints(function, include_extras=True)
        hints.pop("return", None)
        defaults = _defaults(function)
        params: list[click.Parameter] = []
        client: str | None = None
        for parameter, hint in hints.items():
            if hint is Client:
                client = parameter
            else:
                params.append(_parameter(parameter, hint, defaults))
        if client is not None:
            params += ClientOptions.params()
        callback = translated(function) if client is None else _connected(function, client)
        kind = options.pop("cls", click.Command)
        made = kind(
            (name or function.__name__).replace("_", "-"),
            callback=callback,
            params=params,
            help=function.__doc__,
            **options,
        )
        if parent is not None:
            parent.add_command(made)
        return made

    return register


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    code, given = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    return dict(zip(names[len(names) - len(given) :], given, strict=True)) | (function.__kwdefaults__ or {})


def _connected(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(**values: Any) -> Any:
        options = ClientOptions.taken(values)
        with options.client(values.get("retries", 0)) as client:
            return function(**{name: client}, **values)

    return translated(call)


def _parameter(name: str, hint: Any, defaults: dict[str, Any]) -> click.Parameter:
    annotated, about = _split(hint)
    kind, is_many = _plain(annotated)
    if isinstance(about, Positional):
        given: dict[str, Any] = {"default": defaults[name]} if name in defaults and not is_many else {}
        return click.Argument(
            [name],
            type=about.type or _click_type(kind),
            required=name not in defaults,
            nargs=-1 if is_many else 1,
            metavar=about.metavar,
            **given,
        )
    assert isinstance(about, Opt), f"{name} has no help text"
    flags = about.flag.split() or [f"--{name.replace('_', '-')}"]
    more: dict[str, Any] = {"is_flag": True} if kind is bool else {"type": about.type or _click_type(kind)}
    if name in defaults and not is_many:
        more["default"] = defaults[name]
    return click.Option(
        [name, *flags],
        help=about.help,
        multiple=is_many,
        metavar=about.metavar,
        envvar=about.envvar,
        show_default=about.show_default,
        required=about.is_required or (name not in defaults and not is_many),
        **more,
    )


def _split(hint: Any) -> tuple[Any, Any]:
    if get_origin(hint) is Annotated:
        kind, *about = get_args(hint)
        return kind, about[-1]
    return hint, None


def _plain(kind: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be several."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(one for one in get_args(kind) if one is not types.NoneType)
    if get_origin(kind) is tuple:
        return get_args(kind)[0], True
    return kind, False


def _click_type(kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    return _TYPES.get(kind, kind)

"""Plants one bug: replaces a function right after its module was executed, before anybody can import it by name.

Two variables say what is planted: TEST_PLANT is the name of the plant, TEST_PLANT_FILE a file in which each process
notes what it has replaced: a bug that was never there shows nothing. A target that does not exist is an error of the
import, and noted too. A process that is started with other variables gets these two all the same.

This module is imported at the start of every process of a run, and imports no module of Semel.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any, SupportsIndex

from tests.mutants.plant import BreakIt, Plant

NAME, FILE, PATH = "TEST_PLANT", "TEST_PLANT_FILE", "PYTHONPATH"
INSTALLED, MISSING = "installed", "missing"
Change = Callable[[ModuleType], None]


class PlantError(Exception):
    """A bug that cannot be planted: there is no such function."""


def found_plant(name: str) -> Plant:
    """The plant of this name."""
    from tests.mutants.plants import PLANTS  # noqa: PLC0415 - only a process with a plant needs them

    for one in PLANTS:
        if one.name == name:
            return one
    raise PlantError(f"there is no plant {name}")


def watch_imports(folder: str) -> None:
    """Plant what the variables name, in this process and in those that it starts; `folder` has the `sitecustomize`."""
    plant = found_plant(os.environ[NAME])
    variables = {name: os.environ[name] for name in (NAME, FILE) if name in os.environ}
    by_module: dict[str, list[Change]] = {"subprocess": [functools.partial(pass_on, folder, variables)]}
    for target, break_it in plant.targets:
        module, _, qualname = target.partition(":")
        by_module.setdefault(module, []).append(functools.partial(replace, qualname, break_it))
    for name in by_module.keys() & sys.modules.keys():
        for change in by_module.pop(name):
            change(sys.modules[name])
    sys.meta_path = _Finders([_Finder(by_module), *sys.meta_path])


class _Finders(list[Any]):
    """Finders of which the first one stays the first: pytest puts one before all others, to rewrite assertions."""

    def insert(self, index: SupportsIndex, finder: Any) -> None:
        super().insert(index.__index__() or 1, finder)


class _Finder(MetaPathFinder):
    """Lets the other finders find a module, and changes it when it was executed."""

    def __init__(self, by_module: Mapping[str, Sequence[Change]]) -> None:
        self._by_module = by_module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._by_module:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for one in others if (found := one.find_spec(fullname, path, target)) is not None), None)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Loader(spec.loader, self._by_module[fullname])
        return spec


class _Loader(Loader):
    """Another loader, and changes of the module that it has executed."""

    def __init__(self, loader: Loader, changes: Sequence[Change]) -> None:
        self._loader = loader
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for change in self._changes:
            change(module)


def replace(qualname: str, break_it: BreakIt, module: ModuleType) -> None:
    """Put a broken function in the place of the real one, also where a table of the module holds it."""
    owner: Any = module
    *outer, name = qualname.split(".")
    try:
        for part in outer:
            owner = getattr(owner, part)
        known = vars(owner)[name]
    except (AttributeError, KeyError):
        note(f"{MISSING} {module.__name__}:{qualname}")
        raise PlantError(f"{module.__name__} has no {qualname}: mend the plant") from None
    made = broken(known, break_it)
    setattr(owner, name, made)
    if owner is module:
        for place, value in list(vars(module).items()):
            changed = _with(value, known, made)
            if changed is not value:
                setattr(module, place, changed)
    note(f"{INSTALLED} {module.__name__}:{qualname} {os.getpid()}")


def broken(known: Any, break_it: BreakIt) -> Any:
    """What takes the place of a function, a method of whatever kind, or a property."""
    if isinstance(known, staticmethod | classmethod):
        return type(known)(broken(known.__func__, break_it))
    if isinstance(known, property):
        return property(broken(known.fget, break_it), known.fset, known.fdel, known.__doc__)
    made = break_it(known)
    if isinstance(known, FunctionType) and isinstance(made, FunctionType):
        functools.update_wrapper(made, known)
    return made


def _with(value: Any, known: Any, made: Any) -> Any:
    """A value of a module with the function replaced: itself, or inside a tuple, a list or a dict."""
    if value is known:
        return made
    if type(value) in (tuple, list) and any(one is known for one in value):
        return type(value)(made if one is known else one for one in value)
    if type(value) is dict and any(one is known for one in value.values()):
        return {key: made if one is known else one for key, one in value.items()}
    return value


def note(line: str) -> None:
    """Write a line into the file of the run."""
    if FILE in os.environ:
        handle = os.open(os.environ[FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, f"{line}\n".encode())
        finally:
            os.close(handle)


def pass_on(folder: str, variables: Mapping[str, str], module: ModuleType) -> None:
    """Give every process that this one starts the folder and the variables, whatever environment it is given.

    A test may name an environment of its own, and a `sitecustomize` of its own, which must not come before this one.
    `module` is `subprocess`.
    """
    begin: Callable[..., None] = module.Popen.__init__

    @functools.wraps(begin)
    def begin_planted(*given: Any, env: Mapping[str, str] | None = None, **named: Any) -> None:
        begin(*given, env=env if env is None else planted_environment(env, folder, variables), **named)

    module.Popen.__init__ = begin_planted


def planted_environment(env: Mapping[str, str], folder: str, variables: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Python finds the `sitecustomize` of the plants first."""
    others = [path for path in env.get(PATH, "").split(os.pathsep) if path and path != folder]
    return {**env, **variables, PATH: os.pathsep.join([folder, *others])}

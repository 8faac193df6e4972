"""The parameters of a job function: params are bound, validated and encoded when submitted, and rebuilt when run.

A parameter with the type `Job` or `AsyncJob` gets the job itself and is not part of the params. Defaults are not
stored: the worker that runs the job has them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_type_hints

from semel.client.errors import ConfigurationError, InvalidArgumentError
from semel.client.worker.job import AnyJob
from semel.client.worker.param_types import Fault, ParamType, UnknownTypeError, param_type
from semel.client.worker.reports import Permanent

_ANY = param_type(Any)
JOB_NAME = "job"
"""The name of a parameter without a type that gets the job."""


class Call(NamedTuple):
    """The arguments of one call of a job function."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class JobSignature:
    """What a job function takes and returns."""

    def __init__(self, kind: str, function: Callable[..., Any]) -> None:
        """Raises ConfigurationError for a parameter that cannot be stored as JSON."""
        self._kind = kind
        target = function if inspect.isroutine(function) or inspect.isclass(function) else function.__call__  # type: ignore[operator]
        parameters = list(inspect.signature(function).parameters.values())
        hints = _hints(target, kind, parameters)
        jobs = [one for one in parameters if _is_job(one, hints)]
        if len(jobs) > 1:
            raise self._wrong("it has more than one parameter for its job")
        self._job = jobs[0].name if jobs else None
        self._all = inspect.Signature(parameters)
        own = [one for one in parameters if one.name != self._job]
        self._is_free = bool(jobs) and not own
        """A function of nothing but its job takes any params, from `job.params`."""
        self._extra: ParamType | None = None
        self._types: dict[str, ParamType] = {}
        for one in own:
            self._add(one, hints)
        self.public = inspect.Signature(own)
        """The signature without the job."""
        self._result = _result_type(hints)

    def _add(self, one: inspect.Parameter, hints: Mapping[str, Any]) -> None:
        if one.kind is inspect.Parameter.VAR_POSITIONAL:
            raise self._wrong(f"*{one.name} has no name in its params")
        try:
            made = param_type(hints[one.name]) if one.name in hints else _ANY
        except UnknownTypeError as error:
            raise self._wrong(f"the parameter {one.name}: {error}") from None
        if one.kind is inspect.Parameter.VAR_KEYWORD:
            self._extra = made
        else:
            self._types[one.name] = made

    def _wrong(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"The function for jobs of the kind {self._kind} cannot be a job: {why}.")

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The params of a submission. Raises InvalidArgumentError if they do not fit the function."""
        try:
            bound = self.public.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArgumentError(f"{self._kind}: {error}.") from None
        params: dict[str, Any] = {}
        for name, value in bound.items():
            if name in self._types:
                params[name] = self._encoded(name, self._types[name], value)
            else:
                assert self._extra is not None
                for other, one in value.items():
                    params[other] = self._encoded(other, self._extra, one)
        return params

    def _encoded(self, name: str, kind: ParamType, value: Any) -> Any:
        try:
            return kind.encode(value)
        except Fault as fault:
            raise InvalidArgumentError(f"{self._kind}: the parameter {name} does not fit: {fault}.") from None

    def call_of(self, params: Mapping[str, Any], job: AnyJob) -> Call:
        """The arguments of a run. Raises `Permanent` if the params do not fit the function."""
        made = {} if self._is_free else {name: self._decoded(name, value) for name, value in params.items()}
        if self._job is not None:
            made[self._job] = job
        known = {name: made.pop(name) for name in self._all.parameters if name in made}
        missing = [
            one.name
            for one in self._all.parameters.values()
            if one.default is one.empty and one.name not in known and one.kind is not one.VAR_KEYWORD
        ]
        if missing:
            raise Permanent(f"The params have no {missing[0]}.", code="invalid_params")
        args, kwargs = [], {}
        for name, value in known.items():
            if self._all.parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                kwargs[name] = value
        return Call(tuple(args), {**kwargs, **made})

    def _decoded(self, name: str, value: Any) -> Any:
        kind = self._types.get(name, self._extra)
        if kind is None:
            raise Permanent(f"The params have an unknown member {name[:64]!r}.", code="invalid_params")
        try:
            return kind.decode(value)
        except Fault as fault:
            raise Permanent(f"The param {name[:64]} does not fit: {fault}.", code="invalid_params") from None

    def result_json(self, value: Any) -> Any:
        """The result as JSON by the function's return type. Raises `Fault` if it has none or does not fit."""
        if self._result is None:
            raise Fault("the function has no return type")
        return self._result.encode(value)

    def result_of(self, value: Any) -> Any:
        """The result that JSON stands for. Raises `Fault`."""
        return value if self._result is None else self._result.decode(value)


def _hints(target: Any, kind: str, parameters: list[inspect.Parameter]) -> dict[str, Any]:
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        texts = {one.name: one.annotation for one in parameters if one.annotation is not one.empty}
        if set(texts.values()) <= {"Job", "AsyncJob"}:
            return dict.fromkeys(texts, AnyJob)  # a type of its result alone is unknown here
        raise ConfigurationError(
            f"The types of the function for jobs of the kind {kind} cannot be read ({error}): define and import them"
            " at the top of its module."
        ) from None


def _is_job(one: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    hint = hints.get(one.name)
    if isinstance(hint, type):
        return issubclass(hint, AnyJob)
    return hint is None and one.name == JOB_NAME and one.annotation is one.empty


def _result_type(hints: Mapping[str, Any]) -> ParamType | None:
    if "return" not in hints:
        return None
    try:
        return param_type(hints["return"])
    except UnknownTypeError:
        return None

"""The handler of a kind of jobs: its function with its signature, its options and the worker's middleware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semel.client.worker.job import AnyJob
from semel.client.worker.middleware import MiddlewareChain, is_coroutine_function
from semel.client.worker.options import JobOptions
from semel.client.worker.param_types import Fault
from semel.client.worker.reports import plain, refuse_generator, refuse_unprintable
from semel.client.worker.signature import JobSignature


class Handler:
    """Runs jobs of one kind."""

    def __init__(
        self,
        kind: str,
        function: Callable[..., Any],
        options: JobOptions | None = None,
        middleware: MiddlewareChain | None = None,
    ) -> None:
        self.kind = kind
        self.function = function
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        self.name = f"{module}.{name}" if name else type(function).__qualname__
        """The function, for warnings."""
        self.options = options or JobOptions()
        self.middleware = middleware or MiddlewareChain()
        self.is_async = is_coroutine_function(function)
        refuse_generator(kind, function)
        refuse_unprintable(kind, function)
        self.signature = JobSignature(kind, function)

    def run(self, job: AnyJob) -> Any:
        """Call a synchronous function, in the thread of the caller."""
        call = self.signature.call_of(job.params, job)
        return self.middleware.call(job, lambda: self.function(*call.args, **call.kwargs))

    async def run_async(self, job: AnyJob) -> Any:
        """Call an asynchronous function."""
        call = self.signature.call_of(job.params, job)
        return await self.middleware.call_async(job, lambda: self.function(*call.args, **call.kwargs))

    def result_json(self, value: Any) -> Any:
        """The result as JSON: by the return type, or as plain JSON types. Raises TypeError or ValueError."""
        try:
            return self.signature.result_json(value)
        except Fault:
            return plain(value)

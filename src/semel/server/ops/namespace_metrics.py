"""The metrics of a process with several namespaces: every sample has the label `namespace`.

Families about the process itself, such as its connections, are told once and have no such label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

LABEL = "namespace"
PROCESS_WIDE = (
    "semel_build_info",
    "semel_connections_refused",
    "semel_http_connections",
    "semel_server_connections",
)
"""How the names of families about the process begin."""


class NamespaceFamilies(Collector):
    """Joins the families of several collectors, one of each namespace; the first is that of the process itself."""

    def __init__(self, sources: Mapping[str, Collector]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Each family once, with the samples of all namespaces."""
        joined: dict[str, Metric] = {}
        for place, (namespace, source) in enumerate(self._sources.items()):
            for family in source.collect():
                is_shared = family.name.startswith(PROCESS_WIDE)
                if is_shared and place:
                    continue
                whole = joined.get(family.name)
                if whole is None:
                    whole = joined[family.name] = Metric(family.name, family.documentation, family.type, family.unit)
                label = {} if is_shared else {LABEL: namespace}
                whole.samples += [one._replace(labels={**one.labels, **label}) for one in family.samples]
        yield from joined.values()

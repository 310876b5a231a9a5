"""Topics of the tables and addresses of their rows, from the routes of a service's configuration.

These are the routes that are effective now, and those of their outputs and dead-letter topics that
exist. An output does not contain its address: the route's template gives it, with the input that
the output belongs to. It is null where several inputs or routes share an output and differ in it.
"""

from collections import defaultdict
from typing import NamedTuple

from pyspark.sql import SparkSession

from ringfence_pipeline.admin import KafkaAdmin
from ringfence_pipeline.config import as_served
from ringfence_pipeline.reconcile.scope import ReconcileScope, planned
from ringfence_pipeline.tables import AddressRule, TableSource
from ringfence_service.config.model import Config

_TOPIC = "{topic}"


class ConfiguredTables(NamedTuple):
    """The source of the tables of a service, and how rows get their address."""

    source: TableSource
    addresses: tuple[AddressRule, ...]


def configured_tables(
    spark: SparkSession, config: Config, cluster: TableSource
) -> ConfiguredTables:
    """Return the tables of a service on a cluster, which names no topics of its own.

    Raises PipelineError if the broker does not answer, or has no input of the routes.
    """
    config = as_served(spark, config, cluster.servers, cluster.properties)
    with KafkaAdmin(spark, cluster.servers, cluster.properties) as admin:
        scope = planned(config, admin.topics())
    found = {"messages": sorted(scope.outputs), "dead_letters": sorted(scope.letters)}
    topics = {table: tuple(names) for table, names in found.items() if names}
    return ConfiguredTables(cluster._replace(topics=topics), address_rules(scope))


def address_rules(scope: ReconcileScope) -> tuple[AddressRule, ...]:
    """Return the address templates of the outputs, each with the input of its outputs."""
    found: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for route in scope.rules:
        for topic in route.topics:
            for output in scope.targets[topic] & scope.outputs:
                found[output].add((route.address, topic if _TOPIC in route.address else ""))
    inputs: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for output, candidates in sorted(found.items()):
        if len(candidates) == 1:
            ((template, topic),) = candidates
            inputs[template][output] = topic
    return tuple(AddressRule(template, by_output) for template, by_output in inputs.items())

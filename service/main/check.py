"""`ringfence check`: asks the broker for all that a configuration needs, and changes nothing."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaException

from service.clock import Clock, SystemClock
from service.config.kafka_properties import SERVERS
from service.config.load import Config
from service.config.tasks import Hop, consumer_group
from service.dedup.route import (
    InputRoute,
    decides_by_address,
    missing_inputs,
    resolve,
    written_topics,
)
from service.errors import ConfigIssue, ExitCode, ExitError
from service.kafka.acls import (
    READING,
    WRITING,
    AclQueries,
    Granted,
    KafkaAclQueries,
    not_makeable,
    ungranted,
    unseen,
    user_of,
)
from service.kafka.admin import ClusterAdmin, TopicInfo, TopicSpec
from service.kafka.clients import Clients, KafkaClients
from service.kafka.topics import (
    BY_ADDRESS,
    by_address,
    by_address_problems,
    changelog,
    changelog_problems,
    config_topic,
    limits_to_raise,
    new_target,
)
from service.metadata.effective_config import EffectiveConfig, in_effect
from service.processor.input_topics import internal_topics

_GROUP: Final = frozenset({"READ"})


def needs_of_routes(routes: Mapping[str, InputRoute]) -> dict[str, frozenset[str]]:
    """The operations on each input, and on each topic that a route may write."""
    return dict.fromkeys(routes, READING) | dict.fromkeys(written_topics(routes), WRITING)


def needs_of_own(group_id: str, own: Iterable[TopicSpec]) -> dict[str, frozenset[str]]:
    """The operations on our own topics; what is decided is deleted from one of them."""
    carried = by_address(group_id)
    more = {carried: frozenset({"DELETE"})}
    return {each.name: READING | WRITING | more.get(each.name, frozenset()) for each in own}


def new_outputs(
    config: Config, routes: Mapping[str, InputRoute], inputs: Mapping[str, TopicInfo]
) -> list[TopicSpec]:
    """What the service would make beside its own, were it all missing."""
    if not config.service.create_topics:
        return []
    wanted = {target: inputs[name] for name in inputs for target in routes[name].targets()}
    replication = config.service.internal_replication
    return [new_target(name, input_, replication) for name, input_ in wanted.items()]


def rights_problems(
    config: Config,
    rights: AclQueries,
    needs: Mapping[str, frozenset[str]],
    granted: Mapping[str, Granted],
    made: Iterable[TopicSpec],
) -> Iterator[ConfigIssue]:
    """Yield what is not granted; `granted` has all topics that exist, `made` is to be made."""
    user = user_of(config.kafka.common, config.kafka.admin)
    yield from ungranted("topic", needs, granted, user)
    missing = [each for each in made if each.name not in granted]
    yield from not_makeable(rights.unmakeable(missing), user)
    hops = [Hop.INPUTS, Hop.ADDRESSES] if decides_by_address(config) else [Hop.INPUTS]
    groups = dict.fromkeys((consumer_group(config.service.group_id, hop) for hop in hops), _GROUP)
    yield from ungranted("group", groups, rights.of_groups(groups), user)


class CheckReport(NamedTuple):
    """What the broker has, and what it lacks."""

    problems: tuple[ConfigIssue, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def check(config: Config) -> CheckReport:
    """Ask the broker; ExitError 3 when it does not answer."""
    try:
        clients = KafkaClients(config)
        return report_in_effect(config, clients, KafkaAclQueries(clients.admin()), SystemClock())
    except KafkaException as error:
        fault = error.args[0]
        servers = config.kafka.common.get(SERVERS)
        raise ExitError(
            ExitCode.BROKER,
            f"The broker at {servers} does not answer our questions ({fault.name()}: "
            f"{fault.str()}); check the address, the network and our rights.",
        ) from error


def report_in_effect(
    file: Config, clients: Clients, rights: AclQueries, clock: Clock
) -> CheckReport:
    """The report on the file and what was set over REST, where we may read that."""
    topic = config_topic(file.service.group_id)
    operations = rights.of_topics([topic]).get(topic)
    may_read = operations is None or operations >= READING
    found = in_effect(file, clients, clock) if may_read else EffectiveConfig(file)
    report = report_of(found.config, clients.cluster, rights)
    if found.fault is None:
        return report
    problem = ConfigIssue(found.fault, "correct the file, or set them again over REST")
    return report._replace(problems=(problem, *report.problems))


def report_of(config: Config, cluster: ClusterAdmin, rights: AclQueries) -> CheckReport:
    """The report on one configuration, given a cluster that answers."""
    names, group_id = cluster.names(), config.service.group_id
    # What we may not describe is in no list, and yet not missing.
    names = names.union(rights.of_topics(missing_inputs(config.routes, names)))
    routes = resolve(config.routes, names, group_id)
    needs = needs_of_routes(routes)
    granted = rights.of_topics(needs)
    topics = cluster.topics(needs.keys() - unseen(granted))
    inputs = {name: topics[name] for name in routes if name in topics}
    own = internal_topics(config, routes, inputs)
    needs_own = needs_of_own(group_id, own)
    granted |= rights.of_topics(needs_own)
    topics |= cluster.topics(needs_own.keys() - unseen(granted))
    made = [*own, *new_outputs(config, routes, inputs)]
    problems = [
        *_folder_problems(config.service.state_dir),
        *_missing_inputs(config, routes, names),
        *_missing_targets(config, routes, granted.keys()),
        *_changelog_problems(config, routes, topics),
        *_by_address_problems(config, topics),
        *_limit_problems(group_id, own, inputs, topics, granted),
        *_timeout_problems(config, rights.transaction_max_ms()),
        *rights_problems(config, rights, needs | needs_own, granted, made),
    ]
    outputs = tuple(sorted(written_topics(routes)))
    return CheckReport(tuple(problems), tuple(sorted(routes)), outputs)


def _folder_problems(folder: Path) -> list[ConfigIssue]:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return []
    what = f"service.state_dir is {folder}, and {there} is no folder that can be written"
    return [ConfigIssue(what, "set service.state_dir to a folder that can be written")]


def _changelogs(config: Config, routes: dict[str, InputRoute]) -> dict[str, str]:
    """Of the inputs that are decided where they stand."""
    group_id = config.service.group_id
    scopes = {name: route.settings.scope for name, route in routes.items()}
    return {changelog(group_id, name): name for name in routes if scopes[name] == "partition"}


def _missing_inputs(
    config: Config, routes: dict[str, InputRoute], names: frozenset[str]
) -> list[ConfigIssue]:
    problems = []
    for route in config.routes:
        problems += [
            ConfigIssue(f'the input "{name}" of route "{route.name}" does not exist', "create it")
            for name in missing_inputs([route], names)
        ]
        is_expression = all(name.startswith("^") for name in route.inputs)
        if is_expression and not any(bound.settings is route for bound in routes.values()):
            what = f'no topic fits the inputs of route "{route.name}"'
            problems.append(ConfigIssue(what, "create one, or mend the expression"))
    return problems


def _missing_targets(
    config: Config, routes: dict[str, InputRoute], there: Collection[str]
) -> list[ConfigIssue]:
    if config.service.create_topics:
        return []
    return [
        ConfigIssue(
            f'the topic "{name}" that a route writes does not exist',
            "create it, or set service.create_topics = true",
        )
        for name in sorted(written_topics(routes).difference(there))
    ]


def _changelog_problems(
    config: Config, routes: dict[str, InputRoute], topics: dict[str, TopicInfo]
) -> list[ConfigIssue]:
    problems = []
    for log, name in _changelogs(config, routes).items():
        has = topics.get(log)
        if has is None or name not in topics:
            continue
        needs = topics[name].partitions
        grows = routes[name].settings.on_partitions_added == "keep"
        if has.partitions < needs and not grows:
            problems.append(
                ConfigIssue(
                    f'the changelog "{log}" has {has.partitions} partitions, '
                    f'its input "{name}" has {needs}',
                    'set on_partitions_added = "keep" for the route, or add the partitions',
                )
            )
        problems += changelog_problems(log, has)
    return problems


def _by_address_problems(config: Config, topics: dict[str, TopicInfo]) -> list[ConfigIssue]:
    """What is wrong with the topics that scope `address` works with, if they are there."""
    if all(route.scope != "address" for route in config.routes):
        return []
    service, problems = config.service, []
    carried, log = by_address(service.group_id), changelog(service.group_id, BY_ADDRESS)
    for name in (carried, log):
        has = topics.get(name)
        if has is not None and has.partitions != service.by_address_partitions:
            what = f'"{name}" has {has.partitions} partitions, not {service.by_address_partitions}'
            mend = f"set service.by_address_partitions = {has.partitions}: it cannot change"
            problems.append(ConfigIssue(what, mend))
    if carried in topics:
        problems += by_address_problems(carried, topics[carried])
    if log in topics:
        problems += changelog_problems(log, topics[log])
    return problems


def _limit_problems(
    group_id: str,
    own: Iterable[TopicSpec],
    inputs: Mapping[str, TopicInfo],
    topics: Mapping[str, TopicInfo],
    granted: Mapping[str, Granted],
) -> list[ConfigIssue]:
    """Topics of our own that were made while no input took records as large as now.

    The service raises their limits itself wherever it may.

    An output that takes less is no fault: what does not fit is a dead letter, and what does not fit
    there goes to the dead letters of the group, which have to take all.
    """
    return [
        ConfigIssue(
            f'"{name}" takes records of {topics[name].record_bytes_max} bytes at most',
            f"set its max.message.bytes to {needs}, or grant ALTER_CONFIGS on it to the service",
        )
        for name, needs in limits_to_raise(group_id, own, inputs, topics).items()
        if "ALTER_CONFIGS" not in (granted.get(name) or ())
    ]


def _timeout_problems(config: Config, max_ms: int | None) -> list[ConfigIssue]:
    wanted = config.service.transaction_timeout_ms
    if max_ms is None or wanted <= max_ms:
        return []
    what = (
        f"service.transaction_timeout_ms is {wanted}, and the broker's "
        f"transaction.max.timeout.ms is {max_ms}"
    )
    return [ConfigIssue(what, f"set service.transaction_timeout_ms to {max_ms} at most")]

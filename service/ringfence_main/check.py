"""`ringfence check`: compares the configuration with the broker, and changes nothing.

Only with `--probe` it also tests the broker's behaviour, and so writes to the metadata topic.
"""

import math
import resource
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, NamedTuple

from confluent_kafka import KafkaException

from ringfence_main.targets import compression_warnings, target_warnings, unreported_warnings
from ringfence_main.template_warnings import kept_templates, shared_addresses
from ringfence_service.clock import Clock, SystemClock
from ringfence_service.config.expressions import reads
from ringfence_service.config.kafka_properties import codec_of
from ringfence_service.config.model import ApiSettings, Config, RouteSettings, ServiceSettings
from ringfence_service.config.reach import reach_of
from ringfence_service.config.tasks import Hop, consumer_group, deciding_processes
from ringfence_service.config.validation import reads_schemas
from ringfence_service.dedup.route import (
    InputRoute,
    decides_by_address,
    missing_inputs,
    resolve,
    written_topics,
)
from ringfence_service.errors import ConfigIssue
from ringfence_service.formatting import plural
from ringfence_service.kafka.acls import (
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
from ringfence_service.kafka.admin import KafkaClusterAdmin
from ringfence_service.kafka.clients import Clients, KafkaClients
from ringfence_service.kafka.connection_probe import answers, unanswered
from ringfence_service.kafka.coordinator_topics import OFFSETS, TRANSACTIONS
from ringfence_service.kafka.errors import fault_of, without_frames
from ringfence_service.kafka.model import ClusterAdmin, TopicInfo, TopicSpec
from ringfence_service.kafka.topics import (
    BY_ADDRESS,
    as_settings,
    by_address,
    by_address_problems,
    changelog,
    changelog_problems,
    config_topic,
    fallback,
    limits_to_raise,
    neighbours,
)
from ringfence_service.metadata.broker_behaviour import verify_behaviour
from ringfence_service.metadata.effective_config import EffectiveConfig, in_effect
from ringfence_service.metadata.layout import Topology, contradiction
from ringfence_service.native.path import chosen
from ringfence_service.processor.input_topics import (
    internal_topics,
    make_config_topic,
    target_topics,
)
from ringfence_service.queries import sizing
from ringfence_service.schemas import registry
from ringfence_service.schemas.errors import RegistryUnavailableError
from ringfence_service.supervisor.watchdog import descriptors_needed
from ringfence_service.telemetry.metrics import valid_until_s
from ringfence_state.cache import FULL
from ringfence_state.model import PartitionId
from ringfence_state.store import MORE_OPEN_FILES

_MIB: Final = 1024 * 1024

_GROUP: Final = frozenset({"READ"})


def memory_warnings(config: Config) -> Iterator[str]:
    """Yield a sentence for each address that does not fit into the memory of one process."""
    processes, path = deciding_processes(config), chosen(config.service.fast_path).name
    for name, settings in config.addresses.groups:
        if not settings.size_of_ids:
            continue
        ids, is_window = settings.room, bool(settings.remembered_by.time_key)
        # Of an address with scope id each process has some partitions.
        here = -(-settings.shares // processes)
        held_bytes = here * sizing.memory_bytes(settings.share_room, path, is_window=is_window)
        needs_mb = math.ceil(held_bytes / _MIB)
        wants_mb = sizing.round_up(math.ceil(needs_mb / FULL)) * processes
        has_mb = config.service.cache_memory_mb
        if wants_mb > has_mb:
            yield (
                f'addresses."{name}".{settings.size_of_ids} is {ids:,}: some {needs_mb:,} MiB when '
                f"it is full. service.cache_memory_mb is {has_mb} MiB, shared by "
                f"{plural(processes, 'process', 'processes')}; one address may exceed the share of "
                "one process, several that do are read from disk in turn; "
                f"set it to {wants_mb} or more"
            )


def descriptor_warnings(config: Config) -> Iterator[str]:
    """Yield a sentence if the hard limit of open files may be too low for a process."""
    limit, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[1], descriptors_needed(config)
    if 0 <= limit < needed:
        yield (
            f"the hard limit of open files is {limit:,} here, and a process of this configuration "
            f"may have {needed:,}; {MORE_OPEN_FILES} where the service runs"
        )


def certificate_warnings(api: ApiSettings) -> Iterator[str]:
    """Yield a sentence if the certificate of the API has expired."""
    path = api.tls_cert_file
    if path and valid_until_s(Path(path)) < time.time():
        yield f"{path} of api.tls_cert_file has expired, and clients refuse it; renew it"


def needs_of_routes(routes: Mapping[str, InputRoute]) -> dict[str, frozenset[str]]:
    """Return the required operations on each input, and on each topic that a route may write."""
    return dict.fromkeys(routes, READING) | dict.fromkeys(written_topics(routes), WRITING)


def needs_of_own(group_id: str, own: Iterable[TopicSpec]) -> dict[str, frozenset[str]]:
    """Return the required operations on internal topics; decided records are deleted from one."""
    more = {by_address(group_id): frozenset({"DELETE"})}
    return {each.name: READING | WRITING | more.get(each.name, frozenset()) for each in own}


def rights_problems(
    config: Config,
    rights: AclQueries,
    needs: Mapping[str, frozenset[str]],
    granted: Mapping[str, Granted],
    made: Iterable[TopicSpec],
    *,
    asks_groups: bool = True,
) -> Iterator[ConfigIssue]:
    """Yield the missing rights; `granted` has all topics that exist, `made` those to create.

    Without `asks_groups` those on groups are left out: only a coordinator knows them.
    """
    user = user_of(config.kafka.common, config.kafka.admin)
    yield from ungranted("topic", needs, granted, user)
    missing = [each for each in made if each.name not in granted]
    yield from not_makeable(rights.unmakeable(missing), user)
    hops = [Hop.INPUTS, Hop.ADDRESSES] if decides_by_address(config) else [Hop.INPUTS]
    groups = dict.fromkeys((consumer_group(config.service.group_id, hop) for hop in hops), _GROUP)
    if asks_groups:
        yield from ungranted("group", groups, rights.of_groups(groups), user)


class CheckReport(NamedTuple):
    """Problems that the check found, and the inputs and outputs that the routes resolve to."""

    problems: tuple[ConfigIssue, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def warned(self, *warnings: str) -> "CheckReport":
        """Return the report with further warnings."""
        return self._replace(warnings=(*self.warnings, *warnings))


def check(
    config: Config, invalid_routes: Collection[str] = (), *, probes: bool = False
) -> CheckReport:
    """Check the configuration against the broker; raise ExitError 3 if it does not answer.

    `invalid_routes` are names of routes with invalid settings, which have defaults here. They are
    not compared with the first start. `probes`: test the broker's behaviour too, unless there are
    problems; ExitError 3 if it fails.
    """
    clients = KafkaClients(config)
    answers(clients.connecting())
    try:
        rights, clock = KafkaAclQueries(clients.admin()), SystemClock()
        report = report_in_effect(config, clients, rights, clock, invalid_routes)
        if not probes:
            return report
        if report.problems:
            return report.warned("the broker was not probed: correct the problems first")
        make_config_topic(config.service, clients.cluster)
        verify_behaviour(clients, config_topic(config.service.group_id), clock)
        return report.warned(*deletion_warnings(config, clients.cluster))
    except KafkaException as error:
        failed = fault_of(without_frames(error).args[0])
    raise unanswered(clients.connecting(), failed.cause, (OFFSETS, TRANSACTIONS))


def deletion_warnings(config: Config, cluster: KafkaClusterAdmin) -> Iterator[str]:
    """Yield a sentence if the broker does not delete records, which only costs space.

    The request is for the first offset of the repartition topic, so nothing is deleted.
    """
    source = PartitionId(by_address(config.service.group_id), 0)
    if source.topic not in cluster.topics([source.topic]):
        return
    fault = cluster.deletion_fault(source, cluster.starts([source])[source])
    if fault is not None:
        yield (
            f"the broker does not delete records of {source.topic} ({fault.name()}: {fault.str()});"
            " the topic grows without end"
        )


def report_in_effect(
    file: Config,
    clients: Clients,
    rights: AclQueries,
    clock: Clock,
    invalid_routes: Collection[str] = (),
) -> CheckReport:
    """Report on the file together with the settings made over REST, if they may be read."""
    topic = config_topic(file.service.group_id)
    operations = rights.of_topics([topic]).get(topic)
    may_read = operations is None or operations >= READING
    found = in_effect(file, clients, clock) if may_read else EffectiveConfig(file)
    first = found.layout and found.layout.without(invalid_routes)
    in_file = file.addresses.patterns.keys()
    report = report_of(found.config, clients.cluster, rights, first, in_file)
    report = report._replace(warnings=(*report.warnings, *kept_templates(file, found.config)))
    if found.fault is None:
        return report
    problem = ConfigIssue(found.fault, "correct the file, or set them again over REST")
    return report._replace(problems=(problem, *report.problems))


def report_of(
    config: Config,
    cluster: ClusterAdmin,
    rights: AclQueries,
    first: Topology | None = None,
    in_file: Collection[str] | None = None,
) -> CheckReport:
    """Report on one configuration, given a cluster that answers.

    `first` has the choices of the group's first start, which cannot change; `in_file` the address
    patterns of the file, if others were set over REST.
    """
    names, group_id = cluster.names(), config.service.group_id
    # A topic that we may not describe is not listed, but it is not missing either.
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
    targets = target_topics(config, routes, inputs) if config.service.create_topics else []
    made = [*own, *targets]
    groups = neighbours(group_id, names)
    reach = reach_of(config.routes, config.addresses, in_file)
    broken = {each.name: list(each.problems()) for each in rights.coordinator_topics()}
    problems = [
        *groups.problems,
        *reach.problems,
        *_folder_problems(config.service.state_dir),
        *_contradictions(config, inputs, first),
        *_missing_inputs(config, routes, names),
        *_mixed_targets(routes),
        *_missing_targets(config, routes, granted.keys()),
        *_changelog_problems(config, routes, topics),
        *_by_address_problems(config, topics),
        *_fallback_problems(group_id, topics),
        *_limit_problems(group_id, own, inputs, topics, granted),
        *chain.from_iterable(broken.values()),
        *_timeout_problems(config, rights.transaction_max_ms()),
        *_registry_problems(config),
        *rights_problems(
            config,
            rights,
            needs | needs_own,
            granted,
            made,
            asks_groups=not broken.get(OFFSETS),
        ),
    ]
    outputs = tuple(sorted(written_topics(routes)))
    warnings = (
        *shared_addresses(routes),
        *groups.warnings,
        *reach.warnings,
        *_unused(config, routes),
        *_unordered(config),
        *target_warnings(routes, topics, fallback(group_id)),
        *unreported_warnings(topics),
        *compression_warnings(codec_of(config.kafka.producer)),
    )
    return CheckReport(tuple(problems), tuple(sorted(routes)), outputs, warnings)


def _unordered(config: Config) -> Iterator[str]:
    """Yield a sentence for each route whose outputs do not have the order of its inputs."""
    for route in config.routes:
        if route.scope == "id":
            yield (
                f'routes["{route.name}"].scope is "id": outputs keep the order of each id, group '
                "and numbered publisher, not that of an input partition; consumers that need that "
                'order need scope "address"'
            )


def _unused(config: Config, routes: Mapping[str, InputRoute]) -> Iterator[str]:
    """Yield a sentence for each setting that no route needs; routes may be added over REST."""
    service = config.service
    is_default = service.by_address_partitions == ServiceSettings().by_address_partitions
    if not is_default and not decides_by_address(config):
        yield "service.by_address_partitions has no effect: no route has scope address or id"
    for route in routes.values():
        allowed = route.settings.allowed_outputs
        if allowed and None not in {route.output.constant, route.dead_letter.constant}:
            yield (
                f'routes["{route.settings.name}"].allowed_outputs has no effect: no record can '
                "choose a topic by output or dead_letter"
            )
    if config.schema_registry.url and not any(map(reads_schemas, config.routes)):
        yield "schema_registry.url has no effect: no route reads {schema:…} or {key-schema:…}"


def _folder_problems(folder: Path) -> list[ConfigIssue]:
    parents = (folder.absolute(), *folder.absolute().parents)
    fix = "set service.state_dir to a writable folder"
    try:
        existing = next(path for path in parents if path.exists())
    except OSError as error:  # a name that is too long, or a folder that may not be looked into
        return [ConfigIssue(f"service.state_dir is {folder}: {error.strerror}", fix)]
    # The permissions alone say nothing of file systems such as /proc, or to root.
    with suppress(OSError), TemporaryFile(dir=existing):
        return []
    what = f"service.state_dir is {folder}, but {existing} is not a writable folder"
    return [ConfigIssue(what, fix)]


def _contradictions(
    config: Config, inputs: Mapping[str, TopicInfo], first: Topology | None
) -> list[ConfigIssue]:
    """Return what would end the service with status 5, since the group has started before."""
    issue = None if first is None else contradiction(first, Topology.of(config, inputs))
    return [] if issue is None else [issue]


def _registry_problems(config: Config) -> Iterator[ConfigIssue]:
    """Yield the problem of a schema registry that does not answer."""
    if not config.schema_registry.url or not any(map(reads_schemas, config.routes)):
        return
    try:
        registry.check(config.schema_registry)
    except RegistryUnavailableError as error:
        fix = "check its address, user and certificate; the service waits for it"
        yield ConfigIssue(f"cannot read schemas from {error}", fix)


def _changelogs(config: Config, routes: dict[str, InputRoute]) -> dict[str, str]:
    """Return the inputs with scope `partition`, by the name of their changelog."""
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
            problems.append(_unmatched(route, config, names))
    return problems


def _unmatched(route: RouteSettings, config: Config, names: frozenset[str]) -> ConfigIssue:
    """Return the problem of an expression that finds no input: there is no topic, or why not."""
    group_id = config.service.group_id
    matching = sorted(name for name in names if reads(route.inputs, name))
    reasons = {
        f'begins with "{group_id}.", so it belongs to Ringfence': [
            name for name in matching if name.startswith(f"{group_id}.")
        ],
        "begins with __, so that it has to be named": [
            name for name in matching if name.startswith("__")
        ],
    }
    others = [name for name in matching if not any(name in found for found in reasons.values())]
    first = {name: next(r for r in config.routes if reads(r.inputs, name)) for name in others}
    reasons["is read by an earlier route"] = [n for n in others if first[n] is not route]
    reasons["is written by a route"] = [name for name in others if first[name] is route]
    why = [f'"{found[0]}" {reason}' for reason, found in reasons.items() if found]
    if not why:
        what = f'no topic matches the inputs of route "{route.name}"'
        return ConfigIssue(what, "create one, or correct the expression")
    what = f'the inputs of route "{route.name}" match no topic that may be read: {", ".join(why)}'
    return ConfigIssue(what, "correct the expression, or create another topic that it matches")


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
        for name in sorted(
            # The service makes its own topic of dead letters.
            written_topics(routes).difference(there, {fallback(config.service.group_id)})
        )
    ]


def _mixed_targets(routes: Mapping[str, InputRoute]) -> Iterator[ConfigIssue]:
    """Yield each topic that would get accepted messages of one input and dead letters of another.

    Inputs that are named are compared without the broker, by `target_problems`.
    """
    outputs = {route.output.constant: name for name, route in routes.items()}
    for name, route in routes.items():
        topic = route.dead_letter.constant
        other = None if topic is None else outputs.get(topic)
        if other is None or other == name:
            continue
        if any(set(routes[each].settings.inputs).isdisjoint([each]) for each in (name, other)):
            what = f'"{topic}" is the dead-letter topic of "{name}" and the output of "{other}"'
            yield ConfigIssue(what, "use different topics for accepted and rejected messages")


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
    """Return what is wrong with the existing topics that scopes `address` and `id` use."""
    if not decides_by_address(config):
        return []
    service, problems = config.service, []
    repartition, log = by_address(service.group_id), changelog(service.group_id, BY_ADDRESS)
    for name in (repartition, log):
        has = topics.get(name)
        if has is not None and has.partitions != service.by_address_partitions:
            what = f'"{name}" has {has.partitions} partitions, not {service.by_address_partitions}'
            fix = f"set service.by_address_partitions = {has.partitions}: it cannot change"
            problems.append(ConfigIssue(what, fix))
    if repartition in topics:
        problems += by_address_problems(repartition, topics[repartition])
    if log in topics:
        problems += changelog_problems(log, topics[log])
    return problems


def _fallback_problems(group_id: str, topics: Mapping[str, TopicInfo]) -> list[ConfigIssue]:
    """Return a problem if the group's dead-letter topic does not take every dead letter."""
    name = fallback(group_id)
    if name not in topics or not topics[name].needs_key:
        return []
    what = f'"{name}" has cleanup.policy {topics[name].cleanup_policy}'
    return [ConfigIssue(what, "set its cleanup.policy to delete: it takes letters without a key")]


def _limit_problems(
    group_id: str,
    own: Iterable[TopicSpec],
    inputs: Mapping[str, TopicInfo],
    topics: Mapping[str, TopicInfo],
    granted: Mapping[str, Granted],
) -> list[ConfigIssue]:
    """Return a problem for each internal topic that is stricter than the inputs need.

    That happens if the limit of an input was raised later, or if the topic was made by an earlier
    version. The service raises the limits of its
    topics itself where it has the right to. A lower limit of an output is not a problem: a record
    that does not fit is dead-lettered, and one that does not fit there either goes to the group's
    own dead-letter topic, which has to take every record.
    """
    return [
        ConfigIssue(
            f'"{name}" has {_values(topics[name], needs)}',
            f"set its {as_settings(needs)}, or grant ALTER_CONFIGS on it to the service",
        )
        for name, needs in limits_to_raise(group_id, own, inputs, topics).items()
        if "ALTER_CONFIGS" not in (granted.get(name) or ())
    ]


def _values(topic: TopicInfo, settings: Iterable[str]) -> str:
    return " and ".join(f"{setting} {topic.limit(setting)}" for setting in settings)


def _timeout_problems(config: Config, max_ms: int | None) -> list[ConfigIssue]:
    timeout_ms = config.service.transaction_timeout_ms
    if max_ms is None or timeout_ms <= max_ms:
        return []
    what = (
        f"service.transaction_timeout_ms is {timeout_ms}, but the broker's "
        f"transaction.max.timeout.ms is {max_ms}"
    )
    return [ConfigIssue(what, f"set service.transaction_timeout_ms to at most {max_ms}")]

"""Bridge check: compares the configuration with both clusters, and changes nothing."""

from typing import NamedTuple

from ringfence_service.bridge.clients import (
    COORDINATORS,
    ClusterRefusedError,
    KafkaBridgeClients,
    Side,
    asking,
    called,
)
from ringfence_service.bridge.config import BridgeConfig
from ringfence_service.bridge.topics import contradictions, missing_ends, targets_of
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.dedup.route import absent
from ringfence_service.errors import ConfigIssue
from ringfence_service.kafka.acls import (
    READING,
    WRITING,
    AclQueries,
    KafkaAclQueries,
    not_makeable,
    ungranted,
    unseen,
    user_of,
)
from ringfence_service.kafka.connection_probe import answers, unanswered
from ringfence_service.kafka.errors import without_frames
from ringfence_service.kafka.model import ClusterAdmin
from ringfence_service.kafka.topics import new_dead_letters


class BridgeReport(NamedTuple):
    """Problems that the check found, and the pairs of topics that are forwarded."""

    problems: tuple[ConfigIssue, ...]
    mappings: tuple[str, ...]


class ClusterReport(NamedTuple):
    """Admin and ACL queries of one cluster."""

    cluster: ClusterAdmin
    rights: AclQueries


def check(config: BridgeConfig) -> BridgeReport:
    """Check both clusters; raise ExitError 3 if one does not answer."""
    clients = KafkaBridgeClients(config)
    clusters: dict[Side, KafkaSettings] = {"source": config.source, "target": config.target}
    for side, cluster in clusters.items():
        answers(clients.connecting(cluster), called(side))
    try:
        source = ClusterReport(clients.source, KafkaAclQueries(clients.admin(config.source)))
        target = ClusterReport(clients.target, KafkaAclQueries(clients.admin(config.target)))
        return report_of(config, source, target)
    except ClusterRefusedError as error:
        failed = without_frames(error)
    properties, needed = clients.connecting(clusters[failed.side]), COORDINATORS[failed.side]
    raise unanswered(properties, failed.fault.cause, needed, called(failed.side))


def report_of(config: BridgeConfig, source: ClusterReport, target: ClusterReport) -> BridgeReport:
    """Report on the configuration, given clusters that answer."""
    dead_letter = new_dead_letters(config.dead_letter, -1)
    with asking("source"):
        names = source.cluster.names()
        # A topic that we may not describe is not listed, but it is not missing either.
        names = names.union(source.rights.of_topics(absent(config.bridge.topics, names)))
        targets = targets_of(config, names)
        granted = source.rights.of_topics(targets)
        sources = source.cluster.topics(targets.keys() - unseen(granted))
        group = source.rights.of_groups([config.bridge.group_id])
        cluster_id = source.cluster.cluster_id()
    with asking("target"):
        needs = dict.fromkeys([*targets.values(), dead_letter.name], WRITING)
        permitted = target.rights.of_topics(needs)
        found = target.cluster.topics(needs.keys() - unseen(permitted))
        refused = target.rights.unmakeable([] if dead_letter.name in permitted else [dead_letter])
        is_same = target.cluster.cluster_id() == cluster_id
    missing = missing_ends(config, names, targets, permitted)
    reader, writer = user_of(config.source.common), user_of(config.target.common)
    problems = [
        *(ConfigIssue(f"{end} does not exist", "create it") for end in missing),
        *contradictions(config, targets, sources, found, is_same=is_same),
        *ungranted("source topic", dict.fromkeys(targets, READING), granted, reader),
        *ungranted("group", dict.fromkeys(group, ("READ",)), group, reader),
        *ungranted("target topic", needs, permitted, writer),
        *not_makeable(refused, writer),
    ]
    if not targets and not missing:
        problems.append(
            ConfigIssue("no topic of the source matches bridge.topics", "correct the expression")
        )
    mappings = tuple(f"{name} → {end}" for name, end in targets.items())
    return BridgeReport(tuple(problems), mappings)

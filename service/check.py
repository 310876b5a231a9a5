"""Check: what a configuration needs of the broker, all of it asked before anything is changed."""

import os
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException

from service.cluster import Cluster, TopicInfo
from service.config import Config
from service.errors import ExitCode, ExitError, Problem
from service.kafka import KafkaClients
from service.route import InputRoute, missing_inputs, resolve, written_topics
from service.topics import changelog


class Report(NamedTuple):
    """What the broker has, and what it lacks."""

    problems: tuple[Problem, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def check(config: Config) -> Report:
    """Ask the broker; ExitError 3 when it does not answer."""
    try:
        return report_of(config, KafkaClients(config).cluster)
    except KafkaException as error:
        fault = error.args[0]
        servers = config.kafka.common.get("bootstrap.servers")
        raise ExitError(
            ExitCode.BROKER,
            f"The broker at {servers} does not answer our questions ({fault.name()}: "
            f"{fault.str()}); check the address, the network and our rights.",
        ) from error


def report_of(config: Config, cluster: Cluster) -> Report:
    """The report, given a cluster that answers."""
    names = cluster.names()
    routes = resolve(config.routes, names, config.service.group_id)
    topics = cluster.topics({*routes, *written_topics(routes), *_changelogs(config, routes)})
    problems = [
        *_folder_problems(config.service.state_dir),
        *_missing_inputs(config, routes, names),
        *_missing_targets(config, routes, topics),
        *_changelog_problems(config, routes, topics),
    ]
    outputs = tuple(sorted(written_topics(routes)))
    return Report(tuple(problems), tuple(sorted(routes)), outputs)


def _folder_problems(folder: Path) -> list[Problem]:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return []
    what = f"service.state_dir is {folder}, and {there} is no folder that can be written"
    return [Problem(what, "set service.state_dir to a folder that can be written")]


def _changelogs(config: Config, routes: dict[str, InputRoute]) -> dict[str, str]:
    return {changelog(config.service.group_id, name): name for name in routes}


def _missing_inputs(
    config: Config, routes: dict[str, InputRoute], names: frozenset[str]
) -> list[Problem]:
    problems = []
    for route in config.routes:
        problems += [
            Problem(f'the input "{name}" of route "{route.name}" does not exist', "create it")
            for name in missing_inputs([route], names)
        ]
        is_expression = all(name.startswith("^") for name in route.inputs)
        if is_expression and not any(bound.settings is route for bound in routes.values()):
            what = f'no topic fits the inputs of route "{route.name}"'
            problems.append(Problem(what, "create one, or mend the expression"))
    return problems


def _missing_targets(
    config: Config, routes: dict[str, InputRoute], topics: dict[str, TopicInfo]
) -> list[Problem]:
    if config.service.create_topics:
        return []
    return [
        Problem(
            f'the topic "{name}" that a route writes does not exist',
            "create it, or set service.create_topics = true",
        )
        for name in sorted(written_topics(routes) - topics.keys())
    ]


def _changelog_problems(
    config: Config, routes: dict[str, InputRoute], topics: dict[str, TopicInfo]
) -> list[Problem]:
    problems = []
    for log, name in _changelogs(config, routes).items():
        has = topics.get(log)
        if has is None or name not in topics:
            continue
        needs = topics[name].partitions
        grows = routes[name].settings.on_partitions_added == "keep"
        if has.partitions < needs and not grows:
            problems.append(
                Problem(
                    f'the changelog "{log}" has {has.partitions} partitions, '
                    f'its input "{name}" has {needs}',
                    'set on_partitions_added = "keep" for the route, or add the partitions',
                )
            )
        if "compact" not in has.cleanup_policy:
            what = f'the changelog "{log}" has cleanup.policy {has.cleanup_policy}'
            problems.append(Problem(what, "set its cleanup.policy to compact"))
    return problems

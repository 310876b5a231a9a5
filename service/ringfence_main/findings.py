"""Check findings: what is wrong with a configuration file, and with the broker that it names."""

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from ringfence_main.check import certificate_warnings, descriptor_warnings, memory_warnings
from ringfence_main.check import check as ask_broker
from ringfence_main.live_sample import sample as look
from ringfence_service.bridge.check import check as ask_brokers
from ringfence_service.bridge.clients import property_problems as bridge_problems
from ringfence_service.bridge.config import load_lenient as load_bridge
from ringfence_service.config.kafka_properties import unused_properties
from ringfence_service.config.load import BRIDGE_SECTIONS, load_lenient, read_document
from ringfence_service.config.model import Config
from ringfence_service.config.reach import reach_of
from ringfence_service.config.validation import exposed_files, invalid_routes
from ringfence_service.errors import ConfigIssue, ExitError
from ringfence_service.kafka.clients import property_problems
from ringfence_service.listeners import bind_warnings
from ringfence_state.directory import StateDirectory

T = TypeVar("T")
Say = Callable[[str], None]


class CheckFinding(NamedTuple):
    """Result of a check: problems, topics by their kind, and warnings."""

    problems: Sequence[ConfigIssue]
    topics: Mapping[str, Sequence[str]]
    warnings: Sequence[str] = ()
    lines: Sequence[str] = ()
    """What was found and is right."""


def findings_of(
    config_file: Path, sample: int | None, say: Say, *, probes: bool = False
) -> list[CheckFinding]:
    """Check what a file configures: the service, a bridge, or both.

    `sample` is how many of the newest messages of each input are looked at, `probes` as in
    `ringfence_main.check`. If a broker does not answer, the problems found so far are said before
    the ExitError.
    """
    sections = (read_document(config_file, []) or {}).keys()
    findings = []
    if not ("bridge" in sections and sections <= BRIDGE_SECTIONS):
        findings.append(_check_service(config_file, sample, say, probes=probes))
    if "bridge" in sections:
        findings.append(_check_bridge(config_file, say))
    return findings


def _check_service(
    config_file: Path, sample: int | None, say: Say, *, probes: bool
) -> CheckFinding:
    config, problems = load_lenient(config_file, os.environ)
    refused = property_problems(config) if config is not None else []
    problems += refused
    warnings: list[str] = []
    if config is not None:
        own = (
            memory_warnings(config),
            descriptor_warnings(config),
            certificate_warnings(config.api),
            unused_properties(config.kafka.common, "kafka"),
        )
        warnings = [*exposed_files(config.api), *chain.from_iterable(own)]
        if not _runs_here(config):
            warnings.extend(bind_warnings(config.api))
    # Without bootstrap servers there is no broker to query; that is a problem already.
    if config is None or refused or "bootstrap.servers" not in config.kafka.common:
        return CheckFinding(problems, {}, warnings)

    of_file = [*problems, *reach_of(config.routes, config.addresses).problems]
    report = _answered(
        of_file,
        lambda: ask_broker(config, invalid_routes(problems), probes=probes and not problems),
        say,
    )
    topics = {"inputs": report.inputs, "outputs": report.outputs}
    found = CheckFinding([*problems, *report.problems], topics, [*warnings, *report.warnings])
    return found if sample is None else _with_sample(found, config, sample, say)


def _runs_here(config: Config) -> bool:
    """Return whether this instance runs on this machine: then it is the owner of its ports."""
    service = config.service
    return StateDirectory.is_held(service.state_dir, service.group_id, service.instance)


def _with_sample(finding: CheckFinding, config: Config, records: int, say: Say) -> CheckFinding:
    """Add what the newest messages of the inputs have."""
    live = _answered(finding.problems, lambda: look(config, records), say)
    problems = [each.problem for each in live if each.problem is not None]
    warnings = [each.warning for each in live if each.warning is not None]
    return finding._replace(
        problems=[*finding.problems, *problems],
        warnings=[*finding.warnings, *warnings],
        lines=[f"{each.found}." for each in live if not each.problem and not each.warning],
    )


def _check_bridge(config_file: Path, say: Say) -> CheckFinding:
    config, problems = load_bridge(config_file, os.environ)
    refused = bridge_problems(config) if config is not None else []
    problems += refused
    warnings: list[str] = []
    if config is not None:
        warnings = [*exposed_files(config.api), *bind_warnings(config.api)]
        for name, cluster in (("source", config.source), ("target", config.target)):
            warnings += unused_properties(cluster.common, f"bridge.{name}")
    if config is None or refused or not config.has_servers:
        return CheckFinding(problems, {}, warnings)

    report = _answered(problems, lambda: ask_brokers(config), say)
    return CheckFinding([*problems, *report.problems], {"bridged": report.mappings}, warnings)


def _answered(problems: Sequence[ConfigIssue], ask: Callable[[], T], say: Say) -> T:
    """Return a broker's answer; if there is none, first print the problems found so far."""
    try:
        return ask()
    except ExitError:
        if problems:
            say(listed(problems))
        raise


def listed(problems: Sequence[ConfigIssue]) -> str:
    """Return problems with their fixes, numbered."""
    count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}:"
    lines = (
        f"{number:3}. {problem.what}\n     fix: {problem.fix}"
        for number, problem in enumerate(problems, 1)
    )
    return "\n".join([count, *lines])

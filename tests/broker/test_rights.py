"""What is documented of rights is enough, and `check` names what is not granted of it."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from tests.broker.desk import Desk
from tests.broker.test_check import ringfence
from tests.waiting import eventually
from tools.broker import secured
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
LOOKING = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
READING = (AclOperation.READ, *LOOKING)
WRITING = (AclOperation.WRITE, *LOOKING)


@pytest.fixture
def desk(
    secured_broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> Iterator[Desk]:
    """Its files name the user that has no rights of its own."""
    client = secured_broker.client_properties
    with Desk(client, tmp_path, topic_name("rights")) as own:
        own.create()
        own.client |= secured.client_properties(secured.SERVICE)
        yield own


class Grants:
    """The rights of the service's user, as its administrator has them."""

    def __init__(self, broker: Broker, desk: Desk) -> None:
        self._admin = AdminClient(dict(broker.client_properties))
        own = (*READING, AclOperation.WRITE, AclOperation.CREATE)
        topic, group = ResourceType.TOPIC, desk.group
        self.documented = [
            *_bindings(topic, desk.input, LITERAL, READING),
            *_bindings(topic, desk.output, LITERAL, WRITING),
            *_bindings(topic, desk.letters, LITERAL, WRITING),
            *_bindings(topic, f"{group}.", PREFIXED, own),
            *_bindings(topic, f"{group}.by-address", LITERAL, (AclOperation.DELETE,)),
            *_bindings(ResourceType.GROUP, group, LITERAL, (AclOperation.READ,)),
            *_bindings(ResourceType.GROUP, f"{group}.by-address", LITERAL, (AclOperation.READ,)),
            *_bindings(
                ResourceType.TRANSACTIONAL_ID,
                group,
                PREFIXED,
                (AclOperation.DESCRIBE, AclOperation.WRITE),
            ),
        ]

    def grant(self, bindings: Iterable[AclBinding]) -> None:
        for done in self._admin.create_acls(list(bindings)).values():
            done.result(timeout=30)

    def revoke(self, right: AclBinding) -> None:
        what = AclBindingFilter(
            right.restype,
            right.name,
            right.resource_pattern_type,
            right.principal,
            right.host,
            right.operation,
            right.permission_type,
        )
        for gone in self._admin.delete_acls([what]).values():
            assert len(gone.result(timeout=30)) == 1


def _bindings(
    kind: ResourceType, name: str, pattern: ResourcePatternType, operations: Iterable[AclOperation]
) -> list[AclBinding]:
    user, allow = f"User:{secured.SERVICE}", AclPermissionType.ALLOW
    return [AclBinding(kind, name, pattern, user, "*", each, allow) for each in operations]


REVOKED = (
    ("input", "READ"),
    ("input", "DESCRIBE_CONFIGS"),
    ("output", "WRITE"),
    ("letters", "DESCRIBE_CONFIGS"),
    ("group", "READ"),
)


def test_what_is_documented_is_enough_and_rights_that_are_revoked_are_named(
    secured_broker: Broker, desk: Desk
) -> None:
    grants, config = Grants(secured_broker, desk), desk.config()
    grants.grant(grants.documented)
    eventually(lambda: ringfence("check", config).returncode == 0)
    for of, operation in REVOKED:
        wanted = (getattr(desk, of), AclOperation[operation])
        right = next(r for r in grants.documented if (r.name, r.operation) == wanted)
        grants.revoke(right)
    said = ""

    def is_told() -> bool:
        nonlocal said
        said = ringfence("check", config).stdout
        return f"{len(REVOKED)} problems:" in said

    eventually(is_told)
    for of, operation in REVOKED:
        kind = "group" if of == "group" else "topic"
        name = getattr(desk, of)
        assert f"mend: grant {operation} on {kind} {name} to User:{secured.SERVICE}" in said


def test_check_tells_before_the_first_start_that_topics_may_not_be_made(
    secured_broker: Broker, desk: Desk
) -> None:
    grants = Grants(secured_broker, desk)
    grants.grant(each for each in grants.documented if each.operation is not AclOperation.CREATE)
    done = ringfence("check", desk.config())
    assert done.returncode == 1, done.stdout + done.stderr
    for topic in (desk.changelog, f"{desk.group}.config", f"{desk.group}.dead-letters"):
        assert f"grant CREATE on topic {topic} to User:{secured.SERVICE}" in done.stdout


def test_check_of_one_who_may_do_nothing_tells_all_and_asks_on(
    secured_broker: Broker, desk: Desk
) -> None:
    del secured_broker
    done = ringfence("check", desk.config())
    assert done.returncode == 1, done.stdout + done.stderr
    for words in (f"READ on topic {desk.input}", f"READ on group {desk.group}"):
        assert f"grant {words} to User:{secured.SERVICE}" in done.stdout
    assert "does not exist" not in done.stdout

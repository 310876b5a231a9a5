"""Rights of the service's user on a broker that knows users, as its administrator gives them."""

from collections.abc import Iterable
from typing import Final

from confluent_kafka.admin import AdminClient

# From where they are defined: the package does not export them to a type checker.
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from tests.support.waiting import eventually
from tools.broker import secured
from tools.broker.cluster import Broker

LITERAL: Final = ResourcePatternType.LITERAL
PREFIXED: Final = ResourcePatternType.PREFIXED
LOOKING: Final = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
READING: Final = (AclOperation.READ, *LOOKING)
WRITING: Final = (AclOperation.WRITE, *LOOKING)


def rights(
    kind: ResourceType, name: str, operations: Iterable[AclOperation], pattern: ResourcePatternType
) -> list[AclBinding]:
    """These operations on what is named, or on all whose names begin so."""
    user, allow = f"User:{secured.SERVICE}", AclPermissionType.ALLOW
    return [AclBinding(kind, name, pattern, user, "*", each, allow) for each in operations]


def documented(group: str, *, reads: Iterable[str], writes: Iterable[str]) -> list[AclBinding]:
    """What docs/configuration.md tells to grant."""
    topic, own = ResourceType.TOPIC, (*READING, AclOperation.WRITE, AclOperation.CREATE)
    hop, read = f"{group}.by-address", (AclOperation.READ,)
    using = (AclOperation.DESCRIBE, AclOperation.WRITE)
    return [
        *(each for name in reads for each in rights(topic, name, READING, LITERAL)),
        *(each for name in writes for each in rights(topic, name, WRITING, LITERAL)),
        *rights(topic, f"{group}.", own, PREFIXED),
        *rights(topic, hop, (AclOperation.DELETE,), LITERAL),
        *rights(ResourceType.GROUP, group, read, LITERAL),
        *rights(ResourceType.GROUP, hop, read, LITERAL),
        *rights(ResourceType.TRANSACTIONAL_ID, group, using, PREFIXED),
    ]


class Administrator:
    """Gives rights to the service's user, and takes them away."""

    def __init__(self, broker: Broker) -> None:
        self._admin = AdminClient(dict(broker.client_properties))

    def grant(self, bindings: Iterable[AclBinding]) -> None:
        for done in self._admin.create_acls(list(bindings)).values():
            done.result(timeout=30)

    def revoke(self, right: AclBinding) -> None:
        """Until the broker that was asked does not tell of it any more."""
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
        eventually(lambda: not self._admin.describe_acls(what).result(10))

"""What is documented of rights is enough, and `check` names what is not granted of it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin._acl import AclOperation

from ringfence_client.headers import DUPLICATE_ID
from tests.broker.desk import Desk
from tests.broker.rights import Administrator, documented
from tests.broker.service import ringfence
from tests.support.waiting import eventually
from tools.broker import secured
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker


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
    administrator, config = Administrator(secured_broker), str(desk.config())
    granted = documented(desk.group, reads=[desk.input], writes=[desk.output, desk.letters])
    administrator.grant(granted)
    eventually(lambda: ringfence("check", "--config", config).returncode == 0)
    for of, operation in REVOKED:
        wanted = (getattr(desk, of), AclOperation[operation])
        administrator.revoke(next(r for r in granted if (r.name, r.operation) == wanted))
    said = ""

    def is_told() -> bool:
        nonlocal said
        said = ringfence("check", "--config", config).stdout
        return f"{len(REVOKED)} problems:" in said

    eventually(is_told)
    for of, operation in REVOKED:
        kind = "group" if of == "group" else "topic"
        name = getattr(desk, of)
        assert f"fix: grant {operation} on {kind} {name} to User:{secured.SERVICE}" in said


def test_rights_of_one_route_that_are_revoked_stop_that_route_alone(
    secured_broker: Broker, desk: Desk
) -> None:
    administrator, owner = Administrator(secured_broker), secured_broker.client_properties
    other = Desk(owner, desk.folder, f"{desk.group}-other")
    other.create()
    reads, writes = (desk.input, other.input), (desk.output, desk.letters)
    granted = documented(desk.group, reads=reads, writes=(*writes, other.output, other.letters))
    administrator.grant(granted)
    service = desk.service(more=f'[[routes]]\ninputs = ["{other.input}"]\nscope = "partition"\n')
    producer, sent = Producer(dict(owner)), list[bytes]()
    for name, operation in [
        (desk.output, AclOperation.WRITE),
        (desk.input, AclOperation.READ),
    ]:
        right = next(each for each in granted if (each.name, each.operation) == (name, operation))
        administrator.revoke(right)
        for _ in range(5):
            sent.append(b"%d" % len(sent))
            for topic in (desk.input, other.input):
                producer.produce(topic, value=b"v", headers=[(DUPLICATE_ID, sent[-1])])
            assert producer.flush(20) == 0
            eventually(lambda: other.count(other.output) == len(sent), service)
        service.wait_note(f"{name}: it ")
        administrator.grant([right])
        eventually(lambda: desk.committed() == len(sent), service)
    service.stop()


def test_check_tells_before_the_first_start_that_topics_may_not_be_made(
    secured_broker: Broker, desk: Desk
) -> None:
    granted = documented(desk.group, reads=[desk.input], writes=[desk.output, desk.letters])
    made = [each for each in granted if each.operation is not AclOperation.CREATE]
    Administrator(secured_broker).grant(made)
    done = ringfence("check", "--config", str(desk.config()))
    assert done.returncode == 1, done.stdout + done.stderr
    for topic in (desk.changelog, f"{desk.group}.config", f"{desk.group}.dead-letters"):
        assert f"grant CREATE on topic {topic} to User:{secured.SERVICE}" in done.stdout


def test_check_of_one_who_may_do_nothing_tells_all_and_asks_on(desk: Desk) -> None:
    done = ringfence("check", "--config", str(desk.config()))
    assert done.returncode == 1, done.stdout + done.stderr
    for words in (f"READ on topic {desk.input}", f"READ on group {desk.group}"):
        assert f"grant {words} to User:{secured.SERVICE}" in done.stdout
    assert "does not exist" not in done.stdout

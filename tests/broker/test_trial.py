"""`ringfence try`: one message sent twice to a live input, and what is reported of the two."""

import subprocess

import pytest
from confluent_kafka import Producer as KafkaProducer

from tests.broker.desk import Desk
from tests.broker.service import ringfence

pytestmark = pytest.mark.broker


def tried(desk: Desk, topic: str) -> subprocess.CompletedProcess[str]:
    return ringfence("try", topic, "--config", str(desk.folder / "service.toml"))


STRATEGIES = ("ring", "sequence", "ordered")


def test_a_copy_is_kept_out_whatever_the_strategy_reads(desk: Desk) -> None:
    inputs = {name: f"{desk.group}-{name}" for name in STRATEGIES}
    desk.create(desk.input, desk.output, desk.letters)
    desk.create(*(f"{topic}{end}" for topic in inputs.values() for end in ("", ".unique", ".dlq")))
    more = "".join(
        f'[addresses."{topic}"]\nstrategy = "{name}"\n'
        f'[[routes]]\ninputs = ["{topic}"]\nscope = "partition"\n'
        for name, topic in inputs.items()
    )
    service = desk.service(more=more)
    service.wait_ready(1 + len(inputs))
    for topic in inputs.values():
        done = tried(desk, topic)
        assert done.returncode == 0, done.stdout + done.stderr + service.tail()
        lines = done.stdout.splitlines()
        assert lines[0] == f"sent       {topic}-0@0 and {topic}-0@1"
        assert sorted(line.split("-0@")[0] for line in lines[1:3]) == [
            f"accepted   {topic}.unique",
            f"duplicate  {topic}.dlq",
        ]
        assert lines[3] == "One came out, and its copy was kept out."
        assert (desk.count(f"{topic}.unique"), desk.count(f"{topic}.dlq")) == (1, 1)


def test_an_input_that_lets_everything_through_is_reported_with_exit_1(desk: Desk) -> None:
    desk.create()
    desk.service(more='[addresses."#"]\nid_cache_size = 0').wait_ready(1)
    done = tried(desk, desk.input)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "nothing is remembered for this address" in done.stdout


def test_an_input_whose_messages_have_no_id_is_reported_with_exit_1(desk: Desk) -> None:
    desk.create()
    producer = KafkaProducer(desk.client)
    for number in range(3):
        producer.produce(desk.input, b'{"order_id": %d, "customer": "secret"}' % number)
    assert producer.flush(20) == 0
    more = 'id = "{json:/orderId}"'
    config = str(desk.config(more=more))
    for sample, read in (((), 3), (("2",), 2)):
        done = ringfence("check", "--config", config, "--sample", *sample)
        assert done.returncode == 1, done.stdout + done.stderr
        found = f"of the last {read} messages of {desk.input}, 0 have an id at {{json:/orderId}}"
        assert found in done.stdout
        assert "their members are: /order_id, /customer" in done.stdout
        assert "secret" not in done.stdout + done.stderr
    assert desk.end(desk.input) == 3
    desk.service(more=more).wait_ready(1)
    done = tried(desk, desk.input)
    assert done.returncode == 1, done.stdout + done.stderr
    *_, conclusion, live = done.stdout.splitlines()
    assert conclusion == "One came out, and its copy was kept out."
    assert live.startswith(f"of the last 3 messages of {desk.input}, 0 have an id")


def test_a_topic_that_no_route_reads_is_refused_with_those_that_are(desk: Desk) -> None:
    desk.create()
    done = ringfence("try", desk.output, "--config", str(desk.config()))
    assert done.returncode == 2
    assert done.stderr == f"ringfence: No route reads {desk.output}; inputs are: {desk.input}.\n"

"""Wrong configurations as people write them, each with what `ringfence check` has to say of it.

The broker is a fake that has the topics of the first lines. Every answer names the cause and the
remedy, none calls the file good, and none is a traceback.
"""

import sys
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pytest

from ringfence_main.check import CheckReport, report_of
from ringfence_main.cli import main
from ringfence_service.config.model import Config
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import FakeCluster
from tests.fakes.rights import FakeRights

TOPICS = (
    *("orders", "orders.unique", "orders.dlq", "bills", "bills.unique", "bills.dlq", "__offsets"),
    *("ringfence.config", "ringfence.dead-letters", "team.config", "team.dead-letters"),
)

KAFKA = '[kafka]\n"bootstrap.servers" = "a:1"\n'
ROUTE = f'{KAFKA}[[routes]]\ninputs = ["orders"]\n'
BILLS = '[[routes]]\ninputs = ["bills"]\n'
REGISTRY = '[schema_registry]\nurl = "http://r"\n'


class Wrong(NamedTuple):
    """A file, and words of the problem or warning and of its remedy."""

    file: str
    words: tuple[str, ...]
    is_warning: bool = False
    """Whether the service runs with it; `check` says so without an exit code."""


WRONG: dict[str, Wrong] = {
    # the text
    "no value": Wrong(f"{KAFKA}[service]\ninstance =\n", ("line 4", "correct the TOML there")),
    "an open quote": Wrong(
        f'{KAFKA}[service]\ninstance = "a\n', ("a quote is not closed", "line 4")
    ),
    "an open quote at the end": Wrong(f'{KAFKA}[service]\ninstance = "a', ("quote is not closed",)),
    "one quote": Wrong(f"{KAFKA}[service]\ninstance = 'a\n", ("a quote is not closed",)),
    "a key twice": Wrong(f"{KAFKA}[service]\nworkers = 1\nworkers = 2\n", ("line 5",)),
    "not UTF-8": Wrong("\udcff", ("not text in UTF-8", "save the file as UTF-8")),
    "a table for the list": Wrong(
        f'{KAFKA}[routes]\ninputs = ["orders"]\n', ("write [[routes]] above each route",)
    ),
    "one route": Wrong(f'{KAFKA}[[route]]\ninputs = ["orders"]\n', ("[[routes]] above each",)),
    "no routes": Wrong(KAFKA, ("[[routes]] is missing",)),
    "no servers": Wrong('[[routes]]\ninputs = ["orders"]\n', ("bootstrap.servers",)),
    # values
    "a number in quotes": Wrong(
        f'{ROUTE}[addresses."orders"]\nid_cache_size = "20000"\n', ("remove the quotes", "20000")
    ),
    "a boolean in quotes": Wrong(
        f'{ROUTE}[service]\ncreate_topics = "true"\n', ("remove the quotes: write true",)
    ),
    "a duration": Wrong(
        f'{ROUTE}[addresses."orders"]\nstrategy = "window"\nwindow_ms = "30m"\n',
        ("write 1800000",),
    ),
    "a duration in seconds": Wrong(
        f'{ROUTE}[api]\nauth = "none"\nsession_max_s = "2h"\n', ("write 7200",)
    ),
    "no number at all": Wrong(f'{ROUTE}[service]\nworkers = "many"\n', ("a whole number from 1",)),
    "a level that is none": Wrong(f'{ROUTE}[log]\nlevel = "LOUD"\n', ('"info" or "warning"',)),
    "negative": Wrong(f"{ROUTE}[service]\nworkers = -1\n", ("a whole number from 1",)),
    # dead letters among accepted messages
    "the output of the route": Wrong(
        f'{ROUTE}dead_letter = "orders.unique"\n', ("the output of the same route", "different")
    ),
    "by a template": Wrong(
        f'{ROUTE}output = "{{address}}.x"\ndead_letter = "{{topic}}.x"\n', ('"orders.x"',)
    ),
    "crossed": Wrong(
        f'{ROUTE}output = "bills.dlq"\n{BILLS}output = "orders.dlq"\n',
        ('routes["orders"].dead_letter', 'routes["bills"].dead_letter', "receive duplicates"),
    ),
    "allowed": Wrong(
        f'{ROUTE}output = "{{header:t}}"\nallowed_outputs = ["bills.unique", "orders.dlq"]\n',
        ("the output of the same route",),
    ),
    "an expression": Wrong(
        f'{ROUTE}dead_letter = "bills.unique"\n[[routes]]\ninputs = ["^bills$"]\n',
        ("an output of",),
    ),
    "a reply": Wrong(f'{ROUTE}reply_topics = ["orders.unique"]\n', ("nothing but replies",)),
    "the letters of the group": Wrong(
        f'{ROUTE}output = "ringfence.dead-letters"\n', ("dead letters of all routes",)
    ),
    "the state": Wrong(f'{ROUTE}dead_letter = "ringfence.config"\n', ("an internal topic",)),
    "its own input": Wrong(f'{ROUTE}output = "orders"\n', ("cannot be an input",)),
    # what has no effect
    "a mistyped address": Wrong(
        f'{ROUTE}[addresses."order"]\nid_cache_size = 7\n', ("matches no address", '"orders"')
    ),
    "a mistyped literal": Wrong(
        f'{ROUTE}[addresses."(order)"]\nid_cache_size = 7\n', ("matches no address",)
    ),
    "an address of nobody": Wrong(
        f'{ROUTE}[addresses."payments"]\nid_cache_size = 7\n', ("rename it to an address",)
    ),
    "a pattern of nobody": Wrong(
        f'{ROUTE}[addresses."pay.#"]\nid_cache_size = 7\n', ("no effect",), is_warning=True
    ),
    "another prefix than the keys have": Wrong(
        f'{ROUTE}address = "eu.{{key}}"\n[addresses."us.#"]\nid_cache_size = 7\n',
        ("no effect",),
        is_warning=True,
    ),
    "a ring's size for a window": Wrong(
        f'{ROUTE}[addresses."orders"]\nstrategy = "window"\nid_cache_size = 100000\n',
        ("does not read it", "window_size"),
    ),
    "an inherited strategy": Wrong(
        f'{ROUTE}[addresses."#"]\nstrategy = "window"\n[addresses."orders"]\nid_cache_size = 9\n',
        ("no effect", "does not read it"),
        is_warning=True,
    ),
    "a size of none": Wrong(
        f'{ROUTE}[addresses."orders"]\nid_cache_size = 0\n', ("detection is off",), is_warning=True
    ),
    "off for all": Wrong(
        f'{ROUTE}[addresses."#"]\nstrategy = "off"\n', ("detection is off",), is_warning=True
    ),
    "off for a pattern of fields": Wrong(
        f'{ROUTE}address = "o.{{key}}"\n[addresses."o.#"]\nstrategy = "off"\n',
        ('addresses."o.#": detection is off',),
        is_warning=True,
    ),
    "off for all fields": Wrong(
        f'{ROUTE}address = "{{key}}"\n[addresses."#"]\nid_cache_size = 0\n',
        ('addresses."#": detection is off (id_cache_size = 0)',),
        is_warning=True,
    ),
    "a strategy that a pattern inherits": Wrong(
        f'{ROUTE}address = "o.{{key}}"\n[addresses."#"]\nstrategy = "window"\n'
        '[addresses."o.*"]\nid_cache_size = 9\n',
        ('addresses."o.*".id_cache_size has no effect', "does not read it"),
        is_warning=True,
    ),
    "an audience of nobody": Wrong(
        f'{ROUTE}[api]\noidc_audience = "me"\n', ("oidc_audience is set", 'auth = "oidc"')
    ),
    "tokens that are not asked for": Wrong(
        f'{ROUTE}[api]\ntokens_file = "/t"\n', ("tokens_file is set", 'auth = "tokens"')
    ),
    "protected from nobody": Wrong(f"{ROUTE}[api]\nprotect_metrics = true\n", ("api.auth is",)),
    "spans to nowhere": Wrong(f"{ROUTE}[tracing]\nsample_ratio = 1.0\n", ("tracing.endpoint",)),
    "a registry of nobody": Wrong(
        f"{ROUTE}[schema_registry]\ntimeout_ms = 200\n", ("schema_registry.url is not",)
    ),
    "certificates for http": Wrong(
        f'{ROUTE}{REGISTRY}tls_ca_file = "/x"\n', ("plain http", "write an https URL")
    ),
    "a registry that no route reads": Wrong(
        f"{ROUTE}{REGISTRY}", ("schema_registry.url has no effect",), is_warning=True
    ),
    "outputs that none can choose": Wrong(
        f'{ROUTE}allowed_outputs = ["bills.unique"]\n', ("no record can choose",), is_warning=True
    ),
    "partitions of the wrong scope": Wrong(
        f'{ROUTE}on_partitions_added = "keep"\n', ("the scope is", 'scope = "partition"')
    ),
    "partitions of no route": Wrong(
        f'{ROUTE}scope = "partition"\n[service]\nby_address_partitions = 3\n',
        ("by_address_partitions has no effect",),
        is_warning=True,
    ),
    "an order that is not kept": Wrong(
        f'{ROUTE}scope = "id"\n', ("not that of an input partition",), is_warning=True
    ),
    "partitions that ids need": Wrong(
        f'{ROUTE}scope = "id"\n[service]\nby_address_partitions = 3\n',
        ("not that of an input partition",),
        is_warning=True,
    ),
    # expressions and groups
    "an expression for the group's own": Wrong(
        f'{KAFKA}[[routes]]\ninputs = ["^ringfence[.]"]\n', ("belongs to Ringfence", "correct")
    ),
    "an expression for outputs": Wrong(
        f'{ROUTE}[[routes]]\nname = "all"\ninputs = ["^orders[.]unique"]\n', ("written by a route",)
    ),
    "an expression for Kafka's": Wrong(
        f'{KAFKA}[[routes]]\ninputs = ["^__"]\n', ("begins with __, so that it has to be named",)
    ),
    "an expression that comes too late": Wrong(
        f'{ROUTE}[[routes]]\nname = "all"\ninputs = ["^orders$"]\n', ("by an earlier route",)
    ),
    "a group within another": Wrong(
        f'{ROUTE}[service]\ngroup_id = "team.changelog"\n', ('"team."', "another service.group_id")
    ),
    "a group beside another": Wrong(
        f'{ROUTE}[service]\ngroup_id = "team.a"\n', ("belong to the first",), is_warning=True
    ),
    # topics that belong to others, or are read twice
    "Kafka's offsets as an input": Wrong(
        f'{KAFKA}[[routes]]\ninputs = ["__consumer_offsets"]\n', ("belongs to Kafka", "remove it")
    ),
    "Kafka's offsets as an output": Wrong(
        f'{ROUTE}output = "__consumer_offsets"\n', ("belongs to Kafka", "a topic of your own")
    ),
    "an input that is named like a log": Wrong(
        f'{ROUTE}[[routes]]\ninputs = ["by-address"]\nscope = "partition"\n',
        ("whose changelog is that of addresses", "service.group_id of its own"),
    ),
    "an address of a bridge": Wrong(
        f'{ROUTE}address = "BRIDGE.x"\n', ('the address "BRIDGE.x"', "another beginning")
    ),
    "an address of audited letters": Wrong(
        f'{ROUTE}address = "ringfence.dead-letters.{{key}}"\n', ("another beginning",)
    ),
    "a marker without an address": Wrong(
        f'{ROUTE}address = "{{plain}}"\n', ("no record has an address", "a name or a field")
    ),
    "an input twice": Wrong(
        f'{ROUTE}[[routes]]\nname = "again"\ninputs = ["orders"]\n',
        ('routes["again"].inputs has "orders", which routes["orders"] reads', "from one"),
    ),
    "an expression before a name": Wrong(
        f'{KAFKA}[[routes]]\nname = "all"\ninputs = ["^ord"]\n[[routes]]\ninputs = ["orders"]\n',
        ("only the first route", "regular expression last"),
    ),
    "an output that is too long": Wrong(
        f'{KAFKA}[[routes]]\ninputs = ["{"o" * 245}"]\n',
        ("has 252 characters", "output and a dead_letter of their own"),
    ),
    # properties of clients
    "a time with a unit": Wrong(
        f'{ROUTE}[kafka.consumer]\n"metadata.max.age.ms" = "5m"\n', ("without a unit", "in ms")
    ),
    "bytes with a unit": Wrong(
        f'{ROUTE}[kafka.consumer]\n"fetch.min.bytes" = "1MB"\n', ("without a unit", "in bytes")
    ),
    "servers of the consumer": Wrong(
        f'{ROUTE}[kafka.consumer]\n"bootstrap.servers" = "b:1"\n',
        ("one transaction of one cluster", "put a [bridge] before"),
    ),
    "servers without commas": Wrong(ROUTE.replace('"a:1"', '"a:1;b:2"'), ("with commas",)),
    "no server at all": Wrong(ROUTE.replace('"a:1"', '""'), ("is empty", 'write "host:9092"')),
    "servers as a list": Wrong(
        '[kafka]\n"bootstrap.servers" = ["a:1", "b:1"]\n[[routes]]\ninputs = ["orders"]\n',
        ("must be text", "one text with commas"),
    ),
    "a user without a mechanism": Wrong(
        ROUTE.replace(KAFKA, f'{KAFKA}"security.protocol" = "sasl_ssl"\n"sasl.username" = "u"\n'),
        ('"sasl.mechanism" is missing', "SCRAM-SHA-512"),
    ),
    "TLS that is not spoken": Wrong(
        ROUTE.replace(KAFKA, f'{KAFKA}"ssl.endpoint.identification.algorithm" = "https"\n'),
        ("has no effect: security.protocol is plaintext", "ssl or sasl_ssl"),
        is_warning=True,
    ),
    "a table that is none": Wrong(
        f'{ROUTE}[kafka.consumers]\n"fetch.min.bytes" = 1\n',
        ("to [kafka.consumer]",),
    ),
    # sizes of the text
    "too deep": Wrong(f"{ROUTE}x = {'[' * 5000}{']' * 5000}\n", ("nested too deeply", "remove it")),
    "too many digits": Wrong(f"{ROUTE}x = {'1' * 5000}\n", ("4300 digits", "remove it")),
    "an empty list of routes": Wrong(f"routes = []\n{KAFKA}", ("[[routes]] is missing",)),
    # ports and folders
    "one port for both": Wrong(
        f'{ROUTE}[api]\nauth = "none"\nport = 8081\nprobe_port = 8081\n', ("are both 8081",)
    ),
    "a folder with a long name": Wrong(
        f'{ROUTE}[service]\nstate_dir = "{"s" * 300}"\n', ("name too long", "writable folder")
    ),
    "a folder that is none": Wrong(f'{ROUTE}[service]\nstate_dir = "/proc/x"\n', ("state_dir is",)),
}


@pytest.fixture(autouse=True)
def a_broker_with_topics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setattr("ringfence_service.schemas.registry.check", lambda _settings: None)

    def answered(
        config: Config, _invalid: Collection[str] = (), *, probes: bool = False
    ) -> CheckReport:
        assert not probes
        cluster = FakeCluster()
        for name in TOPICS:
            cluster.create_topic(name, 3)
        return report_of(config, FakeAdmin(cluster), FakeRights(cluster))

    monkeypatch.setattr("ringfence_main.findings.ask_broker", answered)


def checked(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Return the exit code of `ringfence check`, and what it prints."""
    path = Path("ringfence.toml")
    path.write_bytes(file.encode("utf-8", "surrogateescape"))
    monkeypatch.setattr(sys, "argv", ["ringfence", "check", "--config", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


@pytest.mark.parametrize("name", list(WRONG))
def test_each_mistake_is_named_with_its_remedy(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = WRONG[name]
    code, told, warned = checked(wrong.file, monkeypatch, capsys)
    assert "Traceback" not in told + warned
    assert "is good" not in told
    if wrong.is_warning:
        assert code == 0
        found = [line for line in warned.splitlines() if line.startswith("warning: ")]
        assert any(all(word in line for word in wrong.words) for line in found), warned
    else:
        assert code == 1
        assert "fix: " in told
        for word in wrong.words:
            assert word in told


@pytest.mark.parametrize(
    "file",
    [
        ROUTE,
        f'{ROUTE}[log]\nlevel = "INFO"\n',
        f'{ROUTE}[addresses."#"]\nid_cache_size = 9\n[addresses."orders"]\nstrategy = "window"\n',
        f'{ROUTE}[addresses."BRIDGE.orders"]\nid_cache_size = 9\n',
        f'{ROUTE}address = "{{key}}"\n[addresses."anybody"]\nid_cache_size = 9\n',
        f'{ROUTE}dead_letter = "ringfence.dead-letters"\n',
        f'{ROUTE}{BILLS}dead_letter = "orders.dlq"\noutput = "orders.unique"\n',
    ],
)
def test_what_is_right_is_good_without_a_warning(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told, warned = checked(file, monkeypatch, capsys)
    assert (code, warned) == (0, "")
    assert told.endswith("ringfence.toml is good.\n")

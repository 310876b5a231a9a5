"""The rendered ringfence.toml says exactly what the values say, and the service reads it."""

import tomllib
from pathlib import Path

import trustme

from ringfence_service.config.load import load
from tests.helm.chart import (
    HELM_TEST,
    MINIMAL,
    Helm,
    by_value_set,
    config_toml,
    environment,
    installed,
    only,
)

pytestmark = HELM_TEST

# What TOML, YAML or a template could take for syntax, or a terminal for a line's end.
AWKWARD_NAMES = [
    *("flights.#", "#", "*", "a.*.b", "plain", "1", "1.5", "true", "null", "~", "-", "&a", "!b"),
    *('say "no"', "it's", "back\\slash", "{{ .Values }}", "${HOME}", "[table]", "a = b", "# no"),
    *("tab\there", "line\nbreak", "\u2028separator", "\u0085next", "\x7f", "ünïcödé", "日本", "🦊"),
    *("", " ", "  leads and trails  "),
]
WHOLE_NUMBERS = [0, 1, 20_000, 1_000_000, 4_000_000, 104_857_600, 2**31, 2**53 - 1]


@by_value_set
def test_the_file_says_what_the_values_say(helm: Helm, value_set: Path) -> None:
    release = installed(helm, value_set)
    found = tomllib.loads(config_toml(release.objects))
    for section, content in release.values["config"].items():
        if isinstance(content, dict):
            assert found[section].items() >= content.items()
        else:
            assert found[section] == content


def test_awkward_names_arrive_as_they_are(helm: Helm) -> None:
    addresses = {name: {"id_cache_size": 7} for name in AWKWARD_NAMES}
    routes = [
        {"name": f"route {number}", "inputs": [name], "scope": "partition"}
        for number, name in enumerate(filter(None, AWKWARD_NAMES))
    ]
    objects = helm.render(values={"config": {"addresses": addresses, "routes": routes}})
    found = tomllib.loads(config_toml(objects))
    assert found["addresses"] == addresses
    assert found["routes"] == routes


def test_whole_numbers_stay_whole_at_any_depth(helm: Helm) -> None:
    consumer = {f"consumer.{number}": number for number in WHOLE_NUMBERS}
    addresses = {str(n): {"id_cache_size": n} for n in WHOLE_NUMBERS if n <= 10**9}
    config = {"kafka": {"consumer": consumer}, "addresses": addresses}
    found = tomllib.loads(config_toml(helm.render(values={"config": config})))
    assert found["kafka"]["consumer"] == consumer
    assert found["addresses"] == addresses
    kinds = {type(number) for number in found["kafka"]["consumer"].values()}
    kinds |= {type(settings["id_cache_size"]) for settings in found["addresses"].values()}
    assert kinds == {int}


def test_a_number_with_a_fraction_keeps_it(helm: Helm) -> None:
    config = {"kafka": {"ratio": 0.25}}
    found = tomllib.loads(config_toml(helm.render(MINIMAL, {"config": config})))
    assert found["kafka"]["ratio"] == 0.25


def test_the_names_of_the_service_stand_beside_those_that_are_configured(helm: Helm) -> None:
    of_service = [f"demo-ringfence{end}" for end in ("", ".streams", ".streams.svc")]
    of_service.append(f"{of_service[-1]}.cluster.local")
    asks = {"auth": "oidc", "oidc_issuer": "https://issuer", "oidc_audience": "a"}
    for api, expected in (
        (asks, None),
        (asks | {"allowed_hosts": ["a.example"]}, ["a.example", *of_service]),
        ({"auth": "none"}, of_service),
    ):
        objects = helm.render(values={"config": {"api": api}})
        assert tomllib.loads(config_toml(objects))["api"].get("allowed_hosts") == expected


def with_files(text: str, folder: Path) -> str:
    """Put what the Secrets would hold into a folder, and have a text name it there."""
    authority = trustme.CA()
    certificate = authority.issue_cert("ringfence.example.com")
    held = {
        "-api-tls/clients.pem": authority.cert_pem.bytes(),
        "-api-tls/tls.crt": certificate.cert_chain_pems[0].bytes(),
        "-api-tls/tls.key": certificate.private_key_pem.bytes(),
        "-api/tokens": b"ada admin sha256:" + b"0" * 64,
        "-api/peer-token": b"p" * 32,
        "-api/session-key": b"s" * 32,
        "-sasl/password": b"open sesame\n",
        "-sasl/username": b"somebody",
    }
    for name, content in held.items():
        file = folder / f"ringfence{name}"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    return text.replace("/etc/ringfence-", f"{folder}/ringfence-")


@by_value_set
def test_the_service_takes_file_and_environment_as_they_are(
    helm: Helm, value_set: Path, tmp_path: Path
) -> None:
    release = installed(helm, value_set)
    objects, kafka = release.objects, release.values["kafka"]
    (tmp_path / "ringfence.toml").write_text(with_files(config_toml(objects), tmp_path))
    sasl, tls = kafka["sasl"], kafka["tls"]
    variables = {
        name: with_files(text, tmp_path) if name.startswith("KAFKA_SASL_") else text
        for name, text in environment(objects, ordinal=2).items()
    }
    config = load(tmp_path / "ringfence.toml", variables)
    assert config.service.instance == "2"
    pods = only(objects, "StatefulSet")
    name, namespace = pods["metadata"]["name"], pods["metadata"]["namespace"]
    reached = f"{name}-2.{pods['spec']['serviceName']}.{namespace}.svc"
    scheme = "https" if config.api.tls_cert_file else "http"
    assert config.api.advertised_url == f"{scheme}://{reached}:8080"
    assert config.service.state_dir == Path("/var/lib/ringfence")
    routes = release.values["config"]["routes"]
    assert [list(route.inputs) for route in config.routes] == [each["inputs"] for each in routes]
    common = config.kafka.common
    if sasl["existingSecret"]:
        assert common["sasl.password"] == "open sesame"
    if sasl["usernameKey"]:
        assert common["sasl.username"] == "somebody"
    authority = "/etc/ringfence-tls/ca.crt" if tls["existingSecret"] else None
    assert common.get("ssl.ca.location") == authority

"""Keys without effect: which keys of the file are read only if another one has a certain value.

`APPLIES` is the one declaration. A key that is set where it is not read is a problem, since its
author relies on it. Whatever an address inherits from a wider pattern is none.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ringfence_service.config.addresses import AddressSettings
from ringfence_service.config.keys import GivenSection
from ringfence_service.config.model import (
    ApiSettings,
    RouteSettings,
    SchemaRegistrySettings,
    TracingSettings,
)
from ringfence_service.errors import ConfigIssue
from ringfence_state.strategies.registry import STRATEGIES


class Condition(NamedTuple):
    """When keys are read."""

    holds: Callable[[Any], bool]
    """Takes the section."""
    state: Callable[[Any], str]
    """Says of a section for which it does not hold why not."""
    fix: str
    """What to write so that it holds, as the beginning of a sentence."""


def _unset(section: str, key: str) -> Callable[[Any], str]:
    return lambda _settings: f"{section}.{key} is not"


def _auth(settings: ApiSettings) -> str:
    return f'api.auth is "{settings.auth}"'


_OIDC: Final = Condition(lambda api: api.takes_oidc, _auth, 'write auth = "oidc"')

_TOKENS: Final = Condition(lambda api: api.takes_tokens, _auth, 'write auth = "tokens"')

_AUTH: Final = Condition(lambda api: api.asks_who, _auth, 'write auth = "tokens" or "oidc"')

_TRACES: Final = Condition(
    lambda tracing: bool(tracing.endpoint),
    _unset("tracing", "endpoint"),
    "write endpoint in [tracing]",
)

_REGISTRY: Final = Condition(
    lambda registry: bool(registry.url),
    _unset("schema_registry", "url"),
    "write url in [schema_registry]",
)

_HTTPS: Final = Condition(
    lambda registry: registry.url.startswith("https:"),
    lambda registry: f"schema_registry.url {_url(registry.url)}",
    "write an https URL",
)

_BY_PARTITION: Final = Condition(
    lambda route: route.scope == "partition",
    lambda route: f'the scope is "{route.scope}", whose number of partitions is fixed',
    'write scope = "partition"',
)

_LETTERS: Final = Condition(
    lambda address: address.on_duplicate != "drop",
    lambda _address: 'on_duplicate is "drop", so there are no dead letters to limit',
    'write on_duplicate = "dead_letter"',
)


def _url(url: str) -> str:
    return "is a plain http URL" if url else "is not"


def _of_strategies(*names: str) -> Condition:
    """Return the condition of a key that only these strategies read."""
    assert set(names) <= STRATEGIES.keys()
    return Condition(
        lambda address: address.strategy in names,
        lambda address: f'strategy = "{address.strategy}" does not read it',
        f"write strategy = {' or '.join(f'{chr(34)}{name}{chr(34)}' for name in names)}",
    )


APPLIES: Final[Mapping[type, Mapping[str, Condition]]] = {
    ApiSettings: {
        "tokens_file": _TOKENS,
        **dict.fromkeys(
            (
                *("oidc_issuer", "oidc_audience", "oidc_jwks_url", "oidc_algorithms"),
                *("oidc_leeway_s", "oidc_name_claim", "oidc_roles_claim", "oidc_roles"),
            ),
            _OIDC,
        ),
        **dict.fromkeys(("session_max_s", "session_key_file", "protect_metrics"), _AUTH),
    },
    TracingSettings: dict.fromkeys(("sample_ratio", "links_max"), _TRACES),
    SchemaRegistrySettings: {
        **dict.fromkeys(("user", "password", "timeout_ms"), _REGISTRY),
        "tls_ca_file": _HTTPS,
    },
    RouteSettings: {"on_partitions_added": _BY_PARTITION},
    AddressSettings: {
        # Of publishers' numbers, `id_cache_size` limits the ids that a bridge stamps.
        "id_cache_size": _of_strategies("ring", "audit", "sequence", "ordered"),
        **dict.fromkeys(("window_ms", "window_size", "refresh_on_hit"), _of_strategies("window")),
        # The others have no times, so none of their addresses is known to be idle.
        "address_idle_ms": _of_strategies("ring", "window"),
        **dict.fromkeys(
            ("audit_depth", "audit_producers", "audit_jump_max", "below_window"),
            _of_strategies("audit"),
        ),
        "publishers_max": _of_strategies("sequence", "ordered"),
        "dead_letter_audit": _LETTERS,
    },
}


def without_effect(settings: object, given: GivenSection) -> Iterator[ConfigIssue]:
    """Yield the problem of each key of a section that is set and not read.

    A key with the default's value changes nothing, read or not.
    """
    default = type(settings)()
    for key, condition in APPLIES.get(type(settings), {}).items():
        is_set = key in given.keys and getattr(settings, key) != getattr(default, key)
        if is_set and not condition.holds(settings):
            name = given.keys[key].name
            what = f"{name} is set, and {condition.state(settings)}"
            yield ConfigIssue(what, f"{condition.fix}, or remove {key}", ((*given.path, key),))


def unread_keys(pattern: str, keys: Mapping[str, object]) -> Iterator[ConfigIssue]:
    """Yield the problem of each key that the strategy in the same table never reads.

    `keys` are valid ones. Beside another strategy than the default one even a default states a
    size that is not in effect.
    """
    settings, default = AddressSettings(**_chosen(keys)), AddressSettings()
    for key, condition in APPLIES[AddressSettings].items():
        decides = "on_duplicate" if condition is _LETTERS else "strategy"
        is_default = settings.strategy == default.strategy and keys.get(key) == getattr(
            default, key
        )
        if {key, decides} <= keys.keys() and not is_default and not condition.holds(settings):
            what = f'addresses."{pattern}".{key} is set, and {condition.state(settings)}'
            read = ", ".join(_read_by(settings.strategy)) if decides == "strategy" else ""
            instead = f' ("{settings.strategy}" reads {read})' if read else ""
            fix = f"{condition.fix}, or remove {key}{instead}"
            yield ConfigIssue(what, fix, (("addresses", pattern, key),))


def inherited_without_effect(
    pattern: str, keys: Iterable[str], settings: AddressSettings
) -> Iterator[str]:
    """Yield a sentence for each key of an address that its strategy, set elsewhere, never reads."""
    for key, condition in APPLIES[AddressSettings].items():
        if key in keys and condition is not _LETTERS and not condition.holds(settings):
            yield f'addresses."{pattern}".{key} has no effect: {condition.state(settings)}'


def _chosen(keys: Mapping[str, object]) -> dict[str, Any]:
    return {key: keys[key] for key in ("strategy", "on_duplicate") if key in keys}


def _read_by(strategy: str) -> Iterator[str]:
    """Yield the keys that only some strategies read, this one among them."""
    settings = AddressSettings(strategy=strategy)
    for key, condition in APPLIES[AddressSettings].items():
        if condition is not _LETTERS and condition.holds(settings):
            yield key

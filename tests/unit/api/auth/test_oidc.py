"""Tokens of an issuer: one that holds is believed, and nothing else ever is."""

import asyncio
import base64
import json
import time
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence_api.auth.oidc import (
    FRESH_S,
    PAUSE_S,
    STALE_S,
    TOKEN_CHARS_MAX,
    KeySet,
    OidcIssuer,
    TokenRefused,
    VerifiedIdentity,
)
from ringfence_service.config.model import ApiSettings
from ringfence_service.queries.errors import Unavailable
from tests.api.guarded import AUDIENCE, ISSUER, KEY, Issuer, claims, jwk_of, signed

OTHER: Final = generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC: Final = KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Asked:
    """One issuer, asked from outside of an event loop."""

    def __init__(self, oidc: OidcIssuer) -> None:
        self._oidc = oidc

    def verify(self, token: str) -> VerifiedIdentity:
        return asyncio.run(self._oidc.verify(token))


def oidc(issuer: Issuer | None = None, clock: Clock | None = None, **changed: Any) -> Asked:
    told = ApiSettings(auth="oidc", oidc_issuer=ISSUER, oidc_audience=AUDIENCE, **changed)
    jwks = KeySet(ISSUER, told.oidc_jwks_url, clock or Clock(), issuer or Issuer())
    return Asked(OidcIssuer(told, jwks))


def reason(token: str, **changed: Any) -> str:
    with pytest.raises(TokenRefused) as refused:
        oidc(**changed).verify(token)
    return refused.value.reason


def encoded(told: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(told).encode()).decode().rstrip("=")


def test_a_good_token_tells_who_and_which_roles() -> None:
    principal, until_s = oidc().verify(signed(claims(roles=["operator", "payload:read", "x"])))
    assert principal.name == "oidc:ada"
    assert principal.roles == {"operator", "payload:read"}
    assert until_s > time.time()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"exp": int(time.time()) - 31}, "expired"),
        ({"nbf": int(time.time()) + 86_400}, "not-yet-valid"),
        ({"iat": int(time.time()) + 86_400}, "not-yet-valid"),
        ({"aud": "another"}, "wrong-audience"),
        ({"aud": ["another", "third"]}, "wrong-audience"),
        ({"iss": "https://evil.example"}, "wrong-issuer"),
        ({"iss": ISSUER + "/"}, "wrong-issuer"),
        ({"exp": None}, "invalid"),
        ({"aud": None}, "invalid"),
        ({"iss": None}, "invalid"),
        ({"sub": None}, "no-name"),
        ({"sub": ""}, "no-name"),
        ({"sub": "x" * 257}, "no-name"),
        ({"exp": "soon"}, "invalid"),
    ],
)
def test_a_token_that_says_something_else_is_refused(changed: dict[str, Any], why: str) -> None:
    assert reason(signed(claims(**changed))) == why


def test_clocks_may_differ_by_as_much_as_is_configured() -> None:
    late = signed(claims(exp=int(time.time()) - 20))
    assert oidc().verify(late)
    assert reason(late, oidc_leeway_s=0) == "expired"


def test_a_token_that_another_key_has_signed_is_refused() -> None:
    assert reason(signed(claims(), OTHER)) == "invalid"
    assert reason(signed(claims(), OTHER, kid="k2")) == "unknown-key"


def test_a_token_without_a_signature_is_refused() -> None:
    for name in ("none", "None", "NONE", "nOnE"):
        head = encoded({"alg": name, "typ": "JWT", "kid": "k1"})
        assert reason(f"{head}.{encoded(claims())}.") == "wrong-algorithm"
    whole = signed(claims())
    assert reason(whole.rpartition(".")[0] + ".") == "invalid"


def test_the_public_key_is_never_taken_for_a_shared_secret() -> None:
    head, body = encoded({"alg": "HS256", "typ": "JWT", "kid": "k1"}), encoded(claims())
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        f"{head}.{body}".encode(), PUBLIC
    )
    text = base64.urlsafe_b64encode(signature).decode().rstrip("=")
    assert reason(f"{head}.{body}.{text}") == "wrong-algorithm"


def test_an_algorithm_that_is_not_configured_is_refused() -> None:
    assert reason(signed(claims(), algorithm="RS512")) == "wrong-algorithm"
    assert oidc(oidc_algorithms=("RS512",)).verify(signed(claims(), algorithm="RS512"))
    assert reason(signed(claims()), oidc_algorithms=("ES256",)) == "wrong-algorithm"


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
)
def test_keys_of_other_kinds_serve(key: Any, algorithm: str) -> None:
    issuer = Issuer()
    maker = jwt.algorithms.get_default_algorithms()[algorithm]
    issuer.keys = [json.loads(maker.to_jwk(key.public_key())) | {"kid": "k1"}]
    assert oidc(issuer).verify(signed(claims(), key, algorithm))
    with pytest.raises(TokenRefused):
        oidc(issuer).verify(signed(claims()))  # another kind of key than the token's algorithm


def test_a_symmetric_key_of_an_issuer_is_not_read() -> None:
    issuer = Issuer()
    secret = base64.urlsafe_b64encode(b"s" * 32).decode()
    issuer.keys = [{"kty": "oct", "kid": "k2", "k": secret}, jwk_of(KEY), {"kty": "?"}, {}]
    assert oidc(issuer).verify(signed(claims()))
    with pytest.raises(TokenRefused):
        oidc(issuer).verify(jwt.encode(claims(), "s" * 32, "HS256", {"kid": "k2"}))


def test_a_huge_token_is_refused_unread() -> None:
    assert reason(signed(claims(pad="x" * TOKEN_CHARS_MAX))) == "too-large"


@settings(max_examples=200)
@given(st.text(max_size=200))
def test_garbage_is_refused(text: str) -> None:
    reason(text)


@settings(max_examples=200)
@given(st.data())
def test_a_token_that_was_changed_anywhere_is_refused(data: st.DataObject) -> None:
    token = signed(claims())
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("AZaz09-_.=+/ é\0"))
    changed = token[:place] + letter + token[place + 1 :]
    try:
        verify = oidc().verify(changed)
    except TokenRefused:
        return
    # The last letter of a part has bits that no byte takes: the bytes are the same then.
    assert [_bytes(part) for part in changed.split(".")] == [_bytes(p) for p in token.split(".")]
    assert verify.principal.name == "oidc:ada"


def _bytes(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


@settings(max_examples=200)
@given(
    head=st.dictionaries(
        st.sampled_from(["alg", "kid", "typ", "crit", "jwk", "x5u"]),
        st.one_of(
            st.none(), st.text(max_size=9), st.integers(), st.lists(st.text(max_size=3), max_size=2)
        ),
    ),
    body=st.recursive(
        st.none() | st.text(max_size=5) | st.integers(),
        lambda inner: (
            st.dictionaries(st.text(max_size=5), inner, max_size=3) | st.lists(inner, max_size=3)
        ),
        max_leaves=6,
    ),
)
def test_no_header_and_no_body_is_believed_without_a_signature(head: object, body: object) -> None:
    reason(f"{encoded(head)}.{encoded(body)}.{encoded('x')}")


@pytest.mark.parametrize(
    ("told", "claim", "roles"),
    [
        ({"roles": "viewer operator"}, "roles", {"viewer", "operator"}),
        ({"realm_access": {"roles": ["admin"]}}, "realm_access.roles", {"admin"}),
        ({"https://a.example/roles": ["viewer"]}, "https://a.example/roles", {"viewer"}),
        ({"roles": {"admin": True}}, "roles", set()),
        ({"roles": 7}, "roles.admin", set()),
        ({"roles": None}, "roles", set()),
    ],
)
def test_roles_are_found_where_the_issuer_puts_them(
    told: dict[str, Any], claim: str, roles: set[str]
) -> None:
    token = signed(claims(**told))
    assert oidc(oidc_roles_claim=claim).verify(token).principal.roles == roles


def test_what_the_issuer_calls_a_role_can_be_another_name() -> None:
    mapped = oidc(oidc_roles=("sre=admin", "sre=payload:read", "a=b=viewer"))
    assert mapped.verify(signed(claims(roles=["sre"]))).principal.roles == {
        "admin",
        "payload:read",
    }
    assert mapped.verify(signed(claims(roles=["a=b"]))).principal.roles == {"viewer"}
    assert mapped.verify(signed(claims(roles=["admin"]))).principal.roles == set()


def test_keys_are_found_by_discovery_or_where_they_are_said_to_be() -> None:
    issuer = Issuer()
    oidc(issuer).verify(signed(claims()))
    assert issuer.asked == [f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/keys"]
    issuer.asked.clear()
    oidc(issuer, oidc_jwks_url="https://keys.example/jwks").verify(signed(claims()))
    assert issuer.asked == ["https://keys.example/jwks"]


def test_a_new_key_is_asked_for_and_an_old_one_that_is_gone_serves_no_more() -> None:
    issuer, clock = Issuer(), Clock()
    known = oidc(issuer, clock, oidc_jwks_url="https://k.example")
    old, new = signed(claims()), signed(claims(), OTHER, kid="k2")
    known.verify(old)
    issuer.keys = [jwk_of(OTHER, "k2")]
    clock.now_s += PAUSE_S
    assert known.verify(new)
    with pytest.raises(TokenRefused):
        known.verify(old)


def test_made_up_kids_do_not_have_the_issuer_asked_for_ever() -> None:
    issuer, clock = Issuer(), Clock()
    known = oidc(issuer, clock, oidc_jwks_url="https://k.example")
    for number in range(100):
        with pytest.raises(TokenRefused):
            known.verify(signed(claims(), OTHER, kid=f"made-up-{number}"))
    assert len(issuer.asked) == 1
    clock.now_s += PAUSE_S
    assert known.verify(signed(claims()))
    assert len(issuer.asked) == 1


def test_an_unreachable_issuer_is_not_our_error_and_known_keys_stay_valid() -> None:
    issuer, clock = Issuer(), Clock()
    issuer.is_away = True
    known = oidc(issuer, clock, oidc_jwks_url="https://k.example")
    for _ in range(2):
        with pytest.raises(Unavailable):
            known.verify(signed(claims()))
    assert len(issuer.asked) == 1
    issuer.is_away = False
    clock.now_s += PAUSE_S
    assert known.verify(signed(claims()))
    issuer.is_away = True
    clock.now_s += FRESH_S
    assert known.verify(signed(claims()))
    with pytest.raises(TokenRefused):
        known.verify(signed(claims(), OTHER, kid="k2"))
    clock.now_s += STALE_S
    with pytest.raises(Unavailable):
        known.verify(signed(claims()))


def test_discovery_of_another_issuer_is_not_believed() -> None:
    class Liar(Issuer):
        async def __call__(self, url: str) -> Any:
            return {**await super().__call__(url), "issuer": "https://evil.example"}

    with pytest.raises(Unavailable):
        oidc(Liar()).verify(signed(claims()))

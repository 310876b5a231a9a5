"""The tokens file: what it lets in, and what it does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.config.tokens import ROLES, TokenError, digest_of, entry_of, new_token, parse
from ringfence_service.credentials import token_of
from tests.support.helpers import some

TOKEN = "t" * 40


def test_a_token_that_was_made_is_found_by_its_line() -> None:
    made = new_token()
    tokens = parse(f"# mine\n\n  {entry_of('ada', 'operator,payload:read', made).line}\n")
    found = some(tokens.find(made))
    assert found.name == "ada"
    assert found.roles == {"operator", "payload:read"}
    assert made not in entry_of("ada", "viewer", made).line


def test_no_two_tokens_are_the_same_and_none_can_be_guessed() -> None:
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(len(each) >= 43 for each in made)


@given(st.text(max_size=100))
def test_any_other_text_is_no_token(text: str) -> None:
    assert parse(entry_of("ada", "viewer", TOKEN).line).find(text) is None


def test_a_short_text_is_none_even_where_somebody_has_hashed_it() -> None:
    assert parse(f"ada viewer sha256:{digest_of('secret')}").find("secret") is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ada viewer", "three words"),
        ("ada viewer secret", "not a digest"),
        (f"ada viewer md5:{'0' * 32}", "not a digest"),
        (f"ada viewer sha256:{'0' * 63}", "not a digest"),
        (f"ada root sha256:{'0' * 64}", "roles are unknown"),
        (f"ada , sha256:{'0' * 64}", "roles are unknown"),
        (f"a:b viewer sha256:{'0' * 64}", "name is not allowed"),
        (f"peer viewer sha256:{'0' * 64}", "name is not allowed"),
        (f"Anonymous viewer sha256:{'0' * 64}", "name is not allowed"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_not_repeated(line: str, words: str) -> None:
    with pytest.raises(TokenError, match=rf"line 2: .*{words}.*; ") as refused:
        parse(f"\n{line}\n")
    assert line not in str(refused.value)
    assert line.rsplit(maxsplit=1)[-1] not in str(refused.value).replace("name roles", "").split()


def test_the_same_token_twice_is_a_mistake() -> None:
    lines = [entry_of(name, "viewer", TOKEN).line for name in ("ada", "bob")]
    with pytest.raises(TokenError, match=r"line 2: an earlier line"):
        parse("\n".join(lines))


@pytest.mark.parametrize("text", ["", "\n", "a b", "a\x85b", "a\u202eb", "é", "a\0", " \nabc"])
def test_what_no_header_can_hold_is_no_token_and_is_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="visible ASCII") as refused:
        token_of(text)
    assert repr(text)[1:-1] not in str(refused.value) or not text.strip()
    assert token_of("  abc \r\nada viewer sha256:0") == "abc"


def test_every_role_can_be_given() -> None:
    found = some(parse(entry_of("ada", ",".join(ROLES), TOKEN).line).find(TOKEN))
    assert found.roles == set(ROLES)

"""Internal names: legal, and apart from each other."""

import pytest

from ringfence_client.headers import NAME_LENGTH_MAX, internal
from ringfence_service.dedup.route import is_legal_topic


@pytest.mark.parametrize("length", [248, 249, 250, 400])
def test_a_name_fits_kafka_and_is_cut_only_when_it_must_be(length: int) -> None:
    kind = "x" * (length - 2)
    name = internal("g", kind)
    assert is_legal_topic(name)
    assert (name == f"g.{kind}") == (length <= NAME_LENGTH_MAX)


def test_names_that_are_cut_stay_apart_and_stay_the_same() -> None:
    one, other = "x" * 248 + "1", "x" * 248 + "2"
    assert internal("g", one) != internal("g", other)
    assert internal("g", one) == internal("g", one)
    assert internal("g", one).startswith("g.xxx")

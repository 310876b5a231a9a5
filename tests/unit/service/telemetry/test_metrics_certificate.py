"""Until when a certificate is valid: of its chain the one that ends first."""

import math
from datetime import UTC, datetime
from pathlib import Path

import trustme

from ringfence_service.telemetry.metrics import valid_until_s

SOON, LATE = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)


def test_the_first_of_a_chain_that_ends_counts(tmp_path: Path) -> None:
    authority, path = trustme.CA(), tmp_path / "chain.pem"
    for end in (LATE, SOON):
        issued = authority.issue_cert("a.example", not_after=end)
        issued.cert_chain_pems[0].write_to_path(str(path), append=True)
    assert valid_until_s(path) == SOON.timestamp()


def test_a_file_that_is_not_there_or_no_certificate_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    assert math.isnan(valid_until_s(tmp_path / "none.pem"))
    assert math.isnan(valid_until_s(tmp_path / "empty.pem"))

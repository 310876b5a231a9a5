"""Much of what is refused, from many addresses at once: it holds up nobody who is let in."""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from bench.machine import memory
from tests.api.guarded import TOKENS, claims, signed
from tests.broker.service import Service
from tests.security.conftest import NOBODY
from tests.security.test_wire import GUARDED, head, sent

pytestmark = pytest.mark.security

ADDRESSES: Final = 40
TOKENS_EACH: Final = 25
GROWTH_BYTES: Final = 64 * 1024**2


def test_a_flood_of_tokens_that_nobody_has_signed_holds_up_nobody(
    served: Service, port: int
) -> None:
    forged = [
        signed(claims(iss=NOBODY), kid=f"k{number}") if number % 2 else f"{'x' * 4_000}.{number}.y"
        for number in range(TOKENS_EACH)
    ]
    before = memory(served.process.pid).now

    def flood(number: int) -> set[int]:
        lines = [f"Authorization: Bearer {each}" for each in forged]
        asked = [
            sent(port, *head("GET", GUARDED, line, "Connection: close"), source=f"127.0.2.{number}")
            for line in lines
        ]
        return {status for statuses, _ in asked for status in statuses}

    own = f"Authorization: Bearer {TOKENS['viewer']}"
    with ThreadPoolExecutor(ADDRESSES) as attackers:
        floods = [attackers.submit(flood, number + 1) for number in range(ADDRESSES)]
        while not all(each.done() for each in floods):
            assert sent(port, *head("GET", GUARDED, own, "Connection: close"))[0] == [200]
            assert sent(port, *head("GET", "/livez", "Connection: close"))[0] == [200]
    assert set().union(*(each.result() for each in floods)) <= {401, 429, 503}
    assert memory(served.process.pid).now - before < GROWTH_BYTES

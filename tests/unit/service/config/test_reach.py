"""What `check`, and a change over REST, warn of in address settings."""

from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.model import RouteSettings
from ringfence_service.config.reach import reach_of

ROUTES = (RouteSettings(name="orders", inputs=("orders",), address="{topic}"),)
OPEN = (RouteSettings(name="orders", inputs=("orders",), address="{header:tenant}"),)


def book_of(pattern: str, **keys: object) -> AddressBook:
    return AddressBook.of({pattern: keys})


def test_a_pattern_that_matches_nothing_is_a_problem_of_the_file_and_else_a_warning() -> None:
    book = book_of("order", id_cache_size=7)
    (problem,) = reach_of(ROUTES, book).problems
    assert 'the nearest is "orders"' in problem.fix
    (warning,) = reach_of(ROUTES, book, in_file=()).warnings
    assert warning == (
        'addresses."order" matches no address that a route can have: it has no effect; the nearest '
        'is "orders"'
    )
    assert reach_of(OPEN, book, in_file=()) == ((), ())


def test_a_key_that_the_strategy_beside_it_never_reads_is_warned_of_where_the_file_is_not() -> None:
    book = book_of("orders", strategy="window", id_cache_size=7)
    (warning,) = reach_of(ROUTES, book, in_file=()).warnings
    assert 'id_cache_size is set, and strategy = "window" does not read it; write' in warning
    assert not reach_of(ROUTES, book, in_file={"orders"}).warnings, "the file is not even loaded"


def test_detection_that_is_off_is_warned_of() -> None:
    (warning,) = reach_of(ROUTES, book_of("orders", id_cache_size=0)).warnings
    assert warning == "orders: detection is off (id_cache_size = 0), every record is accepted"

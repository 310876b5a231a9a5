"""What is mutated, and by which tests it is judged."""

from typing import Final

PACKAGES: Final = ("ringfence", "service", "state", "api", "pipeline", "tools", "bench")
"""Of the code that is tested."""

TESTS: Final = (
    "tests/unit/state",
    "tests/unit/service",
    "tests/unit/ringfence",
    "tests/cases",
    "tests/contract",
    *("-k", "not killed"),  # of the cases' manners those that decide the same after a restart
    *(
        f"--ignore=tests/unit/service/{other}"
        for other in ("adoption", "bridge", "commands", "crew", "fleet")
    ),
    *(
        f"--deselect=tests/cases/{slow}"
        for slow in (
            "test_manners.py::test_no_fate_depends_on_the_manner",
            "test_transactions.py::test_groups_agree_with_a_list_of_all_that_was_sent",
            "test_msmq.py::test_case_55_to_57_a_stream_agrees_with_the_words_of_the_specification",
            "test_msmq.py::test_case_53_and_54_a_window_agrees_with_a_list_of_all_sights",
        )
    ),
)
"""The fast ones: no broker, no browser, no Spark; without those that take as long as all the rest
of a mutant's tests may, and without those of other programs than the loop."""

MARKS: Final = (
    "not broker and not oracle and not simulation and not spark and not helm and not browser"
    " and not image"
)

GROUPS: Final = {
    "state": ("state/*.py", "state/strategies/*.py"),
    "loop": (
        *(f"service/{name}.py" for name in ("loop", "intake", "decide", "commit", "takeover")),
        *(f"service/{name}.py" for name in ("grouping", "assignment", "desk", "lane", "place")),
        *(f"service/{name}.py" for name in ("plan", "partition", "checks", "redecide")),
    ),
    "settings": tuple(
        f"service/{name}.py"
        for name in ("settings", "layout", "overlay", "revisions", "config_topic", "following")
    ),
    "hops": tuple(
        f"service/{name}.py"
        for name in ("carry", "carried", "claim", "marks", "first_start", "arrivals", "inputs")
    ),
    "letters": tuple(
        f"service/{name}.py"
        for name in (
            *("blame", "letters", "letter", "letter_reader", "letter_ways", "refusals", "fates"),
            *("file_routes", "dead_letter"),
        )
    ),
    "redrive": ("service/redrive/*.py",),
    "publisher": ("ringfence/publisher.py", "ringfence/courier.py", "ringfence/session.py"),
}
"""Of the core; `make mutants ARGS=NAME` takes one, or a path."""

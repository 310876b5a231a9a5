"""What is mutated, and by which tests it is judged."""

from typing import Final

from tools.source_roots import SOURCE_ROOTS

PACKAGES: Final = (*SOURCE_ROOTS, "tools", "bench")
"""Of the code that is tested."""

TESTS: Final = (
    "tests/unit/state",
    "tests/unit/service",
    "tests/unit/ringfence",
    "tests/loop",
    "tests/cases",
    "tests/contract",
    *("-k", "not killed"),  # of the cases' manners those that decide the same after a restart
    *(
        f"--ignore=tests/unit/service/{other}"
        for other in ("bridge", "cli", "import_ids", "peers", "supervisor")
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
    "state": ("state/ringfence_state/*.py", "state/ringfence_state/strategies/*.py"),
    "dedup": ("service/ringfence_service/dedup/*.py",),
    "processor": tuple(
        f"service/ringfence_service/processor/{name}.py"
        for name in (
            "loop",
            "poll",
            "transaction",
            "takeover",
            "assignment",
            "active_settings",
            "settings_follower",
            "commit_offsets",
            "apply",
            "stuck_inputs",
            "layout",
        )
    ),
    "metadata": tuple(
        f"service/ringfence_service/metadata/{name}.py"
        for name in ("image", "layout", "settings", "topic", "file_routes")
    ),
    "dead_letters": ("service/ringfence_service/dead_letters/*.py",),
    "publisher": tuple(
        f"ringfence/ringfence_client/publisher/{name}.py"
        for name in ("publisher", "sender", "session")
    ),
}
"""Of the core; `make mutants ARGS=NAME` takes one, or a path."""

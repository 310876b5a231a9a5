"""The operations that clients use: one that goes or changes its path breaks them.

`operations.txt` has them all. The names of metrics are compared with docs/metrics.md in
tests/unit/service/telemetry/test_metrics_page.py.
"""

from pathlib import Path

from ringfence_api.app import create_app
from ringfence_service.queries.inbox import QueryInbox
from tests.api.fake_service import RUNNING, Clock, make_view

OPERATIONS = Path(__file__).with_name("operations.txt")


def test_the_api_has_the_operations_that_are_written_down_and_no_other() -> None:
    paths = create_app(make_view(RUNNING, Clock(), QueryInbox(1))).openapi()["paths"]
    found = [f"{method.upper()} {path}" for path in sorted(paths) for method in sorted(paths[path])]
    assert found == OPERATIONS.read_text("utf-8").splitlines()

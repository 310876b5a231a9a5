"""What a plan without a service says: the numbers of the API, and settings that can be used."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence_api.resources.sizing import Need, SizingPlan
from ringfence_main.plan import PlanRequest, planned
from ringfence_service.config.addresses import AddressSettings, pattern_fault
from ringfence_service.config.load import load_lenient
from ringfence_service.queries.addresses import AddressAnswer, MemoryStatus
from ringfence_service.queries.settings import EffectiveSetting
from ringfence_state.cache import FULL
from tests.support.helpers import some

pytestmark = pytest.mark.usefixtures("_compiled")

BASE = '[kafka]\n"bootstrap.servers" = "b:1"\n[[routes]]\ninputs = ["orders"]\n'
SHARED = (
    "strategy",
    "retry_window_ms",
    "messages_per_second",
    "busiest_partition_messages_per_second",
    "partitions",
    "ids_needed",
    "safety_factor",
    "setting",
    "recommended",
    "memory_bytes",
    "disk_bytes",
    "changelog_bytes",
    "restore_ms",
    "load_ms",
    "measured_id_bytes",
)
PATTERNS = st.one_of(
    st.sampled_from(["#", "orders", "orders.*", "flights.#", '("a" b\\)', "(\x7f\n\u009b)"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
).filter(lambda pattern: pattern_fault(pattern) is None)


@pytest.fixture(scope="module")
def _compiled() -> Iterator[None]:
    """The path whose figures a running service has that does not say which one it runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ringfence_main.plan._path", lambda: "native")
        yield


def running(strategy: str, partitions: int) -> AddressAnswer:
    """An address on a running service whose partitions hold equally much."""
    values: dict[str, str | int] = {
        "strategy": strategy,
        "id_cache_size": 20_000,
        "window_size": 10_000,
        "window_ms": 1_800_000,
    }
    found = {key: EffectiveSetting(value, "#") for key, value in values.items()}
    held = [
        MemoryStatus("orders", number, 100, 20_000, 0, 0, 1_000, None)
        for number in range(partitions)
    ]
    return AddressAnswer("orders", found, tuple(held), complete=True)


def rates(most: int) -> st.SearchStrategy[float]:
    """Messages per second in 64ths, which floats multiply exactly: 0.99 * 3300 is above 3267."""
    return st.integers(1, 64 * most).map(lambda part: part / 64)


@pytest.mark.parametrize("strategy", ["ring", "window"])
@pytest.mark.parametrize("partitions", [1, 4, 16])
@given(rate=rates(100_000), minutes=st.integers(1, 100))
def test_a_plan_has_the_numbers_of_one_for_a_running_service(
    strategy: str, partitions: int, rate: float, minutes: int
) -> None:
    scope = "address" if partitions == 1 else "partition"
    request = PlanRequest(
        rate, f"{minutes}m", strategy, scope, None if partitions == 1 else partitions
    )
    need = Need(retry_window=60 * minutes, messages_per_second=rate)
    from_service = SizingPlan.of(running(strategy, partitions), need).model_dump()
    without = planned(request)
    assert {key: without[key] for key in SHARED} == pytest.approx(
        {key: from_service[key] for key in SHARED}
    )


@pytest.mark.parametrize("strategy", ["ring", "window"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=PATTERNS, hours=st.integers(1, 100), rate=rates(1_000))
def test_the_settings_of_a_plan_are_a_configuration_that_holds_what_was_asked_for(
    strategy: str, pattern: str, hours: int, rate: float, tmp_path: Path
) -> None:
    found = planned(PlanRequest(rate, f"{hours}h", strategy, pattern=pattern))
    file = tmp_path / "ringfence.toml"
    file.write_text(f"{BASE}{found['toml']}\n", "utf-8")
    config, problems = load_lenient(file, {})
    assert problems == []
    (keys,) = [each for name, each in some(config).addresses.patterns.items() if name == pattern]
    written = AddressSettings(**dict(keys))  # type: ignore[arg-type]
    assert written.strategy == strategy
    assert getattr(written, found["setting"]) >= rate * hours * 3600 * found["safety_factor"]
    if strategy == "window":
        assert written.window_ms == hours * 3_600_000
    memory_bytes = some(config).service.cache_memory_mb * 1024 * 1024
    assert found["memory_bytes"] <= FULL * memory_bytes

"""No verdict depends on where transactions are cut, when the process dies, or whether it keeps
its disk: anything that may be sent, under any settings, meets the same fates in every manner."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.cases.case import MANNERS, Settings
from tests.cases.scene import BY_ADDRESS, Scene
from tests.support.examples import examples

own = st.sampled_from(["a", "b", "c", "d", "-", "~1", "~2", "P:a", "P:b"])
numbered = st.builds(
    "{}#{}.{}<{}".format,
    st.sampled_from("PQR"),
    st.integers(1, 2),
    st.integers(0, 5),
    st.integers(0, 3),
)
records = st.one_of(own, numbered)
members = st.builds(
    "{}[{}]{}".format,
    st.sampled_from("tu"),
    st.sampled_from(["1/2", "2/2", "1/2", "2/2", "1/1", "1/3", "2/3", "3/3"]),
    records,
)
wholes = st.builds(
    lambda name, parts: f"{name}[{','.join(parts)}]",
    st.sampled_from("tuv"),
    st.lists(records, min_size=1, max_size=3),
)
addressed = st.builds(
    "{}/{}".format, st.sampled_from("XXYYZ"), st.one_of(records, records, members, wholes)
)
times = st.sampled_from(["", "", "", "", "@2 ", "@5 ", "@11 ", "@25 ", "| ", "| "])
traces = st.lists(st.builds("{}{}".format, times, addressed), min_size=8, max_size=30)

few = st.integers(1, 3)
any_settings = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(["ring", "window", "audit", "sequence", "ordered", "off"]),
        "on_duplicate": st.sampled_from(["dead_letter", "dead_letter", "drop", "mark"]),
        "dead_letter_audit": st.booleans(),
    },
    optional={
        "id_cache_size": st.integers(0, 4),
        "window_size": st.integers(0, 4),
        "window_ms": st.sampled_from([5_000, 10_000]),
        "refresh_on_hit": st.booleans(),
        "audit_depth": few,
        "audit_producers": few,
        "audit_jump_max": few,
        "below_window": st.sampled_from(["duplicate", "accept"]),
        "publishers_max": few,
        "addresses_max": st.sampled_from([1, 2, 2, 3, 4]),
        "groups_open_max": few,
        "group_records_max": st.integers(2, 3),
    },
)


@examples(50)
@given(traces, any_settings, st.sampled_from(["pass", "stamp", "dead_letter"]))
def test_no_fate_depends_on_the_manner(trace: list[str], told: Settings, missing_id: str) -> None:
    route = replace(BY_ADDRESS, missing_id=missing_id)  # type: ignore[arg-type]  # one of three
    found = {
        name: Scene(told, manner, route=route).play(" ".join(trace))
        for name, manner in MANNERS.items()
    }
    first = next(iter(found.values()))
    assert found == dict.fromkeys(found, first)

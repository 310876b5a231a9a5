"""Chance: what random traces through the real loop have in common."""

from hypothesis import strategies as st

from tests.cases.case import Manner

manners = st.builds(
    Manner,
    st.integers(1, 6),
    st.sampled_from([False, False, False, False, False, True]),
    st.booleans(),
    st.integers(1, 2),
)
restarts = st.sampled_from(["", "", "", "", "", "", "", "|"])
"""What stands before a record in its trace."""

"""The indexes that a ring may have, also with hashes so short that most ids have the same."""

from typing import Final, NamedTuple

import numpy as np
import pytest

from ringfence_pipeline.backfill import sorted_index
from ringfence_pipeline.backfill.sorted_index import SortedIndex
from ringfence_state import id_index
from ringfence_state.id_index import HashIndex, MakeIndex


class IndexKind(NamedTuple):
    """An index, and the bits of a hash that it uses."""

    name: str
    make: MakeIndex
    mask: int

    def made(self, patch: pytest.MonkeyPatch) -> MakeIndex:
        """Return a function that makes one."""
        if self.make is HashIndex:
            patch.setattr(id_index, "_TAG_MASK", self.mask)
        else:
            hashes, mask = sorted_index._hashes, np.uint64(self.mask)
            patch.setattr(sorted_index, "_hashes", lambda words: hashes(words) & mask)
        return self.make


INDEXES: Final = (
    IndexKind("hash", HashIndex, 0xFFFF),
    IndexKind("hash with two tags", HashIndex, 1),
    IndexKind("hash with one tag", HashIndex, 0),
    IndexKind("sorted", SortedIndex, (1 << 64) - 1),
    IndexKind("sorted with four hashes", SortedIndex, 3),
)

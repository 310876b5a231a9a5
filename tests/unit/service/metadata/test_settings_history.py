"""The settings documents that are kept: which is the newest, and what one of them replaced."""

import pytest

from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.metadata.settings import KEPT_MAX, SettingsHistory, SettingsOverlay

PAUSED = SettingsOverlay(paused=("a",))


def kept(*numbers: int) -> SettingsHistory:
    """Each with the revision that is ten times its number."""
    revisions = SettingsHistory()
    for number in numbers:
        written = revisions.records(PAUSED, actor="who", reason="why", time_ms=7)[-1]
        key = MetadataRecord.of(["settings", number], None).key
        assert revisions.take(key, written.value, 10 * number)
    return revisions


@pytest.mark.parametrize(
    ("numbers", "revision", "overlay"),
    [
        ((), 0, SettingsOverlay()),
        ((1, 2), 0, SettingsOverlay()),
        ((2, 3), 0, None),  # what the first of those kept replaced is not kept
        ((2, 3), 30, PAUSED),
        ((2, 3), 10, None),
    ],
)
def test_what_was_set_by_a_revision_is_known_while_its_document_is_kept(
    numbers: tuple[int, ...], revision: int, overlay: SettingsOverlay | None
) -> None:
    assert kept(*numbers).overlay_at(revision) == overlay


def test_the_newest_has_the_highest_number_whatever_came_last() -> None:
    revisions = kept(2, 9, 5)
    assert [document.number for document in revisions] == [9, 5, 2]
    assert (revisions.revision, kept().revision) == (90, 0)
    newest = revisions.newest
    assert newest is not None
    assert (newest.actor, newest.reason, newest.time_ms) == ("who", "why", 7)
    assert revisions.before(newest) is None
    assert kept(8, 9).before(newest) is not None


def test_one_more_takes_the_eldest_away_and_comes_last() -> None:
    for held in (KEPT_MAX - 1, KEPT_MAX):
        records = kept(*range(1, held + 1)).records(PAUSED, actor="", reason="", time_ms=1)
        gone = [record.key for record in records if record.value is None]
        assert gone == [b'["settings",1]'][: held - KEPT_MAX + 1]
        assert records[-1].key == b'["settings",%d]' % (held + 1)


def test_a_document_that_was_taken_away_and_a_record_of_another_kind_are_none() -> None:
    revisions = kept(1, 2)
    assert not revisions.take(b'["settings",2]', None, 30)
    assert not revisions.take(b'["redrive","x"]', b"{}", 31)
    assert not revisions.take(b"no json", b"{}", 32)
    assert [document.number for document in revisions] == [1]


def test_a_document_of_another_format_is_kept_and_not_understood() -> None:
    revisions = SettingsHistory()
    assert revisions.take(b'["settings",1]', b'{"format":2,"time_ms":"noon"}', 5)
    newest = revisions.newest
    assert newest is not None
    assert (newest.overlay, newest.revision, newest.time_ms) == (None, 5, 0)

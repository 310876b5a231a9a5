"""Differences: what one overlay says that another does not, for people."""

from collections.abc import Iterator, Mapping

from service.overlay import Keys, Overlay


def differences(before: Overlay, after: Overlay) -> tuple[str, ...]:
    """One line for each entry that is another."""
    return (
        *_entries("routes", before.routes, after.routes),
        *_entries("addresses", before.addresses, after.addresses),
        *(f"paused: {name}" for name in after.paused if name not in before.paused),
        *(f"resumed: {name}" for name in before.paused if name not in after.paused),
    )


def _entries(
    section: str, before: Mapping[str, Keys | None], after: Mapping[str, Keys | None]
) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        where = f'{section}."{name}"'
        if name not in after:
            yield f"{where}: taken back"
        elif name not in before:
            yield f"{where}: {'deleted' if after[name] is None else 'set'}"
        elif before[name] != after[name]:
            was, now = before[name] or {}, after[name]
            if now is None:
                yield f"{where}: deleted"
                continue
            keys = sorted(key for key in was.keys() | now.keys() if was.get(key) != now.get(key))
            yield f"{where}: {', '.join(_change(key, was, now) for key in keys)}"


def _change(key: str, was: Keys, now: Keys) -> str:
    return f"{key} {was.get(key, 'unset')} → {now.get(key, 'unset')}"

"""Settings change: preview it, ask if ids would be lost, apply it, and wait for its effect."""

from collections.abc import Callable, Mapping
from typing import Any

from ringfence_service.cli.arguments import Document, InputDocument
from ringfence_service.cli.cells import age, count, source, text_of, word
from ringfence_service.cli.command import CommandContext, confirm
from ringfence_service.cli.page import Facts, Page, Part, Table, Title
from ringfence_service.cli.problem import NOT_FOUND, ApiError
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.formatting import plural

_NOT_SET = ("etag", "revision", "source", "name", "pattern")
"""Keys of a document that are not settings."""


def apply_change(
    call: CommandContext,
    what: str,
    send: Callable[[Mapping[str, object]], Document],
    *,
    always_ask: bool = False,
) -> None:
    """Preview a change, ask if it would forget ids, and apply it.

    `send` sends the request with the query parameters that it receives. Raises ExitError when the
    user declines, and when not all partitions have applied the change in time.
    """
    preview = send({"dry_run": True})
    if call.dry_run or not preview["effect"]:
        call.screen.show(preview, lambda: difference(what, preview))
        return
    forgets = preview.get("forgets") or {}
    is_lossy = bool(forgets.get("ids_forgotten") or forgets.get("needs_force"))
    if (is_lossy or always_ask) and not call.assume_yes:
        call.screen.preview(difference(what, preview))
        lost = f" {plural(forgets['ids_forgotten'], 'id')} would be forgotten." if is_lossy else ""
        confirm(call, f"{what}?{lost}")
    done = send(
        {
            "wait": "applied",
            "timeout": f"{round(min(60.0, call.api.patience_s) * 1_000)}ms",
            "reason": call.reason,
            **({"force": True} if forgets.get("needs_force") else {}),
        }
    )
    call.screen.show(done, lambda: difference(what, done))
    if done["applied"] is False:
        sentence = (
            f"Revision {done['revision']} is written and effective, but not all partitions have "
            "applied it yet; look at ringfence status, or wait longer with --timeout."
        )
        raise ExitError(ExitCode.NO, sentence)


def current(call: CommandContext, path: str, **query: object) -> InputDocument | None:
    """Return the current document, or None if it does not exist."""
    try:
        return call.api.read(path, **query)
    except ApiError as refused:
        if refused.status != NOT_FOUND:
            raise
        return None


def difference(what: str, outcome: Mapping[str, Any]) -> Page:
    """Return the page of what a change has changed or would change."""
    before, after = outcome["before"] or {}, outcome["after"] or {}
    keys = [key for key in {**before, **after} if key not in _NOT_SET]
    changed = [key for key in keys if before.get(key) != after.get(key)]
    parts: list[Part] = [Title(_headline(what, outcome))]
    if changed and "addresses" not in after:  # changes of all settings are listed as sentences
        rows = [
            [word(key), _value(before, key), word("→", "dim"), _value(after, key)]
            for key in changed
        ]
        parts.append(Table(("key", "was", "", "is"), rows, ""))
    elif outcome["effect"]:
        parts.append(Facts([("changes", word(each)) for each in outcome["effect"]]))
    if outcome.get("warnings"):  # an older instance has none
        parts.append(Facts([("warning", word(each, "warn")) for each in outcome["warnings"]]))
    return [*parts, *_forgotten(outcome.get("forgets"))]


def _headline(what: str, outcome: Mapping[str, Any]) -> str:
    if not outcome["effect"]:
        return f"{what}: nothing changes."
    if outcome["dry_run"]:
        return f"{what}: this would change."
    return f"{what}: done; revision {outcome['revision']} is effective."


def _value(document: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 - a cell
    return word(text_of(document[key])) if key in document else word(None)


def _forgotten(forgets: Mapping[str, Any] | None) -> Page:
    if not forgets or not forgets["caches_changed"]:
        return []
    more = "" if forgets["complete"] else ", not counting other instances"
    if not forgets["ids_forgotten"]:
        return [Title(f"No id is forgotten{more}")]
    rows = [
        [
            word(each["address"]),
            source(each),
            word(_strategies(each)),
            count(each["ids_held"]),
            count(each["ids_forgotten"], "warn" if each["ids_forgotten"] else ""),
            age(each["oldest_time"]),
            age(each["newest_time"]),
        ]
        for each in forgets["addresses"]
    ]
    titles = ("address", "partition", "strategy", "ids", "forgotten", "oldest", "newest")
    verb = "is" if forgets["ids_forgotten"] == 1 else "are"
    head = f"{plural(forgets['ids_forgotten'], 'id')} {verb} forgotten{more}"
    return [Title(head), Table(titles, rows, "")]


def _strategies(forgotten: Mapping[str, Any]) -> str:
    was, now = forgotten["strategy"], forgotten["new_strategy"]
    return was if was == now else f"{was} → {now}"

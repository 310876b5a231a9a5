"""The filter of dead letters, as pages tell it and as the API takes it. Pure.

Times are told in UTC, to the minute, as a browser's own field gives them.
"""

from typing import Any, Final, NamedTuple

from ringfence.headers import Reason

FIELDS: Final = ("topic", "address", "reason", "from", "to", "header_name", "header_value", "key")
REASONS: Final = tuple(map(str, Reason))


class LetterFilter(NamedTuple):
    """Which dead letters are meant: fields of a form, none of them empty."""

    fields: dict[str, str]

    @classmethod
    def of(cls, told: dict[str, str]) -> "LetterFilter":
        """Out of all that a page was told."""
        return cls({name: told[name] for name in FIELDS if told.get(name)})

    def query(self) -> dict[str, str]:
        """For what lists and counts them."""
        told = dict(self.fields)
        name, value = told.pop("header_name", ""), told.pop("header_value", "")
        if name:
            told[f"header.{name}"] = value
        return {key: _time(key, text) for key, text in told.items()}

    def order(self) -> dict[str, Any]:
        """For what redrives them."""
        told = dict(self.fields)
        topic, reason = told.pop("topic", ""), told.pop("reason", "")
        name, value = told.pop("header_name", ""), told.pop("header_value", "")
        filter_: dict[str, Any] = {key: _time(key, text) for key, text in told.items()}
        if reason:
            filter_["reason"] = [reason]
        if name:
            filter_["header"] = {name: value}
        return {"topics": [topic] if topic else [], "filter": filter_}

    def sentence(self) -> str:
        """In words."""
        words = {"header_name": "header", "header_value": "="}
        told = [f"{words.get(name, name)} {text}" for name, text in self.fields.items()]
        return ", ".join(told) or "all dead letters of the group"


def _time(name: str, text: str) -> str:
    return f"{text}Z" if name in {"from", "to"} and not text.endswith("Z") else text

"""The filter of dead letters, as options, as a query and as part of an order."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer

from service.commands.times import moment
from service.errors import ExitCode, ExitError

Address = Annotated[str | None, typer.Option("--address", metavar="ADDRESS", help="Of this one.")]
Reasons = Annotated[
    list[str] | None,
    typer.Option("--because", metavar="REASON", help="Dead-lettered as this; may be repeated."),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="A dead-letter topic; may be repeated."),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Decided then or later: a time, or 2h ago as 2h."),
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Decided before.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="With this key; hex: or base64: too.")
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="With this header; may be repeated."),
]


class LetterFilter(NamedTuple):
    """Which dead letters are meant; what is not given leaves none out."""

    address: str | None
    reasons: Sequence[str]
    topics: Sequence[str]
    from_: str | None
    to: str | None
    key: str | None
    headers: Sequence[tuple[str, str]]

    @classmethod
    def of(
        cls,
        address: Address = None,
        because: Reasons = None,
        topic: Topics = None,
        from_: From = None,
        to: To = None,
        key: Key = None,
        header: Headers = None,
    ) -> "LetterFilter":
        """As the options give it; a command that takes a filter takes all of these."""
        return cls(
            address,
            because or (),
            topic or (),
            moment(from_),
            moment(to),
            key,
            tuple(map(_header, header or ())),
        )

    def query(self) -> dict[str, Any]:
        """As parameters of a request."""
        named = {f"header.{name}": value for name, value in self.headers}
        return {
            "address": self.address,
            "reason": list(self.reasons),
            "topic": list(self.topics),
            "from": self.from_,
            "to": self.to,
            "key": self.key,
            **named,
        }

    def body(self) -> dict[str, Any]:
        """As the filter of an order."""
        given = {
            "address": self.address,
            "reason": list(self.reasons),
            "from": self.from_,
            "to": self.to,
            "key": self.key,
            "header": dict(self.headers),
        }
        return {name: value for name, value in given.items() if value}


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        sentence = f"{text!r} is no header; write --header NAME=VALUE."
        raise ExitError(ExitCode.USAGE, sentence)
    return name, value

"""TOML text: keys and values as they stand in the configuration file. Pure."""

import json
import tomllib
from collections.abc import Mapping
from typing import Any


def as_toml(keys: Mapping[str, object]) -> str:
    """One line for each key."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in sorted(keys.items()))


def from_toml(text: str) -> dict[str, Any]:
    """The keys and values of a text, all of which JSON can hold; ValueError says what is wrong."""
    try:
        keys = tomllib.loads(text.replace("\r\n", "\n"))
        json.dumps(keys, allow_nan=False)
    except tomllib.TOMLDecodeError as error:
        sentence = f"The text cannot be read: {error}. Write a key and its value on each line."
        raise ValueError(sentence) from None
    except (TypeError, ValueError, RecursionError):
        sentence = (
            "No setting holds a date, a time, inf, nan, thousands of digits or lists within lists;"
            " write text, a number, true, false or a list of texts."
        )
        raise ValueError(sentence) from None
    return keys


def _key(key: str) -> str:
    bare = key.replace("_", "").replace("-", "")
    return key if bare.isascii() and bare.isalnum() else _quoted(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(each) for each in value)}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, int | float):
        return str(value)
    return _quoted(str(value))


def _quoted(text: str) -> str:
    """JSON's strings are TOML's, but for one character that TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

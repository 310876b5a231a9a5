"""Reader of the code blocks of a page in Markdown, for tests that type its commands."""

import re


def block(page: str, language: str, word: str) -> str:
    """Return the only block of a language that contains a word."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (found,) = [str(text) for kind, text in blocks if kind == language and word in text]
    return found

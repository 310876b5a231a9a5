"""Reader of the code blocks of a page in Markdown, for tests that type its commands."""

import re


def block(page: str, language: str, word: str) -> str:
    """Return the only block of a language that contains a word."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (found,) = [str(each) for each in blocks if word in each]
    return found

"""Which mutants there are of a piece of code."""

import pytest

from tests.mutation.operators import mutants_of


def changed(source: str) -> list[str]:
    text = source.encode()
    return [mutant.applied(text).decode() for mutant in mutants_of("a.py", text)]


def in_function(*lines: str) -> str:
    return "\n".join(["def f(a, b):", *(f"    {line}" for line in lines), ""])


@pytest.mark.parametrize(
    ("line", "mutants"),
    [
        ("if a < b: pass", ["if a <= b: pass", "if a >= b: pass"]),
        ("if not a: pass", ["if (a): pass"]),
        ("if a(): pass", ["if (not (a())): pass"]),
        ("while a is not b: pass", ["while a is b: pass"]),
        ("c = a or b", ["c = ((b))", "c = ((a))"]),
        ("c = a[b:1]", ["c = a[b:0]", "c = a[b:2]"]),
        ("c = min(a, key=b)", ["c = max(a, key=b)", "c = min(a, )"]),
        ("c = a(b=1, d=b)", ["c = a(d=b)", "c = a(b=0, d=b)", "c = a(b=2, d=b)", "c = a(b=1, )"]),
        ("c = [d for d in a if d]", ["c = [d for d in a if (not (d))]"]),
        ("a += b", ["a -= b", "pass"]),
        ("a.c = b", ["pass"]),
        ("a = b", ["pass"]),
        ("a.c()", ["pass"]),
        ("return a", ["return None"]),
        ("return True", ["return False", "return None"]),
        ("return False", ["return True"]),
        ("c = a or 0", ["c = ((0))", "c = a or (-1)", "c = a or 1"]),
        ("c = a or []", ["c = (([]))"]),
        ("raise a(1)", ["pass"]),
        ("del a[b]", ["pass"]),
        ("yield a", ["pass"]),
    ],
)
def test_each_way_to_break_a_line_is_a_mutant(line: str, mutants: list[str]) -> None:
    assert sorted(changed(in_function(line))) == sorted(map(in_function, mutants))


@pytest.mark.parametrize(
    "line",
    [
        "return",
        "return None",
        "c = f'{a + 1}'",
        "c = 'a' + b",
        "c: Literal[1]",
        "c = 0.5",
        "c = 1024",
        "_log.info('a', count=a + 1)",
        "assert a < b",
        "'a text'",
        "c = zip(a, b, strict=True)",
        "c = cast('int', a)",
        "for c in a: pass",
    ],
)
def test_texts_logs_types_and_assertions_stay_as_they_are(line: str) -> None:
    assert not changed(in_function(line))


def test_what_runs_at_import_is_changed_but_not_left_out() -> None:
    source = "A: Final = 3\n@cache(1)\ndef f(a=True): ...\nclass B(NamedTuple):\n    c: int = 2\n"
    found = mutants_of("a.py", source.encode())
    assert [(mutant.scope, mutant.mutation) for mutant in found] == [
        ("A", "3 → 2"),
        ("A", "3 → 4"),
        ("f", "True → False"),
        ("B.c", "2 → 1"),
        ("B.c", "2 → 3"),
    ]
    assert all(mutant.at_import for mutant in found)


def test_a_mutant_keeps_its_name_when_lines_move() -> None:
    before, after = (
        mutants_of("a.py", (above + in_function("return a + b")).encode())
        for above in ("", "# one more line\n\n")
    )
    assert [each.identity for each in before] == [each.identity for each in after]
    assert [each.identity for each in before] == [
        "a.py f: return a + b [return None]",
        "a.py f: return a + b [a + b → a - b]",
    ]

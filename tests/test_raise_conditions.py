"""Why did the code raise its exception? The conditions are read from the source, as it writes them."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from mgpu.recorder.inject._mgpu_conditions import of_raise
from tests.conftest import Run as Command

# Code whose line with HERE raises ValueError (or fails an assertion), and what held there.
CASES = {
    "if": ("""
        def f(x):
            if x > 3:
                raise ValueError(x)  # HERE
        """, "x > 3"),
    "nested, the outermost first": ("""
        if mode == "train":
            with lock:
                for x in xs:
                    if x is None:
                        raise ValueError  # HERE
        """, 'mode == "train" and x is None'),
    "else of a chain": ("""
        if kind == "a":
            y = 1
        elif kind in ("b", "c"):
            y = 2
        else:
            raise errors.ValueError("unknown")  # HERE
        """, 'kind != "a" and kind not in ("b", "c")'),
    "opposites": ("""
        if not ready:
            pass
        elif a <= b:
            pass
        elif a < b < c:
            pass
        elif found(x):
            pass
        else:
            raise ValueError()  # HERE
        """, "ready and not a <= b and not (a < b < c) and not found(x)"),
    "an or among others": ("""
        if a:
            if b or c:
                raise ValueError()  # HERE
        """, "a and (b or c)"),
    "an or alone": ("""
        if b or c: raise ValueError()  # HERE
        """, "b or c"),
    "several lines": ("""
        if (
            a  # of the model
            and b
        ):
            raise ValueError(
                "x",  # HERE
            )
        """, "a and b"),
    "assertion": ("""
        if a:
            assert x.shape[0] == n, "x"  # HERE
        """, "x.shape[0] != n"),
    "assertion of several": ("""
        assert a == 1 and b  # HERE
        """, "not (a == 1 and b)"),
    "an assertion of an order, which NaN fails, too": ("""
        assert loss > 0  # HERE
        """, "not loss > 0"),
    "assert False": ("""
        if a:
            pass
        else:
            assert False, "no"  # HERE
        """, "not a"),
    "left before": ("""
        def f(n):
            if n == 0:
                return 1
            if n < 0:
                raise ValueError("another")
            raise ValueError("x")  # HERE
        """, "n != 0"),
    "left before counts for less than a branch": ("""
        for n in ns:
            if n == 0:
                continue
            if n > 9:
                raise ValueError("x")  # HERE
        """, "n > 9"),
    "while": ("""
        while len(queue) > most:
            raise ValueError("x")  # HERE
        while True:
            pass
        """, "len(queue) > most"),
    "a function in a branch": ("""
        if a:
            def f(x):
                raise ValueError(x)  # HERE
        """, ""),
    "a handler": ("""
        if a:
            try:
                open(x)
            except OSError as error:
                if error.errno == 2:
                    raise ValueError(x) from error  # HERE
        """, "error.errno == 2"),
    "nothing decides": ("""
        raise ValueError("x")  # HERE
        """, ""),
    "while True": ("""
        while True:
            raise ValueError("x")  # HERE
        """, ""),
    "passed on": ("""
        if a:
            raise error  # HERE
        """, ""),
    "raised again": ("""
        try:
            f()
        except ValueError:
            if a:
                raise  # HERE
        """, ""),
    "of another class: what failed is in it": ("""
        if a:
            raise TypeError(f(x))  # HERE
        """, ""),
    "not a raise": ("""
        if a:
            f(x)  # HERE
        """, ""),
}  # fmt: skip


def held(code: str) -> str:
    code = textwrap.dedent(code)
    line = next(number for number, text in enumerate(code.splitlines(), 1) if "HERE" in text)
    return of_raise(code, line, "AssertionError" if "assert" in code else "ValueError")


@pytest.mark.parametrize("name", CASES)
def test_what_held_where_an_exception_was_raised(name: str) -> None:
    code, expected = CASES[name]
    assert held(code) == expected


@pytest.mark.skipif(sys.version_info < (3, 10), reason="match is new in 3.10")
def test_the_cases_of_a_match() -> None:
    code = "match kind:\n    case 'a':\n        pass\n    case {}:\n        raise ValueError()  # HERE\n"
    assert held(code.format("int() if x")) == "kind matches int() if x"
    assert held(code.format("_")) == "no case matches kind"


def test_a_long_condition_and_a_large_file_are_bounded() -> None:
    long = " and ".join(f"some_name_{number} is not None" for number in range(30))
    assert len(held(f"if {long}:\n    raise ValueError()  # HERE\n")) == 200
    assert of_raise("if a:\n    raise ValueError\n" + "#" * (3 << 20), 2, "ValueError") == ""


PACKAGE = """\
def build(width, heads, kind=None):
    if kind is None and width % heads:
        raise ValueError("width and heads")
"""


def failed_log(folder: Path, site: Path) -> None:
    (site / "layers").mkdir(parents=True)
    (site / "layers" / "__init__.py").write_text(PACKAGE)
    (folder / "run.log").write_text(
        "Traceback (most recent call last):\n"
        f'  File "{folder}/train.py", line 4, in <module>\n    build(10, 4)\n'
        f'  File "{site}/layers/__init__.py", line 3, in build\n    raise ValueError("width and heads")\n'
        "ValueError: width and heads\n"
    )


def test_a_log_shows_the_condition_of_a_package_that_is_installed_here(mgpu: Command, tmp_path: Path) -> None:
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    failed_log(tmp_path, site)
    shown = mgpu("doctor", "--log", "run.log").stdout
    assert "layers/__init__.py:3 in build: if kind is None and width % heads: raise" in " ".join(shown.split())
    (site / "layers" / "__init__.py").write_text("# another version\n" + PACKAGE)
    shown = mgpu("doctor", "--log", "run.log").stdout
    assert "width and heads" in shown and "kind is None" not in shown

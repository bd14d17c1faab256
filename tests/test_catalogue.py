"""Is the catalogue of checks what their docstrings say?"""

from __future__ import annotations

from mgpu import catalogue, engine
from tests.conftest import CHECKS


def test_the_page_is_fresh() -> None:
    written = catalogue.FILE.read_text(encoding="utf-8")
    assert written == catalogue.text(engine.load()), "run: python -m mgpu.catalogue"


def test_every_check_is_on_the_page_once() -> None:
    page = catalogue.text(engine.load())
    heads = [line.removeprefix("### ").strip("`") for line in page.splitlines() if line.startswith("### ")]
    assert sorted(heads) == sorted(CHECKS)
    for check in CHECKS.values():
        assert check.source in page
        assert f"| [{check.area}](#{check.area}) |" in page


def test_every_entry_has_why_and_fix() -> None:
    entries = catalogue.text(engine.load()).split("### `")[1:]
    assert all("**Why**" in entry and "**Fix**" in entry and "Source: " in entry for entry in entries)

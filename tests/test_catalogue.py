"""Is the catalogue of checks what their docstrings say?"""

from __future__ import annotations

from mgpu import engine
from mgpu.engine import catalogue
from mgpu.readers.log import row_matching
from tests.conftest import CHECKS, ROOT

# Unless it is asked for them.
NOT_THE_DOCTORS = {"config", "smoke", "rehearsal", "stamp", "script", "run", "hang", "work", "log", "job", "fleet"}
NOT_THE_DOCTORS |= {"local_rules", "deepspeed_file"}


def test_the_page_is_fresh() -> None:
    written = catalogue.FILE.read_text(encoding="utf-8")
    assert written == catalogue.text(engine.load()), "run: python -m mgpu.engine.catalogue"


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


def test_the_pages_count_right() -> None:
    texts = {path: path.read_text("utf-8") for path in catalogue.pages(ROOT)}
    assert [path.name for path, text in texts.items() if catalogue.update_counts(text) != text] == []
    together = " ".join(" ".join(texts.values()).split())
    doctors = sum(check.area not in NOT_THE_DOCTORS for check in CHECKS.values())
    assert f"{doctors} of mgpu's {len(CHECKS)} checks" in together
    rows = sum(row.makes_check for row in row_matching.signature_rows())
    assert f"({rows} texts, each explained by" in together
    jobs = sum(check.area == "job" for check in CHECKS.values())
    assert f"by line: {jobs} checks that know which shell" in together
    scripts = sum(check.area == "script" for check in CHECKS.values())
    assert f"({scripts} checks)." in together

"""Is the documentation's site complete? It is built with --strict from this tree, and every page of it is read."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

import pytest

from docs.generate import check_pages, variables
from mgpu import documentation, errors
from mgpu.cli import option_parser
from mgpu.exit_status import COMMANDS
from mgpu.signature import Signature
from mgpu.wizard.topics import KEYS
from tests.conftest import CHECKS, ROOT, missing
from tests.documentation import DOCS, PAGES

_TAG = re.compile(r"<(a|img|link|script|iframe)\b([^>]*)>")
_LINK = re.compile(r'\b(?:href|src)="?([^"\s>]+)')
_ID = re.compile(r'\bid="?([^"\s>]+)')
_ARTICLE = re.compile(r"<article\b.*?</article>", re.DOTALL)
FEWEST_WORDS = 20  # of a page that is not empty


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as its configuration says."""
    if importlib.util.find_spec("material") is None or importlib.util.find_spec("mkdocs") is None:
        missing("mkdocs-material is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-f", "docs/mkdocs.yml", "-d", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, ""), done.stdout + done.stderr
    return folder


def plain_text(page: str) -> str:
    """What a reader sees of a page's article."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", "".join(_ARTICLE.findall(page)))).split())


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    """The text of each page by its address below the site's root, "" for the first."""
    found = site.rglob("index.html")
    return {path.parent.relative_to(site).as_posix().replace(".", "", 1): path.read_text("utf-8") for path in found}


def links(html: str) -> Iterator[tuple[str, str]]:
    """Every address on a page, with the kind of its tag."""
    for tag, attributes in _TAG.findall(html):
        for address in _LINK.findall(attributes):
            yield tag, unescape(address)


def test_every_link_and_anchor_leads_somewhere(site: Path, pages: dict[str, str]) -> None:
    anchors = {address: {unquote(unescape(name)) for name in _ID.findall(html)} for address, html in pages.items()}
    broken, seen = [], set()
    for address, html in pages.items():
        base = f"https://site/{address}/" if address else "https://site/"
        for tag, link in set(links(html)):
            path, _, anchor = urljoin(base, link).partition("#")
            if not path.startswith("https://site/"):
                assert tag == "a" or link.startswith(documentation.SITE), f"{address} loads {link}"
                continue
            name = unquote(path.removeprefix("https://site/")).rstrip("/")
            seen.add(name)
            there = name in pages or (site / name).is_file()
            if not there or (anchor and name in pages and anchor not in {*anchors[name], "__tabbed_1_1"}):
                broken.append((address, link))
    assert broken == []
    assert set(pages) <= seen, "a page to which no link leads"


def test_no_page_is_empty(pages: dict[str, str]) -> None:
    texts = {address: plain_text(html) for address, html in pages.items()}
    assert {address: text for address, text in texts.items() if len(text.split()) < FEWEST_WORDS} == {}
    assert not [address for address, html in pages.items() if "<h1" not in html]


def test_every_check_has_its_page(pages: dict[str, str]) -> None:
    assert documentation.check_url("shm_too_small") == f"{documentation.SITE}checks/shm_too_small/"
    for check in CHECKS.values():
        page = pages[f"checks/{check.id}"]
        assert '<h2 id="why"' in page and '<h2 id="fix"' in page, check.id
        assert f"mgpu doctor --explain {check.id}</code>" in page
        assert "<td>Run by</td>" in page, check.id
        shown = plain_text(page)
        for paragraph in (check.doc if not isinstance(check, Signature) else check.summary).split("\n\n"):
            text = re.sub(r"^(Why|Fix): ", "", " ".join(paragraph.replace("`", "").split()))
            assert check_pages.filled(check, text).rstrip(".") in shown, (check.id, text)
    assert {address for address in pages if re.fullmatch(r"checks/\w+", address)} == {f"checks/{c}" for c in CHECKS}


def test_a_page_has_the_finding_of_a_demo(pages: dict[str, str]) -> None:
    shown = {check: plain_text(pages[f"checks/{check}"]) for check in ("shm_too_small", "gpu_lost", "gpu_busy")}
    assert "docker run --shm-size=8g" in shown["shm_too_small"]
    assert all("mgpu doctor --demo" in text for text in shown.values())


def test_every_command_and_option_has_its_place(pages: dict[str, str]) -> None:
    for name in COMMANDS:
        options = option_parser.command_named(name).every_option
        flags = {flag for option in options for flag in (*option.on, *option.off) if flag.startswith("--")}
        assert flags == set(re.findall(r'<a id="(--[\w-]+)">', pages[f"reference/{name}"]))
    assert {one.dotted for one in KEYS} == set(
        re.findall(r'<h3 id="[^"]*">([a-z]\w*\.\w+)', pages["reference/answers"])
    )


def test_search_finds_checks_and_the_lines_of_logs(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    found = {entry["location"].partition("#")[0] for entry in index if "CUDA out of memory" in entry["text"]}
    assert "checks/log_gpu_memory_full/" in found
    titles = {entry["location"]: entry["title"] for entry in index}
    assert "A GPU no longer responds" in titles["checks/gpu_lost/"], "the words of the title count most"
    tags = {entry["location"]: " ".join(entry.get("tags", ())) for entry in index}
    assert "CUDA out of memory" in tags["checks/log_gpu_memory_full/"], "as much as the title"
    assert {f"checks/{check}/" for check in CHECKS} <= {entry["location"].partition("#")[0] for entry in index}


def test_the_texts_for_language_models(site: Path, pages: dict[str, str]) -> None:
    index, full = ((site / name).read_text("utf-8") for name in ("llms.txt", "llms-full.txt"))
    listed = re.findall(rf"\]\({re.escape(documentation.SITE)}([^)]*?)/?\)", index)
    assert len(listed) > 30 and set(listed) <= set(pages)
    assert index.startswith("# mgpu\n\n> ") and not re.search(r"\): \.?$", index, re.MULTILINE)
    assert all(f"- {check.id} (" in full for check in CHECKS.values())


def test_the_address_is_in_one_place() -> None:
    assert f"\nsite_url: {documentation.SITE} " in (DOCS / "mkdocs.yml").read_text("utf-8")


def test_a_page_that_the_navigation_does_not_name_is_a_guide() -> None:
    """Those that it names are there: mkdocs refuses others."""
    if importlib.util.find_spec("mkdocs") is None:
        missing("mkdocs is not installed")
    nav: list[dict[str, Any]] = [{"Home": "index.md"}, {"Guides": [{"Slurm": "slurm.md"}]}]
    runpy.run_path(str(DOCS / "hooks.py"))["on_config"]({"nav": nav})
    assert {page.name for page in PAGES} - {"index.md", "slurm.md"} == set(nav[1]["Guides"][1:])


def test_the_table_of_variables_is_that_of_the_source() -> None:
    source = [path.read_text("utf-8") for path in (ROOT / "mgpu").rglob("*") if path.suffix in (".py", ".sh")]
    known = {*variables.READ, *variables.SET, *(one.variable for one in KEYS)}
    assert {name for text in source for name in re.findall(r"(?<![A-Z_])MGPU_[A-Z_]*[A-Z]\b", text)} - known == set()
    used = " ".join(source)
    assert [name for name in (*variables.READ, *variables.SET) if name not in used] == []


def test_the_table_of_exit_codes_is_that_of_the_source() -> None:
    page = (DOCS / "exit-codes.md").read_text("utf-8")
    rows = {code for line in re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE) for code in line.split(", ")}
    codes = {value for name, value in vars(errors).items() if name.isupper() and not name.startswith("_")}
    assert rows == {str(code) for code in codes}


def test_the_hooks_need_nothing_but_mkdocs() -> None:
    """The site is built where only mkdocs-material is installed: no typer, torch or rich."""
    code = (
        "import sys; import docs.generate as g; g.pages(); print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"typer", "rich", "torch", "accelerate", "questionary", "psutil"} & set(done.stdout.split())

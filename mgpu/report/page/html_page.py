"""A case as one HTML page: the verdict and the first thing to do in the first screenful, then everything to judge it.

The page loads nothing and needs no script. Its only script adds buttons that copy a command; the page's policy permits
exactly this script, so that no text of a log could ever run as one.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from mgpu.report.page import finding_cards, machine_sections, page_style, run_sections
from mgpu.report.page.markup import Html, Part, element
from mgpu.version import __version__

if TYPE_CHECKING:
    from mgpu.report.case.case_json import CaseDocument

_COPY = (
    "document.querySelectorAll('pre.command').forEach(function(p){var t=p.textContent,"
    "b=document.createElement('button');b.type='button';b.textContent='Copy';b.onclick=function(){"
    "navigator.clipboard.writeText(t).then(function(){b.textContent='Copied'})};"
    "if(navigator.clipboard)p.appendChild(b)})"
)
_KINDS = {"machine": "Machine report", "run": "Run report", "smoke_test": "Smoke test report", "files": "Report"}


def text(case: CaseDocument) -> str:
    """Return the page. Secrets are masked, and every text is escaped."""
    title = f"{case['headline']['word']}: {_KINDS[case['kind']]}"
    style = page_style.css()
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(_COPY)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content=f"mgpu {__version__}"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        Html(f"<style>{style}</style>"),
    )
    sections = _sections(case)
    body = element(
        "body",
        _top(case, sections),
        element("main", *(_section(key, name, part) for key, name, part in sections)),
        _foot(case),
        Html(f"<script>{_COPY}</script>"),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _sections(case: CaseDocument) -> list[tuple[str, str, Html]]:
    """Return the sections that have content: their anchor, title and content."""
    found = (
        ("findings", "Findings", finding_cards.cards(case)),
        ("run", "Run", run_sections.run(case)),
        ("log", "Log", run_sections.log(case)),
        ("machine", "Machine", machine_sections.machine(case)),
        ("smoke-test", "Smoke test", machine_sections.smoke_test(case)),
        ("config", "Config", machine_sections.config(case)),
        ("versions", "Versions", machine_sections.versions(case)),
        ("checks", "All checks", machine_sections.checks(case)),
    )
    return [one for one in found if one[2]]


def _section(key: str, name: str, part: Html) -> Html:
    return element("section", element("h2", name), part, id=key)


def _top(case: CaseDocument, sections: list[tuple[str, str, Html]]) -> Html:
    headline, host = case["headline"], case["host"]
    where = " · ".join(filter(None, [host["name"], host["os"], host["container"]]))
    when = (case["time"] or "").replace("T", " ").replace("Z", "")[:16]
    brand: list[Part] = [
        element("b", "mgpu"),
        element("span", _KINDS[case["kind"]]),
        element("span", where) if where else None,
        element("span", f"{when} UTC") if when else None,
        element("span", "names and addresses replaced") if host["redacted"] else element("span", "not redacted"),
    ]
    verdict = element(
        "div",
        element("span", headline["word"], class_="word"),
        element("p", headline["text"], class_="text"),
        finding_cards.first(case),
        class_=f"verdict light-{headline['light']}",
    )
    links = [element("a", name, href=f"#{key}") for key, name, _ in sections]
    return element("header", element("div", *brand, class_="brand"), verdict, element("nav", *links), class_="top")


def _foot(case: CaseDocument) -> Html:
    masked = (
        "Host and user names, addresses, home folders, UUIDs and process IDs are replaced by substitutes; "
        if case["host"]["redacted"]
        else "Host and user names, addresses and paths are shown as they are; "
    )
    lines = (
        f"Written by mgpu {case['mgpu']}. {masked}passwords, tokens and keys that mgpu recognizes are shown as ***. "
        "Lines of your program's output can contain other private text: read them before you send this page.",
        "The page loads nothing from the network."
        + (
            " A command that names a GPU has its substitute: on the machine, mgpu doctor shows it with the real name."
            if case["host"]["redacted"]
            else ""
        ),
    )
    return element("footer", element("div", *(element("p", line) for line in lines)))

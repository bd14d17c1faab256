"""What MkDocs does besides rendering: adds this folder's pages and the generated ones, and writes llms.txt.

MkDocs wants its pages in a folder below the one of its configuration. The pages are beside it instead, where their
links also work in the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

HERE = Path(__file__).resolve().parent
PICTURES = "tests/screens/"
_texts: dict[str, str] = {}  # of the pages in the navigation, as they are rendered


def on_startup(**_: Any) -> None:
    """Let mgpu be imported from this source tree, also where it is not installed."""
    sys.path.insert(0, str(HERE.parent))


def on_config(config: Any) -> Any:
    """Add the pages that `nav` does not name to the guides, so that every page can be found."""
    named = str(config["nav"])
    (guides,) = (part["Guides"] for part in config["nav"] if "Guides" in part)
    guides += [path.name for path in sorted(HERE.glob("*.md")) if f"'{path.name}'" not in named]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of this folder, the pictures and the generated pages."""
    from docs.generate import pages

    for path in sorted(HERE.glob("*.md")):
        files.append(_copied(path, path.name, config))
    for path in sorted((HERE / "packaging").iterdir()):
        files.append(_copied(path, f"packaging/{path.name}", config))
    for path in sorted((HERE.parent / PICTURES).glob("*.svg")):
        files.append(_copied(path, f"screens/{path.name}", config))
    for name, text in pages().items():
        added = File.generated(config, name, content=text)
        if name.startswith("checks/") and name != "checks/index.md":
            added.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(added)
    return files


def _copied(path: Path, name: str, config: Any) -> File:
    return File.generated(config, name, content=path.read_bytes())


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Find the pictures where the site has them."""
    text = markdown.replace(f"](../{PICTURES}", "](screens/")
    if not page.file.src_uri.startswith(("checks/", "reference/")):  # guides come before 1,600 pages of checks
        page.meta.setdefault("search", {"boost": 6})
    _texts[page.file.src_uri] = text
    return text


def on_nav(nav: Any, **_: Any) -> Any:
    """Keep the navigation for llms.txt."""
    global _nav
    _nav = nav
    return nav


_nav: Any = None


def on_post_build(config: Any) -> None:
    """Write llms.txt and llms-full.txt."""
    from docs.generate import for_models

    sections: dict[str, list[for_models.Page]] = {}
    for page in _nav.pages:
        above = [one.title for one in page.ancestors]
        text = f'---\ndescription: "{page.meta["description"]}"\n---\n' if "description" in page.meta else ""
        entry = (page.title, page.canonical_url, text + _texts[page.file.src_uri])
        sections.setdefault(above[-1] if above else "mgpu", []).append(entry)
    for name, text in (("llms.txt", for_models.index(sections)), ("llms-full.txt", for_models.full(sections))):
        (Path(config["site_dir"]) / name).write_text(text, "utf-8")

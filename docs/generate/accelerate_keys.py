"""Which keys of accelerate's config does mgpu know, from the tables that `configure --validate` uses."""

from __future__ import annotations

import importlib

from docs.generate.markup import code, front, plain, table

_HEAD = """\
# Keys of accelerate's config

`mgpu configure --validate` knows these keys. accelerate itself accepts any key inside a section and any value until a
rank reads it. The tables follow accelerate 1.15; a test of mgpu compares them with the installed accelerate.

"""
_KINDS = {
    "flag": "true or false", "truth": "true; anything else counts as false", "integer": "integer", "count": "integer",
    "number": "number", "choice": "one of", "text": "text", "triple": "list of three true or false",
}  # fmt: skip


def page() -> str:
    """Return the page with the top-level keys and those of each section."""
    importlib.import_module("mgpu.engine").load()
    keys = importlib.import_module("mgpu.checks.config.keys")
    schema = importlib.import_module("mgpu.checks.config._schema")
    parts = [front("accelerate's config", "The keys of accelerate's config files that mgpu checks."), _HEAD]
    parts += ["## Top level\n", ", ".join(code(key) for key in keys.TOP_KEYS) + "\n"]
    for section in schema.SECTIONS:
        used = f"Read by {', '.join(code(one) for one in section.types)}.\n" if section.types else ""
        rows = [(code(name), _values(key)) for name, key in section.keys.items()]
        parts += [f"## {section.name}\n", used, table(("Key", "Value"), rows)]
        renamed = [(code(old), f"write {code(new)}") for old, new in section.renamed.items()]
        unread = [(code(name), f"never read: {plain(why)}") for name, why in section.unread.items()]
        if renamed or unread:
            parts += ["Other names that are found in files:\n", table(("Key", ""), [*renamed, *unread])]
    return "\n".join(parts)


def _values(key: object) -> str:
    kind, choices = _KINDS[key.kind], key.choices  # type: ignore[attr-defined]
    least, most = key.least, key.most  # type: ignore[attr-defined]
    limits = f", {least} to {most}" if least is not None and most is not None else ""
    null = ", or null" if key.null else ""  # type: ignore[attr-defined]
    return f"{kind}{' ' if choices else ''}{', '.join(map(code, choices))}{limits}{null}"

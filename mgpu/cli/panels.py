"""A command whose help has its options in groups."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class Panels(TyperCommand):
    """Each option stands under its `rich_help_panel`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(option, "rich_help_panel", None) or "Other", []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)

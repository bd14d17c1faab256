"""The pages of the documentation that are made from mgpu's own tables when the site is built.

`docs/hooks.py` adds them to the hand-written ones. They are not in the repository.
"""

from __future__ import annotations

from docs.generate import accelerate_keys, answers, check_pages, commands, from_repository, json_schemas, variables


def pages() -> dict[str, str]:
    """Return every generated page or file: its path below the site's root, and its text."""
    return {
        **commands.pages(),
        "reference/answers.md": answers.page(),
        "reference/accelerate-keys.md": accelerate_keys.page(),
        "reference/environment.md": variables.page(),
        **json_schemas.pages(),
        **check_pages.pages(),
        **from_repository.pages(),
    }

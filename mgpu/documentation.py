"""Where is mgpu's documentation on the web? `docs/mkdocs.yml` builds it for this address."""

from __future__ import annotations

from typing import Final

SITE: Final = "https://mgpu-doctor.readthedocs.io/en/latest/"  # a test compares it with site_url


def check_url(check_id: str) -> str:
    """Return the address of the page about one check."""
    return f"{SITE}checks/{check_id}/"

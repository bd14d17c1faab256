"""Where is mgpu's documentation on the web? `docs/mkdocs.yml` builds it for this address."""

from __future__ import annotations

from typing import Final

SITE: Final = "https://mgpu-doctor.readthedocs.io/en/latest/"  # a test compares it with site_url
# Set by the first release, when the address is ours: before, no one is sent to a page that is not there.
PUBLISHED = False


def check_url(check_id: str) -> str:
    """Return the address of the page about one check, in the site."""
    return f"{SITE}checks/{check_id}/"


def published_page(check_id: str) -> str | None:
    """Return the address of the page about one check; None while the site is not published."""
    return check_url(check_id) if PUBLISHED else None

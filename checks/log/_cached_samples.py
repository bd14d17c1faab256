"""Did samples that lack a key come from a cache, which an older version of the code can have written?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.snapshot import Log, UncaughtException

from ._messages import short_name
from ._own_objects import Meaning

_QUOTED = 100  # characters


def of_cached_samples(log: Log, one: UncaughtException, meant: Meaning | None) -> Meaning | None:
    """Return the meaning of an exception; that of a key that samples lack has what the log shows of their cache."""
    if meant is None or meant.of_code or short_name(one.type) != "KeyError":
        return meant
    shown = next((each for each in log.shows if each.name == "samples_from_cache"), None)
    if shown is None or shown.file != one.file or shown.line > one.line:
        return meant
    return meant._replace(
        why=f"{meant.why} Line {shown.line:,} of the log shows that prepared data from a cache is used "
        f'("{" ".join(shown.text.split())[:_QUOTED]}"): a cache that was written before the code made '
        f"{one.message} does not have it.",
        fixes=(
            *meant.fixes,
            Fix("If the code makes the key now, build the cache again: move it away, or set the option for it."),
        ),
    )

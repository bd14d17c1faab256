"""Which values in a config are secrets?"""

from __future__ import annotations

from mgpu.secrets_masking import secrets_of
from mgpu.snapshot import Snapshot


def known_secrets(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the config values whose keys name secrets. Messages may quote such a value without its key."""
    config = snapshot.config
    trees = [file.values for file in snapshot.deepspeed_json or ()]
    if config is not None:
        trees += [config.values, config.deepspeed_file.values if config.deepspeed_file else {}]
    if not trees:
        return ()
    return secrets_of([*trees])

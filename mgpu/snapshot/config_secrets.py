"""Which values in a config are secrets? A message may quote one without its key."""

from __future__ import annotations

from mgpu.secrets_masking import secrets_of
from mgpu.snapshot import Snapshot


def known_secrets(snapshot: Snapshot) -> tuple[str, ...]:
    """The values in the config whose key says that they are secrets: a message may quote one without its key."""
    config = snapshot.config
    if config is None:
        return ()
    trees = [config.values, config.deepspeed_file.values if config.deepspeed_file else {}]
    return secrets_of([*trees])

"""Read a machine that `mgpu doctor --save` wrote."""

from __future__ import annotations

import errno
from pathlib import Path

from mgpu import errors, file_reading
from mgpu.errors import MgpuError, reason
from mgpu.snapshot import BadSnapshot, Snapshot, loads

_LARGEST_FILE = 8 << 20  # bytes; a machine of 16 GPUs is saved in 0.2 MiB


def read_snapshot(path: Path) -> Snapshot:
    """Return a machine saved by `mgpu doctor --save`, or the facts of a case.

    Raises MgpuError (usage) if it cannot be read.
    """
    from mgpu.report import case_archive
    from mgpu.snapshot.redaction import mask_secrets

    if case_archive.is_archive(path.name):
        return case_archive.read_facts(path)
    try:
        # Older versions of mgpu saved the secrets of a config.
        return mask_secrets(loads(file_reading.read(path, most=_LARGEST_FILE).decode("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} is not a machine saved by mgpu doctor --save: it is not text"
        if isinstance(error, OSError):
            message = f"cannot read {path}: {error.strerror or reason(error)}"
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            message = f"{path} is larger than any saved machine ({_LARGEST_FILE >> 20} MiB)"
        raise MgpuError(message, errors.USAGE) from None
    except BadSnapshot as error:
        raise MgpuError(f"{path} is not a machine saved by mgpu doctor --save: {error}", errors.USAGE) from None

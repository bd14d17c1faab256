"""How full are the file systems of a run that failed because one was full?"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from mgpu import probes
from mgpu.launch import output_folders
from mgpu.snapshot import Log, Run, Storage

_SIGNS = re.compile(r"No space left|PytorchStreamWriter failed|Not enough free disk space|iostream error|\[Errno 122\]")
# Python's message of an OSError ends with the file: "[Errno 28] No space left on device: '/data/model.pt'".
_FILE = re.compile(r"No space left on device: '([^']+)'")


def read_storage(log: Log | None, run: Run, arguments: Sequence[str]) -> Storage | None:
    """Return the folders of a failed run as they are now; None if nothing shows that one of their disks was full.

    `arguments`: the script's own, which may name its output folder.
    """
    texts = [*(one.text for one in log.seen), *(one.message for one in log.raised)] if log else []
    signs = [text for text in texts if _SIGNS.search(text)]
    if not signs and not run.log_full:
        return None
    files = [found[1] for text in signs for found in _FILE.finditer(text)]
    folders = [*(os.path.dirname(os.path.abspath(file)) for file in files), *output_folders.folders(arguments)]
    folders += [run.log] if run.log else []
    wanted = replace(probes.STORAGE, arguments={"outputs": list(dict.fromkeys(folders))})
    child = probes.run([wanted])[0]
    return probes.build(child.found, probes.gaps_of(child)).storage

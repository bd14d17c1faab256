"""The lines of a job script that give each rank the recorder, and let each node watch its ranks for hangs.

Like the pre-flight's, they go into any POSIX shell script, with or without `set -eu`, and a failure in them does not
affect the training: the watch is a step of its own that shares the nodes' resources (--overlap).
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from mgpu.job_files.job import Watch
from mgpu.process.command import MARK

BEGIN: Final = "# >>> mgpu: record what the ranks do, to name the one that hangs (omit with MGPU_RECORDER=0)"
END: Final = "# <<< mgpu"
FOLDER: Final = "watch-"  # and the job's number: what the nodes report, in the folder of the run
# Of each node, outside of shared storage: the ranks update counters there many times a second.
LOCAL: Final = "/tmp/mgpu-$(id -u)-$SLURM_JOB_ID-%N/recorder"
INJECTED: Final = Path(__file__).resolve().parent.parent / "recorder" / "inject"


def lines(watch: Watch, logs: str) -> list[str]:
    """Return the block. `logs`: the folder of the run."""
    options = f"{watch.hang_after_s:g} {'stop' if watch.stops else 'report'}"
    folder = f'{shlex.quote(logs)}/"{FOLDER}$SLURM_JOB_ID"'
    # In an allocation, the watch is not one of the run's processes.
    start = f"{MARK}= PYTHONSAFEPATH=1 {shlex.quote(watch.python)} -m mgpu.slurm.job_watch {folder} {options}"
    return [
        BEGIN,
        'if [ "${MGPU_RECORDER:-1}" != 0 ]; then',
        "    # In the background, and no child of this shell, whose `wait` must not wait for it.",
        f'    ({start} $$ "$(readlink "/proc/$$/fd/1")" </dev/null >/dev/null 2>&1 &)',
        f'    export MGPU_RECORDER="{LOCAL}"  # the ranks replace %N by the name of their node',
        f"    export PYTHONPATH={shlex.quote(str(INJECTED))}${{PYTHONPATH:+:$PYTHONPATH}}",
        "fi",
        END,
    ]

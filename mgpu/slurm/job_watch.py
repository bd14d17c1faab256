"""Start the watch of a job's ranks: one step with one process per node (node_watch.py). Runs in the job script.

The messages of srun go to FOLDER/watch.log. The step shares the resources of the others (--overlap), and Slurm ends it
with the job. A step that was killed is started again: what the ranks record on the nodes is removed by the watch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from mgpu.errors import MgpuError
from mgpu.fleet import allocation, srun_workers
from mgpu.process import interpreter

LOG = "watch.log"
_STARTS = 3
_KILLED = 128 + signal.SIGKILL  # srun's exit code
# The end of a short job must not kill the watch before it can remove what the ranks have recorded.
_BOOT = (
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "
    "sys.path.append(sys.argv.pop(1)); from mgpu.slurm.node_watch import main; main()"
)


def main() -> None:
    """Run the step.

    Arguments: the folder, seconds until the ranks are asked, report or stop, the PID of the script, its output.
    """
    folder, after_s, on_hang, script, output = sys.argv[1:]
    # A signal to the script's group is not for the watch: at SIGTERM, srun kills its step, which then removes nothing.
    with contextlib.suppress(PermissionError):
        os.setsid()
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    log = os.open(Path(folder) / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (1, 2):
        os.dup2(log, number)
    if os.environ.get("PYTHONSAFEPATH") == "1":  # the job script's, for this process
        del os.environ["PYTHONSAFEPATH"]
    try:
        job = allocation.allocation(os.environ)
    except MgpuError as error:
        sys.exit(error.message)
    program = [sys.executable, "-c", interpreter.text_on_nodes(_BOOT), str(Path(__file__).resolve().parents[2])]
    step = srun_workers.step(job, job.nodes, "mgpu-watch", "--input=none", "--quiet")
    environ = srun_workers.environment(os.environ)
    command = [*step, *program, str(Path(folder).absolute()), after_s, on_hang, output]
    for _ in range(_STARTS):
        code = subprocess.call(command, env=interpreter.on_nodes(environ))
        if code != _KILLED or not os.path.exists(f"/proc/{script}"):
            break
    sys.exit(code)


if __name__ == "__main__":
    main()

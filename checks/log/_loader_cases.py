"""How did a DataLoader worker end: did it crash, was it killed, asked to end, or ended with its terminal?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import line_of

_DIED = "log_loader_worker_died"
_SIGNALS = "https://man7.org/linux/man-pages/man7/signal.7.html"
_FAULTS = "https://docs.python.org/3/library/faulthandler.html"
_HANDLER = "https://github.com/pytorch/pytorch/blob/main/torch/utils/data/_utils/signal_handling.py"

NOT_STARTED = (
    "Its DataLoader worker ended while it was being started. Its own error is in another traceback or the terminal: "
    "on Windows and macOS it imports the script again, and fails without if __name__ == '__main__':."
)
# fmt: off
_CRASH_FIXES = (
    Fix("Find the sample: load in the main process, and let Python print where it is when it crashes.",
        ("DataLoader(..., num_workers=0)", "python -X faulthandler train.py")),
    Fix("If it does not crash there, start the workers without a fork.",
        ("DataLoader(..., multiprocessing_context='spawn')",)),
    Fix("Update the libraries that read the samples.",
        ("pip list | grep -iE 'torchaudio|soundfile|torchcodec|torchvision|pillow|opencv|decord'",)),
)
_CRASH_WHY = (
    "It was not killed for memory, and raised no exception. Mostly a library crashed that decodes images, video or "
    "sound, or one whose threads do not survive the fork of the workers.")
WORKERS = (
    Case(line_of(_DIED, r"(?i)killed by signal: Segmentation fault|Unexpected segmentation fault"),
         "a DataLoader worker crashed with a segmentation fault", _CRASH_WHY, _CRASH_FIXES,
         "ERROR: Unexpected segmentation fault encountered in worker.\n"
         "RuntimeError: DataLoader worker (pid 7) is killed by signal: Segmentation fault. \n", _FAULTS),
    Case(line_of(_DIED, r"killed by signal: (?:Aborted|Illegal instruction|Floating point)|Unexpected floating-point"),
         "a DataLoader worker crashed in compiled code", _CRASH_WHY, _CRASH_FIXES,
         "RuntimeError: DataLoader worker (pid 7) is killed by signal: Aborted. \n", _FAULTS),
    Case(line_of(_DIED, r"killed by signal: Terminated"),
         "a DataLoader worker was asked to end (SIGTERM)",
         "It did not fail by itself. Slurm at the time limit or at preemption, a container that stops, a monitor of "
         "the node, or kill sends SIGTERM, mostly to all processes of a run.",
         Fix("Find out what sent it, and resume from the last checkpoint.",
             ("sacct -j JOBID --format=JobID,State,ExitCode", "journalctl --since -1h | tail")),
         "RuntimeError: DataLoader worker (pid 7) is killed by signal: Terminated. \n", _SIGNALS),
    Case(line_of(_DIED, r"killed by signal: Killed"),
         "a DataLoader worker was killed (SIGKILL): probably host memory ran out",
         "Each worker copies the data that it touches, so that memory grows with the workers. Without the kernel's "
         "report, a person or the scheduler can have killed it too.",
         (Fix("Check whether the kernel killed it, and whether the job has a memory limit.",
              ("sudo dmesg -T | grep -i 'killed process' | tail", "free -g",
               "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes")),
          Fix("Use fewer workers, and less memory in each.",
              ("DataLoader(..., num_workers=2, prefetch_factor=2)", "mgpu doctor --only cpus_leave_no_loader"))),
         "RuntimeError: DataLoader worker (pid 99) is killed by signal: Killed. \n", _HANDLER),
)
OF_WORKERS = Case(
    line_of("log_terminal_closed", r"DataLoader worker"),
    "the terminal or ssh session closed, which ended the DataLoader workers and so the run (SIGHUP)",
    "Programs that a terminal started get SIGHUP when it closes. A worker does not handle it and ends; its rank then "
    "stops with this exception. Neither memory nor the number of workers is the reason.",
    (Fix("Detach the run from the terminal.",
         ("mgpu launch --detach train.py", "tmux new -s train", "nohup setsid python train.py > train.log 2>&1 &")),
     Fix("On a cluster, submit it as a batch job.", ("sbatch JOB.sh",))),
    "RuntimeError: DataLoader worker (pid 9) is killed by signal: Hangup. \n", _SIGNALS)
# fmt: on

"""Was a rank killed, did it crash, did the kernel stop it, or does it wait in a debugger?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from .._kernel_line import KERNEL_LINE
from ._circumstances import every, said, stacked
from ._container_cases import LIBRARIES_OF_HOST
from ._file_call_cases import LOCK_TAKEN, NOT_READY
from ._loader_cases import OF_WORKERS
from ._stop_cases import (
    ENDED_WHILE_SAVING,
    ENDED_WITH_SESSION,
    INTERRUPTED_DOWNLOAD,
    INTERRUPTED_IN_SCRIPT,
    INTERRUPTED_ON_CPU,
    INTERRUPTED_WHILE_LOADING,
    SPAWNED_IN_SLURM,
    SPAWNED_STOPPED_BY,
    STOPPED,
    STOPPED_BY,
)

_ELASTIC = "https://pytorch.org/docs/stable/elastic/errors.html"
_SIGNALS = "https://man7.org/linux/man-pages/man7/signal.7.html"
_FAULTS = "https://docs.python.org/3/library/faulthandler.html"


def _exit_code(signal: int) -> str:
    """Return a pattern for a launcher's report of a process that a signal ended: as -N, or as a shell's 128 + N."""
    ended = r"\b(?:crashed|exited|failed|terminated|finished|ended) with (?:exit )?(?:code|status)"
    return rf"{ended}[ :=]{{1,3}}(?:-{signal}|{128 + signal})\b"


def _job(signal: str) -> str:
    """Return a pattern for the shell's own report: bash pads what the signal did before it adds the command."""
    bash = rf"^(?:\S+: line \d+:\s+\d+ )?{signal}(?:\s*\(core dumped\)|\s{{2,}}\S|\s*$)"
    return rf"{bash}|^zsh: {signal.lower()}\b"


# fmt: off
_LOADED_EXTENSION = Case(
    every(said("Fatal Python error: Aborted"), stacked(r"^load_library \(_ops\.py:")),
    "Python aborted (SIGABRT) while it loaded a compiled extension of torch",
    "The stack ends in torch.ops.load_library(): the frame just below it is the package that loads its extension. Code "
    "that runs when the library is loaded stopped the process. Mostly the extension was compiled for another torch, "
    "or two copies of it register the same operators (a build in a source folder and an installed one).",
    (Fix("See whether importing it alone aborts, with the reason that it prints.",
         ("python -X faulthandler -c 'import PACKAGE'", "pip list | grep -iE '^(torch|PACKAGE)'")),
     Fix("Install the release of that package for this torch. If it is a source folder, compile it again for this "
         "torch.", ("pip install --upgrade PACKAGE", "pip install --no-build-isolation -e ."))),
    'Fatal Python error: Aborted\n\nCurrent thread 0x00007fcf650a3440 (most recent call first):\n'
    '  File "/x/lib/python3.11/ctypes/__init__.py", line 390 in __init__\n'
    '  File "/x/site-packages/torch/_ops.py", line 1487 in load_library\n'
    '  File "/x/site-packages/extension/__init__.py", line 31 in <module>\n',
    "https://docs.pytorch.org/docs/stable/library.html#torch.ops.load_library")
ROWS = (
    Row("log_ucx_shared_memory_full", "root", "kernel",
        r"\bmm_iface failed to allocate receive FIFO", ("mm_iface failed to allocate receive FIFO",),
        "UCX, the transport of MPI, got no shared memory: /dev/shm is probably too small",
        "Docker and Kubernetes give a container 64 MB. Each local rank of MPI needs some of it; a crash (SIGSEGV) can "
        "follow.",
        Fix("Give the container more shared memory.",
            ("docker run --shm-size=8g ...", "mgpu doctor --only shm_too_small")),
        "https://github.com/openucx/ucx/pull/11683"),
    Row("log_rank_segfault", "root", "kernel",
        r"exitcode\s*:? ?-11\b|Signal 11 \(SIGSEGV\)|Fatal Python error: Segmentation fault|"
        r"Segmentation fault \(core dumped\)|" + _job("Segmentation fault") +
        r"|died with <Signals\.SIGSEGV|terminated (?:with|by) signal SIGSEGV|"
        r"Caught signal 11 \(Segmentation fault|exits with return code = -11\b|exited on signal 11\b|"
        r"\*\*\* SIGSEGV received at time|Signal: Segmentation fault \(11\)|" + _exit_code(11),
        ("  exitcode  : -11 (pid: 25789)  (SIGSEGV)", "Signal 11 (SIGSEGV) received by PID 25789",
         "*** SIGSEGV received at time=1734086759 on cpu 3 ***",
         "[n1:02744] Signal: Segmentation fault (11)", "Rank 2 crashed with exit code -11.",
         "[ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', 'train.py'] exits with return code = -11",
         "Fatal Python error: Segmentation fault", "srun: error: n1: task 2: Segmentation fault (core dumped)",
         "/bin/bash: line 1: 12 Segmentation fault (core dumped) python t.py", "Segmentation fault",
         "run.sh: line 9: 4711 Segmentation fault      (core dumped) python train.py",
         "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGSEGV",
         "[node7:4711 :0:4711] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))"),
        "a rank crashed inside compiled code (SIGSEGV)",
        "A library accessed invalid memory: an extension built for another torch, two copies of one library, or a "
        "stack limit. There is no Python traceback unless faulthandler is on.",
        (Fix("Show the Python line where it happened.", ("PYTHONFAULTHANDLER=1 mgpu launch train.py",)),
         Fix("Check whether the libraries are compatible.",
             ("mgpu doctor --only libraries", "mgpu doctor --only extension_does_not_load",
              "mgpu doctor --only nccl_stack_unlimited"))),
        _FAULTS, exit_code=-11, tags=("last_line",),
        because_of=("log_mpi_not_initialized", "log_nccl_out_of_memory", "log_gpu_memory_full",
                    "log_gpu_memory_taken"), cases=(LIBRARIES_OF_HOST,)),
    Row("log_rank_bus_error", "root", "kernel",
        r"exitcode\s*:? ?-7\b|Signal 7 \(SIGBUS\)|Fatal Python error: Bus error|Bus error \(core dumped\)|"
        r"died with <Signals\.SIGBUS|terminated with signal SIGBUS|Caught signal 7 \(Bus error|"
        r"exits with return code = -7\b|exited on signal 7\b|\btasks? [\d,-]+: Bus error|^(?:\S+: line \d+:\s+\d+ "
        r")?Bus error(?:\b(?! \w)|: )|Signal: Bus error \(7\)|" + _exit_code(7),
        ("  exitcode  : -7 (pid: 25800)  (SIGBUS)", "Signal 7 (SIGBUS) received by PID 25800",
         "Fatal Python error: Bus error", "Bus error (core dumped)", "[n1:02744] Signal: Bus error (7)",
         "ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.",
         "[node7:81 :0:81] Caught signal 7 (Bus error: nonexistent physical address)",
         "run.sh: line 7: 4711 Bus error   python train.py", "Bus error: nonexistent physical address with signal 7"),
        "a rank accessed a mapped page that no longer exists (SIGBUS): /dev/shm is full, or a file was truncated",
        "NCCL and loader workers keep memory in /dev/shm. If it is full, a write to it kills the process at once.",
        (Fix("Give the container more shared memory.",
             ("df -h /dev/shm", "docker run --ipc=host ...", "mgpu doctor --only shm_too_small")),
         Fix("If space is left: a memory-mapped data file or checkpoint shrank, or its file server disappeared.",
             ("mgpu doctor --only storage",))),
        "https://github.com/pytorch/pytorch/issues/5040", exit_code=-7),
    Row("log_rank_aborted", "secondary", "kernel",
        r"exitcode\s*:? ?-6\b|Signal 6 \(SIGABRT\)|Fatal Python error: Aborted|"
        r"^(?!srun: error).*Aborted \(core dumped\)|" + _job("Aborted") + r"|"
        r"died with <Signals\.SIGABRT|terminated with signal SIGABRT|exits with return code = -6\b|"
        r"exited on signal 6\b|\*\*\* SIGABRT received at time|__cxxabiv1::__terminate\(\)|"
        r"Signal: Aborted \(6\)|" + _exit_code(6),
        ("  exitcode  : -6 (pid: 25842)  (SIGABRT)", "Signal 6 (SIGABRT) received by PID 25842",
         "*** SIGABRT received at time=1734086759 on cpu 3 ***",
         "/lib/libstdc++.so.6(+0xb135a) [0x14e6918f435a] __cxxabiv1::__terminate()",
         "run.sh: line 9: 4711 Aborted                 (core dumped) python train.py",
         "Fatal Python error: Aborted", "Aborted (core dumped)", "[n1:02744] Signal: Aborted (6)",
         "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGABRT"),
        "a rank aborted (SIGABRT), usually through NCCL's watchdog or a C++ exception",
        "The library that called abort() printed the reason just before, in the last lines of that rank.",
        Fix("Read that rank's own log just above the abort.", ("mgpu launch --log-dir runs train.py",)), _ELASTIC,
        because_of=("log_collective_timed_out", "log_watchdog_stuck", "log_desynchronised"),
        exit_code=-6, tags=("last_line",), cases=(_LOADED_EXTENSION,)),
    Row("log_illegal_instruction", "root", "kernel",
        r"exitcode\s*:? ?-4\b|Signal 4 \(SIGILL\)|Illegal instruction \(core dumped\)|"
        + _job("Illegal instruction") + r"|"
        r"Fatal Python error: Illegal instruction|died with <Signals\.SIGILL|Signal: Illegal instruction \(4\)|"
        + _exit_code(4),
        ("  exitcode  : -4 (pid: 11)  (SIGILL)", "Signal 4 (SIGILL) received by PID 11",
         "Illegal instruction (core dumped)", "Fatal Python error: Illegal instruction"),
        "a library uses instructions that this CPU does not have (SIGILL)",
        "An extension was compiled on a newer CPU (AVX-512, -march=native), often in a shared environment, or a wheel "
        "needs more than this CPU has: old CPUs and emulated ones (QEMU, Rosetta) lack AVX, which TensorFlow needs.",
        (Fix("Find which library it is, and what the CPU has.",
             ("PYTHONFAULTHANDLER=1 python train.py", "lscpu | grep -i flags")),
         Fix("Rebuild an extension on this node, and delete what was compiled on another node.",
             ("rm -rf ~/.cache/torch_extensions",))), _SIGNALS, exit_code=-4),
    Row("log_rank_floating_point_signal", "root", "kernel", r"exitcode\s*:? ?-8\b|Signal 8 \(SIGFPE\)|"
        r"Floating point exception \(core dumped\)|" + _job("Floating point exception") +
        r"|Signal: Floating point exception \(8\)|" + _exit_code(8),
        ("  exitcode  : -8 (pid: 11)  (SIGFPE)", "Signal 8 (SIGFPE) received by PID 11",
         "Floating point exception (core dumped)"),
        "a library divided an integer by zero (SIGFPE)",
        "Compiled code got a size of zero: an empty batch or tensor, or a library that miscounts devices.",
        Fix("Show the Python line where it happened.", ("PYTHONFAULTHANDLER=1 mgpu launch train.py",)), _SIGNALS,
        exit_code=-8),
    Row("log_rank_user_signal", "root", "kernel",
        r"exitcode\s*:? ?-1[02]\b|Signal 1[02] \(SIGUSR[12]\)|User defined signal [12]",
        ("  exitcode  : -10 (pid: 11)  (SIGUSR1)", "Signal 12 (SIGUSR2) received by PID 11", "User defined signal 1"),
        "a rank was killed by SIGUSR1 or SIGUSR2, which it does not handle",
        "Slurm's --signal sends one before the time limit. A program without a handler exits.",
        Fix("Handle the signal in the script (save and exit), or have Slurm send it to the batch shell only.",
            ("sbatch --signal=B:USR1@300 ...",)), "https://slurm.schedmd.com/sbatch.html"),
    Row("log_heap_corrupted", "root", "kernel",
        r"double free or corruption|free\(\): invalid |malloc\(\): |corrupted size vs\. prev_size|munmap_chunk\(\): "
        r"invalid pointer|stack smashing detected",
        ("double free or corruption (!prev)", "free(): invalid pointer", "malloc(): corrupted top size",
         "corrupted size vs. prev_size", "munmap_chunk(): invalid pointer",
         "*** stack smashing detected ***: terminated"),
        "compiled code corrupted the memory of its process",
        "glibc found its heap or stack overwritten and aborted the process: a library bug, or two versions of one "
        "library in a process. The line that detected it is rarely the cause.",
        (Fix("Check whether the libraries are compatible.", ("mgpu doctor --only libraries",)),
         Fix("Try without a preloaded allocator.", ("env -u LD_PRELOAD mgpu launch train.py",))), _FAULTS),
    Row("log_terminal_closed", "root", "kernel",
        r"got signal: 1\b|closing signal SIGHUP|exitcode\s*:? ?-1 .*\(SIGHUP\)|Signal 1 \(SIGHUP\)|"
        r"Received (?:1|Signals\.SIGHUP) death signal|DataLoader worker .{1,60} is killed by signal: Hangup|"
        + _job("Hangup"),
        ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 26993 got signal: 1",
         "W1121 10:00:00.000 4711 api.py:1010] Sending process 27001 closing signal SIGHUP",
         "W1121 10:00:00.000 4711 api.py:725] Received 1 death signal, shutting down workers",
         "Signal 1 (SIGHUP) received by PID 4711", "Hangup",
         "RuntimeError: DataLoader worker (pid 9) is killed by signal: Hangup. ",
         "/w/run.sh: line 114: 1508441 Hangup                  \"${CMD[@]}\" 2>&1"),
        "the terminal or ssh session closed, which stopped the run (SIGHUP)",
        "Programs that a terminal started get SIGHUP when it closes. torchrun and accelerate launch handle it "
        "themselves, so nohup does not protect them.",
        Fix("Detach the run from the terminal.", ("mgpu launch --detach train.py", "tmux new -s train")),
        "https://github.com/pytorch/pytorch/issues/67538", effect_of="stop",
        cases=(ENDED_WHILE_SAVING, ENDED_WITH_SESSION, OF_WORKERS)),
    Row("log_interrupted", "root", "scheduler", r"got signal: 2\b|closing signal SIGINT|^KeyboardInterrupt\b|"
        r"^\w+Error: KeyboardInterrupt:?(?: <EMPTY MESSAGE>)? ?$|"
        r"^forrtl: error \(200\): program aborting due to control-(?:C|BREAK) event|"
        r"Keyboard interruption\. Exiting|Detected KeyboardInterrupt, attempting graceful shutdown|"
        r"Main process received SIGINT, exiting|"
        r"(?<!if )(?<!if the )\b(?i:(?:training|run|execution|process|program|script|evaluation|generation)"
        r"(?: was| has been)?|^\W*) ?"
        r"(?i:interrupted by (?:the )?(?:user|keyboard))\b|"
        r"\b(?i:received (?:a )?(?:keyboard ?interrupt|ctrl[-+ ]?c|sigint)|(?:keyboard ?interrupt|ctrl[-+ ]?c|sigint) "
        r"(?:was )?(?:received|detected|caught|pressed))\b",
        ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 2",
         "W1121 10:00:00.000 4711 api.py:1010] Sending process 27001 closing signal SIGINT", "KeyboardInterrupt",
         "RuntimeError: KeyboardInterrupt: ", "RuntimeError: KeyboardInterrupt: <EMPTY MESSAGE>",
         "LOGS   - Keyboard interruption. Exiting from early training",
         "UserWarning: Detected KeyboardInterrupt, attempting graceful shutdown...",
         "[launch.py:328:sigkill_handler] Main process received SIGINT, exiting", "KeyboardInterrupt received, saving",
         "2025-06-24 14:08:01 - INFO - Training interrupted by user", "Interrupted by user.",
         "forrtl: error (200): program aborting due to control-C event"),
        "the run was interrupted (Ctrl-C)",
        "A user, or a program that sends SIGINT, stopped it. What the ranks print afterwards is a consequence.",
        Fix("Start it again, or resume from the last checkpoint.", ("mgpu launch train.py",)), _ELASTIC,
        effect_of="stop", because_of=("log_batch_job_cancelled",),  # LSF sends SIGINT first
        cases=(INTERRUPTED_WHILE_LOADING, INTERRUPTED_DOWNLOAD, INTERRUPTED_IN_SCRIPT, INTERRUPTED_ON_CPU)),
    Row("log_asked_to_end", "secondary", "scheduler", r"got signal: 15\b|"
        r"Received (?:15|Signals\.SIGTERM) death signal|"
        r"Main process received SIGTERM, exiting|\*\*\* SIGTERM received at time=|^Terminated with signal 15$|"
        r"^\S+: line \d+:\s+\d+ Terminated(?:\s{2,}\S|\s*$)|^Terminated$",
        ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 15",
         "W1121 10:00:00.000 4711 api.py:1] Received 15 death signal, shutting down workers",
         "Received Signals.SIGTERM death signal, shutting down workers",
         "[launch.py:328:sigkill_handler] Main process received SIGTERM, exiting",
         "*** SIGTERM received at time=1755416551 on cpu 89 ***",
         "run.sh: line 9: 4711 Terminated              python train.py", "Terminated"),
        "the launcher or the program received SIGTERM",
        STOPPED_BY,
        Fix("Find out what sent it.", ("journalctl --since -1h | tail",)),
        _ELASTIC, effect_of="stop", cases=STOPPED),
    Row("log_spawned_rank_asked_to_end", "secondary", "scheduler",
        r"ProcessExitedException: (?P<process>process \d+) terminated with signal SIGTERM",
        ("torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGTERM",),
        "{process} received SIGTERM, which ended the run",
        SPAWNED_STOPPED_BY,
        Fix("Find out what sent it, and resume from the last checkpoint.", ("journalctl --since -1h | tail",)),
        "https://github.com/pytorch/pytorch/blob/main/torch/multiprocessing/spawn.py", effect_of="stop",
        cases=(SPAWNED_IN_SLURM,), summary="A rank of torch.multiprocessing.spawn received SIGTERM."),
    Row("log_process_hung_in_kernel", "secondary", "kernel",
        KERNEL_LINE + r"INFO: task (?P<task>\S+) blocked for more than (?P<seconds>\d+) seconds",
        ("INFO: task python:4711 blocked for more than 120 seconds.",),
        "{task} hung in the kernel for more than {seconds} s: a disk, a file server or a driver does not respond",
        "Such a process cannot even be killed. The other ranks wait for it until NCCL's watchdog stops the run.",
        Fix("Check what it waits for.", ("sudo dmesg -T | grep -A20 'blocked for more'",
                                         "mgpu doctor --only process_hung_in_kernel"), who="admin"),
        "https://docs.kernel.org/admin-guide/sysctl/kernel.html#hung-task-timeout-secs",
        summary="A process hung in the kernel for minutes."),
    Row("log_file_server_silent", "root", "kernel", KERNEL_LINE + r"nfs: server (?P<server>\S+) not responding",
        ("nfs: server fs1.cluster not responding, still trying", "nfs: server 10.0.0.4 not responding, timed out"),
        "the file server {server} did not respond",
        "Every process that accesses it hangs. The other ranks then stop with a timeout.",
        Fix("Check whether it responds again, and move training data to a local disk.",
            ("mgpu doctor --only nfs_server_silent", "df -hT"), who="admin"),
        "https://man7.org/linux/man-pages/man5/nfs.5.html", summary="A file server did not respond."),
    Row("log_machine_check", "root", "kernel", KERNEL_LINE +
        r"(?:mce: |\{\d+\}|EDAC \S+ )*(?:\[Hardware Error\]: |Machine check events logged)",
        ("mce: [Hardware Error]: Machine check events logged",
         "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0"),
        "the kernel reported a hardware fault of the node",
        "Host memory, the CPU or a PCIe device raised an error. Processes on this node can crash anywhere.",
        Fix("Read which part it names, and drain the node if it happens again.",
            ("sudo dmesg -T | grep -A8 'Hardware Error'", "mgpu doctor --only host_memory_faulty"), who="hardware"),
        "https://docs.kernel.org/arch/x86/x86_64/machinecheck.html"),
    Row("log_debugger_waits", "root", "script", r"^\(Pdb\+*\)(?!\s*c(?:ont(?:inue)?)?\s*$)|^ipdb> ?|\bbdb\.BdbQuit\b",
        ("(Pdb) ", "ipdb> ", "bdb.BdbQuit"),
        "a breakpoint in the code stopped the run in the debugger",
        "breakpoint() or pdb.set_trace() waits for a command. Without a terminal it gets none: the process waits, or "
        "the debugger ends it (BdbQuit). The other ranks wait in their next collective.",
        Fix("Remove it. Until then, a variable turns breakpoint() off.",
            ("grep -rnE --include='*.py' 'breakpoint\\(\\)|set_trace\\(' .", "export PYTHONBREAKPOINT=0")),
        "https://docs.python.org/3/library/pdb.html"),
    Row("log_thread_outlived_exit", "wrapper", "script", r"^terminate called without an active exception",
        ("terminate called without an active exception",),
        "the process ended while one of its C++ threads was still running, and aborted",
        "A rank that stops on an exception, or exits without destroy_process_group(), leaves threads of NCCL, the data "
        "loader or a profiler behind. The abort is a consequence: the rank's first error is further up.",
        Fix("Read the rank's first error. If the training had finished, end it in order.",
            ("torch.distributed.destroy_process_group()", "accelerator.end_training()")),
        "https://en.cppreference.com/w/cpp/thread/thread/~thread"),
    Row("log_processes_exhausted", "root", "kernel",
        r"can't start new thread|fork: (?:retry: )?Resource temporarily unavailable|"
        r"pthread_create (?:failed|call failed)|BlockingIOError: \[Errno 11\] Resource temporarily unavailable|"
        r"libgomp: Thread creation failed|OpenBLAS blas_thread_init: pthread_create|"
        r"thread: Resource temporarily unavailable \[|Thread creation failed: Resource temporarily|"
        r"(?:what\(\): +|system_error: )Resource temporarily unavailable|"
        r"OMP: System error #11: Resource temporarily unavailable",
        ("RuntimeError: can't start new thread", "bash: fork: retry: Resource temporarily unavailable",
         "OpenBLAS blas_thread_init: pthread_create failed for thread 63 of 64: Resource temporarily unavailable",
         "BlockingIOError: [Errno 11] Resource temporarily unavailable",
         "libgomp: Thread creation failed: Resource temporarily unavailable"),
        "this user or the container reached its limit on processes and threads",
        "The limit counts every thread: ranks x (loader workers x OpenMP threads) reach it quickly.",
        Fix("Check the limits, and use fewer threads and workers.",
            ("ulimit -u", "cat /sys/fs/cgroup/pids.max", "export OMP_NUM_THREADS=4",
             "mgpu doctor --only processes_limit_low")),
        "https://man7.org/linux/man-pages/man2/getrlimit.2.html", cases=(LOCK_TAKEN, NOT_READY)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)

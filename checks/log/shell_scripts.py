"""Were the lines of a job script cut, or did a command in it fail before the training?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import line_of
from .commands import IN_SHELL

_ESCAPE = "https://www.gnu.org/software/bash/manual/bash.html#Escape-Character"
_COREUTILS = "https://www.gnu.org/software/coreutils/manual/coreutils.html"
_LIBRARIES = "https://github.com/pytorch/pytorch/issues/44282"


def _after_steps(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the command failed after the last step of the training."""
    failed = next((one for one in log.seen if one.signature == "log_shell_file_not_made"), None)
    ends = [(one.file, one.last) for one in log.shows if one.name in ("training_finished", "loss_logged")]
    ends += [(log.last_step.file, log.last_step.line)] if log.last_step else []
    return failed is not None and any(file == failed.file and line < failed.line for file, line in ends)


# fmt: off
_AFTER_STEPS = Case(
    _after_steps,
    "a command of the job script failed after the steps of the training: {command}: {reason}",
    "The training wrote its steps before this line. The file does not exist under this path (the training did not "
    "write it, or wrote it elsewhere), or the folder is not there or belongs to another user.",
    (Fix("See which files the training wrote, and where.", ("ls -lat OUTPUT_FOLDER | head",)),),
    "step 100 loss 0.5\nstep 200 loss 0.4\ncp: cannot stat 'out/best.pt': No such file or directory\n", _COREUTILS)
_HDF5 = "https://docs.h5py.org/en/stable/high/file.html"
_LOCKS = (
    Case(line_of("log_file_locked", r"errno = (?:37|38|45|95|524)\b"),
         "HDF5 could not lock a file: its file system does not support locks",
         "HDF5 locks every file that it opens. Lustre, NFS, FUSE and some cluster file systems have no locks. No other "
         "process has the file: that would be errno 11 (35 on macOS).",
         (Fix("Turn the locks off, if only one process writes the file.",
              ("export HDF5_USE_FILE_LOCKING=FALSE", "h5py.File(path, 'r', locking=False)")),
          Fix("Or copy the file to a local disk.", ("df -hT FILE",))),
         "OSError: Unable to create file (unable to lock file, errno = 37, error message = 'No locks available')\n",
         _HDF5),
    Case(line_of("log_file_locked", r"errno = (?:11|35)\b"),
         "an HDF5 file is open in another process, which has it locked",
         "HDF5 locks every file that it opens: one that writes excludes all others. The other process can be a "
         "notebook whose kernel still runs, an earlier run, a viewer, another rank or a loader's worker.",
         (Fix("Find the process, and close the file there.", ("fuser -v FILE", "lsof FILE")),
          Fix("If all of them only read, open it so in each.", ("h5py.File(path, 'r')",))),
         "BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11, error message = 'Resource "
         "temporarily unavailable')\n", _HDF5),
)
ROWS = (
    Row("log_windows_line_ends", "root", "launcher",
        r"\$'\\r': command not found|\\r'?: (?:\[Errno 2\] )?No such file or directory|\^M: bad interpreter|"
        r"near unexpected token `?\$'(?:\w*\\r)'?|: invalid option\s?name(?:\r|$)|python3?\\r",
        ("run.sh: line 8: $'\\r': command not found", "/usr/bin/env: 'python\\r': No such file or directory",
         "bash: ./run.sh: /bin/bash^M: bad interpreter: No such file or directory"),
        "the job script, or a file that it starts, has the line ends of Windows",
        "Each line ends with a carriage return (\\r, ^M), which Linux takes as a part of what is before it: of a "
        "command, an "
        "option, a path or the interpreter's name. Editors and git on Windows write them.",
        (Fix("Remove them, and keep git from adding them again.",
             ("sed -i 's/\\r$//' JOB.sh", "file JOB.sh", "git config core.autocrlf input")),), _ESCAPE),
    Row("log_line_not_continued", "root", "launcher",
        rf"{IN_SHELL}(?P<word>--?[A-Za-z][\w.-]*(?:=\S*)?|[A-Za-z_]\w*(?:\.\w+)+=\S*|[\w./-]+\.(?:py|ya?ml|json)): "
        r"(?:command )?not found$",
        ("run.sh: line 22: --learning_rate: command not found",
         "/var/spool/slurmd/job7/slurm_script: line 31: train.py: command not found",
         "job.sh: line 9: --nproc_per_node=8: command not found",
         "eval.sh: line 41: trainer.num_workers=0: command not found"),
        "the shell runs a part of a command as a command of its own: {word}",
        "The line before it has no backslash at its end, or something follows the backslash (a blank, a comment), so "
        "the "
        "command ends there and gets only a part of its options. A Python file also needs python before it.",
        (Fix("End every line of the command but the last with a backslash, with nothing after it. No comments between.",
             ("grep -nE '\\\\[[:space:]]+$' JOB.sh", "bash -n JOB.sh")),
         Fix("Or collect the options first, line by line, which needs no backslashes.",
             ("set -- --lr 1e-4 --bf16", "set -- \"$@\" --epochs 3", "torchrun train.py \"$@\""))), _ESCAPE,
        summary="The shell runs a part of a command as a command of its own.", tags=("next_command",)),
    Row("log_shell_file_not_made", "secondary", "launcher",
        r"^(?P<command>mkdir|cp|mv|ln|touch|tee|rsync|tar|cat|ls|cd|source|chmod): (?:line \d+: )?"
        r"(?:cannot|can't|failed to|\S+: [Cc]annot|/)[^:]*(?::[^:]*)?: "
        r"(?P<reason>Permission denied|No such file or directory|Read-only file system|Not a directory|File exists)$",
        ("mkdir: cannot create directory '/scratch/ada': Permission denied",
         "cp: cannot stat '/data/train.tar': No such file or directory",
         "tar: /data/shard.tar: Cannot open: No such file or directory",
         "ls: cannot access '/mnt/data': No such file or directory"),
        "a command of the job script failed: {command}: {reason}",
        "The path is wrong or not mounted on this node, or belongs to another user. Without set -e the script goes on, "
        "and what needs the file fails later.",
        (Fix("Check the path on the node of the job, and stop the script at the first failed command.",
             ("srun --pty bash -lc 'df -h; id'", "set -euo pipefail")),), _COREUTILS, tags=("before_ranks",),
        summary="A command of the job script failed.", cases=(_AFTER_STEPS,)),
    Row("log_openmp_loaded_twice", "root", "library",
        r"OMP: Error #15: Initializing (?P<file>\S+?),",
        ("OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.",),
        "two copies of the OpenMP runtime are in one process ({file}), and it stopped",
        "torch, numpy with MKL, faiss, scikit-learn and conda each bring a copy. Two of them in one process are not "
        "safe.",
        (Fix("Take all of them from one source (all from pip or all from conda-forge).",
             ("conda install -c conda-forge nomkl", "pip install --force-reinstall --no-deps numpy")),
         Fix("Let it go on for now.", ("export KMP_DUPLICATE_LIB_OK=TRUE",), kind="stopgap",
             caveat="Results can be wrong.")), _LIBRARIES,
        summary="Two copies of the OpenMP runtime are in one process."),
    Row("log_openmp_failed", "root", "library",
        r"^OMP: Error #(?!15:)\d+: (?P<message>.*\S)",
        ("OMP: Error #13: Assertion failure at z_Linux_util.cpp(2361).",
         "OMP: Error #34: System unable to allocate necessary resources for OMP thread:"),
        "the OpenMP runtime stopped the process: {message}",
        "Intel's OpenMP (of MKL, torch or conda) ends the process after such an error. Usual reasons: a worker was "
        "forked after OpenMP had started (releases of 2019 to 2021 fail there), the process may use other CPUs than "
        "its settings for threads say, or the container has no memory or threads left.",
        (Fix("Do not start it again in forked workers.", ("export KMP_INIT_AT_FORK=FALSE",)),
         Fix("Use one OpenMP in the environment, and a newer one.",
             ("export MKL_THREADING_LAYER=GNU", "conda install -c conda-forge nomkl",
              "pip install --upgrade intel-openmp")),
         Fix("Check the limits on threads and CPUs.",
             ("export OMP_NUM_THREADS=1; env | grep -E 'KMP_|OMP_|GOMP_'", "ulimit -u; taskset -cp $$"))),
        "https://github.com/visionml/pytracking/issues/74",
        summary="The OpenMP runtime stopped the process with an error of its own."),
    Row("log_file_locked", "root", "script",
        r"unable to lock file, errno = \d+|Unable to (?:synchronously )?(?:create|open) file \(file is already open",
        ("BlockingIOError: [Errno 11] Unable to synchronously open file (unable to lock file, errno = 11, error "
         "message = "
         "'Resource temporarily unavailable')", "OSError: Unable to create file (unable to lock file, errno = 37, "
                                                "error "
         "message = 'No locks available')"),
        "HDF5 could not lock a file: another rank or worker has it open, or the file system has no locks",
        "HDF5 locks every file that it opens. Ranks that open one file for writing exclude each other, an old process "
        "can still hold it, and Lustre, NFS and some cluster file systems do not support locks (errno 37, 38, 524).",
        (Fix("Open it read-only in all ranks, and write from one rank only.",
             ("h5py.File(path, 'r', locking=False)", "export HDF5_USE_FILE_LOCKING=FALSE")),
         Fix("Check which process holds it.", ("lsof FILE", "fuser -v FILE"))),
        "https://docs.h5py.org/en/stable/high/file.html", cases=_LOCKS),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)

"""Did the shell, a command line's parser, a container tool or a program that is not Python end the run at its start?

Their messages are short and name what failed. Python's own exceptions are in the other tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._circumstances import line_of
from ._slurm_cases import SPOOLED
from .host_memory import host_cases

_BASH = "https://www.gnu.org/software/bash/manual/bash.html"
_EXIT_STATUS = "https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html"
_ARGPARSE = "https://docs.python.org/3/library/argparse.html"
_CLICK = "https://click.palletsprojects.com/en/stable/exceptions/"
_DOCKER = "https://docs.docker.com/engine/containers/run/#exit-status"
_KUBECTL = "https://kubernetes.io/docs/reference/kubectl/"
_RUST = "https://doc.rust-lang.org/std/macro.panic.html"
_ASSERT = "https://man7.org/linux/man-pages/man3/assert.3.html"
_INIT = "https://docs.python.org/3/c-api/init_config.html#preliminary-initialization-with-pyconfig"
# What a shell writes before its message: "bash: line 3: ", "train.sh: line 3: ", "/var/spool/job1/slurm_script: ".
_SHELL = r"^(?:-?(?:ba|z|da|k)?sh|[\w./~-]*\.(?:sh|slurm|sbatch|shell|pbs|lsf|job)|\S*/slurm_script|\S*/(?:ba|z|da)?sh)"
_LINE = r"(?:: (?:line )?\d+)?: "
IN_SHELL = f"{_SHELL}{_LINE}"
_OTHERS = (
    r"(?!-|\$|\S+\.(?:py|ya?ml|json):|[A-Za-z_]\w*(?:\.\w+)+=)"
    r"(?!(?:accelerate|torchrun|deepspeed|python3?|mgpu|nvidia-smi|orted|prted|hydra_pmi_proxy|module|conda|ninja)\b)"
)
_ARGUMENT = r"error: argument (?P<option>(?!--num_processes)[^:\s]+): "

_VALUE = re.compile(r"invalid \S+ value: (?P<quote>['\"])(?P<value>.*)(?P=quote)$")

_IGNORED = re.compile(r"ignored explicit argument (?P<quote>['\"])(?P<value>.*)(?P=quote)$")
_SHORT_OPTION = re.compile(r"(?:^|/)-(?P<letter>[A-Za-z])(?:/|$)")
_TRUTHS = frozenset({"true", "false", "0", "1", "yes", "no", "none", "on", "off"})


def _switch(option: str, value: str) -> Meaning:
    """Explain an option without a value that got one."""
    short = _SHORT_OPTION.search(option)
    if short and value.lower() not in _TRUTHS:
        typed = f"-{short['letter']}{value}"
        return Meaning(
            f"{typed} was probably typed with one dash: the parser takes its first letter for {option}",
            "Options with more than one letter need two dashes. With one, argparse reads the first letter as an option "
            "of its own, and the rest as its value.",
            (Fix("Write two dashes.", (shell("grep -rn -e {} .", typed),)),),
        )
    long = option.rpartition("/")[2]
    return Meaning(
        f"{option} is a switch that takes no value, and it got one: '{value}'",
        "The script defines it with action='store_true': it is on if it is given, and off if not. Sweeps of W&B, "
        "launchers and YAML files pass every parameter as --name=value.",
        (
            Fix(
                "Leave it out for false, and give it without a value for true.",
                (shell("grep -rn -e {} .", long),),
            ),
            Fix(
                "In a sweep of W&B, let the agent pass switches that way.",
                ("- ${args_no_boolean_flags}  # under command:, in place of - ${args}",),
            ),
            Fix(
                "Or let the script accept --name and --no-name.",
                ("parser.add_argument('--fast', action=argparse.BooleanOptionalAction)",),
            ),
        ),
    )


def _argument(groups: Mapping[str, str], _: UncaughtException | None) -> Meaning | None:
    """Return what the rejected value shows: nothing at all, or the name of a variable instead of its value."""
    option, what = groups["option"], groups["what"]
    found = _VALUE.search(what)
    value = found["value"].strip() if found else None
    if value == "" or what.startswith("expected one argument"):
        return Meaning(
            f"{option} got no value: {what}",
            "The shell put nothing there, or the next option follows at once. Usually the job script fills it from a "
            "variable that is empty or not set in this job, or set under another name.",
            (
                Fix("Find the variable in the job script, and let the shell stop at one that is not set.", ("set -u",)),
                Fix("Print the line before it runs.", ("set -x",)),
            ),
        )
    if given := _IGNORED.match(what):
        return _switch(option, given["value"])
    names = {part.lstrip("-").replace("-", "_") for part in option.split("/")}
    if value and (value.lstrip("-").replace("-", "_") in names or "$" in value or "{" in value):
        return Meaning(
            f"{option} got the name of a value instead of the value: {what}",
            "It is the text of a variable or a placeholder: the $ is missing, single quotes keep the shell from "
            "replacing it, or a template was not filled in.",
            (Fix("Find it in the command or the job script.", (shell("grep -rn -e {} .", value),)),),
        )
    return None


# fmt: off
_IN_TRITON = Case(
    line_of("log_c_assertion", r"\b(?:mlir|llvm)::|[/\\](?:Dialect/)?Triton|(?i:/triton/)"),
    "Triton's compiler stopped at an assertion while it compiled a kernel: {what} ({file})",
    "The kernel uses something that this release of Triton cannot compile for this GPU. The package with the kernel "
    "(mamba-ssm, flash-linear-attention, vLLM, the script itself) was probably written for another release. It aborts "
    "the process, so there is no Python traceback.",
    (Fix("Upgrade the package with the kernel, and Triton together with torch.",
         ("pip install --upgrade mamba-ssm  # for example", "pip show torch triton")),
     Fix("Show the Python line that starts the kernel.", ("PYTHONFAULTHANDLER=1 mgpu launch train.py",)),
     Fix("Or turn that kernel off, if the package has another implementation.")),
    "python: /src/lib/Dialect/TritonGPU/IR/Dialect.cpp:12: unsigned mlir::triton::gpu::sizeOf(mlir::Attribute): "
    "Assertion `0 && \"sizeOf not implemented\"' failed.\nAborted (core dumped)\n",
    "https://github.com/state-spaces/mamba/issues/373")

_FATAL_LATER = Case(
    line_of("log_python_fatal", r"^Fatal Python error: (?!(?:\w*init|Py_Initialize|pre_?config|config))"),
    "the Python interpreter stopped: {what}",
    "A check of the interpreter itself failed while the program ran. Compiled code of a package (an extension) misused "
    "it: it counted references wrongly, used Python without its lock (the GIL), or was built for another Python. A "
    "recursion that is caught again and again ends so, too (stack overflow).",
    (Fix("See which Python line was running: the lines below the message, or this.",
         ("python -X faulthandler train.py",)),
     Fix("Update the packages with compiled code in that line, or install them again for this Python.",
         ("python --version; pip check",))),
    "Fatal Python error: none_dealloc: deallocating None\n", "https://docs.python.org/3/c-api/sys.html")
ROWS = (
    Row("log_command_not_found", "secondary", "launcher",
        rf"(?:{_SHELL}{_LINE}(?=\S+: (?:command )?not found$)|"
        r"^(?:nohup|timeout|env|nice|stdbuf|numactl|taskset): (?:failed to run command |execution of )?(?=\S+: No such "
        rf"file or directory$))[`'\"]?{_OTHERS}(?P<command>[^\s:`'\"]+)"
        r"(?:: (?:command )?not found|[`'\"]?: No such file or directory)$",
        ("train.sh: line 14: uv: command not found", "sh: 1: nvcc: not found",
         "/var/spool/slurmd/job123/slurm_script: line 14: apptainer: command not found",
         "nohup: failed to run command 'train.py': No such file or directory"),
        "the command {command} was not found", "It is not installed, its environment or module is not active in this "
        "shell (sudo, sbatch, ssh, a container), or its name is misspelled.",
        Fix("Activate the environment in the script itself, and check where the command is.",
            ("command -v {command}", "echo $PATH")), _EXIT_STATUS, summary="The shell did not find a command.",
        tags=("before_ranks",)),
    Row("log_shell_file_missing", "secondary", "launcher",
        rf"{_SHELL}{_LINE}(?P<path>(?!(?:\S+/bin/)?activate:)[^\s:]+): (?:No such file or directory|cannot open "
        r"(?:shared )?(?:file|[\w./]+): .*|Permission denied|Is a directory|"
        r"cannot execute(?: binary file)?: (?:required file not found|Exec format error)|"
        r"(?:/[^\s^]+: )?bad interpreter: .*)$",
        ("bash: train.sh: No such file or directory", "bash: ./run.sh: Permission denied",
         "train.sh: line 9: /opt/conda/etc/profile.d/conda.sh: No such file or directory",
         "bash: ./train: cannot execute binary file: Exec format error",
         "bash: ./run.sh: /opt/py/bin/python: bad interpreter: No such file or directory"),
        "the shell cannot open or execute {path}",
        "The path is wrong, relative to another folder, or not mounted on this node; the file is not executable, was "
        "built for another processor, or has Windows line ends (^M).",
        Fix("Check the file and the current folder on this node.",
            ("pwd; ls -l {path}", "file {path}", "chmod +x {path}")), _EXIT_STATUS,
        because_of=("log_path_in_slurm_spool",), cases=(SPOOLED,),
        summary="The shell cannot open or execute a file.", tags=("before_ranks",)),
    Row("log_shell_syntax", "root", "launcher",
        rf"{_SHELL}{_LINE}(?P<what>syntax error near unexpected token .+|syntax error: .+|unexpected EOF while "
        r"looking for matching .+|\[: .*(?:expected|too many arguments)|bad substitution)$",
        ("train.sh: line 12: syntax error near unexpected token `fi'",
         "train.sh: line 40: unexpected EOF while looking for matching `\"'", "train.sh: line 3: syntax error: "
         "unexpected end of file"),
        "the shell script has a syntax error: {what}",
        "A quote, a bracket or a line's backslash is missing, the file has Windows line ends, or it is run by another "
        "shell than it was written for.",
        Fix("Check the script without running it.", ("bash -n train.sh", "file train.sh")), _BASH,
        summary="The shell script has a syntax error."),
    Row("log_shell_variable_unset", "root", "launcher",
        rf"{_SHELL}{_LINE}(?P<name>\w+): (?:unbound variable|parameter (?:null or )?not set)$",
        ("train.sh: line 3: MASTER_ADDR: unbound variable", "sh: 2: DATA: parameter not set"),
        "the script uses the variable {name}, which is not set",
        "With `set -u`, bash stops at a variable that has no value: it was not exported, or Slurm sets it only in "
        "some jobs.",
        Fix("Set it before it is used, or use ${{{name}:-DEFAULT}} in its place.", ("export {name}=VALUE",)),
        "https://www.gnu.org/software/bash/manual/html_node/The-Set-Builtin.html",
        summary="The script uses a variable that is not set."),
    Row("log_argument_value_rejected", "root", "launcher",
        _ARGUMENT + r"(?P<what>(?!invalid choice: ).+)",
        ("train.py: error: argument --lr: invalid float value: 'x'", "train.py: error: argument --data: expected one "
         "argument", "train.py: error: argument --bf16: not allowed with argument --fp16"),
        "the script rejects the argument {option}: {what}",
        "The value has the wrong type, is empty because a variable of the shell was not set, or the option excludes "
        "another one.",
        Fix("Check what the option accepts.", ("python train.py --help",)), _ARGPARSE,
        summary="The script rejects the value of an argument.", explain=_argument),
    Row("log_option_rejected", "root", "launcher",
        r"^(?:[│|] |Error: |ERROR: |FATAL Flags parsing error: |.*\berror: )?"
        r"(?P<what>(?:No such (?:option|command):? ?['\"]?-*\w|Missing (?:argument|option|parameter) "
        r"['\"]|"
        r"Invalid value for ['\"]|Option '[^']+' (?:requires|does not)|Got unexpected extra argument|"
        r"Could not consume arg: |The function received no value for the required argument|Unrecognized options: |"
        r"Unknown command line flag '|Flag --\S+ must have a value|Parser key \"|Unrecognized arguments: |"
        r"Key \"\S+\" is required|Required options? (?:were not provided|missing)).*?)\s*[│|]?$",
        ("Error: No such option '--lrr'.", "Error: No such option: --lrr Did you mean --lr?",
         "Error: Missing argument 'CONFIG'.",
         "│ No such option: --lrr                   │", "ERROR: Could not consume arg: --lrr",
         "FATAL Flags parsing error: Unknown command line flag 'lrr'. Did you mean: lr ?",
         "│ Unrecognized options: --lrr                      │", "Error: Invalid value for '--lr': 'x' is not a valid "
         "float.", "error: Parser key \"model\":"),
        "the program rejects its command line: {what}",
        "An option is misspelled, belongs to another version of the program, or lacks a value. Options of a launcher "
        "go before the script, those of the script after it.",
        Fix("Check which options it accepts.", ("python train.py --help",)), _CLICK,
        summary="A program rejects its command line."),
    Row("log_container_not_created", "root", "scheduler",
        r"(?:docker: Error response from daemon|^Error response from daemon|"
        r"^Error(?!: failed to create shared memory|: network \S+ not found)): (?P<what>(?!.*(?:could not select "
        r"device driver|manifest |pull access|unauthorized|toomanyrequests|nvidia|no space left|bind source path|"
        r"\"(?:accelerate|torchrun|deepspeed|python3?)\"))"
        r"(?:.*(?:OCI runtime|oci runtime|crun: |runc: |container process|exec: \"|executable file)|statfs |"
        r"invalid (?:mount|reference|volume)|Conflict\. The container name|No such container|"
        r"failed to (?:create|set up|start)|error (?:gathering device|while creating mount)|initializing source|"
        r"short-name |unable to copy from source|network \S+ not found|driver failed programming|"
        r"Mounts denied).*)",
        ('docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI '
         'runtime create failed: runc create failed: unable to start container process: exec: "torchrunn": executable '
         "file not found in $PATH: unknown.", "Error: statfs /data/x: no such file or directory"),
        "the container was not created: {what}",
        "The container tool refused it before the program started: a command that the image does not have, a folder "
        "that does not exist on this node, or a device that its runtime does not know.",
        Fix("Correct what the message names, then try the container alone.",
            ("docker run --rm --entrypoint bash IMAGE -c 'command -v torchrun'", "nvidia-ctk cdi list")), _DOCKER,
        summary="The container tool did not create the container."),
    Row("log_kubectl_refused", "root", "scheduler",
        r"^(?:Error from server(?: \(\w+\))?: |error: (?=error (?:validating|parsing) |unable to (?:read|decode|"
        r"recognize|forward|upgrade) |no matches for kind |the server doesn't have a resource type|You must be logged "
        r"in|context \"|no configuration has been provided|the path \")|"
        r"The connection to the server (?=\S+ was refused))(?P<what>(?!.*ImagePull).+)",
        ('Error from server (BadRequest): container "main" in pod "x" is waiting to start: ContainerCreating',
         'Error from server (NotFound): pods "train-0" not found',
         'error: error validating "job.yaml": error validating data: unknown field "spec.foo"',
         "The connection to the server localhost:8080 was refused - did you specify the right host or port?"),
        "Kubernetes rejected the command: {what}",
        "The message is the API server's. The job was not created, or its pod is not running.",
        Fix("Check the cluster, the namespace and the job's events.",
            ("kubectl config current-context", "kubectl get events --sort-by=.lastTimestamp",
             "kubectl describe pod POD")), _KUBECTL, summary="Kubernetes rejected a command."),
    Row("log_program_panicked", "secondary", "script",
        r"^(?:panic: (?!\d)\S|thread '[^']*' (?:\(\d+\) )?panicked at |"
        r"fatal error: (?:all goroutines are asleep|concurrent map|runtime: (?:out of memory|cannot)))",
        ("panic: runtime error: invalid memory address or nil pointer dereference",
         "thread '<unnamed>' panicked at src/lib.rs:123:45:", "thread 'main' (4711) panicked at src/main.rs:7:9:",
         "fatal error: all goroutines are asleep - deadlock!"),
        "a program or library written in Go or Rust stopped at an internal error",
        "tokenizers, safetensors, polars and xet are written in Rust; Kubernetes tools, Docker and wandb-core in Go. "
        "The line, or the next one, has the message. In Python it also appears as a PanicException.",
        Fix("Find out which library it is. Update it, and check the file or the values that it was given.",
            ("RUST_BACKTRACE=1 mgpu launch train.py", "pip install --upgrade tokenizers safetensors")), _RUST),
    Row("log_c_assertion", "root", "kernel",
        r"^(?:\S+: )?(?P<file>\S+\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp)(?::\d+)?): .*Assertion [`']"
        r"(?P<what>(?!.*(?:only supported on|requires?) (?:Volta|Turing|Ampere|Hopper|Blackwell)\b).+)' "
        r"failed\b",
        ("python: /a/b.cpp:12: void foo(): Assertion `x > 0' failed.",
         "python3: ../nptl/pthread_mutex_lock.c:424: __pthread_mutex_lock_full: Assertion `e != ESRCH' failed.",
         "Pass.cpp:43: mlir::Attribute f(): Assertion `x && \"no layout\"' failed. Aborted (core dumped",
         "python: /src/lib/Tools.cpp: unsigned mlir::triton::sizeOf(mlir::Type): Assertion `0 && \"no size\"' failed."),
        "compiled code stopped at an assertion: {what} ({file})",
        "A library checked its own state and aborted the process (SIGABRT): a bug in it, or an argument that it does "
        "not expect.",
        (Fix("Show the Python line where it happened.", ("PYTHONFAULTHANDLER=1 mgpu launch train.py",)),
         Fix("Update the library that the file belongs to.", ("pip list --outdated",))), _ASSERT,
        summary="Compiled code stopped at an assertion.", cases=(_IN_TRITON,)),
    Row("log_python_fatal", "root", "library",
        r"^Fatal Python error: (?P<what>(?!Segmentation fault|Aborted|Bus error|Floating|Illegal)\S.*)",
        ("Fatal Python error: init_fs_encoding: failed to get the Python codec of the filesystem encoding",
         "Fatal Python error: _Py_CheckRecursiveCall: Cannot recover from stack overflow.",
         "Fatal Python error: PyEval_RestoreThread: the function must be called with the GIL held"),
        "the Python interpreter stopped: {what}",
        "Before main, its standard library was not found: PYTHONHOME or PYTHONPATH is of another installation, or the "
        "environment was moved or is damaged. Later, compiled code misused the interpreter.",
        Fix("Check which Python runs, and without these variables.",
            ("env | grep PYTHON", "env -u PYTHONHOME -u PYTHONPATH python -c 'import sys; print(sys.prefix)'")),
        _INIT, summary="The Python interpreter stopped at a fatal error.", cases=(_FATAL_LATER,)),
    Row("log_shell_reports_kill", "secondary", "kernel", r"^Killed$",
        ("Killed",), "the shell reports that its program was killed (SIGKILL), usually because host memory ran out",
        "A program cannot catch SIGKILL, so there is no traceback. It comes from the kernel's or the container's "
        "memory limit, or from a kill -9.",
        (Fix("Check whether the kernel killed it.", ("sudo dmesg -T | grep -iE 'out of memory|oom-kill' | tail",
                                                     "mgpu doctor --only memory_small_for_ranks")),
         Fix("Use less host memory: fewer loader workers, no offload of the optimizer, or request more.",
             ("sbatch --mem=0 ...",))),
        _EXIT_STATUS, exit_code=None,
        cases=host_cases("the shell reports that its program was killed (SIGKILL)", "Killed")),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)

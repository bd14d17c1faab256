"""Which programs does a command line start: wrappers, srun, containers, shells, launchers and their scripts?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.known_launchers import FRAMEWORKS, KNOWN, OTHERS, PROGRAMS, Launcher

# srun's options of 20.11 to 26.05: short ones with a value, and long ones without a value or with one after "=".
_SRUN_VALUES = frozenset("AbBcCdDeGiJLmMnNopqrStTwWxFP")
# fmt: off
_SRUN_FLAGS = frozenset({
    "contiguous", "disable-status", "exact", "exclusive", "external-launcher", "get-user-env", "help", "hold",
    "immediate", "interactive", "kill-on-bad-exit", "label", "multi-prog", "nice", "no-allocate", "no-kill",
    "no-requeue", "oom-kill-step", "overcommit", "overlap", "oversubscribe", "preserve-env", "propagate", "pty",
    "quiet", "quit-on-interrupt", "reboot", "requeue", "send-libs", "slurmd-debug", "spread-job", "test-only",
    "unbuffered", "usage", "use-min-nodes", "verbose", "version", "whole", "x11", "async",
    # pyxis
    "container-mount-home", "no-container-mount-home", "container-remap-root", "no-container-remap-root",
    "container-entrypoint", "no-container-entrypoint", "container-writable", "container-readonly",
    "no-container-entrypoint-log", "container-entrypoint-log",
})
SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
# Programs that start a command on every node of the job, or on a named node.
SPREADS = frozenset({
    "srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "prterun", "ibrun", "jsrun", "aprun", "lrun",
    "ssh", "pdsh", "clush", "horovodrun", "flux",
})
CONTAINERS = frozenset({
    "apptainer", "singularity", "docker", "podman", "podman-hpc", "shifter", "enroot", "singularity_wrapper",
    "apptainer_wrapper", "charliecloud", "ch-run", "udocker", "sarus", "nvidia-docker",
})
# Programs that start a command in the rest of their line.
WRAPPERS = SPREADS | CONTAINERS | {
    "time", "nohup", "exec", "command", "env", "stdbuf", "numactl", "timeout", "nice", "taskset", "setsid", "ionice",
    "sudo", "unbuffer", "catchsegv", "nsys", "ncu", "dlprof", "perf", "strace", "conda", "mamba", "micromamba", "uv",
    "poetry", "pixi", "hatch", "pipenv", "xargs", "parallel", "ntasks_wrapper", "builtin", "aws-ofi-nccl", "rocprof",
    "script", "prlimit", "dsh", "hwloc-bind", "pdm", "rye", "xvfb-run", "systemd-run", "cuda-memcheck",
    "compute-sanitizer", "gdb", "ltrace", "wait4", "bwrap", "memray", "py-spy", "scalene",
}
# Of these, managers of environments: they start a command after `run` only, and have names of packages elsewhere.
_MANAGERS = frozenset({
    "conda", "mamba", "micromamba", "uv", "poetry", "pixi", "hatch", "pipenv", "pdm", "rye",
})
# Programs whose arguments are never commands.
INERT = frozenset({
    "echo", "printf", "pip", "pip3", "which", "type", "hash", "grep", "egrep", "pgrep", "pkill", "killall", "kill",
    "cat", "tee", "ls", "rm", "mkdir", "cp", "mv", "ln", "test", "[", "module", "ml", "spack", "cd", "pushd", "popd",
    "sed", "awk", "head", "tail", "cut", "tr", "sort", "wc", "date", "sleep", "touch", "chmod", "git", "wget", "curl",
    "tar", "unzip", "rsync", "scp", "exit", "return", "wait", "true", "false", ":", "shift", "ulimit", "umask",
    "alias", "hostname", "nvidia-smi", "free", "df", "du", "env_parallel", "scontrol", "squeue", "scancel", "sinfo",
    "sacct", "sstat", "logger", "mail", "find", "seq", "let", "expr", "read", "getopts", "shopt", "set", "unset",
    "source", ".", "trap", "eval", "export", "declare", "local", "readonly", "typeset", "command_not_found_handle",
    "jq", "yq", "apt", "apt-get", "dirname", "basename", "realpath", "readlink", "mktemp", "sbatch", "salloc",
    "ray", "ps", "top", "vim", "nano", "less", "more", "diff", "huggingface-cli", "hf", "wandb", "aws", "gsutil",
})
_NAME_OPTIONS = ("--name", "-n", "-p", "--prefix", "--with", "--group", "--extra", "-e", "--environment")
_RUNS = ("run", "exec")  # their commands that start a program
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_PYTHON_VARIABLE = re.compile(
    r"\$\{?(?:\w+_)?(?:PY|PYTHON\d?)(?:_?(?:BIN|CMD|COMMAND|EXE|EXEC|INTERPRETER))?\}?", re.IGNORECASE
)
_OVERRIDE = re.compile(r"[+~]{0,2}[\w./@]+=")  # a setting for hydra
_MODULE_INSIDE = re.compile(r"""(?:[-=?]["']?)-(?:m|-module)\s""")  # the default of a variable: ${ENTRY:--m train}
_COMMANDS = tuple((name, command) for name, known in KNOWN.items() for command in known.commands)
_MODULES = tuple((name, module) for name, known in KNOWN.items() for module in known.modules)
# Modules of `python -m` that do no training.
_TOOLS = frozenset({
    "pip", "venv", "http", "json", "site", "ensurepip", "compileall", "timeit", "zipfile", "ipykernel", "jupyter",
    "unittest", "pytest", "py_compile", "virtualenv", "build", "torch.utils.collect_env", "nltk.downloader", "spacy",
})
# fmt: on


def base(word: str) -> str:
    """Return the name of a program without its folder."""
    return word.rsplit("/", 1)[-1]


def is_python(word: str) -> bool:
    """Whether a word names a Python interpreter."""
    return _PYTHON.fullmatch(base(word)) is not None


def shell_of(shebang: str) -> str | None:
    """Return the shell named in a shebang line; None for another program."""
    words = shebang[2:].split()
    if words and base(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    name = base(words[0]) if words else ""
    return name if name in SHELLS or name in ("csh", "tcsh", "fish") else None


def after_srun(words: Sequence[str]) -> int:
    """Return the index of the command in the words of an srun line."""
    place = 1
    while place < len(words):
        word = words[place]
        if word == "--":
            return place + 1
        if word.startswith("--"):
            name, equals, _ = word[2:].partition("=")
            place += 1 if equals or name in _SRUN_FLAGS else 2
        elif word.startswith("-") and len(word) > 1:
            place += 1 + _takes_next(word)
        elif word.startswith("$") and (word[1:2] in "{(" or word[1:].isidentifier()):
            place += 1  # options in a variable
        else:
            return place
    return len(words)


def _takes_next(word: str) -> bool:
    """Whether the last of combined short options has its value in the next word."""
    for number, letter in enumerate(word[1:], 1):
        if letter in _SRUN_VALUES:
            return number == len(word) - 1
    return False


def after_wrapper(words: Sequence[str]) -> int | None:
    """Return the index of the program that a wrapper, a container or an unknown program starts.

    None if it starts no relevant program.
    """
    name = base(words[0])
    if name in INERT or _PYTHON.fullmatch(name):
        return None
    known = name in WRAPPERS or words[0].startswith("$")
    first = 1 if name not in _MANAGERS else next((n for n, word in enumerate(words, 1) if word in _RUNS), len(words))
    named = _NAME_OPTIONS if name in _MANAGERS else _NAME_OPTIONS[:1]
    for place in range(first, len(words)):
        word = words[place]
        inner = base(word)
        if word.startswith("-") or "=" in word.partition("$")[0] or words[place - 1] in named:
            continue
        if any(_matches(known.commands[0], [inner, *words[place + 1 : place + 2]]) for known in OTHERS):
            return place
        if known and (inner in SHELLS or _PYTHON.fullmatch(inner) or (inner in WRAPPERS - {"exec", name})):
            return place
        if known and inner.endswith(".sh") and name in (SPREADS | CONTAINERS | {"time", "nohup", "exec", "env"}):
            return place
    return None


def shell_text(words: Sequence[str]) -> int | None:
    """Return the index of the text after -c in a shell's command line; None if it runs a file or nothing."""
    for place, word in enumerate(words[1:], 1):
        if word.startswith("--"):
            continue
        if not word.startswith(("-", "+")):
            return None if words[place - 1] not in ("-o", "+o", "-O", "+O") else _shell_text_after(words, place)
        if "c" in word[1:] and word[0] == "-":
            return place + 1 if place + 1 < len(words) else None
    return None


def shell_file(words: Sequence[str]) -> int | None:
    """Return the index of the file that a shell's command line runs; None if it names none."""
    place = 1
    while place < len(words):
        if words[place] in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file"):
            place += 2
        elif words[place].startswith(("-", "+")) and words[place] != "-":
            place += 1
        else:
            return None if words[place] == "-" else place
    return None


def _shell_text_after(words: Sequence[str], place: int) -> int | None:
    found = shell_text(["bash", *words[place + 1 :]])
    return None if found is None else found + place


def launcher_of(words: Sequence[str]) -> tuple[Launcher, int] | None:
    """Return the launcher of a command line, and the index at which its name ends."""
    name = base(words[0])
    if found := _find(_COMMANDS, [name, *words[1:2]]):
        return found
    if _PYTHON.fullmatch(name) or _PYTHON_VARIABLE.fullmatch(words[0]):
        return _launcher_of_python(words)
    if name.endswith(".py") and "/" in words[0]:
        return "python", -1
    return None


def starter_of(words: Sequence[str]) -> tuple[Launcher, int] | None:
    """Like `launcher_of`; also a framework that starts the launcher itself, as "command"."""
    of_framework = any(_matches(one, [base(words[0]), *words[1:2]]) for one in FRAMEWORKS)
    return ("command", 0) if of_framework else launcher_of(words)


def _find(patterns: Sequence[tuple[Launcher, str]], words: Sequence[str]) -> tuple[Launcher, int] | None:
    """Return the launcher whose name the words start with, and the index at which that name ends."""
    return next(((name, one.count(" ")) for name, one in patterns if _matches(one, words)), None)


def _matches(pattern: str, words: Sequence[str]) -> bool:
    """Whether words start with the words of a pattern; a * at the end of a word matches anything."""
    parts = pattern.split(" ")
    return len(words) >= len(parts) and all(
        word.startswith(part[:-1]) if part.endswith("*") else word == part
        for part, word in zip(parts, words, strict=False)
    )


def _launcher_of_python(words: Sequence[str]) -> tuple[Launcher, int] | None:
    place = 1
    while place < len(words):
        word = words[place]
        if word == "-m" and place + 1 < len(words):
            return _launcher_of_module(words, place)
        if word in ("-X", "-W"):
            place += 2
        elif word == "-c":
            return _launcher_of_text(words, place + 1)
        elif word == "-":
            return None
        elif word.startswith("-"):
            place += 1
        elif base(word) in PROGRAMS:
            found = launcher_of(words[place:])
            return (found[0], found[1] + place) if found else None
        else:
            return ("python", place - 1) if word.endswith(".py") or word.startswith("$") else None
    return None


def _launcher_of_module(words: Sequence[str], place: int) -> tuple[Launcher, int] | None:
    """Return the launcher that `python -m MODULE` starts, with -m at index `place`."""
    module = words[place + 1]
    if found := _find(_MODULES, words[place + 1 : place + 3]):
        return found[0], place + 1 + found[1]
    if module in {pattern.partition(" ")[0] for _, pattern in _MODULES}:  # another of its subcommands
        return None
    return None if module.partition(".")[0] in _TOOLS or module in _TOOLS else ("python", place)


def _launcher_of_text(words: Sequence[str], place: int) -> tuple[Launcher, int] | None:
    """Return the launcher in the text of `python -c`, as `mgpu launch --print-command` prints it for Python 3.10."""
    for name, pattern in _MODULES:
        if f"from {pattern.partition(' ')[0]} import main; main()" in "".join(words[place : place + 1]):
            return name, place
    return None


def script_of(launcher: Launcher, words: Sequence[str], last: int) -> int | None:
    """Return the index of the training script (or module) after a launcher's options."""
    place = last + 1
    if launcher == "command":
        return None
    if launcher == "python":
        if list(words[place : place + 1]) == ["-m"]:
            place += 1
        return place if place < len(words) else None
    switches = KNOWN[launcher].switches
    while place < len(words):
        word = words[place]
        if word == "--":
            return place + 1 if place + 1 < len(words) else None
        if word.startswith("-") and len(word) > 1:
            name, equals, _ = word.lstrip("-").partition("=")
            place += 1 if equals or name.replace("-", "_") in switches else 2
        elif word.startswith("$") and not re.search(r"""\.py["']?\}?$""", word) and place + 1 < len(words):
            if _MODULE_INSIDE.search(word):
                return None
            place += 1  # options in a variable
        else:
            return None if _OVERRIDE.match(word) else place
    return None

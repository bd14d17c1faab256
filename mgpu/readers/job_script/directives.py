"""Which options do the #SBATCH lines of a job script set?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.secrets_masking import masked
from mgpu.snapshot import Directive, JobText

# fmt: off
# sbatch's options of 20.11 to 26.05 (man sbatch); a site's plugins can add more.
_SHORT = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "d": "dependency", "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "h": "help", "H": "hold",
    "I": "immediate", "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters",
    "m": "distribution", "N": "nodes", "n": "ntasks", "o": "output", "O": "overcommit", "p": "partition",
    "Q": "quiet", "q": "qos", "S": "core-spec", "s": "oversubscribe", "t": "time", "u": "usage", "v": "verbose",
    "V": "version", "W": "wait", "w": "nodelist", "x": "exclude",
}
_SHORT_FLAGS = frozenset("hHIkOQsuvVW")
_FLAGS = frozenset({
    "contiguous", "exclusive", "get-user-env", "help", "hold", "ignore-pbs", "immediate", "no-kill", "no-requeue",
    "overcommit", "oversubscribe", "parsable", "propagate", "quiet", "reboot", "requeue", "spread-job", "stepmgr",
    "test-only", "usage", "use-min-nodes", "verbose", "version", "wait", "nice", "no-allocate", "resv-ports",
    "oom-kill-step", "consolidate-segments", "external",
})
_VALUES = frozenset({
    "account", "acctg-freq", "array", "batch", "bb", "bbf", "begin", "chdir", "cluster", "clusters",
    "cluster-constraint",
    "comment", "constraint", "container", "container-id", "core-spec", "cores-per-socket", "cpu-freq", "cpus-per-gpu",
    "cpus-per-task", "cpus-per-gres", "deadline", "delay-boot", "dependency", "distribution", "error", "exclude",
    "export", "export-file", "extra", "extra-node-info", "gid", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node",
    "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint", "input", "job-name", "kill-on-invalid-dep",
    "licenses", "mail-type", "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus",
    "network", "nodefile", "nodelist", "nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node",
    "ntasks-per-socket", "open-mode", "output", "partition", "power", "prefer", "priority", "profile", "qos",
    "reservation", "segment", "signal", "sockets-per-node", "switches", "task-spread", "thread-spec",
    "threads-per-core", "time", "time-min", "tmp", "tres-bind", "tres-per-job", "tres-per-node", "tres-per-socket",
    "tres-per-task", "uid", "wait-all-nodes", "wckey", "workdir", "wrap", "x11", "tasks", "tasks-per-node",
    "nodes-per-switch", "ntasks-per-tres", "burst-buffer",
})
# fmt: on
OPTIONS = _FLAGS | _VALUES
_SYNONYMS = {"tasks": "ntasks", "tasks-per-node": "ntasks-per-node", "workdir": "chdir"}
_FREE = frozenset({"comment", "job-name"})  # options that accept any text
_MAGIC = "#SBATCH"
_SPACED = re.compile(r"#[ \t]+SBATCH[ \t]+-")
_DISABLED = re.compile(r"##+[ \t]*SBATCH[ \t]+-")
_BARE = re.compile(r"[ \t]*SBATCH[ \t]+-")  # without the #: a command
_INDENTED = re.compile(r"[ \t]+#SBATCH[ \t]+-")
# The directives of other schedulers.
_SCHEDULERS = {"PBS": "PBS", "BSUB": "LSF", "$": "Grid Engine", "COBALT": "Cobalt", "OAR": "OAR", "FLUX": "Flux"}
_OTHERS = re.compile(r"#(PBS|BSUB|\$|COBALT|OAR|FLUX):?[ \t]+-")
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
CURLY = "\u2018\u2019\u201c\u201d"


def read(lines: Sequence[str]) -> tuple[list[Directive], list[JobText]]:
    """Return the directives, and lines that only look like directives. Slurm reads them up to the first command."""
    found: list[Directive] = []
    texts: list[JobText] = []
    above = True
    for number, line in enumerate(lines, 1):
        if line.startswith(_MAGIC) and not line[len(_MAGIC) :][:1].isalnum():
            found += _directives(line[len(_MAGIC) :], number, above, texts)
        elif _SPACED.match(line):
            texts.append(JobText(number, "spaced", line[:200]))
        elif _DISABLED.match(line):
            texts.append(JobText(number, "disabled", line[:200]))
        elif _INDENTED.match(line):
            texts.append(JobText(number, "loose", line[:200].strip()))
        elif line.strip() and not line.lstrip().startswith("#"):
            if above and _BARE.match(line):
                texts.append(JobText(number, "bare", line[:200].strip()))
            above = False
    return found, texts


def _directives(text: str, line: int, obeyed: bool, texts: list[JobText]) -> list[Directive]:
    words = _words(text)
    found: list[Directive] = []
    place = 0
    while place < len(words):
        word = words[place]
        following = words[place + 1] if place + 1 < len(words) else None
        option, value, used = _option(word, following)
        place += used
        written = " ".join(words[place - used : place])
        found.append(
            Directive(line, option[:80], None if value is None else masked(value[:500]), masked(written[:500]), obeyed)
        )
    if any(one.option not in _FREE for one in found):
        kept = text.partition(" #")[0]
        if re.search(rf"(?:^|\s)[{DASHES}]", kept):
            texts.append(JobText(line, "dash", text.strip()[:200]))
        if re.search(f"[{CURLY}]", kept):
            texts.append(JobText(line, "quote", text.strip()[:200]))
    return found


def words_of_option(word: str, following: str | None) -> int:
    """Return how many words an option of sbatch has: 2 if its value is the next word."""
    return _option(word, following)[2]


def other_scheduler(lines: Sequence[str]) -> str:
    """Return the scheduler for which a script has directives, if that is not Slurm; "" without any."""
    found = (_OTHERS.match(line) for line in lines)
    return next((_SCHEDULERS[one[1]] for one in found if one), "")


def _option(word: str, following: str | None) -> tuple[str, str | None, int]:
    """Return the long name of an option, its value, and the number of words used."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        name = _full_name(name)
        if equals:
            return name, value, 1
        if name in _VALUES and following is not None:
            return name, following, 2
        return name, None, 1
    if word.startswith("-") and len(word) > 1:
        letter, rest = word[1], word[2:]
        name = _SHORT.get(letter, letter)
        if letter in _SHORT_FLAGS:
            return name, rest or None, 1
        if rest:
            return name, rest, 1  # sbatch reads -N=2 as the value "=2", and rejects it
        return (name, following, 2) if following is not None else (name, None, 1)
    return word, None, 1


def _full_name(name: str) -> str:
    """Return the full name of an option: getopt accepts any unique prefix."""
    if name not in OPTIONS:
        near = sorted(option for option in OPTIONS if option.startswith(name)) if name else []
        name = near[0] if len(near) == 1 else name
    return _SYNONYMS.get(name, name)


def _words(text: str) -> list[str]:
    """Split like Slurm: at blanks, with quotes, up to a #, which also ends a word (tested with 22.05: -N 1#)."""
    words: list[str] = []
    word: str | None = None
    quote = ""
    escaped = False
    for character in text:
        if escaped:
            word, escaped = (word or "") + character, False
        elif character == "\\":
            escaped = True
        elif quote:
            if character == quote:
                quote = ""
            else:
                word = (word or "") + character
        elif character in "'\"":
            quote, word = character, word or ""
        elif character == "#":
            break
        elif character.isspace():
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + character
    return words if word is None else [*words, word]

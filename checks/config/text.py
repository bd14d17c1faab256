"""Can the file be read at all?"""

from __future__ import annotations

from mgpu.check import Answer, Edit, Fix, Ok, Place, Problem, Severity, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Config, ConfigFault
from mgpu.text import counted

from ._config_file import ARGS, skip_if_unreadable

# The fix for each kind of fault that mgpu/config/parsing.py distinguishes.
_FIXES = {
    "tab": Fix("Indent the line with spaces."),
    "tab_inside": Fix("Replace it with a space."),
    "fence": Fix("Delete the lines with ```."),
    "quotes": Fix("Write the value itself, or put it in quotes."),
    "quote": Fix("Close it with the same kind of quote."),
    "bracket": Fix("Close it, or put the text in quotes."),
    "backslash": Fix("Put the text in single quotes."),
    "colon": Fix("Write `key: value`, with an ASCII colon followed by a space."),
    "indent": Fix("Indent the keys of one section by the same number of spaces, and top-level keys not at all."),
    "comment": Fix("Delete it, or rename the file to end in .yaml and start comments with #."),
    "conflict": Fix("Keep one of the two versions, and delete the lines with <<<<<<<, ======= and >>>>>>>."),
    "documents": Fix("Keep one document: delete the --- and everything after it."),
    "empty": Fix("Let mgpu write one.", ("mgpu configure",)),
    "shape": Fix("Write `key: value` lines, or let mgpu write the file.", ("mgpu configure",)),
    "suffix": Fix("Rename the file to end in .yaml."),
    "command": Fix("Delete the line."),
    "comma": Fix("Delete the comma: JSON allows none after the last value."),
    "template": Fix("Fill in the template first: accelerate does not expand it."),
    "tag": Fix("Delete the tag (the word with !): accelerate reads plain values only."),
    "bom": Fix("Save it as UTF-8 without a byte order mark."),
}


@check(Severity.ERROR, source=ARGS)
def config_unreadable(config: Config) -> Answer:
    """The config file is not a YAML mapping.

    Why: accelerate cannot load it.
    More: It stops with a Python error without file name or line. Typical causes: tabs, merge conflict markers, an empty
    file, a list, text that is not UTF-8.

    Fix: Correct the line named in the message.
    """
    bad = [fault for fault in config.faults if fault.fatal]
    if not bad:
        return Ok(f"{counted(len(config.values), 'key')} in {config.path}")
    return tuple(
        Problem(
            fault.message,
            fix=_fix(config, fault),
            place=Place(
                config.path, fault.mark.line if fault.mark else None, fault.mark.column if fault.mark else None
            ),
        )
        for fault in bad
    )


def _fix(config: Config, fault: ConfigFault) -> Fix:
    if fault.kind in ("utf16", "encoding"):
        old = "UTF-16" if fault.kind == "utf16" else "LATIN1"
        return Fix(
            "Save it as UTF-8.",
            (shell("iconv -f {:id} -t UTF-8 {:path} > {:path}.utf8", old, config.path, config.path),),
        )
    return _FIXES.get(fault.kind, Fix("Correct the line, or write a new file.", ("mgpu configure",)))


@check(Severity.INFO, source=ARGS, given=skip_if_unreadable)
def config_byte_order_mark(config: Config) -> Answer:
    """The config begins with a byte order mark.

    Why: accelerate skips it, but other tools may fail.
    More: Some Windows editors add it. accelerate skips it in YAML, but it breaks JSON, and shell scripts that read the
    first line.

    Fix: Save it as UTF-8 without one.
    """
    if not any(fault.kind == "bom" for fault in config.faults):
        return Ok("no byte order mark")
    return Problem(
        "the file begins with a byte order mark",
        fix=commands(shell("sed -i '1s/^\\xEF\\xBB\\xBF//' {:path}", config.path)),
        place=Place(config.path, 1, 1),
    )


@check(Severity.WARNING, source="https://yaml.org/spec/1.2.2/#3213-node-comparison", given=skip_if_unreadable)
def config_key_twice(config: Config) -> Answer:
    """A key is in the config twice.

    Why: It is not clear which one was meant.
    More: The last one silently wins.

    Fix: Delete the one you do not want. The earlier one has no effect.
    """
    bad = [fault for fault in config.faults if fault.kind == "twice"]
    if not bad:
        return Ok("no duplicate keys")
    return tuple(
        Problem(
            f"{fault.key}: {fault.message}",
            fix=Fix(edits=(Edit("drop_line", fault.key or "", line=fault.stale_line),) if fault.stale_line else ()),
            place=Place(
                config.path,
                fault.mark.line if fault.mark else None,
                fault.mark.column if fault.mark else None,
                fault.key,
            ),
        )
        for fault in bad
    )

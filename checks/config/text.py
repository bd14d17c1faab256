"""Can the file be read at all?"""

from __future__ import annotations

from mgpu.check import Answer, Edit, Fix, Ok, Place, Problem, Severity, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Config, ConfigFault
from mgpu.text import counted

from ._config_file import ARGS, readable

# What to do about each kind of fault that mgpu/config/parsing.py tells apart.
_MEND = {
    "tab": Fix("Indent the line with blanks."),
    "tab_inside": Fix("Write a blank in its place."),
    "fence": Fix("Delete the lines with ```."),
    "quotes": Fix("Write the value itself, or put it in quotes."),
    "quote": Fix("Close it, with the same kind of quote."),
    "bracket": Fix("Close it, or put the text in quotes."),
    "backslash": Fix("Put the text in single quotes."),
    "colon": Fix("Write `key: value`, with a plain colon and a blank after it."),
    "indent": Fix("Indent the keys of one section by the same number of blanks, and top-level keys by none."),
    "comment": Fix("Delete it, or give the file a name that ends in .yaml and begin comments with #."),
    "conflict": Fix("Keep one of the two versions, and delete the lines with <<<<<<<, ======= and >>>>>>>."),
    "documents": Fix("Put what belongs together above the --- and delete the rest."),
    "empty": Fix("Let mgpu write one.", ("mgpu configure",)),
    "shape": Fix("Write `key: value` lines, or let mgpu write the file.", ("mgpu configure",)),
    "suffix": Fix("Give the file a name that ends in .yaml."),
    "comma": Fix("Delete the comma: JSON has none after the last value."),
    "template": Fix("Fill the template in first; accelerate reads the file as it stands."),
    "tag": Fix("Delete the tag (the word with !): accelerate reads plain values only."),
    "bom": Fix("Save it as UTF-8 without a byte order mark."),
}


@check(Severity.ERROR, source=ARGS)
def config_unreadable(config: Config) -> Answer:
    """The config file is not a YAML mapping.

    Why: accelerate cannot load it.
    More: It stops with a Python error that names neither file nor line: tabs, merge-conflict markers, an empty file, a
    list, text that is not UTF-8.

    Fix: mend the line that is named.
    """
    bad = [fault for fault in config.faults if fault.fatal]
    if not bad:
        return Ok(f"{counted(len(config.values), 'key')} in {config.path}")
    return tuple(
        Problem(
            fault.message,
            fix=_mend(config, fault),
            place=Place(
                config.path, fault.mark.line if fault.mark else None, fault.mark.column if fault.mark else None
            ),
        )
        for fault in bad
    )


def _mend(config: Config, fault: ConfigFault) -> Fix:
    if fault.kind in ("utf16", "encoding"):
        old = "UTF-16" if fault.kind == "utf16" else "LATIN1"
        return Fix(
            "Save it as UTF-8.",
            (shell("iconv -f {:id} -t UTF-8 {:path} > {:path}.utf8", old, config.path, config.path),),
        )
    return _MEND.get(fault.kind, Fix("Mend the line, or write a new file.", ("mgpu configure",)))


@check(Severity.INFO, source=ARGS, given=readable)
def config_byte_order_mark(config: Config) -> Answer:
    """The config begins with a byte order mark.

    Why: accelerate skips it; other tools stumble.
    More: An editor of Windows wrote it. accelerate skips it in YAML; it is in the way in JSON, and in a shell that
    reads the first line.

    Fix: Save it as UTF-8 without one.
    """
    if not any(fault.kind == "bom" for fault in config.faults):
        return Ok("no byte order mark")
    return Problem(
        "the file begins with a byte order mark",
        fix=commands(shell("sed -i '1s/^\\xEF\\xBB\\xBF//' {:path}", config.path)),
        place=Place(config.path, 1, 1),
    )


@check(Severity.WARNING, source="https://yaml.org/spec/1.2.2/#3213-node-comparison", given=readable)
def config_key_twice(config: Config) -> Answer:
    """A key stands twice in the config.

    Why: Which of the two was meant, nobody can tell.
    More: The last one wins, in silence: half of the readers believe the other.

    Fix: Delete the one you do not mean; the earlier one has no effect.
    """
    bad = [fault for fault in config.faults if fault.kind == "twice"]
    if not bad:
        return Ok("every key stands once")
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

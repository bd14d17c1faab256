"""Are the waivers of the project and the plug-in checks in order?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import LocalRules
from mgpu.text import counted

_OURS = "mgpu: docs/integrations.md"


@check(Severity.WARNING, source=_OURS)
def waiver_expired(local_rules: LocalRules) -> Answer:
    """A waiver has expired.

    Why: the project accepted this finding until a date that has passed. It counts again.

    Fix: fix the finding, or renew the waiver with a new date and reason.
    """
    expired = [one for one in local_rules.waivers if one.until is not None and one.until < local_rules.today]
    if not expired:
        return Ok(f"{counted(len(local_rules.waivers), 'waiver')}, none expired")
    return tuple(
        Problem(
            f"the waiver of {one.check} expired on {one.until} ({one.reason})",
            place=Place(local_rules.file, one.line, 1, one.check),
        )
        for one in expired
    )


@check(Severity.WARNING, source=_OURS)
def waiver_unknown(local_rules: LocalRules) -> Answer:
    """A waiver names a check that does not exist.

    Why: it waives nothing. The id may be misspelled, or the check was renamed.

    Fix: use the id that `mgpu doctor` prints with the finding.
    """
    unknown = [one for one in local_rules.waivers if not one.known]
    if not unknown:
        return Ok(f"{counted(len(local_rules.waivers), 'waiver')}, all of existing checks")
    return tuple(
        Problem(
            f"the waiver of {one.check} names no check",
            fix=Fix(f"Did you mean {one.near}?" if one.near else "", ("mgpu doctor --list-checks",)),
            place=Place(local_rules.file, one.line, 1, one.check),
        )
        for one in unknown
    )


@check(Severity.WARNING, source=_OURS)
def plugin_broken(local_rules: LocalRules) -> Answer:
    """A plug-in with checks cannot be loaded.

    Why: the checks of this plug-in did not run, so what they would find is unknown.

    Fix: fix or uninstall the plug-in.
    """
    broken = [one for one in local_rules.broken if not one.unsafe]
    if not broken:
        return Ok(f"{counted(len(local_rules.plugins), 'plug-in')} loaded")
    return tuple(Problem(f"plug-in {one.name} cannot be loaded: {one.error}") for one in broken)


@check(Severity.WARNING, source=_OURS)
def plugin_writable(local_rules: LocalRules) -> Answer:
    """A file with site checks can be changed by other users.

    Why: mgpu would run their code, often as root in a prolog. The file was not loaded.

    Fix: make root its owner, and let only root write to it and to its folder.
    """
    unsafe = [one for one in local_rules.broken if one.unsafe]
    if not unsafe:
        return Ok(f"{counted(len(local_rules.plugins), 'plug-in')} loaded")
    return tuple(
        Problem(f"{one.name} was not loaded: {one.error}", fix=Fix(who="admin"), subjects=(one.name,)) for one in unsafe
    )

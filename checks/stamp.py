"""Was exactly this config verified on exactly this machine?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Stamp

_WHY = "mgpu: what `mgpu smoke-test` proved"


@check(Severity.ERROR, source=_WHY)
def config_not_verified(stamp: Stamp) -> Answer:
    """The smoke test has not passed with this config.

    Why: nothing has shown yet that the ranks of this config can train together on this machine.

    Fix: run the smoke test.
    """
    if stamp.verified is not None:
        level = f", level {stamp.level}" if stamp.level else ""
        return Ok(f"verified {stamp.verified_at}{level}: {', '.join(stamp.rungs)}")
    return Problem(
        "the smoke test has not passed with this config",
        "Nothing has shown yet that its ranks can train together here.",
        Fix("Run it; it takes seconds.", ("mgpu smoke-test",)),
    )


@check(Severity.ERROR, source=_WHY, because_of=("config_not_verified",))
def config_changed_since_verified(stamp: Stamp) -> Answer:
    """Something has changed since the smoke test passed.

    Why: another driver, NCCL, GPU or setting can bring back what the test had excluded.

    Fix: run the smoke test again.
    """
    if stamp.verified is None:
        return Skip("it was never verified: see config_not_verified")
    changed = differences(stamp)
    if not changed:
        return Ok(f"nothing has changed since {stamp.verified_at}")
    return Problem(
        f"changed since it was verified: {', '.join(name for name, _, _ in changed)}",
        "; ".join(f"{name} {old} -> {new}" for name, old, new in changed),
        Fix("Test again.", ("mgpu smoke-test",)),
        {name: f"{old} -> {new}" for name, old, new in changed},
    )


def differences(stamp: Stamp) -> list[tuple[str, str, str]]:
    """What differs: name, as verified, now. The hash and the file's name are not told when the keys tell more."""
    before, now = stamp.verified or {}, stamp.now
    names = [name for name in {**before, **now} if name != "file" and before.get(name) != now.get(name)]
    if any(name.startswith("config.") for name in names):
        names = [name for name in names if name != "config"]
    return [
        (name.removeprefix("config."), before.get(name, "not set"), now.get(name, "not set")) for name in sorted(names)
    ]

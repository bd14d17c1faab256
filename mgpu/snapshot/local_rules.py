"""What a project or a site adds to mgpu's checks: waivers and plug-ins."""

from __future__ import annotations

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, Moment, Text


@dataclass(frozen=True)
class WaivedCheck:
    """A check whose findings the project accepts (`[[tool.mgpu.waive]]`)."""

    check: Moment[Label]
    reason: Moment[Text]
    until: Moment[Label | None]  # ISO date, the last day
    line: Moment[int | None]
    known: bool  # mgpu has a check with this id
    near: Moment[Label | None] = None  # the closest id, if it has none


@dataclass(frozen=True)
class BrokenPlugin:
    """A plug-in whose checks were not loaded."""

    name: Moment[Text]  # an entry point or a file
    error: Moment[Text]
    unsafe: bool = False  # other users can change its file


@dataclass(frozen=True)
class LocalRules:
    """The waivers and plug-ins of this judgment."""

    file: Moment[Text]  # with the waivers; "" without any
    today: Moment[Label]  # ISO date
    waivers: Moment[tuple[WaivedCheck, ...]] = ()
    plugins: Moment[tuple[Text, ...]] = ()  # names of those that were loaded
    broken: Moment[tuple[BrokenPlugin, ...]] = ()

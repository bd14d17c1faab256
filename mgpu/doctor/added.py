"""What do plug-ins, the site and the project add to an examination: checks, and waivers of findings?"""

from __future__ import annotations

from mgpu import engine, project_settings
from mgpu.check import Check
from mgpu.doctor.request import Request
from mgpu.engine import plugins, waiving
from mgpu.snapshot import LocalRules


def checks_of(request: Request) -> tuple[Check, ...]:
    """Return all checks: mgpu's own, and those of plug-ins unless a demo is shown."""
    return (*engine.load(), *_plugins(request).checks)


def rules_of(request: Request) -> LocalRules | None:
    """Return the facts about waivers and plug-ins.

    The project in this folder waives nothing on a node of a cluster, for a monitor or scheduler, and in a demo.
    """
    of_a_node = request.demo or request.exit_style != "default" or request.hosts or request.compare_nodes
    project = None if of_a_node else project_settings.find()
    return waiving.rules_of(project, _plugins(request))


def _plugins(request: Request) -> plugins.Plugins:
    return plugins.Plugins() if request.demo else plugins.load()

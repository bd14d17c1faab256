"""May this run start: is its config verified on this machine as it is now, and who decides when it is not?"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mgpu import engine, errors, probes, report
from mgpu.check import Skip
from mgpu.document import check_json
from mgpu.launch import result
from mgpu.launch.request import Request
from mgpu.smoke import run as smoke
from mgpu.snapshot import Snapshot

POLICIES = ("ask", "allow", "refuse")


def verification(snapshot: Snapshot) -> list[engine.Outcome]:
    """Why this config does not count as verified; empty when it does. Not known is not verified."""
    checks = [check for check in engine.load() if check.area == "stamp"]
    outcomes = engine.run(checks, snapshot)
    return [o for o in outcomes if o.status in ("fail", "crash") or o.unknown]


def cannot_see_gpus(snapshot: Snapshot) -> list[engine.Outcome]:
    """Unverified and allowed: torch is asked after all, because ranks that see no GPU would train alone on the CPU."""
    assert snapshot.driver is not None
    return smoke.refusals(probes.with_torch(snapshot)) if snapshot.driver.any_gpu else []


def policy(request: Request) -> str:
    """What happens to a run that is not verified: asked when somebody is there, refused when nobody is."""
    can_ask = report.can_ask() and not request.yes
    wish = request.unverified or "ask"
    return "refuse" if wish == "ask" and not can_ask else wish


def ask_what(verified: Sequence[engine.Outcome]) -> str:
    from mgpu.wizard import prompts
    from mgpu.wizard.questions import Choice, Question

    screen = report.Screen.of(sys.stderr)
    screen.show([[("Not verified: ", "warn"), (why(verified), "")]])
    question = Question(
        "unverified",
        "Run the smoke test first?",
        "The smoke test takes seconds and shows that the ranks can train together.",
        default="test",
        choices=(
            Choice("test", "Yes, then launch"),
            Choice("launch", "Launch anyway"),
            Choice("stop", "Stop"),
        ),
        saves=False,
    )
    answer = prompts.ask(question)
    return answer if isinstance(answer, str) else "stop"


def why(verified: Sequence[engine.Outcome]) -> str:
    first = next((o for o in verified if o.problem), None)
    if first is not None and first.problem is not None:
        return first.problem.cause if first.check.id == "config_changed_since_verified" else first.problem.title
    answer = verified[0].answer
    return f"it cannot be told: {answer.reason}" if isinstance(answer, Skip) else "a check crashed"


def refuse(request: Request, problems: Sequence[engine.Outcome], text: str) -> int:
    screen = report.Screen.of(sys.stderr)
    lines = report.problems(problems, screen, command="mgpu doctor", show_all=False)
    if not lines:
        lines = [[(f"Not known: {why(problems)}", "")]]
    screen.show([*lines, [], [("NOT STARTED", "fail"), (f"  {text}", "")]])
    if request.json_result:
        result.write(
            request,
            {
                "phase": "preflight",
                "exit_code": errors.LAUNCH_REFUSED,
                "checks": [check_json(o) for o in problems],
            },
        )
    return errors.LAUNCH_REFUSED

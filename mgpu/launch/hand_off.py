"""How is the run started, watched, and what is said at its end?"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mgpu import report
from mgpu.launch import command as launching
from mgpu.launch import exit_code, result, supervise
from mgpu.launch.request import Request


def hand_off(request: Request, command: launching.Command, folder: Path) -> int:
    """The real launcher, supervised; the end in one line, the exit code the training's own."""
    screen = report.Screen.of(sys.stderr)
    screen.show([[(screen.rule("your program's output starts here"), "")]])
    started = time.monotonic()
    log = supervise.open_log(folder)
    try:
        ended = supervise.Supervisor(command, log).run()
    finally:
        if log is not None:
            log.close()
    code = exit_code.of_training(ended.returncode, ended.tail, ended.signalled)
    failure = exit_code.first_failure(ended.tail) if code else None
    took = supervise.seconds_since(started)
    lines: list[report.Line] = [[(screen.rule("end of your program"), "")]]
    if code == 0:
        lines.append([("mgpu: finished", "ok"), (f", exit 0, {took}", "")])
    else:
        word = "stopped" if ended.signalled else "FAILED"
        lines.append([(f"mgpu: {word}", "fail"), (f" after {took}, exit {code}", "")])
        if failure is not None and not ended.signalled:
            how = f"killed by {failure.signal}" if failure.signal else f"exit code {failure.exit_code}"
            host = f" on {failure.host}" if failure.host else ""
            lines.append([(f"First to fail  rank {failure.rank}{host}, {how}", "")])
        lines.append([(f"Log            {folder}/run.log", "")])
    if ended.left_over:
        lines.append([(f"mgpu ended {len(ended.left_over)} process(es) that were left behind", "")])
    if ended.stuck:
        lines.append([(f"processes that cannot be ended: {' '.join(map(str, ended.stuck))}", "fail")])
    screen.show(lines)
    if request.json_result:
        result.write(request, {
            "phase": "training",
            "exit_code": code,
            "command": list(command.argv),
            "env_added": dict(command.env_added),
            "duration_s": round(time.monotonic() - started, 3),
            "first_failure": None if failure is None else {
                "rank": failure.rank, "host": failure.host, "signal": failure.signal, "exit": failure.exit_code,
            },
            "logs": str(folder),
        })  # fmt: skip
    return code

"""What does the real accelerate say of a config file?

Runs in a child process in the interpreter of the training: accelerate's own loader, its launch parser, its validation
and the preparation of the launch environment, exactly as `accelerate launch --config_file FILE train.py` goes through
them, short of starting anything.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any


def probe(path: str) -> Iterator[dict[str, Any]]:
    """Yield the fact loader: accepted or not, with accelerate's own words."""
    yield {"asking": "accelerate to load the config"}
    try:
        import accelerate
        from accelerate.commands.launch import _validate_launch_command, launch_command_parser
        from accelerate.utils.launch import prepare_multi_gpu_env
    except BaseException:
        return  # no accelerate, or a broken one: nobody could be asked, and another check says so
    verdict = {"accepted": False, "error": None, "accelerate": accelerate.__version__}
    try:
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            args = launch_command_parser().parse_args(["--config_file", path, "train.py"])
            args, _, _ = _validate_launch_command(args)
            if args.multi_gpu or args.use_fsdp:
                args.main_process_port = 0 if args.num_machines in (None, 0, 1) else args.main_process_port
                prepare_multi_gpu_env(args)
        verdict["accepted"] = True
    except SystemExit as error:
        verdict["error"] = f"accelerate's argument parser refused it (exit {error.code})"
    except BaseException as error:
        words = " ".join(str(error).split())
        verdict["error"] = f"{type(error).__name__}: {words}" if words else type(error).__name__
    yield {"loader": verdict}

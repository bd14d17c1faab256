"""Start the recorder in the Python processes of a run, then the sitecustomize that this one hides."""

import os
import sys


def _start_recorder() -> None:
    """An error here must not affect the training."""
    if not os.environ.get("MGPU_RECORDER"):
        return
    try:
        import _mgpu_recorder  # type: ignore[import-not-found]

        _mgpu_recorder.begin()
        if os.environ.get("MGPU_REHEARSAL"):
            import _mgpu_rehearsal  # type: ignore[import-not-found]

            _mgpu_rehearsal.begin()
    except Exception:
        if os.environ.get("MGPU_DEBUG"):
            import traceback

            traceback.print_exc()


def _run_hidden() -> None:
    """Run the next sitecustomize on sys.path, as Python would. Its errors are the user's: Python reports them."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [place for place in sys.path if os.path.abspath(place or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


_start_recorder()
_run_hidden()

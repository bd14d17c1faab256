"""Start the recorder in the Python processes of a run, then the sitecustomize that this one hides.

A run may start programs with any Python: this file has the syntax of 2.7 too, and does nothing of its own there.
"""

import os
import sys

# An error here must not affect the training.
if os.environ.get("MGPU_RECORDER") and sys.version_info >= (3, 8):
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

# Run the next sitecustomize on sys.path, as Python would. Its errors are the user's: Python reports them.
_HERE = os.path.dirname(os.path.abspath(__file__))
_ELSEWHERE = [place for place in sys.path if os.path.abspath(place or os.curdir) != _HERE]
if sys.version_info >= (3, 5):  # noqa: UP036 - not the Python of mgpu
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    _spec = PathFinder.find_spec("sitecustomize", _ELSEWHERE)
    if _spec is not None and _spec.loader is not None:
        _module = sys.modules["sitecustomize"] = module_from_spec(_spec)
        _spec.loader.exec_module(_module)
else:
    import imp

    try:
        _found = imp.find_module("sitecustomize", _ELSEWHERE)
    except ImportError:
        _found = None
    if _found is not None:
        imp.load_module("sitecustomize", *_found)

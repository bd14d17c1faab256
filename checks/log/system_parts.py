"""Is a part of the system or of the data missing: a model of spaCy, GPU libraries, values?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import every, message

_NEAR = 40  # lines
_JAX = "https://docs.jax.dev/en/latest/installation.html"


def _computed_before(log: Log, raised: UncaughtException | None) -> bool:
    """Whether numpy warned of NaN or infinity just before the exception, or in a file that it passed through."""
    warned = next((one for one in log.shows if one.name == "array_not_finite"), None)
    if warned is None or raised is None:
        return warned is not None
    file = warned.text.partition(".py:")[0].replace("\\", "/").rpartition("/")[2]
    own = {frame.partition(".py")[0].rpartition("/")[2] for frame in (*raised.frames, raised.place or "")}
    return file in own or (warned.file == raised.file and 0 <= raised.line - warned.last < _NEAR)


def _raised_here(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the script's own line raised it: an assertion, or `raise`."""
    own = raised is not None and bool(raised.place) and raised.raised_in_own_code
    return own and raised is not None and (raised.code or "").startswith(("raise ", "assert "))


_FIND_COLUMNS = Fix(
    "Find the columns.", ("print(pandas.DataFrame(X).isna().sum())", "print(numpy.isfinite(X).all(axis=0))")
)
# fmt: off
_COMPUTED = Case(
    _computed_before,
    "scikit-learn gets NaN or infinity, probably from what numpy computed before: {shown_array_not_finite}",
    "numpy only warns of it, once per line of code. 0 / 0 is NaN, any other number / 0 is infinity: a sum, a count, "
    "a standard deviation or a range (max - min) is 0, because all values are equal or there are none. A logarithm of "
    "0 and a root of a negative number do the same. Empty cells in the data are the other usual source.",
    (_FIND_COLUMNS,
     Fix("Test the divisor in that line, and decide what such a case means: zeros, or leaving it out.",
         ("size = x.max() - x.min()", "x = (x - x.min()) / size if size > 0 else numpy.zeros_like(x)")),
     Fix("Stop at the first such operation, to see its values.", ("numpy.seterr(divide='raise', invalid='raise')",))),
    "/home/user/score.py:31: RuntimeWarning: invalid value encountered in divide\n"
    "  return total / total.sum()\n"
    'Traceback (most recent call last):\n  File "/home/user/score.py", line 40, in main\n    fit(x, y)\n'
    "ValueError: Input X contains NaN.\n",
    "https://numpy.org/doc/stable/reference/generated/numpy.errstate.html")
_NOT_OF_SKLEARN = Case(
    every(message(r"^Input(?: [Xy])? contains (?:NaN|[Ii]nfinity)"), _raised_here),
    "the script's own check found {what} in its input ({the_place})",
    'The line is "{the_line}". The input has such values already (empty cells, a division by 0, a logarithm of 0), or '
    "a model before it gives them: weights after a step that diverged, fp16 that overflows.",
    (Fix("Find where they begin: in the data, or after a layer.",
         ("print(torch.isfinite(x).all())  # numpy.isfinite(x).all() of an array",
          "torch.autograd.set_detect_anomaly(True)")),),
    'Traceback (most recent call last):\n  File "/home/user/net.py", line 40, in forward\n    assert '
    "not torch.isnan(x).any(), 'Input contains NaN'\nAssertionError: Input contains NaN\n",
    "https://docs.pytorch.org/docs/stable/generated/torch.isfinite.html")
ROWS = (
    Row("log_spacy_model_missing", "root", "script",
        r"\[E050\] Can't find model '(?P<name>[\w./-]*\w)'",
        ("OSError: [E050] Can't find model 'en_core_web_sm'. It doesn't seem to be a Python package or a valid path to "
         "a data directory.",),
        "a model of spaCy is not installed here: {name}",
        "spaCy's models are packages of their own, which are downloaded once into the Python environment. A path of a "
        "trained model is relative to the folder of the run.",
        Fix("Download it where the environment is, on a node with internet access.",
            ("python -m spacy download {name:id}", "python -m spacy validate")),
        "https://spacy.io/usage/models", summary="A model of spaCy is not installed here."),
    Row("log_values_missing_in_data", "root", "script",
        r"Input(?: [Xy])? contains (?P<what>NaN|infinity|Infinity)",
        ("ValueError: Input X contains NaN.", "ValueError: Input y contains NaN.",
         "ValueError: Input contains NaN, infinity or a value too large for dtype('float32')."),
        "the data for scikit-learn has missing or infinite values ({what})",
        "Most of its models accept numbers only. Empty cells, a division by 0 or a logarithm in the features, or "
        "outputs of a network that diverged are the usual source.",
        (_FIND_COLUMNS,
         Fix("Fill them, or use a model that accepts them.",
             ("sklearn.impute.SimpleImputer().fit_transform(X)", "HistGradientBoostingClassifier()"))),
        "https://scikit-learn.org/stable/modules/impute.html",
        cases=(_NOT_OF_SKLEARN, _COMPUTED), summary="The data for scikit-learn has missing or infinite values."),
    Row("log_xla_libraries_missing", "root", "library",
        r"libdevice not found at|DNN library is not found|"
        r"RuntimeError: Unable to initialize backend '(?:cuda|gpu)'",
        ("InternalError: libdevice not found at ./libdevice.10.bc [Op:__inference_train_step_123]",
         "UnimplementedError: DNN library is not found.",
         "RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices."),
        "TensorFlow or JAX cannot use the GPU: its driver, cuDNN or a file of the CUDA toolkit is not found",
        "They load CUDA, cuDNN and libdevice from the environment or the system. The installed ones are of another "
        "release than the package was built for, another one is first in LD_LIBRARY_PATH, or the job has no GPU.",
        (Fix("Check what is loaded, and whether the process sees a GPU.",
             ("nvidia-smi -L", "echo $CUDA_VISIBLE_DEVICES $LD_LIBRARY_PATH",
              "pip list | grep -iE 'nvidia|jax|tensor'")),
         Fix("Let pip install the fitting libraries, and do not load others.",
             ("pip install --upgrade 'tensorflow[and-cuda]'", "pip install --upgrade 'jax[cuda12]'",
              "unset LD_LIBRARY_PATH")),
         Fix("libdevice: set the folder of the toolkit for XLA.",
             ("export XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda", "conda install -c nvidia cuda-nvcc"))), _JAX),
    Row("log_dgl_for_another_torch", "root", "library",
        r"Cannot find DGL C\+\+ (?P<part>\w+) library at",
        ("FileNotFoundError: Cannot find DGL C++ graphbolt library at /x/dgl/graphbolt/libgraphbolt_pytorch_2.4.0.so",),
        "the installed DGL has no {part} library for this torch",
        "Each release of DGL contains libraries for some releases of torch. The path in the message ends with the one "
        "that is missing.",
        Fix("Install a DGL for this torch and CUDA, or a torch that DGL supports.",
            ("pip install dgl -f https://data.dgl.ai/wheels/torch-2.4/cu124/repo.html", "pip show torch dgl")),
        "https://www.dgl.ai/pages/start.html", summary="The installed DGL has no library for this torch."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)

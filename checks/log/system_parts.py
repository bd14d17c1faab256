"""Is a part of the system missing: data of a language, UTF-8, a GPU library of TensorFlow or of a package?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_MATPLOTLIB = "https://matplotlib.org/stable/users/explain/figure/backends.html"
_TENSORFLOW = "https://www.tensorflow.org/install/pip"
_JAX = "https://docs.jax.dev/en/latest/installation.html"
# fmt: off
ROWS = (
    Row("log_language_data_missing", "root", "script",
        r"(?:^\s*Resource '?|\[E050\] Can't find model ')(?P<name>[\w./-]*\w)'?(?: not found\.|\. It doesn't seem)",
        ("  Resource punkt_tab not found.", "OSError: [E050] Can't find model 'en_core_web_sm'. It doesn't seem to be "
         "a Python package or a valid path to a data directory."),
        "the data of a language library (NLTK or spaCy) is not installed here: {name}",
        "NLTK and spaCy load tokenizers and models that their packages do not contain. They are downloaded once, to a "
        "folder of the user or of the environment.",
        (Fix("Download it where the environment is, on a node with internet access.",
             ("python -m nltk.downloader {name:id}  # NLTK", "python -m spacy download {name:id}  # spaCy")),
         Fix("NLTK also reads a copy from another folder.", ("export NLTK_DATA=/shared/nltk_data",))),
        "https://www.nltk.org/data.html", summary="The data of a language library is not installed here."),
    Row("log_output_not_utf8", "root", "script",
        r"'(?:ascii|latin-1|charmap|gbk|cp\d+)' codec can't encode",
        ("UnicodeEncodeError: 'ascii' codec can't encode characters in position 3-5: ordinal not in range(128)",
         "UnicodeEncodeError: 'charmap' codec can't encode character '\\u2713' in position 0: character maps to "
         "<undefined>", "UnicodeEncodeError: 'gbk' codec can't encode character '\\xa0' in position 12"),
        "text cannot be printed or written: the output's encoding is not UTF-8",
        "Batch jobs and containers often run with LANG=C, and Windows with a local code page. Python then encodes "
        "output, and files opened without an encoding, in it.",
        Fix("Set UTF-8 for the whole run, or for the file.",
            ("export PYTHONUTF8=1 PYTHONIOENCODING=utf-8 LC_ALL=C.UTF-8", "open(path, 'w', encoding='utf-8')")),
        "https://docs.python.org/3/using/cmdline.html#envvar-PYTHONUTF8"),
    Row("log_values_missing_in_data", "root", "script",
        r"Input(?: [Xy])? contains (?P<what>NaN|infinity|Infinity)",
        ("ValueError: Input X contains NaN.", "ValueError: Input y contains NaN.",
         "ValueError: Input contains NaN, infinity or a value too large for dtype('float32')."),
        "the data for scikit-learn has missing or infinite values ({what})",
        "Most of its models accept numbers only. Empty cells, a division by 0 or a logarithm in the features, or "
        "outputs of a network that diverged are the usual source.",
        (Fix("Find the columns.", ("print(pandas.DataFrame(X).isna().sum())", "print(numpy.isfinite(X).all(axis=0))")),
         Fix("Fill them, or use a model that accepts them.",
             ("sklearn.impute.SimpleImputer().fit_transform(X)", "HistGradientBoostingClassifier()"))),
        "https://scikit-learn.org/stable/modules/impute.html",
        summary="The data for scikit-learn has missing or infinite values."),
    Row("log_one_class_only", "root", "script",
        r"Only one class (?:is )?present in y_true|needs samples of at least 2 classes|"
        r"number of classes has to be greater than one|contains only one class|y contains 1 class",
        ("ValueError: Only one class present in y_true. ROC AUC score is not defined in that case.",
         "ValueError: This solver needs samples of at least 2 classes in the data, but the data contains only one "
         "class: 0"),
        "the labels have one class only, so the score or the model is not defined",
        "The split, the fold or this rank's share of the data has no sample of the other class: it is small, sorted by "
        "class, or filtered; or a loader does not shuffle.",
        Fix("Count the labels of the part that it got, and split by class.",
            ("print(numpy.unique(y, return_counts=True))", "train_test_split(X, y, stratify=y)")),
        "https://scikit-learn.org/stable/modules/generated/sklearn.metrics.roc_auc_score.html"),
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

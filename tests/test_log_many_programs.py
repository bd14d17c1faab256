"""What does a line mean that several kinds of programs print, and what does it not prove?

Each kind has a near message in which it must not apply.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import frames
from tests.test_log_meanings import explained

SCRIPT = "/home/ada/fit.py"
GROUP = ("torch/distributed/distributed_c10d.py", "init_process_group", "store, rank, size = next(rendezvous)")
PARSED = "usage: {0} [-h] [--lr LR]\n{0}: error: {1}\n"


@pytest.mark.parametrize(
    ("log", "title", "absent"),
    [
        ("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n", "an old architecture, compute_35", "older than"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_61'\n", "compute_61, which this CUDA", "8.0 is"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_90a'\n", "the installed CUDA compiler does not", "drop"),
        ("Your compiler (c++ 4.8.5) may be ABI-incompatible with PyTorch!\n", "may be too old", "too new"),
        ("#error -- unsupported GNU version! gcc versions later than 12 are not supported!\n", "too new", "too old"),
        ("/usr/bin/ld: cannot find -lcudart\n", "the CUDA runtime (libcudart.so)", "stubs"),
        ("/usr/bin/ld: cannot find -lcuda\n", "the driver's libcuda.so", "toolkit brings"),
        ("LLVM ERROR: Failed to infer result type(s).\n", "Apple's GPU (MPS)", "Triton"),
        ("LLVM ERROR: Symbol not found: __svml_cosf8_ha\n", "numba cannot load", "Triton"),
        ("LLVM ERROR: Failed to compute parent layout for slice layout.\n", "usually Triton", "Apple's GPU"),
        ("a/m.c:9:10: fatal error: Python.h: No such file or directory\n", "Python's headers", "so Triton"),
    ],
)  # fmt: skip
def test_a_compilers_message_means_what_its_values_show(tmp_path: Path, log: str, title: str, absent: str) -> None:
    """The release, the library or the program that the line names decides, and nothing is said of another one."""
    _, found, words = explained(tmp_path, log)
    assert title in found
    assert absent not in f"{found} {words}"


def of_script(line: str, error: str, *deeper: tuple[str, str, str]) -> str:
    """Return a traceback from the script's own line."""
    return frames((SCRIPT, "main", line), *deeper) + error + "\n"


TAKEN = "OSError: [Errno 98] Address already in use"
NO_NAME = "socket.gaierror: [Errno -2] Name or service not known"
NO_ADDRESS = "OSError: [Errno 99] Cannot assign requested address"


@pytest.mark.parametrize(
    ("log", "title", "absent"),
    [
        (of_script("listener.bind((host, port))", TAKEN), "a server of the script's own", "29500"),
        (of_script("dist.init_process_group('nccl')", TAKEN, GROUP), "the rendezvous port", "script's own"),
        (f"{TAKEN}\n", "the rendezvous port", "script's own"),
        (of_script("sock.connect((host, 80))", NO_NAME), "the script connects to", "a node's"),
        (of_script("dist.init_process_group('nccl')", NO_NAME, GROUP), "a node's host name", "the script connects to"),
        (of_script("sock.connect(('localhost', 6379))", NO_ADDRESS), "the script connects to", "MASTER_ADDR"),
        (of_script("dist.init_process_group('nccl')", NO_ADDRESS, GROUP), "this node cannot listen", "localhost"),
        (PARSED.format("ipykernel_launcher.py", "unrecognized arguments: -f /k-1.json"), "in a notebook", "misspelled"),
        (PARSED.format("colab_kernel_launcher.py", "the following arguments are required: --data"), "in a notebook",
         "launcher.py --help"),
        (PARSED.format("fit.py", "unrecognized arguments: --lrr 1"), "no such option", "notebook"),
        (PARSED.format("fit.py", "the following arguments are required: --data"), "argument of fit.py", "notebook"),
    ],
)  # fmt: skip
def test_what_the_program_itself_opens_is_not_the_ranks_rendezvous(
    tmp_path: Path, log: str, title: str, absent: str
) -> None:
    """Nor are the options of a notebook's kernel those of a script."""
    _, found, words = explained(tmp_path, log)
    assert title in found
    assert absent not in f"{found} {words}"


LOADS = ("torch/serialization.py", "load", "return _load(opened_zipfile)")
READS = ("pandas/io/parsers/readers.py", "read_csv", "return _read(filepath, kwds)")
MAPS = ("datasets/arrow_dataset.py", "map", "for rank, done, content in self._map_single(**kwargs):")
SAVES = ("/home/ada/fit.py", "save", "pickle.dump(state, file)")


@pytest.mark.parametrize(
    ("log", "title", "absent"),
    [
        (of_script("state = torch.load(path)", "MemoryError", LOADS), "the file and the model", "every rank loads"),
        ("[rank1]: ready\n" + of_script("state = torch.load(path)", "MemoryError", LOADS), "every rank loads", "mmap"),
        (of_script("df = pd.read_csv(path)", "MemoryError", READS), "a table was read", "tokenize"),
        (of_script("data = data.map(tokenize)", "MemoryError", MAPS), "while the data was prepared", "read_csv"),
        (of_script("save(state, path)", "MemoryError", SAVES), "while something was saved", "state dict was gathered"),
        ("[rank1]: on\n" + of_script("save(state, path)", "MemoryError", SAVES), "state dict was gathered", "pickle,"),
        ("epoch 2 loss 0.4\nzsh: killed     python train.py\n", "the program was killed from outside", "Slurm"),
        ("bash: line 3: 123 Killed     python train.py\n", "was killed from outside", "vm_stat"),
    ],
)  # fmt: skip
def test_host_memory_of_one_process_is_not_filled_by_ranks(tmp_path: Path, log: str, title: str, absent: str) -> None:
    """Without a sign of other ranks, the text is about the one process that failed."""
    _, found, words = explained(tmp_path, log)
    assert title in found
    assert absent not in f"{found} {words}"


MAPPED = ("datasets/arrow_dataset.py", "apply_function", "processed_inputs = function(*fn_args)")
CLEANS = ("/home/ada/fit.py", "clean", "row['text'] = pad(row['text'])")
LOOKS_UP = ("torch/nn/modules/module.py", "__getattr__", "raise AttributeError(")
SETS = ("torchvision/datasets/mnist.py", "download", "raise RuntimeError(s)")
FETCHES = ("torchvision/datasets/utils.py", "_urlretrieve", "with urllib.request.urlopen(request) as response:")
READS_ROW = ("/home/ada/fit.py", "__getitem__", "return torch.tensor(self.y[i])")
NO_LENGTH = "TypeError: {}() missing 1 required positional argument: 'length'"
NO_NUMBER = "RuntimeError: Could not infer dtype of NoneType"
NOT_BOOL = "TypeError: 'bool' object is not iterable"
NO_SAVE = "AttributeError: 'Net' object has no attribute 'save_pretrained'"
KEYS = (
    'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight". \n'
    "\tUnexpected key(s) in state_dict: {}. "
)
CALLS_MAP = "data = data.map(clean)"


@pytest.mark.parametrize(
    ("log", "title", "absent"),
    [
        # The function that map() calls fails in its own lines, or is called with too little by map() itself.
        (of_script(CALLS_MAP, NO_LENGTH.format("pad"), MAPPED, CLEANS), "does not pass 'length'", "with_indices"),
        (of_script(CALLS_MAP, NO_LENGTH.format("clean"), MAPPED), "needs a second argument (length)", "Compare"),
        (of_script(CALLS_MAP, NOT_BOOL, MAPPED, CLEANS), "type bool is used", "filter"),
        (of_script(CALLS_MAP, NOT_BOOL, MAPPED), "one yes or no is given", "range("),
        # Nothing says that the data, or a setting of a trainer, is the reason.
        (of_script("x = torch.tensor(info.get('r'))", NO_NUMBER),
         "a tensor is made of None", "dataset.filter"),
        (of_script("x = next(it)", NO_NUMBER, READS_ROW), "a sample of the data",
         "get() did"),
        (of_script("x = torch.tensor(obs)", "RuntimeError: Could not infer dtype of dict"), "made of a dict", "row"),
        (of_script("net.save_pretrained('out')", NO_SAVE, LOOKS_UP), "which the script calls", "TrainingArguments"),
        (of_script("trainer.save_model('out')", NO_SAVE, LOOKS_UP), "models of transformers have", "the script calls"),
        # Which of its addresses refused, and why, is in other lines. Some refusals pass.
        (of_script("MNIST('x', download=True)", "RuntimeError: Error downloading a.gz", SETS), "from any", "503"),
        (of_script("MNIST('x', download=True)", "urllib.error.HTTPError: HTTP Error 503: Service Unavailable", FETCHES),
         "at the moment (HTTP error 503)", "moved"),
        (of_script("MNIST('x', download=True)", "urllib.error.HTTPError: HTTP Error 404: Not Found", FETCHES),
         "refused the download", "A later try"),
        # A whole checkpoint, whose weights have an entry of any name.
        (of_script("net.load_state_dict(s)", KEYS.format('"epoch", "generator", "optim_g"')),
         "probably 'generator'", "another model"),
        (of_script("net.load_state_dict(s)", KEYS.format('"epoch", "g", "d"')), "under a key of their own",
         "checkpoint['g']"),
        (of_script("net.load_state_dict(s)", KEYS.format('"scale", "shift"')), "another model", "of their own"),
        (of_script("net.load_state_dict(s)", KEYS.format('"steps"')), "another model", "of their own"),
    ],
)  # fmt: skip
def test_who_failed_and_what_was_read_decide(tmp_path: Path, log: str, title: str, absent: str) -> None:
    """A message of a package's function, of torch or of a server is not always about data, a trainer or a model."""
    _, found, words = explained(tmp_path, log)
    assert title in found
    assert absent not in f"{found} {words}"


RUST = ("safetensors/torch.py", "load_file", "with safe_open(filename, framework='pt', device=device) as f:")
HUB = ("transformers/modeling_utils.py", "load_state_dict", "with safe_open(checkpoint_file) as f:")
NO_WEIGHTS = 'FileNotFoundError: No such file or directory: "style.safetensors"'
FIELD = (
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for {}\nsize\n  Field required [type=missing, "
    "input_value={{'a': 1}}, input_type=dict]"
)
CHECKS = ("albumentations/core/validation.py", "custom_init", "config = schema(**full_kwargs)")
LOCK = "OSError: Unable to open file (unable to lock file, errno = {}, error message = 'x')"
COPY = "cp: cannot stat 'out/best.pt': No such file or directory\n"
DENIED = "PermissionError: [Errno 1] Operation not permitted: '{}'"
ONE_OFF = "RuntimeError: The size of tensor a (65) must match the size of tensor b (64) at non-singleton dimension 3"
BUSY = "sqlite3.OperationalError: database is locked"
READ_ONLY = "sqlite3.OperationalError: attempt to write a readonly database"
VECTOR = "RuntimeError: mat2 must be a matrix, got 1-D tensor"
ENGINE = ("deepspeed/runtime/engine.py", "forward", "loss = self.module(*inputs, **kwargs)")
GONE = "FileNotFoundError: [Errno 2] No such file or directory: 'out/cache'"


@pytest.mark.parametrize(
    ("log", "title", "absent"),
    [
        (of_script("state = load_file('style.safetensors')", NO_WEIGHTS, RUST), "the script opens", "zero_to_fp32"),
        (of_script("model = M.from_pretrained(p)", NO_WEIGHTS, HUB), "from_pretrained() needs", "the script opens"),
        # What a program prints of an exception that it caught looks as Hydra's message does.
        ("start\nKeyError('missing_column')\nend of the run\n", "printed an exception without", "HYDRA"),
        ("KeyError('missing_column')\nfull_key: model.net\n", "an object of the config", "caught"),
        (of_script("A.RandomCrop(height=8, width=8)", FIELD.format("InitSchema"), CHECKS), "a transform", "config"),
        (of_script("cfg = TrainConfig(**raw)", FIELD.format("TrainConfig")), "the config's field size", "transform"),
        (of_script("user = User(**raw)", FIELD.format("User")), "User rejects the field size", "config"),
        # The number says whether a process or the file system is the reason.
        (of_script("f = h5py.File(p)", LOCK.format(11)), "is open in another process", "Lustre"),
        (of_script("f = h5py.File(p)", LOCK.format(37)), "does not support locks", "fuser"),
        (f"epoch 9/10 loss 0.5\nepoch 10/10 loss 0.4\n{COPY}", "after the steps of the training", "set -e"),
        (COPY, "a command of the job script failed: cp", "before the training"),
        (of_script("names = os.listdir(root)", DENIED.format("/Users/ada/Documents/x")), "macOS probably", "chown"),
        (of_script("names = os.listdir(root)", DENIED.format("/data/x")), "this user may not change", "macOS"),
        (of_script("os.chown(path, 0, 0)", DENIED.format("/Users/ada/x")), "this user may not change", "macOS"),
        (of_script("att = att + self.mask[:, :, :t, :t]", ONE_OFF), "different sizes: 65 and 64", "strides"),
        (of_script("x = up + skip", ONE_OFF), "strides", "tokenizer"),
        (of_script("cur.execute(sql)", BUSY), "another process or connection", "OUTLINES"),
        (of_script("cur.execute(sql)", READ_ONLY), "cannot be written", "OUTLINES"),
        (f"[rank1]: on\n{of_script('cur.execute(sql)', BUSY)}", "that several ranks use", "connection.commit"),
        (of_script("y = torch.mm(a, b)", VECTOR), "has fewer dimensions", "GatheredParameters"),
        (of_script("loss = engine(x)", VECTOR, ENGINE), "weights are empty", "torch.mv"),
        (of_script("shutil.rmtree('out/cache')", GONE), "a folder that the script removes", "Several ranks run"),
    ],
)  # fmt: skip
def test_a_line_of_one_process_says_nothing_of_ranks_or_frameworks(
    tmp_path: Path, log: str, title: str, absent: str
) -> None:
    """Each kind stands beside the same message in a log that shows the ranks, the framework or the other reason."""
    _, found, words = explained(tmp_path, log)
    assert title in found
    assert absent not in f"{found} {words}"


WINDOWS = 'Traceback (most recent call last):\n  File "C:\\Users\\ada\\fit.py", line 7, in <module>\n    {}\n{}\n'
TOO_LARGE = (
    "numpy.core._exceptions._ArrayMemoryError: Unable to allocate {} GiB for an array with shape (40000, 40000) and "
    "data type float64"
)
CONV = (
    "RuntimeError: Given groups=1, weight of size [64, {0}, 3, 3], expected input{1} to have {0} channels, but got {2} "
    "channels instead"
)
CONVOLVES = ("torch/nn/modules/conv.py", "_conv_forward", "return F.conv2d(input, weight)")
SHAPES = "ValueError: operands could not be broadcast together with shapes (100,3) (100,)"
NONE = "TypeError: 'NoneType' object is not subscriptable"
NO_SHAPE = "AttributeError: 'NoneType' object has no attribute 'shape'"
COMPILER = "RuntimeError: Failed to find C compiler. Please specify via CC environment variable."


@pytest.mark.parametrize(
    ("log", "title", "absent"),
    [
        # The message's own shape is no shape that the program printed before.
        (of_script("x = np.zeros(shape)", TOO_LARGE.format("12.0")), "one array of 12.0 GiB", "printed"),
        (of_script("x = np.zeros(shape)", TOO_LARGE.format("64.0")), "one array of 64.0 GiB", "was not free"),
        ("preds shape: (90000, 96, 512)\nKilled\n", "just after it printed", "numpy could not"),
        # A side of a square feature map can equal the channels that are expected.
        (of_script("y = self.down(x)", CONV.format(8, "[1, 4, 8, 8]", 4), CONVOLVES), "channels", "last dimension"),
        (of_script("y = self.down(x)", CONV.format(6, "[1, 90, 80, 6]", 90), CONVOLVES), "in its last dim", "alpha"),
        # A function is no metric because of its name.
        (of_script("d = path - times", SHAPES, ("/home/ada/fit.py", "compare_paths", "d = path - times")),
         "cannot be combined", "scores of classes"),
        (of_script("a = accuracy(preds, y)", SHAPES, ("/home/ada/fit.py", "accuracy", "return (preds == y).mean()")),
         "cannot be combined", "preprocess_logits"),
        (of_script("h = img.shape[0]; part = img[0:h]", NONE), "something is None", "no items by number"),
        (of_script("x = m[0]", "TypeError: 'Net' object is not subscriptable"), "[ ] of a Net", "is None"),
        (of_script("h = img.shape", NO_SHAPE), "img is None", "OpenCV"),
        # Commands of Linux do not exist on Windows, and gcc is not the compiler there.
        (WINDOWS.format("compiled(x)", COMPILER), "Microsoft's cl", "apt-get"),
        (of_script("compiled(x)", COMPILER), "needs a C compiler", "Microsoft"),
        (WINDOWS.format("data = load(path)", "MemoryError"), "could not allocate host memory", "dmesg"),
        (of_script("data = read(path)", "MemoryError").replace("/home/", "/Users/"), "host memory", "sysctl"),
    ],
)  # fmt: skip
def test_shapes_names_and_the_system_decide(tmp_path: Path, log: str, title: str, absent: str) -> None:
    """An explanation needs more than a size or a name that happens to fit, and commands that the system has."""
    _, found, words = explained(tmp_path, log)
    assert title in found
    assert absent not in f"{found} {words}"


def test_an_image_that_is_none_was_perhaps_not_read(tmp_path: Path) -> None:
    assert "cv2.imread" in explained(tmp_path, of_script("h = img.shape", NO_SHAPE))[2]
    assert "cv2.imread" not in explained(tmp_path, of_script("h = weights.shape", NO_SHAPE))[2]


def test_the_commands_of_linux_stay_on_linux(tmp_path: Path) -> None:
    assert "dmesg" in explained(tmp_path, of_script("data = load(path)", "MemoryError"))[2]


RESTORES = ("torch/serialization.py", "load", "return _load(opened_zipfile)")
MOVES = ("torch/nn/modules/module.py", "convert", "return t.to(device)")
NOT_EMPTY = "OSError: [Errno 39] Directory not empty: 'out/checkpoint'"
ROTATES = ("transformers/trainer.py", "_rotate_checkpoints", "shutil.rmtree(checkpoint)")
FETCHES_HUB = ("torch/hub.py", "download_url_to_file", "raise RuntimeError(")
OLD_CODE = ("oldlib/io.py", "load", "for i in xrange(3):")


@pytest.mark.parametrize(
    ("log", "title", "absent"),
    [
        (of_script("ck = torch.load(p)", "RuntimeError: Attempting to deserialize object on CUDA device 3 but "
                   "torch.cuda.device_count() is 1.", RESTORES), "from CUDA device 3", "The file comes from a rank"),
        (of_script("net.to('cuda')", "NotImplementedError: Cannot copy out of meta tensor; no data!", MOVES),
         "no weights yet", "another rank reads"),
        (of_script("shutil.rmtree('out/checkpoint')", NOT_EMPTY), "the script could not remove", "transformers"),
        (of_script("trainer.train()", NOT_EMPTY, ROTATES), "several ranks or nodes", "the script could not"),
        (of_script("m = resnet50()", 'RuntimeError: invalid hash value (expected "06", got "e3")', FETCHES_HUB),
         "does not have the expected hash", "is damaged: probably"),
        ("train.sh: line 4: python: command not found\n", "no command of the name python", "accelerate"),
        ("train.sh: line 4: torchrun: command not found\n", "the launcher is not on PATH", "python-is-python3"),
        ("Fatal Python error: none_dealloc: deallocating None\n", "stopped: none_dealloc", "PYTHONHOME"),
        ("Fatal Python error: init_fs_encoding: failed to get the Python codec of the filesystem encoding\n",
         "stopped: init_fs_encoding", "faulthandler"),
        (of_script("x.load()", "NameError: name 'xrange' is not defined", OLD_CODE), "written for Python 2", "own"),
        (of_script("x.load()", "NameError: name 'Optional' is not defined", OLD_CODE), "its own code", "Python 2"),
    ],
)  # fmt: skip
def test_less_is_said_of_what_one_process_met(tmp_path: Path, log: str, title: str, absent: str) -> None:
    """A GPU's number, a folder, a download, a command and a name mean less without ranks or a launcher."""
    _, found, words = explained(tmp_path, log)
    assert title in found
    assert absent not in f"{found} {words}"

"""Which value of the script's own line was wrong: one line of code and Python's message, which says only the type.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import MODULE, SCRIPT, frames
from tests.test_log_meanings import explained

PANDAS = ("pandas/core/indexes/base.py", "get_loc", "raise KeyError(key) from err")
GETATTR = ("torch/nn/modules/module.py", "__getattr__", "raise AttributeError(")
OUTPUTS = ("transformers/utils/generic.py", "__getitem__", "return inner_dict[k]")
TIMM = ("timm/layers/patch.py", "forward", "B, C, H, W = x.shape")
JSON = ("/opt/env/lib/python3.11/json/encoder.py", "default", "raise TypeError(text)")


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        ("x = batch['mask'].cuda()", (), "KeyError: 'mask'", "batch has no key 'mask': the dataset or the collate",
            ".keys()"),
        ("n = cfg['depth']", (), "KeyError: 'depth'", "cfg has no key 'depth': it is missing in the config",
            "cfg.get("),
        ("f = TABLE[name]", (), "KeyError: 'swish'", "TABLE has no key 'swish'", "print(TABLE.keys())"),
        ("y = frame['score']", (PANDAS,), "KeyError: 'score'", "the table has no column 'score'", "df.columns"),
        ("n = args.total // args.each", (), "TypeError: unsupported operand type(s) for //: 'int' and 'NoneType'",
         "args.each is None", "The option was not set"),
        ("sched.step()", (), "AttributeError: 'NoneType' object has no attribute 'step'", "sched is None", "grep -nE"),
        ("first = found[0]", (), "TypeError: 'NoneType' object is not subscriptable", "found is None", "a lookup"),
        ("for one in listing:", (), "TypeError: 'NoneType' object is not iterable", "listing is None", "returned "
                                                                                                       "nothing"),
        ("for i, one in enumerate(listing):", (), "TypeError: 'NoneType' object is not iterable", "listing is None",
         "returned nothing"),
        ("lr = cfg.optim.lr", (), "AttributeError: 'dict' object has no attribute 'optim'",
         "cfg is a dict, and fit.py:7 in main reads its attribute optim", "cfg['optim']"),
        ("loss, pred = net(x)", (), "ValueError: not enough values to unpack (expected 2, got 1)",
         "net(x) gives 1 value, and fit.py:7 in main expects 2 (loss, pred)", "len(out)"),
        ("a, b = batch", (), "ValueError: too many values to unpack (expected 2)", "batch gives more values",
            "collated"),
        ("y = net(x, t)", (MODULE,), "TypeError: Net.forward() takes 2 positional arguments but 3 were given",
         "your call at fit.py:7 in main passes 3 positional arguments to Net.forward(), which takes 2", "def forward"),
        ("y = net(x)", (MODULE,), "TypeError: Net.forward() missing 1 required positional argument: 't'",
         "your call at fit.py:7 in main does not pass 't' to Net.forward()", "The line is"),
        ("mean = total / len(loader)", (), "ZeroDivisionError: division by zero", "loader is empty", "several ranks"),
        ("steps = n // world", (), "ZeroDivisionError: integer division or modulo by zero", "world is 0",
            "print(world)"),
        ("x = torch.cat(parts)", (), "RuntimeError: torch.cat(): expected a non-empty list of Tensors", "parts is "
                                                                                                        "empty",
         "share of the data"),
        ("last = parts[3]", (), "IndexError: list index out of range", "parts has fewer than 4 items",
            "print(len(parts)"),
        ("step = int(name)", (), "ValueError: invalid literal for int() with base 10: 'final'",
         "name is the text 'final', which is no number", "repr(name)"),
        ("json.dump(row, f)", (JSON,), "TypeError: Object of type Tensor is not JSON serializable",
         "a Tensor is written as JSON", "value.tolist()"),
        ("print(f'{best:.3f}')", (), "TypeError: unsupported format string passed to NoneType.__format__",
            "best is None",
         "no step or evaluation"),
        ("assert len(files) > 0, 'no files'", (), "AssertionError: no files",
         "a check in the script's own code failed at fit.py:7 in main: no files", 'requires "len(files) > 0"'),
        ("raise ValueError(f'unknown loss {name}')", (), "ValueError: unknown loss huberr",
         "the script's own code stopped the run at fit.py:7 in main: unknown loss huberr", "grep -n -B8"),
        ("raise KeyError(f'{path} lacks the keys {missing}')", (), "KeyError: \"data/a lacks the keys ['reward']\"",
         "the script's own code stopped the run at fit.py:7 in main: data/a lacks the keys ['reward']", "grep -n -B8"),
        ("main()", (), "RecursionError: maximum recursion depth exceeded", "main calls itself too deeply",
            "repeat"),
        ("h = net.encode(x)", (GETATTR,), "AttributeError: 'TinyNet' object has no attribute 'encode'",
         "TinyNet has no attribute encode, which fit.py:7 in main reads", "def encode"),
        ("self.proj(x)", (), "AttributeError: 'MyTrainer' object has no attribute 'proj'. Did you mean: 'prof'?",
         "MyTrainer has no attribute proj, which fit.py:7 in main reads: probably prof is meant", "grep -rnwE"),
        ("sampler.set_epoch(n)", (), "AttributeError: 'RandomSampler' object has no attribute 'set_epoch'",
         "only a DistributedSampler has set_epoch()", "hasattr"),
        ("t.backward()", (), "AttributeError: 'float' object has no attribute 'backward'", "t is a float, not a tensor",
         "print(type(t)"),
        ("y = out['scores']", (OUTPUTS,), "KeyError: 'scores'", "out has no key 'scores'", "print(out.keys())"),
        ("target = self.names[row[1]]", (), "KeyError: 'STD'", "self.names has no entry for 'STD', the value of row[1]",
         "print(self.names.keys())"),
        ("n = TABLE[names[i]]", (), "KeyError: 'elm'", "TABLE has no entry for 'elm', the value of names[i]",
         "TABLE.keys"),
        ("d = next(self.parameters()).device", (), "StopIteration", "self.parameters() is empty: the module has no",
         "x.device"),
        ("w = frames[0].size[1]", (), "TypeError: 'builtin_function_or_method' object is not subscriptable",
         "size is a method there, and fit.py:7 in main reads an item of it", "x.shape[1]"),
        ("y = net(input, 3)", (TIMM,), "AttributeError: 'builtin_function_or_method' object has no attribute 'shape'",
         "input is probably Python's own function there", "grep -nw input fit.py"),
        ("y = net(x)", (TIMM,), "AttributeError: 'builtin_function_or_method' object has no attribute 'shape'",
         "x is a function, and timm/layers/patch.py:7 in forward reads its attribute shape (called by fit.py:7",
         "Parentheses are missing"),
        ("n = sum(model.parameters)", (), "TypeError: 'method' object is not iterable",
         "model.parameters is a method, and fit.py:7 in main goes through it", "Call it: model.parameters()"),
        ("n = sum(weights)", (), "TypeError: 'method' object is not iterable",
         "a function was used where a value belongs (fit.py:7 in main)", "pyflakes fit.py"),
        ("gray = cv2.cvtColor(frame, 7)", (),
         "cv2.error: OpenCV(4.9.0) /io/color.hpp:92: error: (-15:Bad number of channels) in function 'f'\n"
         "> Invalid number of channels in input image:\n>     'scn' is 1",
         "cv2.cvtColor() does not accept the array that fit.py:7 in main gives it: Bad number of channels",
         "one channel already"),
        ("x = cv2.resize(image, (9, 9))", (),
         "cv2.error: OpenCV(4.9.0) /io/resize.cpp:41: error: (-215:Assertion failed) !ssize.empty() in function 'r'",
         "could not read a file of the dataset", "skip it"),
        ("from src.nets import Net", (), "ModuleNotFoundError: No module named 'src'",
         "Python does not find src, probably a module of the project itself", "PYTHONPATH=$PWD"),
        ("import utils.ranks", (), "ModuleNotFoundError: No module named 'utils.ranks'", "Python does not find "
                                                                                         "utils.ranks",
         "An installed package named utils"),
    ],
)  # fmt: skip
def test_the_value_is_named(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, f"{frames((SCRIPT, 'main', code), *below)}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)


def test_a_key_that_the_script_raises_itself_is_no_reason(tmp_path: Path) -> None:
    _, found, _ = explained(tmp_path, f"{frames((SCRIPT, 'main', 'raise KeyError(name)'))}KeyError: 'reward'\n")
    assert "own code stopped" not in found


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("call()", "KeyError: 'mask'"),
        ("run()", "ValueError: something of mine"),
        ("raise error", "ValueError: something of another"),
    ],
)
def test_a_line_that_does_not_show_it_is_only_quoted(code: str, error: str, tmp_path: Path) -> None:
    assert "fit.py:7 in main raised" in explained(tmp_path, f"{frames((SCRIPT, 'main', code))}{error}\n")[1]


@pytest.mark.parametrize(
    ("code", "error", "title"),
    [
        ("x = a[i][j]", "IndexError: list index out of range", "a list has fewer items than the line reads"),
        (
            "n = a // b // c",
            "TypeError: unsupported operand type(s) for //: 'NoneType' and 'NoneType'",
            "the line computes // of a NoneType and a NoneType, which Python does not know",
        ),
    ],
)
def test_a_line_with_several_values_names_none_of_them(code: str, error: str, title: str, tmp_path: Path) -> None:
    found = explained(tmp_path, f"{frames((SCRIPT, 'main', code))}{error}\n")[1]
    assert found == f"{title} (fit.py:7 in main)"


def test_parameters_of_a_copy_of_data_parallel(tmp_path: Path) -> None:
    calls = (("torch/nn/parallel/parallel_apply.py", "_worker", "output = module(*input)"), MODULE)
    text = frames(*calls, (SCRIPT, "forward", "d = next(self.parameters()).device")) + "StopIteration\n"
    _, title, words = explained(tmp_path, text)
    assert "self.parameters() is empty in the copies that nn.DataParallel makes" in title and "x.device" in words


def test_what_python_itself_raises_is_not_the_scripts_own_check(tmp_path: Path) -> None:
    library = ("/soft/python/3.10/lib/python3.10/wave.py", "open", "raise Error('unknown format of the file')")
    text = f"{frames((SCRIPT, 'main', 'x = load(name)'), library)}wave.Error: unknown format of the file\n"
    assert "fit.py:7 in main raised Error" in explained(tmp_path, text)[1]


def test_torch_in_an_unpacked_archive_is_not_the_scripts_own_code(tmp_path: Path) -> None:
    api = ("/dev/shm/uid-1/torch/distributed/_shard/api.py", "check", "raise RuntimeError(")
    _, title, words = explained(tmp_path, f"{frames((SCRIPT, 'main', 'shard(x)'), api)}RuntimeError: no such shard\n")
    assert "fit.py:7 in main raised" in title and "raised in torch/distributed/_shard/api.py:7 in check" in words


def test_a_literal_index_is_not_another_missing_key(tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, f"{frames((SCRIPT, 'main', 'y = pick(row[1])'))}KeyError: 'STD'\n")
    assert "row has no key" not in title + words


def test_an_error_of_the_settings_is_not_put_down_to_one_ranks_data(tmp_path: Path) -> None:
    """One rank of two printed it. A batch without a key can be one rank's, an option cannot."""
    start = "[rank0]: start\n[rank1]: start\n"
    option = frames((SCRIPT, "main", "n = args.a * args.b"), prefix="[rank1]: ")
    error = "[rank1]: TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'\n"
    assert "not about one rank's data" in explained(tmp_path, start + option + error)[2]
    batch = frames((SCRIPT, "main", "x = batch['mask']"), prefix="[rank1]: ")
    assert "share of the data" in explained(tmp_path, f"{start}{batch}[rank1]: KeyError: 'mask'\n")[2]


@pytest.mark.parametrize(
    ("sizes", "title", "command"),
    [
        ("dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject",
         "scikit-image was compiled for NumPy 1, and NumPy 2 is installed", "pip install 'numpy<2'"),
        ("dtype size changed, may indicate binary incompatibility. Expected 88 from C header, got 96 from PyObject",
         "scikit-image was compiled for a newer NumPy than the installed one", "pip install --upgrade numpy"),
        ("ndarray size changed, may indicate binary incompatibility. Expected 88 from C header, got 80 from PyObject",
         "scikit-image was compiled for a newer NumPy", "pip install --upgrade numpy"),
    ],
)  # fmt: skip
def test_sizes_of_structures_show_which_numpy_is_newer(sizes: str, title: str, command: str, tmp_path: Path) -> None:
    text = frames((SCRIPT, "main", "from skimage import data"), ("skimage/__init__.py", "f", "from ._x import y"))
    _, found, words = explained(tmp_path, f"{text}ValueError: numpy.{sizes}\n")
    assert title in found and command in words


IS_NONE = "TypeError: expected str, bytes or os.PathLike object, not NoneType\n"


@pytest.mark.parametrize(
    ("call", "said", "not_said"),
    [
        ("net = build(1, args.weights, vae)", "it passes args.weights and vae. args.weights can be an option", "?"),
        ("net = make(1, args.weights)", "a lookup that found nothing", "its caller"),
        ("net = rebuild(args.weights)", "a lookup that found nothing", "its caller"),
    ],
)
def test_what_the_caller_passes_can_be_none(call: str, said: str, not_said: str, tmp_path: Path) -> None:
    calls = ((SCRIPT, "main", call), ("/home/ada/nets.py", "build", "if os.path.splitext(path)[1] == '.bin':"))
    _, title, text = explained(tmp_path, f"{frames(*calls)}{IS_NONE}")
    assert title.startswith("path is None") and said in text and not_said not in text, text

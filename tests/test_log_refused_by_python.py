"""What Python and its library refuse: the values of the message, and what a script with this line can do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained


def words(code: str, error: str, folder: Path) -> str:
    return " | ".join(explained(folder, f"{frames((SCRIPT, 'main', code))}{error}\n"))


@pytest.mark.parametrize(
    ("code", "error", "title", "fix"),
    [
        # Values of another type
        (
            "loss, acc = evaluate()",
            "TypeError: cannot unpack non-iterable NoneType object",
            "one value of type NoneType",
            "type(out)",
        ),
        (
            "x = pairs[0]",
            "TypeError: 'zip' object is not subscriptable",
            "a zip has no item by number",
            "list(items)[0]",
        ),
        ("n = len(samples)", "TypeError: object of type 'generator' has no len()", "the length of a generator", "list"),
        (
            "m = model_cls(10)",
            "TypeError: 'str' object is not callable",
            "a str is called like a function",
            "type(value)",
        ),
        (
            "c = a + b",
            "TypeError: unsupported operand type(s) for +: 'dict' and 'dict'",
            "+ of a dict and a dict",
            "type(a)",
        ),
        (
            "x = lr * 0.5",
            "TypeError: can't multiply sequence by non-int of type 'float'",
            "meant to be a number",
            "float(cfg['lr'])",
        ),
        (
            "heapq.heapify(best)",
            "TypeError: '<' not supported between instances of 'dict' and 'dict'",
            "a dict and a dict are compared",
            "heappush",
        ),
        ("x = -lr", "TypeError: bad operand type for unary -: 'str'", "- is computed of a str", "print(repr(value))"),
        (
            "x = round(lr)",
            "TypeError: type str doesn't define __round__ method",
            "__round__ is computed of",
            "print(repr(",
        ),
        (
            "n = int(v)",
            "TypeError: int() argument must be a string, a bytes-like object or a real number, not 'list'",
            "a list is converted to a number",
            "repr",
        ),
        (
            "n = int(v)",
            "TypeError: int() argument must be a string, a bytes-like object or a number, not 'NoneType'",
            "a NoneType is converted to a number",
            "repr",
        ),
        ("f = files[i * 0.5]", "TypeError: list indices must be integers or slices, not float", "is a float", "//"),
        (
            "batch[0] = x",
            "TypeError: 'tuple' object does not support item assignment",
            "which cannot change",
            "list(batch)",
        ),
        (
            "print(f'{v:.3f}')",
            "TypeError: unsupported format string passed to list.__format__",
            "the format of one number",
            "item()",
        ),
        (
            "print(f'{v:d}')",
            "ValueError: Unknown format code 'd' for object of type 'float'",
            "with the format d",
            "int(n)",
        ),
        ("print('%d %f' % n)", "TypeError: not enough arguments for format string", "other placeholders", "f-string"),
        (
            "print('{} {}'.format(n))",
            "IndexError: Replacement index 1 out of range for positional args tuple",
            "than there are values",
            "f-string",
        ),
        (
            "with ctx as c:",
            "TypeError: 'type' object does not support the context manager protocol",
            "is no context",
            "no_grad()",
        ),
        ("net = Net(3)", "TypeError: Net() takes no arguments", "without an __init__", "def __init__"),
        (
            "super().__init__(dim)",
            "TypeError: object.__init__() takes exactly one argument (the instance to initialize)",
            "without an __init__",
            "def __init__",
        ),
        (
            "m = build(**extra)",
            "TypeError: __main__.build() argument after ** must be a mapping, not NoneType",
            "is a NoneType, not a dict",
            "extra or {}",
        ),
        (
            "net.device = 'cuda'",
            "AttributeError: property 'device' of 'Net' object has no setter",
            "the attribute device is a property that can only be read",
            "where the object is made",
        ),
        (
            "self.action_space = Box(low=-1, high=1)",
            "AttributeError: can't set attribute 'action_space'",
            "action_space of self is a property that can only be read",
            "@property",
        ),
        (
            "self.pad_token: str = '<pad>'",
            "AttributeError: property 'pad_token' of 'WordTokenizer' object has no setter",
            "pad_token of self is a property",
            "Override the property",
        ),
        ("p.x = 3", "AttributeError: can't set attribute", "can only be read", "_replace"),
        (
            "print(Trainer.lr)",
            "AttributeError: type object 'Trainer' has no attribute 'lr'",
            "the class Trainer itself",
            "Trainer()",
        ),
        (
            "step = re.match(p, s).group(1)",
            "AttributeError: 'NoneType' object has no attribute 'group'",
            "a pattern was not found",
            "re.search",
        ),
        (
            "n = find(x).size",
            "AttributeError: 'NoneType' object has no attribute 'size'",
            "something is None where",
            "repr",
        ),
        ("m = Mode('eval')", "ValueError: 'eval' is not a valid Mode", "Mode has no member with the value", "m.value"),
        ("lr = schedule[step + 2]", "IndexError: list index out of range", "a list has fewer items", "len(items)"),
        ("n = f.split('_')[1]", "IndexError: list index out of range", "split into fewer than 2 parts", "repr(text)"),
        ("wd = cfg.pop('wd')", "KeyError: 'wd'", "the key wd is taken out", "cfg.pop('KEY', None)"),
        (
            "d = cfg['model']['depth']",
            "KeyError: 'depth'",
            "cfg['model'] has no key 'depth'",
            "Add 'depth' to the config",
        ),
        ("d = cfg['model']['depth']", "KeyError: 'model'", "cfg has no key 'model'", "cfg.keys()"),
        (
            "n = int(f.split('_')[1])",
            "ValueError: invalid literal for int() with base 10: '1.tmp'",
            "a text is the text '1.tmp'",
            "repr(value)",
        ),
        # Rows of tables that know the message, for which the line shows another reason
        (
            "torch.save({'f': fn}, path)",
            "AttributeError: Can't pickle local object 'main.<locals>.<lambda>'",
            "something in what is saved",
            "state_dict()",
        ),
        (
            "ema = copy.deepcopy(trainer)",
            "TypeError: cannot pickle '_thread.lock' object",
            "something in what is copied",
            "deepcopy(model.state_dict())",
        ),
        (
            "for x in loader:",
            "TypeError: cannot pickle '_thread.lock' object",
            "cannot be sent to another process",
            "num_workers=0",
        ),
        (
            "subprocess.run(['tar'], check=True)",
            "subprocess.CalledProcessError: Command '['tar']' died with <Signals.SIGKILL: 9>.",
            "a command that the script starts was killed",
            "dmesg",
        ),
        (
            "r.raise_for_status()",
            "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://data.example.org/train.tar",
            "a server refused access",
            "curl -I",
        ),
        (
            "r.raise_for_status()",
            "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/api/models/x",
            "the Hub denied access",
            "hf auth login",
        ),
        (
            "if best < 0.1:",
            "TypeError: '<' not supported between instances of 'NoneType' and 'float'",
            "best is None",
            "grep",
        ),
        (
            "total = total + 1",
            "TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'",
            "total is None",
            "grep",
        ),
        (
            "for f in get_files():",
            "TypeError: 'NoneType' object is not iterable",
            "get_files() returned None",
            "grep",
        ),
        (
            "for a, b in zip(x, y, strict=True):",
            "ValueError: zip() argument 2 is shorter than argument 1",
            "number 2 is shorter",
            "len(a)",
        ),
        (
            "warnings.warn('old')",
            "UserWarning: lr_scheduler.step() before optimizer.step()",
            "a warning ends the run",
            "PYTHONWARNINGS",
        ),
        # Files
        ("x = np.memmap(p)", "ValueError: cannot mmap an empty file", "mapped into memory is empty", "ls -la"),
        (
            "x = np.memmap(p, shape=s)",
            "ValueError: mmap length is greater than file size",
            "smaller than the shape",
            "getsize",
        ),
        ("f.write(x)", "ValueError: I/O operation on closed file.", "used after it was closed", "with open"),
        (
            "shutil.copy(a, b)",
            "shutil.SameFileError: 'a.json' and './a.json' are the same file",
            "copied onto itself",
            "samefile",
        ),
        (
            "n = os.path.getsize(fs)",
            "TypeError: stat: path should be string, bytes, os.PathLike or integer, not list",
            "a path is not a text but a list",
            "type(path)",
        ),
        ("os.environ['A'] = 0", "TypeError: str expected, not int", "it must be a text", "str(value)"),
        (
            "subprocess.run(['a', n])",
            "TypeError: expected str, bytes or os.PathLike object, not int",
            "an argument or a variable of a command",
            "str(x) for x",
        ),
        (
            "with open(p, 'wb') as f: f.write(s)",
            "TypeError: a bytes-like object is required, not 'str'",
            "bytes and a text",
            "decode()",
        ),
        (
            "f.write(0.3)",
            "TypeError: write() argument must be str, not float",
            "a float is written into",
            "open(path, 'wb')",
        ),
        (
            "raw = f.read()",
            "EOFError: Compressed file ended before the end-of-stream marker was reached",
            "is cut off",
            "gzip -t",
        ),
        (
            "raw = z.read(n)",
            "KeyError: \"There is no item named 'a.wav' in the archive\"",
            "has no file a.wav",
            "unzip -l",
        ),
        # Settings
        (
            "c.get('train', 'lr')",
            "configparser.NoSectionError: No section: 'train'",
            "no section or option train",
            "config.sections()",
        ),
        (
            "c.get('train', 'lr')",
            "configparser.NoOptionError: No option 'lr' in section: 'train'",
            "no section or option lr",
            "sections",
        ),
        (
            "c = tomllib.load(f)",
            "tomllib.TOMLDecodeError: Invalid value (at line 2, column 8)",
            "mistake: Invalid value (at line 2, column 8)",
            "Correct that line",
        ),
        (
            "c = yaml.load(f)",
            "TypeError: load() missing 1 required positional argument: 'Loader'",
            "PyYAML 6",
            "safe_load",
        ),
        (
            "p.add_argument('--lr')",
            "argparse.ArgumentError: argument --lr: conflicting option string: --lr",
            "the option --lr is defined twice",
            "resolve",
        ),
        (
            "class C:",
            "ValueError: mutable default <class 'list'> for field betas is not allowed: use default_factory",
            "the dataclass field betas",
            "default_factory",
        ),
        ("class C:", "TypeError: non-default argument 'steps' follows default argument", "the field steps", "kw_only"),
        (
            "cfg.lr = 3",
            "dataclasses.FrozenInstanceError: cannot assign to field 'lr'",
            "the field lr of a frozen",
            "replace",
        ),
        # Programs and state
        (
            "for k in state:",
            "RuntimeError: dictionary changed size during iteration",
            "a dictionary is changed while",
            "list(state)",
        ),
        ("for x in stream():", "RuntimeError: generator raised StopIteration", "found no more items", "next(it, None)"),
        (
            "asyncio.run(f())",
            "RuntimeError: asyncio.run() cannot be called from a running event loop",
            "already runs",
            "await",
        ),
        (
            "self.fc = nn.Linear(3, 3)",
            "AttributeError: cannot assign module before Module.__init__() call",
            "before super().__init__()",
            "super().__init__()",
        ),
        ("c.execute(q)", "sqlite3.OperationalError: no such table: runs", "has no table runs", ".schema"),
        (
            "requests.get(u)",
            "requests.exceptions.MissingSchema: Invalid URL 'm/w.bin': No scheme supplied. Perhaps you "
            "meant https://m/w.bin?",
            "no address that the library can load: m/w.bin",
            "https://",
        ),
        (
            "random.setstate(s)",
            "TypeError: state vector must be a tuple",
            "the state of a random generator",
            "setstate",
        ),
        ("x = math.log(p)", "ValueError: math domain error", "outside of its range", "print(repr(x))"),
    ],
)
def test_each_refusal_of_python_has_a_meaning(code: str, error: str, title: str, fix: str, tmp_path: Path) -> None:
    text = words(code, error, tmp_path)
    assert title in text
    assert fix in text


@pytest.mark.parametrize(
    ("code", "error", "absent"),
    [
        (
            "fn = handlers[name](x)",
            "TypeError: handler() got an unexpected keyword argument 'x'",
            "called like a function",
        ),
        ("raise KeyError('wd')", "KeyError: 'wd'", "taken out"),
        ("raise ValueError('time data is wrong')", "ValueError: time data is wrong", "another form than the code"),
        ("print(len(x))", "TypeError: str expected, not int", "a variable of the environment"),
        ("x.group(1)", "AttributeError: 'Match' object has no attribute 'grp'", "a pattern was not found"),
        ("x = q.take()", "queue.Empty", "nothing arrived in a queue"),
        ("cfg.lr = 3", "AttributeError: can't set attributes of built-in/extension type 'int'", "can only be read"),
    ],
)
def test_similar_messages_do_not_get_it(code: str, error: str, absent: str, tmp_path: Path) -> None:
    assert absent not in words(code, error, tmp_path)

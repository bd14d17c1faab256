"""Messages that begin alike and mean different things: each gets its own answer, and not the other one's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

_ENUM = (("/opt/env/lib/python3.11/enum.py", "__getitem__", "return cls._member_map_[name]"),)
_STARTED = (
    ("/opt/env/lib/python3.11/subprocess.py", "_execute_child", "raise child_exception_type(errno_num, err_msg)"),
)
_SHUTIL = (("/opt/env/lib/python3.11/shutil.py", "_rmtree_safe_fd", "os.unlink(entry.name, dir_fd=topfd)"),)
_MISSING = "FileNotFoundError: [Errno 2] No such file or directory: "
_UNICODE = "UnicodeEncodeError: "
_URL = "urllib.error.URLError: <urlopen error unknown url type: "
_NEWER = "probably needs a newer Python"
_NO_MEMBER = "an enumeration has no member"
_NO_ANSWER = "does not answer"
_NO_PROGRAM = "there is no program of the name"

Below = tuple[tuple[str, str, str], ...]


def words(code: str, below: Below, error: str, folder: Path) -> str:
    return " | ".join(explained(folder, f"{frames((SCRIPT, 'main', code), *below)}{error}\n"))


# fmt: off
@pytest.mark.parametrize(
    ("code", "below", "error", "title", "fix"),
    [
        # Databases and tables
        ("c.execute(q)", (), "sqlite3.IntegrityError: UNIQUE constraint failed: r.run, r.step",
         "a row with the same r.run, r.step already", "without a message"),
        ("c.execute(q)", (), "sqlite3.IntegrityError: NOT NULL constraint failed: r.loss",
         "breaks a rule of the table (NOT NULL): r.loss", "Print the row"),
        ("c.execute(q)", (), "sqlite3.IntegrityError: CHECK constraint failed: step > 0", "(CHECK): step > 0", "row"),
        ("for row in r:", (), "_csv.Error: field larger than field limit (131072)", "longer than 131072", "awk"),
        ("w.writerow(row)", (), "ValueError: dict contains fields not in fieldnames: 'acc'", "that its header lacks",
         "restval=''"),
        # Files, and what is on the other side of a mount or a socket
        ("shutil.rmtree(path)", _SHUTIL, f"{_MISSING}'shard_3.bin'", "another process removes it at the same time",
         "if rank == 0"),
        ("x = open(p).read()", (), "TimeoutError: [Errno 110] Connection timed out: '/mnt/nfs/x'",
         f"the file system of /mnt/nfs/x {_NO_ANSWER}", "findmnt -T /mnt/nfs/x"),
        ("x = open(p).read()", (), "ConnectionAbortedError: [Errno 103] Software caused connection abort: 'data/x'",
         f"the file system of data/x {_NO_ANSWER}", "findmnt -T data/x"),
        ("s.connect(a)", (), "TimeoutError: [Errno 110] Connection timed out",
         "the address that the script connects to", "nc -vz"),
        ("s.connect(a)", (), "OSError: [Errno 113] No route to host", "there is no way from this node", "nc -vz"),
        ("subprocess.run('python prepare.py')", _STARTED, f"{_MISSING}'python prepare.py'", _NO_PROGRAM, "shlex"),
        ("fcntl.lockf(f, fcntl.LOCK_EX)", (), "OSError: [Errno 9] Bad file descriptor", "a lock needs a file",
         "open(path, 'a')"),
        ("f.read()", (), "OSError: [Errno 9] Bad file descriptor", "was not opened for what the line does", "worker"),
        ("os.mkdir(p)", (), "OSError: [Errno 22] Invalid argument: 'out/run_12:30'", "probably does not allow",
         "strftime"),
        ("os.mkdir(p)", (), "OSError: [Errno 36] File name too long: 'out/lr=1'", "a name of a file or folder is too",
         "print(path[:200])"),
        ("f = h5py.File(p)", (("h5py/_hl/files.py", "make_fid", "fid = h5f.open(name, flags)"),),
         "FileNotFoundError: [Errno 2] Unable to synchronously open file (unable to open file: name = 'd/a.h5', errno "
         "= 2, error message = 'No such file or directory', flags = 0, o_flags = 0)",
         "the HDF5 file d/a.h5 could not be opened: No such file or directory", "ls -ld d/a.h5"),
        ("f = h5py.File(p)", (("h5py/_hl/files.py", "make_fid", "fid = h5f.open(name, flags)"),),
         "OSError: Unable to synchronously open file (truncated file: eof = 96, sblock->base_addr = 0)",
         "an HDF5 file could not be opened: truncated file", "h5ls"),
        ("urllib.request.urlopen(u)", (), f"{_URL}https>", "it has no ssl module", "OPENSSL_VERSION"),
        ("urllib.request.urlopen(u)", (), f"{_URL}s3>", "no address that the library can load: s3", "fsspec"),
        # A newer Python, or a value that has no items
        ("def f(x: list[int]):", (), "TypeError: 'type' object is not subscriptable", _NEWER, "annotations"),
        ("def f(x: int | None):", (), "TypeError: unsupported operand type(s) for |: 'type' and 'NoneType'", _NEWER,
         "python --version"),
        ("x = d.keys()[0]", (), "TypeError: 'dict_keys' object is not subscriptable", "a dict_keys has no item",
         "list(items)[0]"),
        ("m = Mode[cfg.mode]", _ENUM, "KeyError: 'evall'", f"{_NO_MEMBER} evall", "list(Mode)"),
        ("import torch", (), "ImportError: libcuda.so.1: file too short", "the driver's library libcuda.so.1",
         "--gpus all"),
        ("import ext", (), "ImportError: /work/ext/ext.so: file too short", "a compiled module is damaged", "pip"),
        # Letters, numbers and types
        ("requests.get(u, headers=h)", (), rf"{_UNICODE}'latin-1' codec can't encode character '\u2019' in position 7: "
         "ordinal not in range(256)", "letters that latin-1 lacks", "ord(c) > 255"),
        ("f.write(t)", (), rf"{_UNICODE}'utf-8' codec can't encode character '\udc80' in position 0: surrogates not "
         "allowed", "halves of characters", "surrogateescape"),
        ("print('done', mark)", (), rf"{_UNICODE}'cp949' codec can't encode character '\u2713' in position 5: illegal "
         "multibyte sequence", "print() cannot write a character: '\\u2713' is not", "$env:PYTHONUTF8"),
        ("tqdm.write(line)", (), rf"{_UNICODE}'charmap' codec can't encode characters in position 0-9: character maps "
         "to <undefined>", "in position 0-9 is not in the code page of Windows (charmap)", "reconfigure"),
        ("print(text)", (), rf"{_UNICODE}'latin-1' codec can't encode character '\u2192' in position 2: ordinal not in "
         "range(256)", "is not in the output's encoding (latin-1)", "LANG=C.UTF-8"),
        ("f.write(text)", (), rf"{_UNICODE}'gbk' codec can't encode character '\u2764' in position 2: illegal "
         "multibyte sequence", "a file is written in the code page of Windows (gbk)", "encoding='utf-8'"),
        ("frame.to_csv('out.csv')", (), rf"{_UNICODE}'cp1252' codec can't encode character '\u011f' in position 9: "
         "character maps to <undefined>", "a file is written in the code page", "encoding='utf-8'"),
        ("x = ~mask", (), "TypeError: bad operand type for unary ~: 'float'", "~ is computed of a float", "repr"),
        ("text = 'a {x}'.format(y=1)", (), "KeyError: 'x'", "a text for format() names x", "text.format("),
        ("re.compile(name)", (), "re.PatternError: unterminated character set at position 0",
         "a regular expression has a mistake", "re.escape"),
        ("x = math.acos(c)", (), "ValueError: math domain error", "a function of math got", "print(repr(x))"),
        ("h = np.bincount(x)", (), "TypeError: Cannot cast array data from dtype('uint64') to dtype('int64') according "
         "to the rule 'safe'", "int64 cannot hold every uint64", "x.dtype"),
        ("x = np.asarray(s, dtype=s.dtype)", (), "TypeError: Cannot interpret 'Int64Dtype()' as a data type",
         "pandas' type Int64Dtype", "na_value"),
        ("np.zeros(3, 4)", (), "TypeError: Cannot interpret '4' as a data type", "4 is passed as the type", "(3, 4)"),
        ("h = np.bincount(y)", (), "ValueError: 'list' argument must have no negative elements", "a negative number",
         "y != -100"),
        ("import ext", (), "RuntimeError: module compiled against ABI version 0x1000009 but this version of numpy is "
         "0x2000000", "a package was compiled for NumPy 1", "pip install 'numpy<2'"),
        ("import ext", (), "RuntimeError: module compiled against API version 0x10 but this version of numpy is 0xf",
         "compiled for another NumPy", "pip install --upgrade numpy"),
    ],
)
def test_each_of_two_has_its_own_answer(
    code: str, below: Below, error: str, title: str, fix: str, tmp_path: Path
) -> None:
    text = words(code, below, error, tmp_path)
    assert title in text
    assert fix in text


@pytest.mark.parametrize(
    ("code", "below", "error", "absent"),
    [
        ("c.execute(q)", (), "sqlite3.IntegrityError: NOT NULL constraint failed: r.loss", "with the same"),
        ("c.execute(q)", (), "sqlite3.IntegrityError: UNIQUE constraint failed: r.id", "breaks a rule"),
        ("s.connect(a)", (), "ConnectionRefusedError: [Errno 111] Connection refused", _NO_ANSWER),
        ("x = open(p).read()", (), "TimeoutError: [Errno 110] Connection timed out: '/mnt/nfs/x'", "the address"),
        ("x = open(p).read()", (), "OSError: [Errno 113] No route to host: '/mnt/x'", "no way from this node"),
        ("x = open(p).read()", (), "OSError: [Errno 105] No buffer space available: '/mnt/x'", "for the network"),
        ("x = open(p).read()", (), "OSError: [Errno 101] Network is unreachable: '/mnt/x'", "no network on which"),
        ("files = os.listdir(p)", (), f"{_MISSING}'data'", "at the same time"),
        # Advice that would drop or overwrite something
        ("shutil.copytree(a, b)", (), "FileExistsError: [Errno 17] File exists: 'out/src'", "b, dirs_exist_ok"),
        ("shutil.rmtree(p)", (), "OSError: [Errno 16] Device or resource busy: '.nfs0001'", "ignore_errors"),
        ("f.write(t)", (), rf"{_UNICODE}'utf-8' codec can't encode character '\udc80' in position 0: surrogates not "
         "allowed", "errors='replace'"),
        ("x = np.load(p, mmap_mode='r')", (), "ValueError: Array can't be memory-mapped: Python objects in dtype.",
         "allow_pickle=True"),
        # A path with a space that a command does not start, and a program of one word
        ("run(open('my file.txt'))", (), f"{_MISSING}'my file.txt'", _NO_PROGRAM),
        ("subprocess.run('ffmpeg')", _STARTED, f"{_MISSING}'ffmpeg'", _NO_PROGRAM),
        ("f.read()", (), "OSError: [Errno 9] Bad file descriptor", "a lock needs"),
        ("os.mkdir(p)", (), r"OSError: [Errno 22] Invalid argument: 'C:\\data\\run'", "does not allow a character"),
        ("os.rename(a, b)", (), "OSError: [Errno 22] Invalid argument: 'a?' -> 'a?/b'", "does not allow a character"),
        ("urllib.request.urlopen(u)", (), f"{_URL}https>", "no address that the library"),
        ("urllib.request.urlopen(u)", (), f"{_URL}httpsx>", "no ssl module"),
        ("x = a | b", (), "TypeError: unsupported operand type(s) for |: 'NoneType' and 'NoneType'", _NEWER),
        ("x = a[0]", (), "TypeError: 'function' object is not subscriptable", _NEWER),
        ("c = CONFIG['lr']", (), "KeyError: 'lr'", _NO_MEMBER),
        ("import torch", (), "ImportError: libcuda.so.1: file too short", "a compiled module is damaged"),
        ("import ext", (), "ImportError: libcudart.so.12: file too short", "the driver's library"),
        ("f.write(t)", (), rf"{_UNICODE}'ascii' codec can't encode character '\u2019' in position 0: ordinal not in "
         "range(128)", "surrogates"),
        ("s = text.encode('cp1252')", (), rf"{_UNICODE}'cp1252' codec can't encode character '\u2019' in position 0: "
         "character maps to <undefined>", "cannot write a character"),
        ("t = '{a}'.format(a=row['x'])", (), "KeyError: 'x'", "a text for format()"),
        ("x = check_shape(a)", (), "TypeError: expected str, bytes or os.PathLike object, not int", "of a command"),
        ("x = np.asarray(s)", (), "TypeError: Cannot interpret 'Int64Dtype()' as a data type", "shape"),
        ("x = listen_to(p)", (), "PermissionError: [Errno 13] Permission denied", "may not listen"),
        ("import ext", (), "RuntimeError: module compiled against API version 0x10 but this version of numpy is 0xf",
         "numpy<2"),
    ],
)
def test_neither_gets_the_answer_of_the_other(
    code: str, below: Below, error: str, absent: str, tmp_path: Path
) -> None:
    assert absent not in words(code, below, error, tmp_path)


def test_an_enumeration_of_a_package_keeps_the_answer_about_its_setting(tmp_path: Path) -> None:
    line = "self.backward_prefetch = BackwardPrefetch[x]"
    plugin = (("accelerate/utils/dataclasses.py", "__post_init__", line), *_ENUM)
    text = words("p = FullyShardedDataParallelPlugin(backward_prefetch='PRE')", plugin, "KeyError: 'PRE'", tmp_path)
    assert "which accelerate does not accept" in text and _NO_MEMBER not in text

"""What the operating system refuses: each number of an error has a meaning for the call that got it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

_SHUTIL = (("/opt/env/lib/python3.11/shutil.py", "rmtree", "os.rmdir(path)"),)
_STARTED = (
    ("/opt/env/lib/python3.11/subprocess.py", "_execute_child", "raise child_exception_type(errno_num, err_msg)"),
)
_FORK = (("/opt/env/lib/python3.11/multiprocessing/popen_fork.py", "_launch", "self.pid = os.fork()"),)
_MAP = (("numpy/_core/memmap.py", "__new__", "mm = mmap.mmap(fid.fileno(), bytes, access=acc)"),)
_SOCKET = (("/opt/env/lib/python3.11/socket.py", "create_connection", "sock.connect(sa)"),)
_MISSING = "FileNotFoundError: [Errno 2] No such file or directory: "


def words(code: str, below: tuple[tuple[str, str, str], ...], error: str, folder: Path) -> str:
    return " | ".join(explained(folder, f"{frames((SCRIPT, 'main', code), *below)}{error}\n"))


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "fix"),
    [
        (
            "os.rename(tmp, path)",
            (),
            "OSError: [Errno 39] Directory not empty: 'out/s.tmp' -> 'out/s'",
            "the folder out/s has files in it, so out/s.tmp cannot be renamed",
            "barrier()",
        ),
        (
            "os.rmdir(path)",
            (),
            "OSError: [Errno 39] Directory not empty: 'out/s'",
            "so it cannot be removed",
            "ls -la out/s",
        ),
        (
            "shutil.rmtree('cache')",
            _SHUTIL,
            "OSError: [Errno 39] Directory not empty: 'cache'",
            "the folder cache was not empty when it was to be removed",
            "if rank == 0",
        ),
        (
            "os.replace(tmp, path)",
            (),
            "OSError: [Errno 18] Invalid cross-device link: '/tmp/a' -> '/data/a'",
            "/tmp/a and /data/a are on different disks",
            "shutil.move",
        ),
        (
            "os.makedirs(name)",
            (),
            "OSError: [Errno 36] File name too long: 'out/lr=1'",
            "is too long",
            "hashlib.sha256",
        ),
        (
            "open(path, 'wb')",
            (),
            "OSError: [Errno 26] Text file busy: 'bin/op'",
            "is a program that is running",
            "fuser",
        ),
        (
            "subprocess.run(['bin/op'])",
            _STARTED,
            "OSError: [Errno 26] Text file busy: 'bin/op'",
            "is started while a process has it open for writing",
            "close it",
        ),
        (
            "shutil.rmtree(path)",
            _SHUTIL,
            "OSError: [Errno 16] Device or resource busy: '.nfs0001'",
            "a deleted file in it open",
            "lsof",
        ),
        (
            "json.load(open(path))",
            (),
            "OSError: [Errno 40] Too many levels of symbolic links: 'a/b'",
            "symbolic links that point to each other",
            "namei -l a/b",
        ),
        ("f.write(x)", (), "OSError: [Errno 27] File too large", "the largest size that is allowed", "ulimit -f"),
        (
            "fcntl.flock(f, fcntl.LOCK_EX)",
            (),
            "OSError: [Errno 38] Function not implemented",
            "cannot lock it",
            "findmnt",
        ),
        (
            "fcntl.flock(f, fcntl.LOCK_EX)",
            (),
            "OSError: [Errno 95] Operation not supported",
            "cannot lock it",
            "findmnt",
        ),
        ("x = np.memmap(path, mode='r')", _MAP, "OSError: [Errno 19] No such device", "cannot be mapped", "fromfile"),
        (
            "os.sched_setaffinity(0, {512})",
            (),
            "OSError: [Errno 22] Invalid argument",
            "CPUs that it may not use",
            "taskset",
        ),
        (
            "os.rename(tmp, path)",
            (),
            f"{_MISSING}'out/m.tmp' -> 'out/m'",
            "out/m.tmp does not exist, or not any more",
            "if rank == 0",
        ),
        (
            "subprocess.run('python a.py -o x')",
            _STARTED,
            f"{_MISSING}'python a.py -o x'",
            "a whole command line was passed",
            "shlex.split",
        ),
        ("x = read(path)", (), f"{_MISSING}'/data/my clips/1.wav'", "does not exist: /data/my clips/1.wav", "ls -ld"),
        (
            "subprocess.run(['tar', *files])",
            _STARTED,
            "OSError: [Errno 7] Argument list too long: 'tar'",
            "the command line for tar is too long",
            "xargs",
        ),
        (
            "subprocess.run(['./a.sh'])",
            _STARTED,
            "OSError: [Errno 8] Exec format error: './a.sh'",
            "cannot execute ./a.sh",
            "#!/bin/bash",
        ),
        ("os.kill(pid, 15)", (), "ProcessLookupError: [Errno 3] No such process", "has already ended", "except"),
        (
            "os.chmod(path, 0o755)",
            (),
            "PermissionError: [Errno 1] Operation not permitted: '/data/x'",
            "this user may not change /data/x",
            "id",
        ),
        (
            "s.bind(('', 80))",
            (),
            "PermissionError: [Errno 13] Permission denied",
            "may not listen at that address",
            "above 1024",
        ),
        (
            "s = socket.create_connection(a)",
            _SOCKET,
            "ConnectionRefusedError: [Errno 111] Connection refused",
            "the address that the script connects to refuses",
            "ss -ltnp",
        ),
        (
            "s = socket.create_connection(a)",
            _SOCKET,
            "TimeoutError: [Errno 110] Connection timed out",
            "does not answer",
            "nc -vz",
        ),
        (
            "s = socket.create_connection(a)",
            _SOCKET,
            "OSError: [Errno 113] No route to host",
            "there is no way",
            "ip route",
        ),
        # Rows of tables that know the number, in a call for which it means something else.
        (
            "os.symlink(a, b)",
            (),
            "FileExistsError: [Errno 17] File exists: 'a' -> 'b'",
            "a link that the run makes",
            "os.replace(link + '.tmp', link)",
        ),
        (
            "shutil.copytree(a, b)",
            (),
            "FileExistsError: [Errno 17] File exists: 'b'",
            "copytree should create",
            "dirs_exist_ok",
        ),
        (
            "fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)",
            (),
            "BlockingIOError: [Errno 11] Resource temporarily unavailable",
            "another process holds the lock",
            "lslocks",
        ),
        (
            "pool = mp.Pool(8)",
            _FORK,
            "OSError: [Errno 12] Cannot allocate memory",
            "a process could not be started",
            "overcommit",
        ),
        (
            "x = np.load(path, mmap_mode='r')",
            _MAP,
            "OSError: [Errno 12] Cannot allocate memory",
            "could not be mapped into memory",
            "max_map_count",
        ),
        (
            "subprocess.run(['git'], cwd='apex')",
            _STARTED,
            f"{_MISSING}'apex'",
            "its folder or its program",
            "submodule",
        ),
        ("subprocess.run(['./a.sh'])", _STARTED, f"{_MISSING}'./a.sh'", "the interpreter in its first line", "cat -A"),
        (
            "subprocess.run(['rocm-smi'])",
            _STARTED,
            f"{_MISSING}'rocm-smi'",
            "the program rocm-smi is not installed",
            "PATH",
        ),
        (
            "with open(f'{p}/m.json', 'w') as f:",
            (),
            f"{_MISSING}'out/m.json'",
            "the folder of a file that the script writes",
            "makedirs",
        ),
        (
            "with open(path) as f:",
            (),
            f"{_MISSING}'out/m.json'",
            "out/m.json is not in the current folder of the process",
            "ls -ld",
        ),
        ("files = os.listdir('data')", (), f"{_MISSING}'data'", "a folder that the script reads or removes", "ls -ld"),
        ("os.remove(old)", (), f"{_MISSING}'out/old.pt'", "a file that the script removes is not there", "missing_ok"),
        (
            "os.replace(tmp, path)",
            (),
            "IsADirectoryError: [Errno 21] Is a directory: 'm.pt' -> 'out'",
            "cannot be renamed to the name of a folder",
            "os.path.join",
        ),
        (
            "os.remove(path)",
            (),
            "IsADirectoryError: [Errno 21] Is a directory: 'out'",
            "removes a folder as if",
            "ls -la",
        ),
        (
            "json.load(open(path))",
            (),
            "IsADirectoryError: [Errno 21] Is a directory: 'out'",
            "opens a folder as if",
            "ls",
        ),
        (
            "sock.send(b'x')",
            (),
            "BrokenPipeError: [Errno 32] Broken pipe",
            "the other end of a connection was closed",
            "ss",
        ),
    ],
)
def test_each_number_has_a_meaning_for_its_call(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, fix: str, tmp_path: Path
) -> None:
    text = words(code, below, error, tmp_path)
    assert title in text
    assert fix in text


@pytest.mark.parametrize(
    ("code", "error", "absent"),
    [
        # The same number in another call, or the same words in an exception of another kind.
        ("f.write(x)", "OSError: [Errno 38] Function not implemented", "cannot lock it"),
        ("s.recv(10)", "OSError: [Errno 22] Invalid argument", "CPUs that it may not use"),
        ("raise OSError(path)", "OSError: Directory not empty", "cannot be renamed"),
        ("x = lock.acquire()", "BlockingIOError: [Errno 11] Resource temporarily unavailable", "holds the lock"),
        ("with open(path, 'r') as f:", f"{_MISSING}'a.json'", "the folder of a file"),
    ],
)
def test_another_call_does_not_get_it(code: str, error: str, absent: str, tmp_path: Path) -> None:
    assert absent not in words(code, (), error, tmp_path)


def test_a_long_path_that_the_log_cuts_is_not_put_into_a_command(tmp_path: Path) -> None:
    path = "/data/" + "x" * 200 + "/" + "y" * 200
    text = words("os.rmdir(path)", (), f"OSError: [Errno 39] Directory not empty: '{path}'", tmp_path)
    assert "ls -la /data/xxx" not in text or path in text


_FETCHES = (("hubs/fetch.py", "fetch", "raise FileNotFoundError(message)"),)


@pytest.mark.parametrize(
    ("message", "is_path"),
    [
        ("No such dataset 'ada/birds-2.1' on the Hub", False),
        ("Model 'ada/birds-7b' does not exist", False),
        ("Could not find the repository: 'ada/birds'", False),
        ("Could not find dataset file: 'ada/birds.json'", True),
        ("Could not find the dataset: '/ada/birds'", True),
        ("Could not find the dataset: './birds'", True),
        ("Could not find the dataset: 'data/birds'", True),
        ("Could not find the model: '~/zoo/birds'", True),
        ("Could not find the masks: 'ada/birds'", True),
    ],
)
def test_names_of_a_hub_are_not_paths(message: str, is_path: bool, tmp_path: Path) -> None:
    text = words("rows = fetch(name)", _FETCHES, f"FileNotFoundError: {message}", tmp_path)
    assert ("ls -ld" in text) == is_path, text

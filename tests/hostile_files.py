"""Files that are not what their reader expects: other types, no end, too deep, too many digits, too long.

`TYPES` are no regular files, or have no end. `TEXTS` are regular files whose content costs memory or time, by suffix.
"""

from __future__ import annotations

import gzip
import os
import socket
from collections.abc import Callable
from pathlib import Path

DEEP = 100_000
DIGITS = "9" * 5000
LONG = "n" * 50_000


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def unix_socket(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{here}/{path.name}")  # the whole path may be too long for a socket
    os.close(here)


def five_gigabytes(path: Path) -> None:
    path.touch()
    os.truncate(path, 5 << 30)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


TYPES: dict[str, Callable[[Path], None]] = {
    "link to /dev/zero": link_to_zeros,
    "named pipe": pipe,
    "folder": folder,
    "socket": unix_socket,
    "5 GB": five_gigabytes,
    "link to itself": loop,
}


def aliases(levels: int, first: str) -> str:
    return f"a0: &a0 {first}\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, levels))


YAML = {
    "aliases": aliases(25, "x"),
    "aliases of a long text": aliases(4, '"' + "y" * 900_000 + '"') + "num_processes: *a3\n",
    "aliases in an answer": aliases(9, "x") + "model: *a8\nbatch: {per_gpu: *a8}\n",
    "contains itself": "fsdp_config: &a {b: *a}\n",
    "deep brackets": "fsdp_config: " + "[" * DEEP,
    "deep braces": "{a: " * (DEEP // 10),
    "deep lists": "- " * DEEP,
    "deep and closed": "fsdp_config: " + "[" * 900 + "]" * 900,
    "digits": f"num_processes: {DIGITS}\n",
    "30 digits": f"num_processes: 1{'0' * 30}\nnum_machines: 1{'0' * 30}\ndistributed_type: MULTI_GPU\n",
    "base 60": "num_processes: 1" + ":10" * 200_000,
    "long key": f"{LONG}: 1\ndistributed_type: MULTI_GPU\n",
    "long value": f"distributed_type: {LONG}\ngpu_ids: {LONG}\n",
    "many keys": "".join(f"key{n}: {n}\n" for n in range(80_000)),
    "zeros": "\0" * 100_000,
}
JSON = {
    "deep lists": "[" * DEEP,
    "deep objects": '{"a":' * DEEP,
    "deep and closed": '{"gaps": ' + "[" * 900 + "]" * 900 + "}",
    "deep enough": '{"gaps": ' + "[" * 400 + "]" * 400 + "}",
    "digits": f'{{"schema": {DIGITS}, "gpus": [{{"index": {DIGITS}}}]}}',
    "300 digits": f'{{"schema": 1, "gpus": [{{"index": 1{"0" * 300}}}]}}',
    "a million digits": f'{{"schema": 1{"0" * 1_000_000}}}',
    "long key": f'{{"schema": 1, "{LONG}": 1}}',
    "long value": f'{{"schema": "{LONG}", "gaps": "{LONG}"}}',
    "many lists": "[" + "[]," * 2_700_000 + "[]]",
    "infinite": '{"schema": Infinity, "taken": NaN, "exit_code": 1e999}',
    "surrogates": r'{"schema": "\ud800", "\udfff": 1}',
    "a list": "[]",
}
TOML = {
    "deep lists": "gpus = " + "[" * DEEP,
    "deep tables": "gpus = " + "{a=" * DEEP,
    "deep keys": "a" + ".a" * 50_000 + " = 1",
    "deep headers": "".join(f"[a{'.a' * 400}.b{n}]\n" for n in range(250)),
    "digits": f"[devices]\ngpus = {DIGITS}\n",
    "float digits": f"[optimizer]\nlr = 0.{DIGITS * 10}\n",
    "long key": f"{LONG} = 1\n",
    "long value": f'model = "{LONG}"\n',
    "long list": "gpus = [" + "0," * 80_000 + "]",
    "infinite": "lr = inf\nepochs = nan\n",
    "date": "gpus = 9999-99-99\n",
}
PYTHON = {
    "deep brackets": "x = " + "[" * DEEP,
    "deep brackets, closed": "x = " + "(" * 150 + ")" * 150,
    "deep minus": "x = " + "-" * DEEP + "1",
    "deep attributes": "x = a" + ".a" * DEEP,
    "deep calls": "x = a" + "()" * DEEP,
    "long sum": "x = " + "1+" * DEEP + "1",
    "deep functions": "".join(" " * n + "def f():\n" for n in range(99)) + " " * 99 + "pass\n",
    "deep ifs": "if a:\n    pass\n" + "elif a:\n    pass\n" * 20_000,
    "digits": f"import torch\nx = {DIGITS}\ntorch.cuda.set_device({DIGITS})\n",
    "long name": f"import torch\n{LONG} = 1\ntorch.cuda.set_device({LONG})\n",
    "zeros": "import torch\n" + "\0" * 1000,
    "f-strings": "x = " + 'f"{' * 200 + "1",
}
SHELL = {
    "deep substitutions": "#!/bin/bash\n#SBATCH --nodes=2\nx=" + "$(" * 50_000,
    "deep, closed": "#!/bin/bash\n#SBATCH --nodes=2\nx=" + "$(echo " * 2000 + ")" * 2000 + "\n",
    "deep braces": "#!/bin/bash\n#SBATCH --nodes=2\nx=" + "${x:-" * 40_000,
    "deep arithmetic": "#!/bin/bash\n#SBATCH --nodes=2\nx=$((" + "(" * 100_000,
    "deep ifs": "#!/bin/bash\n#SBATCH --nodes=2\n" + "if true; then\n" * 15_000,
    "100,000 lines": "#!/bin/bash\n#SBATCH --nodes=2\n" + "a\n" * 100_000,
    "many directives": "#!/bin/bash\n" + "#SBATCH --nodes=2\n" * 14_000,
    "digits": f"#!/bin/bash\n#SBATCH --nodes={DIGITS}\n#SBATCH --time={DIGITS}\n#SBATCH --gpus={DIGITS}\nsrun a\n",
    "node list": "#!/bin/bash\n#SBATCH --nodelist=n[0-999999999999]\nsrun a\n",
    "long name": f"#!/bin/bash\n#SBATCH --job-name={LONG}\n#SBATCH --output={LONG}/a\nsrun {LONG}\n",
    "one long line": "#!/bin/bash\n#SBATCH --nodes=2\nsrun " + "a " * 60_000,
    "doubling": "#!/bin/bash\n#SBATCH --nodes=2\nx=aaaaaaaaaa\n" + 'x="$x$x"\n' * 60 + "srun $x\n",
    "here documents": "#!/bin/bash\n#SBATCH --nodes=2\n" + "cat <<A\n" * 30_000,
}
LOG = {
    "no line ends": "a" * 30_000_000,
    "one long line of words": "Traceback (most recent call last): " * 300_000,
    "many tracebacks": 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    x\nValueError: x\n' * 8000,
    "deep tracebacks": "Traceback (most recent call last):\n" + '  File "a.py", line 1, in f\n    x\n' * 40_000,
    "digits": f"[rank{DIGITS}]: ValueError: {DIGITS}\nexitcode: {DIGITS} pid: {DIGITS} exit code {DIGITS}\n" * 300,
    "blanks": ("Error:" + " " * 60_000 + "x\n") * 60,
    "quotes": ('"' * 60_000 + "\n") * 60,
    "brackets": ("[rank0]: " * 7000 + "\n") * 60,
    "numbers": ("1.2.3.4:5 " * 6000 + "\n") * 60,
}


def bomb(path: Path, letter: bytes = b"a\n", size: int = 3 << 30) -> None:
    """A .gz of some MB that stands for `size` bytes: members of 64 MiB, one compressed and repeated."""
    part = gzip.compress(letter * ((64 << 20) // len(letter)), 9)
    with path.open("wb") as file:
        for _ in range(size // (64 << 20)):
            file.write(part)

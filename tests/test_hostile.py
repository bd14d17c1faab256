"""mgpu where nothing works: broken packages, no home, full disks, closed streams, odd terminals, booby-trapped folders.

Each of these ends with one clear message and the right exit code; never with a traceback.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mgpu import cli
from tests.conftest import ROOT, Run, environment, missing, need
from tests.scripts import ONE_PROCESS, write_config

COMMANDS = {
    "bare": (),
    "doctor": ("doctor", "--quick"),
    "configure": ("configure", "--yes"),
    "smoke-test": ("smoke-test",),
    "launch": ("launch", "--yes", "train.py"),
}
CONFIG = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: 'no'
num_machines: 1
num_processes: 2
"""


def calm(result: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """No traceback, no bug of ours, nothing of Python's own dying words."""
    said = f"{result.stdout or ''}\n{result.stderr or ''}"
    for word in ("Traceback", "a bug in mgpu", "crashed:", "Exception ignored", "RuntimeWarning", "NoneType"):
        assert word not in said, said
    assert "\x1b" not in said
    return result


def one_message(result: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Nothing on stdout, one message of mgpu on stderr."""
    calm(result)
    assert result.returncode == code, (result.stdout, result.stderr)
    assert result.stderr.startswith("mgpu: ") and result.stderr.count("mgpu: ") == 1, result.stderr
    assert len(result.stderr.splitlines()) <= 6
    for word in words:
        assert word in result.stderr, result.stderr


def fired(result: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Errors and warnings of `doctor --json`, by id."""
    document = json.loads(calm(result).stdout)
    return {c["id"]: c["title"] for c in document["checks"] if c["status"] in ("fail", "warn", "crash")}


# ---- packages that are missing


def python_without(folder: Path, *left_out: str) -> str:
    """An interpreter with every package of this one but those: its site-packages is made of links."""
    venv.create(folder, symlinks=True, with_pip=False)
    (site,) = (folder / "lib").glob("python*/site-packages")
    import torch

    here = Path(torch.__file__).parents[1]
    for path in here.iterdir():
        name = re.split(r"[-.]", path.name)[0].lower()
        editable = path.name.startswith("__editable__") or path.suffix in (".pth", ".egg-link")
        if name not in (*left_out, "mgpu_doctor", "mgpu", "__pycache__") and not editable:
            (site / path.name).symlink_to(path)
    return str(folder / "bin" / "python")


def active(python: str) -> dict[str, str]:
    """The variable of an active environment: without it mgpu, which has no torch here, examines another one."""
    return {"VIRTUAL_ENV": str(Path(python).parents[1])}


@pytest.fixture(scope="session")
def no_torch(tmp_path_factory: pytest.TempPathFactory) -> str:
    return python_without(tmp_path_factory.mktemp("no_torch") / "venv", "torch", "torchgen", "functorch")


@pytest.fixture(scope="session")
def no_accelerate(tmp_path_factory: pytest.TempPathFactory) -> str:
    return python_without(tmp_path_factory.mktemp("no_accelerate") / "venv", "accelerate")


def test_doctor_without_torch(no_torch: str, mgpu: Run) -> None:
    result = mgpu("doctor", "--json", python=no_torch, env=active(no_torch))
    found = fired(result)
    assert result.returncode == 1
    assert "torch_missing" in found and "torch_import_fails" not in found
    screen = calm(mgpu("doctor", "--only", "pytorch", python=no_torch, env=active(no_torch)))
    assert screen.returncode == 1
    assert "torch_missing" in screen.stdout and "pip install" in screen.stdout


def test_doctor_without_accelerate(no_accelerate: str, mgpu: Run) -> None:
    result = mgpu("doctor", "--quick", "--json", python=no_accelerate)
    assert result.returncode == 1
    assert "accelerate_missing" in fired(result)


@pytest.mark.parametrize("lacking", ["torch", "accelerate"])
def test_the_other_commands_without_torch_or_accelerate(
    lacking: str, no_torch: str, no_accelerate: str, mgpu: Run, tmp_path: Path
) -> None:
    python = no_torch if lacking == "torch" else no_accelerate
    assert calm(mgpu(python=python, env=active(python))).returncode == 0
    result = calm(mgpu("configure", "--yes", python=python, env=active(python)))
    assert result.returncode == 0
    assert "not checked with accelerate, which cannot be imported here" in " ".join(result.stdout.split())
    (tmp_path / "train.py").write_text("print('trained')\n")
    for command in (("smoke-test",), ("launch", "--yes", "train.py"), ("launch", "--unverified", "allow", "train.py")):
        began = time.monotonic()
        result = calm(mgpu(*command, python=python, env=active(python)))
        assert result.returncode not in (0, 124), result.stdout
        assert lacking in (result.stdout + result.stderr).lower()
        assert time.monotonic() - began < 40
        assert "trained" not in result.stdout
    result = calm(mgpu("configure", "--validate", "accelerate.yaml", python=python, env=active(python)))
    assert result.returncode == 3 and "accelerate could not load it" in " ".join(result.stdout.split())


# ---- a torch that is broken in each way there is

BROKEN = {
    "raises": "raise ImportError('libcudart.so.13: cannot open shared object file')",
    "odd": "raise SystemExit(7)",
    "segfaults": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "exits": "import os; os._exit(3)",
    "prints": "import sys; print('{\"gpus\": 1}', flush=True); sys.stdout.write('no line'); raise ImportError('x')",
    "half": "version = None",
    "recurses": "def f(): return f()\nf()",
}


@pytest.fixture
def broken_torch(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Variables under which `import torch` runs this code."""

    def make(code: str) -> dict[str, str]:
        folder = tmp_path / "broken" / "torch"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(code + "\n")
        (folder / "version.py").write_text("__version__ = '2.9.1+cu130'\ncuda = '13.0'\nhip = None\n")
        return {"PYTHONPATH": os.pathsep.join([str(folder.parent), str(ROOT)])}

    return make


@pytest.mark.parametrize("how", BROKEN)
def test_doctor_with_a_torch_that_cannot_be_imported(how: str, broken_torch: Any, mgpu: Run) -> None:
    result = mgpu("doctor", "--json", env=broken_torch(BROKEN[how]))
    document = json.loads(calm(result).stdout)
    assert document["verdict"] in ("not_ready", "unknown") and result.returncode in (1, 3)
    assert document["software"]["torch"] == "2.9.1+cu130"  # by its files
    if how in ("raises", "segfaults", "odd", "prints", "recurses"):
        assert "torch_import_fails" in fired(result)
    words = {"raises": "libcudart.so.13", "segfaults": "SIGSEGV", "recurses": "RecursionError"}
    assert words.get(how, "") in result.stdout


def test_nothing_is_left_of_a_torch_that_hangs(broken_torch: Any, mgpu: Run, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(3600)"
    began = time.monotonic()
    result = mgpu("doctor", "--timeout", "3", env=broken_torch(code))
    one_message(result, 124, "stopped after --timeout 3 s")
    assert time.monotonic() - began < 40
    pid = int(pid_file.read_text())
    end = time.monotonic() + 5
    while (
        time.monotonic() < end and Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes()
    ):
        time.sleep(0.05)
    assert not (Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes())


@pytest.mark.parametrize("command", ["bare", "configure", "smoke-test", "launch"])
def test_the_other_commands_with_a_broken_torch(command: str, broken_torch: Any, mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(CONFIG)
    (tmp_path / "train.py").write_text("print('trained')\n")
    arguments = {**COMMANDS, "configure": ("configure", "--yes", "-o", "new.yaml")}[command]
    result = calm(mgpu(*arguments, env=broken_torch(BROKEN["raises"])))
    assert result.returncode in {"bare": (0,), "configure": (0, 1), "smoke-test": (1, 3), "launch": (125,)}[command]
    assert "trained" not in result.stdout


# ---- folders that cannot be written


# All of them with the doctor, which writes what it found into its home and has the longest screen; with the other
# commands the hardest one.
HOMES = ("none", "a file", "not there", "not writable", "relative")
REDIRECTIONS = ("<&- >&- 2>&-", "<&-", ">&-", "2>&-", "<&- >&-")


@pytest.mark.parametrize(
    ("command", "home"),
    [(command, home) for command in COMMANDS for home in HOMES[: None if command == "doctor" else 1]],
)
def test_a_home_that_is_of_no_use(command: str, home: str, mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    value = {"not there": "/nobody/here", "not writable": "/proc", "a file": str(tmp_path / "file"), "relative": "x"}
    env = {"HOME": value[home]} if home in value else {}
    without = ("XDG_STATE_HOME", "XDG_CACHE_HOME", *(() if env else ("HOME",)))
    result = calm(mgpu(*COMMANDS[command], env=env, without=without))
    codes = {"bare": (0,), "doctor": (0, 1, 4), "configure": (0,), "smoke-test": (2,), "launch": (127,)}
    assert result.returncode in codes[command], result.stderr


def test_a_folder_in_which_nothing_can_be_written(mgpu: Run, tmp_path: Path) -> None:
    nowhere = Path("/proc")  # for root as well
    one_message(mgpu("configure", "--yes", cwd=nowhere), 1, "cannot write")
    one_message(mgpu("doctor", "--quick", "--save", "m.json", cwd=nowhere), 1, "cannot write")
    one_message(mgpu("doctor", "--quick", "-o", "r.txt", cwd=nowhere), 1, "cannot write")
    assert calm(mgpu("doctor", "--quick", cwd=nowhere)).returncode in (0, 1, 4)
    assert calm(mgpu(cwd=nowhere)).returncode == 0
    assert calm(mgpu("configure", "--dry-run", cwd=nowhere)).returncode == 0


def in_a_mount(
    mount: str, folder: Path, *arguments: str, before: str = "true", timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run mgpu in `folder` after mounting something there, in a mount namespace of its own."""
    if os.geteuid() != 0:
        missing("mounting needs root")
    unshare = need("unshare")
    folder.mkdir(exist_ok=True)
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    here = shlex.quote(str(folder))
    script = (
        f"mount {mount} {here} && cd {here} && {before}; exec {shlex.join([sys.executable, '-m', 'mgpu', *arguments])}"
    )
    probe = subprocess.run(
        [unshare, "-m", "mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if probe.returncode != 0:
        missing("mount namespaces are not allowed here")
    return subprocess.run(
        [unshare, "-m", "--propagation", "private", "sh", "-c", script], env=environment(home), cwd=folder.parent,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def test_a_file_system_that_is_read_only(tmp_path: Path) -> None:
    for arguments in (("configure", "--yes"), ("doctor", "--quick", "--save", "m.json")):
        one_message(in_a_mount("-t tmpfs -o ro tmpfs", tmp_path / "ro", *arguments), 1, "Read-only file system")
    assert calm(in_a_mount("-t tmpfs -o ro tmpfs", tmp_path / "ro", "doctor", "--quick")).returncode in (0, 1, 4)


FILL = "cat /dev/zero > filler 2>/dev/null"


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    full = "-t tmpfs -o size=16k tmpfs"
    one_message(in_a_mount(full, tmp_path / "full", "configure", "--yes", before=FILL), 1, "No space left on device")
    result = in_a_mount(full, tmp_path / "full", "doctor", "--quick", "--save", "m.json", before=FILL)
    one_message(result, 1, "No space left on device")
    result = in_a_mount(full, tmp_path / "full", "doctor", "--quick", "-o", "r.txt", before=FILL)
    one_message(result, 1, "No space left on device")


def test_a_full_disk_costs_no_config(tmp_path: Path) -> None:
    """The old file stays whole when the new one does not fit."""
    old, kept = CONFIG.replace("num_processes: 2", "num_processes: 4"), tmp_path / "kept"
    (tmp_path / "old.yaml").write_text(old)
    folder = tmp_path / "full"
    copy = f"cp {tmp_path}/old.yaml accelerate.yaml; {FILL}"
    script = f"{shlex.join([sys.executable, '-m', 'mgpu', 'configure', '--yes', '--force'])}; code=$?"
    result = in_a_mount(
        "-t tmpfs -o size=16k tmpfs", folder, "--version",
        before=f"{copy}; {script}; cat accelerate.yaml > {kept}; ls -A >> {kept}; exit $code",
    )  # fmt: skip
    one_message(result, 1, "No space left on device")
    assert kept.read_text() == old + "accelerate.yaml\nfiller\n"  # no half backup, no temporary file


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_that_fills_its_disk(tmp_path: Path, elsewhere: bool) -> None:
    """The report names the file system, also if mgpu's own log is on it and ends before the error."""
    write_config(tmp_path, ONE_PROCESS)
    script = "block = bytes(1 << 20)\nwith open('model.pt', 'wb') as file:\n    while True: file.write(block)\n"
    (tmp_path / "fills.py").write_text(script)
    options = ("--yes", "--unverified", "allow", "--launcher", "python", "-c", "../accelerate.yaml")
    logs = ("--log-dir", "../logs") if elsewhere else ()
    result = in_a_mount("-t tmpfs -o size=112m tmpfs", tmp_path / "full", "launch", *options, *logs, "../fills.py")
    assert result.returncode == 1
    said = " ".join(result.stderr.split())
    assert f"the disk is full: {tmp_path}/full (tmpfs), 0 MiB of 112 MiB free [run_disk_full]" in said, said
    assert f"df -h {tmp_path}/full" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "--quick", "--json"),
        ("doctor", "--quick"),
        (),
        ("--help",),
    ],
)
def test_a_stdout_that_is_full(arguments: tuple[str, ...], mgpu: Run) -> None:
    with open("/dev/full", "w") as full:
        result = mgpu(*arguments, stdout=full)
    one_message(result, 3, "No space left on device")


# ---- streams


def shell(tmp_path: Path, redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = f"exec {shlex.join([sys.executable, '-m', 'mgpu', *arguments])} {redirection}"
    return subprocess.run(
        ["sh", "-c", command], env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "redirection"),
    [(command, given) for command in COMMANDS for given in REDIRECTIONS[: None if command == "doctor" else 1]],
)
def test_closed_streams(command: str, redirection: str, tmp_path: Path) -> None:
    result = calm(shell(tmp_path, redirection, *COMMANDS[command]))
    codes = {"bare": (0,), "doctor": (0, 1, 4), "configure": (0,), "smoke-test": (2,), "launch": (127,)}
    assert result.returncode in codes[command], result.stderr
    if command == "configure":
        assert (tmp_path / "accelerate.yaml").read_text().startswith("# Written by mgpu")


def test_questions_without_stdin_are_a_usage_error(tmp_path: Path) -> None:
    for redirection in ("<&-", "</dev/null", ">&-"):
        result = calm(shell(tmp_path, redirection, "configure"))
        assert result.returncode == 2 and "--yes" in result.stderr


@pytest.mark.parametrize("arguments", [("doctor", "--list-checks"), ("doctor", "--quick", "--json"), ("--help",)])
def test_a_reader_that_goes_away(arguments: tuple[str, ...], mgpu: Run) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        result = calm(mgpu(*arguments, stdout=pipe))
    assert result.returncode == 141  # as if SIGPIPE had ended it
    assert result.stderr == ""


# ---- terminals and locales


# Every command takes the streams of one place (mgpu/cli) and the width of another (mgpu/report): all the odd ones with
# the doctor, whose screen is the longest, and with the others one of each kind. What the doctor looks at is saved,
# except where an odd variable is what it looks at.
ODD: tuple[tuple[dict[str, str], tuple[str, ...]], ...] = (
    ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}, ()),
    ({"COLUMNS": "1"}, ()),
    ({"TERM": "dumb"}, ()),
    ({"LC_ALL": "C"}, ()),
    ({}, ("LANG", "LC_ALL")),
    ({"LC_ALL": "xx_YY.nonsense"}, ()),
    ({"PYTHONIOENCODING": "latin-1"}, ()),
    ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, ()),
    ({"COLUMNS": "0"}, ()),
    ({"COLUMNS": "many"}, ()),
    ({"COLUMNS": "100000"}, ()),
)


@pytest.fixture(scope="module")
def this_machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the doctor saved of this machine."""
    folder = tmp_path_factory.mktemp("saved")
    calm(shell(folder, "", "doctor", "--quick", "--save", "machine.json"))
    return folder / "machine.json"


@pytest.mark.parametrize(
    ("command", "env", "without"),
    [
        *(("doctor", *odd) for odd in ODD),
        *(("bare", *odd) for odd in ODD[:2]),
        *(("configure", *odd) for odd in ODD[:1]),
    ],
)
def test_odd_terminals_and_locales(
    command: str, env: Mapping[str, str], without: tuple[str, ...], mgpu: Run, this_machine: Path
) -> None:
    arguments = ("doctor", "--from", str(this_machine)) if command == "doctor" else COMMANDS[command]
    result = calm(mgpu(*arguments, env=env, without=without))
    assert result.returncode in {"bare": (0,), "doctor": (0, 1, 4), "configure": (0,)}[command], result.stderr
    if "ascii" in env.get("PYTHONIOENCODING", ""):
        assert result.stdout.isascii()


def test_a_variable_that_is_no_text(mgpu: Run) -> None:
    for command in ("doctor", "bare"):
        result = calm(mgpu(*COMMANDS[command], env={"CUDA_VISIBLE_DEVICES": "\udcff"}))
        assert result.returncode in {"bare": (0,), "doctor": (0, 1, 4)}[command], result.stderr


def test_colour_can_be_forced(mgpu: Run, this_machine: Path) -> None:
    """A saved machine is judged: two looks at a live one may differ in its load."""
    looked = ("doctor", "--from", str(this_machine))
    plain = calm(mgpu(*looked, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}))
    strip = re.compile(r"\x1b\[[0-9;]*m|[\d.]+ s\.")
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        result = mgpu(*looked, env={name: "1"})
        assert "\x1b[" in result.stdout and "Traceback" not in result.stderr
        assert strip.sub("", result.stdout) == strip.sub("", plain.stdout)
    assert "\x1b" not in mgpu(*looked, "--json", env={"FORCE_COLOR": "1"}).stdout


# ---- traps in the current folder


@pytest.fixture
def installed(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the console script `mgpu`, as pip installs it, in a folder of traps: modules that must never be imported."""
    folder = tmp_path / "repository"
    folder.mkdir()
    trap = f"open({str(tmp_path / 'sprung')!r}, 'a').write(__name__ + '\\n')\nraise SystemExit('trapped')\n"
    for name in (
        "pynvml",
        "torch",
        "json",
        "accelerate",
        "typer",
        "yaml",
        "mgpu",
        "socket",
        "_nvml",
        "nvml",
        "sitecustomize",
    ):
        (folder / f"{name}.py").write_text(trap)
    (folder / "checks").mkdir()
    (folder / "checks" / "__init__.py").write_text(trap)
    script = tmp_path / "bin" / "mgpu"
    script.parent.mkdir()
    script.write_text("import sys\nfrom mgpu.__main__ import main\nsys.exit(main())\n")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [sys.executable, str(script), *arguments], env=environment(tmp_path), cwd=folder,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        sprung = tmp_path / "sprung"
        assert not sprung.exists(), sprung.read_text()
        return calm(result)

    return run


@pytest.mark.parametrize(
    "arguments", [("doctor",), ("configure", "--yes"), ("configure", "--validate", "good.yaml"), ("smoke-test",), ()]
)
def test_nothing_is_imported_from_the_current_folder(
    arguments: tuple[str, ...], installed: Any, tmp_path: Path
) -> None:
    (tmp_path / "repository" / "good.yaml").write_text(CONFIG)
    result = installed(*arguments)
    assert "trapped" not in result.stdout + result.stderr
    assert result.returncode in (0, 1, 2, 4)


def test_a_folder_called_accelerate_yaml(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").mkdir()
    assert calm(mgpu()).returncode == 0
    one_message(mgpu("configure", "--yes"), 2, "accelerate.yaml is a folder")
    one_message(mgpu("configure", "--validate", "accelerate.yaml"), 2, "accelerate.yaml")
    one_message(mgpu("smoke-test"), 2, "accelerate.yaml")
    assert calm(mgpu("launch", "--yes", "train.py")).returncode in (2, 125, 127)


READERS = {
    "bare": ((), (0,)),
    "smoke-test": (("smoke-test",), (1, 2)),
    "configure": (("configure", "--no-loader", "--validate", "accelerate.yaml"), (1,)),
    "launch": (("launch", "--yes", "train.py"), (125,)),
}


# All of them read it in one place (mgpu/config); what it may hold is in tests/test_config_fuzz.py.
@pytest.mark.parametrize(
    ("content", "readers"),
    [
        (b"", tuple(READERS)),
        (b"\xff\xfe", ("bare", "launch")),
        (b"a: &a [*a]\n", ("smoke-test", "configure")),
        (b"{" * 50_000, ("configure", "launch")),
        (b"\t", ("bare",)),
        (b"[]", ("launch",)),
        (b"\x00" * 100, ("configure",)),
    ],
    ids=range(7),
)
def test_an_accelerate_yaml_that_is_no_config(
    content: bytes, readers: tuple[str, ...], mgpu: Run, tmp_path: Path
) -> None:
    (tmp_path / "accelerate.yaml").write_bytes(content)
    (tmp_path / "train.py").write_text("print('trained')\n")
    for reader in readers:
        arguments, codes = READERS[reader]
        result = calm(mgpu(*arguments))
        assert result.returncode in codes and "trained" not in result.stdout, reader


# ---- commands that do not exist


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("smoke",), "Did you mean 'smoke-test'?"),
        (("smoketest",), "Did you mean 'smoke-test'?"),
        (("config",), "Did you mean 'configure'?"),
        (("lunch", "train.py"), "Did you mean 'launch'?"),
        (("xyzzy",), "Commands: doctor, configure, smoke-test, launch."),
        (("doctor", "--quik"), "--quick"),
        (("doctor", "extra"), "extra"),
        (("doctor", "--expect-gpus", "four"), "--expect-gpus"),
        (("doctor", "--expect-gpus"), "--expect-gpus"),
        (("", "doctor"), "''"),
    ],
)
def test_what_is_not_understood_is_a_usage_error(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run(arguments)
    told = subprocess.CompletedProcess(arguments, code, *capsys.readouterr())
    assert told.stdout == ""
    one_message(told, 2, words, "--help")


def test_what_is_not_understood_ends_the_process(mgpu: Run) -> None:
    for arguments, words in ((("docter",), "Did you mean 'doctor'?"), (("smoke-test", "--cpu", "0"), "--cpu")):
        result = mgpu(*arguments)
        assert result.stdout == ""
        one_message(result, 2, words, "--help")


# ---- nothing heavy is imported before it is needed

HEAVY = {"torch", "accelerate", "questionary", "prompt_toolkit", "pynvml", "ruamel", "numpy", "psutil"}


def imported(*arguments: str, tmp_path: Path) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], env=environment(tmp_path), cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    lines = [line for line in result.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import mgpu"),
        ("-m", "mgpu", "--version"),
        ("-m", "mgpu", "--help"),
        *(("-m", "mgpu", command, "--help") for command in ("doctor", "configure", "smoke-test", "launch")),
        ("-m", "mgpu", "doctor", "--list-checks"),
    ],
)
def test_help_loads_nothing_heavy(arguments: tuple[str, ...], tmp_path: Path) -> None:
    names = imported(*arguments, tmp_path=tmp_path)
    assert "mgpu" in names
    assert names & HEAVY == set()
    if arguments[-1] in ("import mgpu", "--version"):
        assert names & {"typer", "click", "rich"} == set()


def test_help_fits_the_screen(mgpu: Run) -> None:
    for command in ((), ("doctor",), ("configure",), ("smoke-test",), ("launch",)):
        result = calm(mgpu(*command, "--help"))
        assert result.returncode == 0 and result.stderr == ""
        assert all(len(line) <= 80 for line in result.stdout.splitlines()), result.stdout
    assert mgpu("launch", "-h").stdout == result.stdout


def test_the_version_is_one_line(mgpu: Run) -> None:
    from mgpu.version import __version__

    for option in ("--version", "-V"):
        assert mgpu(option).stdout == f"mgpu {__version__}\n"

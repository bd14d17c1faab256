"""Which path does a notebook's service, Windows, macOS or a single machine not have? Cases of the rows of files."""

from __future__ import annotations

from functools import partial

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import either, every, line_of, own_line, source_line, within
from ._one_process_cases import ALONE

_missing, _denied, _read_only = (
    partial(line_of, row) for row in ("log_file_missing", "log_permission_denied", "log_disk_read_only")
)
_SCRIPT = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 12, in main\n    {line}\n'
_NOT_FOUND = "FileNotFoundError: [Errno 2] No such file or directory: "
_COLAB = "https://research.google.com/colaboratory/faq.html"
_KAGGLE = "https://www.kaggle.com/docs/notebooks"
_OS = "https://docs.python.org/3/library/os.html#files-and-directories"
# fmt: off
DRIVE_NOT_MOUNTED = Case(
    _missing(r"'/content/(?:g?drive)/"),
    "a file of Google Drive does not exist in this runtime: {path}",
    "Drive is not mounted in this runtime (each new one starts without it), or the path is another one: My Drive is "
    "/content/drive/MyDrive, capital letters and spaces count, and folders that others share need a shortcut there.",
    (Fix("Mount it, and see what is there.",
         ("from google.colab import drive; drive.mount('/content/drive')", "ls -la /content/drive/MyDrive | head")),),
    _SCRIPT.format(line="f = open(path)") + _NOT_FOUND + "'/content/drive/MyDrive/a.csv'", _COLAB)
KAGGLE_NOT_ATTACHED = Case(
    _missing(r"'(?:/kaggle|\.\.)/input/"),
    "a file of a Kaggle dataset does not exist in this notebook: {path}",
    "The dataset or the competition's data is not attached to this notebook, or its folder has another name or another "
    "level. Outside of Kaggle, there is no such folder.",
    (Fix("Attach it (Add Input), and see the names.", ("ls /kaggle/input /kaggle/input/*",)),),
    _SCRIPT.format(line="f = open(path)") + _NOT_FOUND + "'/kaggle/input/set/train.csv'", _KAGGLE)
_MISSING_ON_WINDOWS = Case(
    _missing(r"'(?:[A-Za-z]:|\.{1,2})\\\\"),
    "a file that the script reads does not exist: {path}",
    "The path is one of Windows. It has a typing mistake, a file extension that the Explorer hides, or a backslash "
    "that Python took for a control character ('\\t', '\\n'); or the drive is not there. On Linux, also in WSL and in "
    "a container, such a path is only a name with backslashes in it.",
    (Fix("Look at the path as Python has it, and at the folder.", ("print(repr(path))", "dir FOLDER")),
     Fix("Write it as a raw string or with slashes.", ("path = r'C:\\data\\a.txt'", "path = 'C:/data/a.txt'"))),
    _SCRIPT.format(line="f = open(path)") + _NOT_FOUND + "'C:\\\\data\\\\a.txt'", _OS)
_MISSING_HERE = Case(
    every(ALONE, _missing(r"'/[^']+'")),
    "a file that the script reads does not exist: {path}",
    "The path is that of another machine, user or container, has a typing mistake (capital letters count), its disk is "
    "not mounted here, or the step that writes the file has not run.",
    (Fix("See which part of the path exists.", ("namei {path:path}", "ls -la {path:folder}")),),
    _SCRIPT.format(line="f = open(path)") + _NOT_FOUND + "'/data/train.bin'", _OS)
MISSING = (DRIVE_NOT_MOUNTED, KAGGLE_NOT_ATTACHED, _MISSING_ON_WINDOWS)
MISSING_LAST = (_MISSING_HERE,)
DENIED = (
    Case(_denied(r"Permission denied: ['\"]?[A-Za-z]:[\\/]"),
         "Windows refuses to open {path}",
         "Opening a folder as if it were a file gives this message on Windows. Otherwise, another program has the file "
         "open, it is read-only, or it belongs to another user or is under a protected folder.",
         (Fix("See whether it is a folder, and add the name of the file.", ("print(os.path.isdir(path))",)),
          Fix("Close what has it open (an editor, Excel, a sync service), or write to another folder.")),
         _SCRIPT.format(line="f = open('D:/data')") + "PermissionError: [Errno 13] Permission denied: 'D:/data'", _OS),
    Case(either(source_line(r"child_exception_type\("), within(r"subprocess\.py in _execute_child")),
         "the program {path} may not be executed",
         "The file is not marked as executable (lost in a copy, a download or an unpacked archive), is a folder, is on "
         "a disk that is mounted noexec, or belongs to another user.",
         (Fix("See what it is, and mark it as executable.",
              ("ls -ld {path:path}; findmnt -no OPTIONS -T {path:path}", "chmod +x {path:path}")),
          Fix("Or start a script through its interpreter.", ("subprocess.run(['bash', 'SCRIPT'])",))),
         _SCRIPT.format(line="subprocess.run(['./run.sh'])")
         + '  File "/usr/lib/python3.11/subprocess.py", line 1950, in _execute_child\n'
         "    raise child_exception_type(errno_num, err_msg, err_filename)\n"
         "PermissionError: [Errno 13] Permission denied: './run.sh'",
         "https://docs.python.org/3/library/subprocess.html#subprocess.Popen"),
)
READ_ONLY = (
    Case(_read_only(r"'/kaggle/(?:input|lib)\b"),
         "/kaggle/input is read-only: the script writes to it",
         "Kaggle attaches data that cannot be changed. Programs that write next to their data (caches, labels, "
         "unpacked files) fail there.",
         (Fix("Write to /kaggle/working, or copy the data there first.",
              ("cp -r /kaggle/input/SET /kaggle/working/",)),),
         _SCRIPT.format(line="f = open('/kaggle/input/set/a', 'w')")
         + "OSError: [Errno 30] Read-only file system: '/kaggle/input/set/a'", _KAGGLE),
    Case(every(_read_only(r"Read-only file system: '/[\w.-]+'"), own_line(r"\b(?:mkdir|makedirs)\(")),
         "a folder cannot be created at the top of the file system, which is read-only",
         "The first folder of the path does not exist on this machine. / is read-only on macOS, and in containers that "
         "are started so. The path is probably that of another machine.",
         (Fix("Set the folder to one of this machine, in your home folder or relative to the project.",
              ("python train.py --help | grep -iE 'dir|path|root'", "pwd; df -h .")),),
         _SCRIPT.format(line="os.makedirs('/data/out')") + "OSError: [Errno 30] Read-only file system: '/data'", _OS),
)
# fmt: on

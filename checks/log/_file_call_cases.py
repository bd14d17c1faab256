"""Which call was refused: a link, a lock, a rename, a folder to write into? Cases of rows about files and memory."""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import every, in_own_code, line_of, message, never, own_line, several_ranks, source_line, within

_OS = "https://docs.python.org/3/library/os.html#files-and-directories"
_SUBPROCESS = "https://docs.python.org/3/library/subprocess.html#subprocess.Popen"
_SHARED = "https://docs.python.org/3/library/multiprocessing.shared_memory.html"
_PICKLED = "https://docs.python.org/3/library/pickle.html#what-can-be-pickled-and-unpickled"
_SCRIPT = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 12, in main\n    {line}\n'
_STARTED = (
    _SCRIPT + '  File "/usr/lib/python3.11/subprocess.py", line 1950, in _execute_child\n'
    "    raise child_exception_type(errno_num, err_msg, err_filename)\n"
)
_NOT_FOUND = "FileNotFoundError: [Errno 2] No such file or directory: "
_WRITES = (
    r"\bopen\([^()]*(?:\([^()]*\)[^()]*)*,\s*(?:mode ?= ?)?['\"][wax]|"
    r"\.(?:write_text|write_bytes|touch|savefig|save)\(|\b(?:np|numpy)\.save\w*\(|"
    r"\b(?:imwrite|imsave|save_image|save_file|FileHandler|to_csv|to_excel|to_json|to_parquet|to_pickle|mkdir)\("
)


# fmt: off
LINK_EXISTS = Case(
    own_line(r"\b(?:symlink|symlink_to|link|hardlink_to)\("),
    "a link that the run makes exists already",
    "A link cannot be made over a file or link of its name, also if that points to nothing. It is from an earlier save "
    "or run, or another rank made it a moment ago.",
    (Fix("If the old one is a link, too: make the new one under a temporary name, and rename it. That replaces the "
         "link in a single step.",
         ("os.symlink(target, link + '.tmp')", "os.replace(link + '.tmp', link)")),
     Fix("With several ranks, let one rank do it.", ("if rank == 0: ...",))),
    _SCRIPT.format(line="os.symlink('step_100', 'out/last')") +
    "FileExistsError: [Errno 17] File exists: 'step_100' -> 'out/last'", _OS)
SHARED_MEMORY_EXISTS = Case(
    own_line(r"\bSharedMemory\("),
    "a block of shared memory of this name exists already",
    "Names are valid for the whole node: another rank or job made it, or an earlier run ended without unlink().",
    (Fix("See which blocks exist, and whose they are.", ("ls -la /dev/shm",)),
     Fix("Let one rank create it, and the others attach; or make the name different for each run.",
         ("SharedMemory(name=name, create=local_rank == 0, size=size)", "SharedMemory(create=True, size=size).name"))),
    _SCRIPT.format(line="shm = SharedMemory(name='tokens', create=True, size=8)") +
    "FileExistsError: [Errno 17] File exists: '/tokens'", _SHARED)
COPIED_OVER = Case(
    own_line(r"\bcopytree\("),
    "the folder that shutil.copytree should create exists already",
    "It is from an earlier run, or another rank copies to the same place.",
    (Fix("Copy into a new folder. dirs_exist_ok=True overwrites files of the same name in the one that is there.",
         ("shutil.copytree(a, f'{{b}}_{{run}}')", "if rank == 0: ...")),),
    _SCRIPT.format(line="shutil.copytree('src', 'out/src')") + "FileExistsError: [Errno 17] File exists: 'out/src'",
    "https://docs.python.org/3/library/shutil.html#shutil.copytree")
LOCK_TAKEN = Case(
    own_line(r"\b(?:flock|lockf)\("),
    "another process holds the lock that the script wants, and the script does not wait for it",
    "LOCK_NB gives up at once. Another rank of this run, another job, or a process that an earlier run left behind "
    "has the file locked.",
    (Fix("See which process holds it.", ("fuser -v LOCKFILE", "lslocks")),
     Fix("If the ranks should take turns, wait for it.", ("fcntl.flock(f, fcntl.LOCK_EX)",))),
    _SCRIPT.format(line="fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)") +
    "BlockingIOError: [Errno 11] Resource temporarily unavailable", "https://docs.python.org/3/library/fcntl.html")
NOT_READY = Case(
    source_line(r"\.(?:recv|recv_into|recvfrom|read\w*|write|send|sendall|accept|flush)\(|\bos\.(?:read|write)\(|"
                r"\b(?:print|input)\("),
    "a file, pipe or socket was not ready to be read or written at {the_place}, and is set not to wait",
    'The line is "{the_line}". The other end had sent nothing yet, or did not take more. A non-blocking descriptor '
    "raises this instead of waiting: the script set it (setblocking(False), O_NONBLOCK), or another program that "
    "shares the terminal or the pipe did. No limit on processes is the reason.",
    (Fix("Let it wait, or try again when it is ready.",
         ("sock.setblocking(True)", "select.select([sock], [], [], 1.0)", "os.set_blocking(1, True)  # stdout")),),
    _SCRIPT.format(line="data = sock.recv(4096)") + "BlockingIOError: [Errno 11] Resource temporarily unavailable",
    "https://docs.python.org/3/library/socket.html#notes-on-socket-timeouts")
NO_MEMORY_TO_START = Case(
    every(message(r"^\[Errno 12\]"), source_line(r"\bfork\(|fork_exec\(|child_exception_type\(")),
    "a process could not be started: the system does not promise the memory that its copy of this one could need",
    "fork() reserves room for a copy of the whole process. With strict overcommit, a memory limit of the job or a "
    "process that holds most of the memory, it is refused, even if the copy would hardly use any.",
    (Fix("Check the limits and what is used.", ("free -g", "sysctl vm.overcommit_memory", "ulimit -v",
                                                "cat /sys/fs/cgroup/memory.max")),
     Fix("Start workers and commands before the large data is loaded, and use fewer workers.",
         ("DataLoader(..., num_workers=2, persistent_workers=True)",))),
    _SCRIPT.format(line="pool = mp.Pool(8)") +
    '  File "/usr/lib/python3.11/multiprocessing/popen_fork.py", line 66, in _launch\n    self.pid = os.fork()\n'
    "OSError: [Errno 12] Cannot allocate memory", "https://docs.kernel.org/mm/overcommit-accounting.html")
NO_MEMORY_TO_MAP = Case(
    every(message(r"^\[Errno 12\]"), source_line(r"\bmmap\(")),
    "a file could not be mapped into memory: a limit on maps or on address space is reached",
    "A map needs little memory itself. Thousands of open maps reach vm.max_map_count (65530), ulimit -v counts their "
    "whole size, and strict overcommit refuses those that can be written.",
    (Fix("Check the limits.", ("ulimit -v", "sysctl vm.max_map_count vm.overcommit_memory")),
     Fix("Map with mode 'r', and keep few files open: one large file, or a cache of the last ones.",
         ("np.load(path, mmap_mode='r')",))),
    _SCRIPT.format(line="x = np.load(path, mmap_mode='r')") +
    '  File "/x/site-packages/numpy/_core/memmap.py", line 288, in __new__\n    mm = mmap.mmap(fid.fileno(), bytes)\n'
    "OSError: [Errno 12] Cannot allocate memory", "https://docs.kernel.org/admin-guide/sysctl/vm.html")
FOLDER_OF_COMMAND = Case(
    every(source_line(r"child_exception_type\("), own_line(r"\bcwd ?=")),
    "a command cannot start: its folder or its program does not exist ({path})",
    "The script starts it in a folder of its own (cwd=). Python reports whichever of the two is missing.",
    (Fix("Check both. The folder is relative to that of the run.", ("pwd; ls -ld {path:path}",
                                                                    "command -v {path:path}")),
     Fix("A folder of a submodule is empty or missing until it is fetched.", ("git submodule update --init",))),
    _STARTED.format(line="subprocess.run(['git', 'log'], cwd='third_party/apex')") + _NOT_FOUND + "'third_party/apex'",
    _SUBPROCESS)
SCRIPT_OF_COMMAND = Case(
    every(source_line(r"child_exception_type\("), message(r"'[^']*/[^']*'$")),
    "a command cannot start: {path} does not exist, or the interpreter in its first line does not",
    "The path is relative to the folder of the run. A script whose #! line names a program that this node lacks, or "
    "ends with a carriage return of Windows, gives the same message.",
    (Fix("Look at the file and its first line.", ("pwd; ls -ld {path:path}; head -n 1 {path:path} | cat -A",)),
     Fix("Or start it through its interpreter.", ("subprocess.run(['bash', 'SCRIPT'])",))),
    _STARTED.format(line="subprocess.run(['./prepare.sh'])") + _NOT_FOUND + "'./prepare.sh'", _SUBPROCESS)
NO_FOLDER_TO_WRITE = Case(
    own_line(_WRITES),
    "the folder of a file that the script writes does not exist: {path}",
    "Writing creates a file, but not the folders above it. With several nodes, the folder may exist on one of them "
    "only.",
    (Fix("Create the folder first, on every node that writes.",
         ("os.makedirs(os.path.dirname(path), exist_ok=True)", "path.parent.mkdir(parents=True, exist_ok=True)")),
     Fix("See which part of the path is missing.", ("pwd; namei {path:path}",))),
    _SCRIPT.format(line="with open(f'{{out}}/log.json', 'w') as f:") + _NOT_FOUND + "'out/log.json'", _OS)
FOLDER_GONE = Case(
    own_line(r"\brmtree\("),
    "a folder that the script removes is not there, or another process removes it at the same time: {path}",
    "It was never made, or removed before. If several ranks or runs remove one folder, one of them finds it gone. The "
    "path can be the bare name of a file in it.",
    (Fix("Allow that it is missing.", ("shutil.rmtree(path, ignore_errors=True)",)),
     Fix("If several ranks run the line, let one remove it, and the others wait.",
         ("if rank == 0: shutil.rmtree(path)", "torch.distributed.barrier()"))),
    _SCRIPT.format(line="shutil.rmtree('out/cache')") + _NOT_FOUND + "'shard_3.bin'",
    "https://docs.python.org/3/library/shutil.html#shutil.rmtree")
FOLDER_MISSING = Case(
    own_line(r"\b(?:listdir|scandir|iterdir|chdir|walk|rmdir)\("),
    "a folder that the script reads or removes does not exist: {path}",
    "The path is relative to another folder, is misspelled, is not mounted on this machine, or was not created yet. "
    "With several ranks, another one can have removed it already.",
    Fix("Check whether it exists. In a job of several nodes, check on each.",
        ("pwd; ls -ld {path:path}", "srun --ntasks-per-node=1 ls -ld {path:path}")),
    _SCRIPT.format(line="files = os.listdir('data/train')") + _NOT_FOUND + "'data/train'", _OS)
REMOVED_BEFORE = Case(
    own_line(r"\b(?:remove|unlink)\("),
    "a file that the script removes is not there: {path}",
    "It was never written under this name, or an earlier step, another run or another rank has removed it already.",
    (Fix("Allow that it is missing.", ("Path(path).unlink(missing_ok=True)",)),
     Fix("If several ranks run the line, let one of them do it.", ("if rank == 0: ...",))),
    _SCRIPT.format(line="os.remove('out/old.pt')") + _NOT_FOUND + "'out/old.pt'", _OS)
SHARED_MEMORY_GONE = Case(
    own_line(r"\bSharedMemory\("),
    "there is no block of shared memory of this name on this node: {path}",
    "The process that creates it has not done so yet, has ended (Python then removes the block), or is on another "
    "node.",
    (Fix("Let the ranks wait until it is created, and keep that process alive.",
         ("torch.distributed.barrier()", "ls -la /dev/shm")),),
    _SCRIPT.format(line="shm = SharedMemory(name='tokens')") + _NOT_FOUND + "'/tokens'", _SHARED)
REMOVED_BY_SCRIPT = Case(
    every(in_own_code, never(several_ranks)),
    "the script could not remove or rename the folder of a checkpoint: {the_line}",
    "The folder was not empty any more, was removed before, or a file in it is open. Another run that uses the same "
    "folder, a process that still writes into it, or a network disk (NFS keeps a deleted file that is open) does that.",
    (Fix("See what is in it, and give each run a folder of its own.", ("ls -la CHECKPOINT_FOLDER",)),
     Fix("If several ranks run the line, let one of them do it, and the others wait.",
         ("if rank == 0: shutil.rmtree(path)", "torch.distributed.barrier()"))),
    _SCRIPT.format(line="shutil.rmtree('out/checkpoint')") +
    "OSError: [Errno 39] Directory not empty: 'out/checkpoint'",
    "https://docs.python.org/3/library/shutil.html#shutil.rmtree")
RENAMED_ONTO_FOLDER = Case(
    message(r"' -> '"),
    "a file cannot be renamed to the name of a folder: {path}",
    "The target is a folder from an earlier save, or the name of the file is missing at the end of it.",
    (Fix("See what both are, and add the name of the file.", ("os.replace(tmp, os.path.join(folder, 'model.pt'))",)),),
    _SCRIPT.format(line="os.replace('m.pt', 'out/step_1')") +
    "IsADirectoryError: [Errno 21] Is a directory: 'm.pt' -> 'out/step_1'", _OS)
FOLDER_REMOVED_AS_FILE = Case(
    own_line(r"\b(?:remove|unlink)\("),
    "the script removes a folder as if it were a file: {path}",
    "os.remove() and unlink() are for files. A save that wrote one file before may write a folder now (checkpoints in "
    "shards, save_pretrained).",
    (Fix("See what is in it, then move it away if it is not needed.", ("ls -la {path:path}",
                                                                     "os.rename(path, path + '.old')")),),
    _SCRIPT.format(line="os.remove('out/step_1')") + "IsADirectoryError: [Errno 21] Is a directory: 'out/step_1'", _OS)
RENAMED_ONTO_FILE = Case(
    message(r"' -> '"),
    "a folder cannot be renamed to the name of a file: {path}",
    "The target exists and is a file, perhaps from a release that saved one file in place of a folder.",
    (Fix("See what both are, and move the file away.", ("ls -ld {path:path}",)),),
    _SCRIPT.format(line="os.rename('out/s.tmp', 'out/s')") +
    "NotADirectoryError: [Errno 20] Not a directory: 'out/s.tmp' -> 'out/s'", _OS)
WANDB_ENDED = Case(
    within(r"(?:^|/)wandb/"),
    "wandb's own process ended while the run logged to it",
    "wandb runs a service beside the program (wandb-core), and sends it what is logged. It was killed (memory), or "
    "crashed. The training itself had not failed.",
    (Fix("Check whether memory ran out, and wandb's own log of the run.",
         ("sudo dmesg -T | grep -i 'killed process' | tail", "tail wandb/latest-run/logs/debug-internal.log")),
     Fix("Log offline or with another release, and resume from the last checkpoint.",
         ("export WANDB_MODE=offline", "pip install -U wandb"))),
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    logger.log(values)\n'
    '  File "/x/site-packages/wandb/sdk/lib/sock_client.py", line 130, in _send\n    sent = self._sock.send(data)\n'
    "BrokenPipeError: [Errno 32] Broken pipe",
    "https://docs.wandb.ai/support/")
OTHER_END_CLOSED = Case(
    own_line(r"\bsend(?:all|_bytes|to)?\("),
    "the other end of a connection was closed, and the script sends to it",
    "A process or server that the script talks to has ended, or closed the connection because of an error or a "
    "timeout of its own. Its log has the reason.",
    (Fix("Read the end of the other program's log, and whether it was killed.",
         ("sudo dmesg -T | grep -i 'killed process' | tail", "ss -tnp")),),
    _SCRIPT.format(line="sock.send(b'x')") + "BrokenPipeError: [Errno 32] Broken pipe",
    "https://docs.python.org/3/library/exceptions.html#BrokenPipeError")
NOT_SAVED = Case(
    own_line(r"\b(?:torch\.save|dumps?|save\w*)\("),
    "something in what is saved cannot be pickled",
    "torch.save and pickle write functions and classes by their name in a module. Lambdas, functions and classes that "
    "are defined inside of a function have none, and open files, locks, generators, sockets and modules cannot be "
    "stored.",
    (Fix("Save state_dict()s and plain values instead of whole objects.",
         ("torch.save({{'model': model.state_dict(), 'step': step}}, path)",)),
     Fix("Or define the function or class at the top of a module, and leave out what is open.")),
    _SCRIPT.format(line="torch.save({{'schedule': fn}}, path)") +
    "AttributeError: Can't pickle local object 'main.<locals>.<lambda>'", _PICKLED)
NOT_COPIED = Case(
    own_line(r"\bdeepcopy\("),
    "something in what is copied cannot be copied",
    "copy.deepcopy copies everything that an object refers to. Locks, open files, generators, modules and connections "
    "cannot be copied: a logger, a data loader or a process group in the object is usual.",
    (Fix("Copy only what is needed.", ("copy.deepcopy(model.state_dict())", "dataclasses.replace(cfg, lr=lr)")),),
    _SCRIPT.format(line="ema = copy.deepcopy(trainer)") + "TypeError: cannot pickle '_thread.lock' object",
    "https://docs.python.org/3/library/copy.html")
COMMAND_KILLED = Case(
    every(message(r"died with <Signals\.SIGKILL"), own_line(r"\b(?:subprocess\.|check_call|check_output|Popen|run\()")),
    "a command that the script starts was killed (SIGKILL), usually because host memory ran out",
    "The kernel, a memory limit of the job or container, or a kill -9 ended the command. Its memory counts with that "
    "of "
    "the run that started it.",
    (Fix("Check whether the kernel killed it.", ("sudo dmesg -T | grep -i 'killed process' | tail", "free -g",
                                                 "cat /sys/fs/cgroup/memory.max")),
     Fix("Run the command before the training, or with less memory.")),
    _SCRIPT.format(line="subprocess.run(['tar', 'xf', 'a.tar'], check=True)") +
    "subprocess.CalledProcessError: Command '['tar', 'xf', 'a.tar']' died with <Signals.SIGKILL: 9>.", _SUBPROCESS)
OTHER_SERVER = Case(
    line_of("log_hub_access_denied",
            r"40[13] Client Error.* for url: (?:https?://)?(?!\S*(?:huggingface|hf\.co|hf-mirror))\S"),
    "a server refused access to an address (401 or 403)",
    "It wants a login, a key or a signed link that this run does not send, the link has expired, or the server does "
    "not "
    "serve this network or program. If the address is a mirror of the Hub, it is the Hub's refusal.",
    (Fix("Open the address by hand from this node, and pass what it wants.", ("curl -I ADDRESS",)),
     Fix("Make a new link if it was signed for a limited time.")),
    "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://data.example.org/train.tar",
    "https://developer.mozilla.org/docs/Web/HTTP/Status/403")
CREATED_BEFORE = (LINK_EXISTS, SHARED_MEMORY_EXISTS, COPIED_OVER)
COMMANDS = (FOLDER_OF_COMMAND, SCRIPT_OF_COMMAND)
CALLS = (NO_FOLDER_TO_WRITE, FOLDER_GONE, FOLDER_MISSING, REMOVED_BEFORE, SHARED_MEMORY_GONE)
# fmt: on

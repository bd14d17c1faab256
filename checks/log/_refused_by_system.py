"""Which number did the operating system refuse a call with, and what does it mean for a file, a program, a socket?

Entries by errno, for those that no row of a table knows. Texts for `_refused_by_python.py`.
"""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Look, Refusal

_OS = (
    "OSError PermissionError FileNotFoundError BlockingIOError TimeoutError timeout ProcessLookupError "
    "ConnectionRefusedError ConnectionAbortedError FileExistsError error"
)
_PATH = r": b?['\"](?P<path>[^'\"]+)['\"]"
# A package's own words about one path: "The system cannot find the path specified: '/data/masks'".
# Of "no config.json in /data/x", the folder exists.
_BEFORE = r"^(?!\[Errno)(?!.{0,90}?(?:\b(?:in|inside|under|within|from|any|of|for)\b|\.\w{1,9}\b).{0,90}?/)"
_ABSENT = r"(?:(?:not|n't) (?:be )?(?:find|found|exist\w*)|\b[Nn]o such \w+)"
_ONE_PATH = (
    r"['\"`]?(?P<path>(?<=['\"`])[^'\"`\n]*/[^'\"`\n]*(?=['\"`])|"
    r"(?<!\S)(?:~|\.{1,2})?/[^\s'\"`,;]+?(?=[.,;:!]*(?:\s|$)))['\"`]?"
)
# "No such dataset 'ada/birds' on the Hub", and not 'ada/birds.json', './birds' or 'data/birds'.
_ON_HUB = (
    r"(?i:(?=.*\b(?:datasets?|models?|repo(?:s|sitory)?|hub)\b).*['\"`](?!(?:data(?:sets?)?|models?|outputs?|out|runs|"
    r"checkpoints?|weights|results)/)\w[\w.-]*/(?![\w.-]*\.[a-z]\w{1,10}['\"`])[\w.-]+['\"`])"
)
_OF_PACKAGES = (
    rf"^(?!{_ON_HUB}){_BEFORE}(?=[^'\"`/]{{0,90}}{_ABSENT})[^'\"`/]{{0,90}}?{_ONE_PATH}[^/]{{0,120}}$",
    rf"^(?!{_ON_HUB}){_BEFORE}[^'\"`/]{{0,40}}?{_ONE_PATH} (?:is |was |does |do |could )?{_ABSENT}[^/]{{0,120}}$",
)
_TWO = rf"{_PATH} -> b?['\"](?P<to>[^'\"]+)['\"]"
_NO_PATH = r"(?!: b?['\"])"  # with one, it is about a file of a network or FUSE mount, and not about an address
_LOCKS = r"\b(?:flock|lockf)\("
_STARTS = r"\b(?:subprocess|Popen|check_output|check_call|run|call|exec\w+|spawn\w+)\b.*\("

# fmt: off
_RENAMED_BY_ONE = Fix("If several ranks run this line, let one rank do it, and the others wait.",
                      ("if rank == 0: os.rename(tmp, path)", "torch.distributed.barrier()"))
_ONE_REMOVES = Fix("Let one rank remove it, before the others write into it.",
                   ("if rank == 0: shutil.rmtree(path)", "torch.distributed.barrier()"))
_LOCAL = Fix("Put the locked file on a local disk, and look which kind of file system this one is on.",
             ("findmnt -T FILE", "df -hT FILE"))
_REACH = Fix("Try the same address by hand, from the node of the rank that failed.",
             ("nc -vz HOST PORT", "ip -brief addr", "ip route get ADDRESS"))
_OF_FILES = (
    Refusal(_OS, rf"\[Errno 39\] Directory not empty{_TWO}",
            "the folder {to} has files in it, so {path} cannot be renamed to that name{at}",
            "A folder can only take the place of an empty one. The target is left from an earlier save or run, or "
            "several ranks save under the same name, and the first one has already done it.",
            (_RENAMED_BY_ONE, Fix("If it is from an earlier run, move it away, or save under another name.")),
            look=Look("See what is in it, and from when.", "ls -la {to:path}")),
    Refusal(_OS, rf"\[Errno 39\] Directory not empty{_PATH}",
            "the folder {path} has files in it, so it cannot be removed{at}",
            "os.rmdir() and Path.rmdir() remove empty folders only.",
            (Fix("If the files are needed, or you are not sure, move the folder away.",
                 ("os.rename(path, path + '.old')",)),), line=r"\brmdir\(",
            look=Look("See what is in it.", "ls -la {path:path}")),
    Refusal(_OS, rf"\[Errno 39\] Directory not empty{_PATH}",
            "the folder {path} was not empty when it was to be removed: probably another process wrote into it{at}",
            "shutil.rmtree() empties a folder, and then removes it. In between another process created a file there: "
            "another rank that runs the same code, a loader worker, another job. On NFS a deleted file that is "
            "still open stays as .nfs*.",
            (_ONE_REMOVES,), look=Look("See what is in it now.", "ls -la {path:path}")),
    Refusal(_OS, rf"\[Errno 18\] (?:Invalid cross-device link|Cross-device link){_TWO}",
            "{path} and {to} are on different disks, and a file cannot be moved between them by renaming{at}",
            "os.rename(), os.replace() and hard links work within one file system only. /tmp, /dev/shm, a node's local "
            "disk and a shared folder are different ones.",
            (Fix("Write the temporary file next to the target, then rename it: that stays a single step.",
                 ("tmp = path + '.tmp'", "os.replace(tmp, path)")),
             Fix("Or let shutil copy it, or make a symbolic link in place of a hard one.",
                 ("shutil.move(tmp, path)", "os.symlink(path, link)"))), of_code=True,
            look=Look("Compare the file systems.", "df -h {path:path} {to:folder}")),
    Refusal(_OS, r"\[Errno 36\] File name too long",
            "a name of a file or folder is too long{at}",
            "One name may have 255 bytes on most file systems, and a path 4096. A name that is built of all options, "
            "of a prompt or of a URL gets longer; other letters than ASCII need 2 to 4 bytes each. A text that was "
            "passed in the place of a path does the same.",
            (Fix("If it is a text and not a path, pass the path. Otherwise shorten the name, with a hash so that names "
                 "stay different.",
                 ("print(path[:200])",
                  "name = name[:100] + '-' + hashlib.sha256(name.encode()).hexdigest()[:16]")),), of_code=True),
    Refusal(_OS, rf"\[Errno 26\] Text file busy{_PATH}",
            "the program {path} is started while a process has it open for writing{at}",
            "Another rank or an earlier step still writes or copies it, or the script did not close it.",
            (Fix("Let one rank create it, close it, and then let the others start it.",
                 ("torch.distributed.barrier()",)),), line=_STARTS,
            look=Look("See which process has it open.", "fuser -v {path:path}")),
    Refusal(_OS, rf"\[Errno 26\] Text file busy{_PATH}",
            "{path} is a program that is running, so it cannot be overwritten{at}",
            "Another rank, another job or a process that an earlier run left behind executes this file.",
            (Fix("Write the new one under another name, then put it in its place: processes that run keep the old one.",
                 ("os.replace('PROGRAM.new', 'PROGRAM')",)),),
            look=Look("See which process uses it.", "fuser -v {path:path}")),
    Refusal(_OS, r"\[Errno 16\] (?:Device or resource busy|Resource busy): b?['\"](?P<path>[^'\"]*\.nfs\w+)['\"]",
            "a folder on NFS cannot be removed, because a process still has a deleted file in it open: {path}{at}",
            "NFS keeps such a file under the name .nfs* until the last process closes it: a logger, a memory map, a "
            "loader worker, another rank.",
            (Fix("Close the files first, then remove the folder again."),
             _ONE_REMOVES), look=Look("See which process has it open, on each node that uses the folder.",
                                  "lsof {path:path}")),
    Refusal(_OS, rf"\[Errno 16\] (?:Device or resource busy|Resource busy){_PATH}",
            "{path} is in use by the system, so it cannot be removed or renamed{at}",
            "It is the mount point of a disk or of a container's volume, or a program uses it as such.",
            (Fix("Remove or rename what is in it, not the folder itself."),),
            look=Look("See whether something is mounted there, and who uses it.", "findmnt {path:path}; fuser -vm "
             "{path:path}")),
    Refusal(_OS, rf"\[Errno 40\] Too many levels of symbolic links{_PATH}",
            "the path {path} leads through symbolic links that point to each other{at}",
            "A link points to itself, directly or through others. Usually ln -s was run with a relative target or run "
            "twice, or a copy of a folder has links to its own path.",
            (Fix("Make the link again, with the whole path of its target.", ("ln -sfn /WHOLE/PATH LINK",)),),
            of_code=True, look=Look("Follow the links one by one.", "namei -l {path:path}")),
    Refusal(_OS, r"\[Errno 27\] File too large",
            "a file reached the largest size that is allowed for it{at}",
            "The process has a limit on the size of its files (ulimit -f), or the file system does: 4 GiB on FAT, and "
            "a quota per file on some shared ones. The file is incomplete.",
            (Fix("Check the limit and the file system.", ("ulimit -f", "df -hT .")),
             Fix("Raise the limit, write to another disk, or save in several files.",
                 ("ulimit -f unlimited", "model.save_pretrained(OUT, max_shard_size='2GB')")))),
    Refusal(_OS, r"\[Errno (?:38|95|524)\] ", "the file system of a file cannot lock it{at}",
            "flock() and lockf() need support of the file system. Lustre without its flock option, NFS without its "
            "lock service, and many FUSE and bucket mounts have none. "
            "The error comes from the disk, not from another process that has the lock.",
            (_LOCAL, Fix("On Lustre an administrator can mount it with flock.", ("mount | grep -i lustre",),
                         who="admin")), line=_LOCKS),
    Refusal(_OS, r"\[Errno 37\] No locks available", "the file system of a file has no lock to give{at}",
            "On NFS the lock service of the server is not reachable, or has reached its limit.",
            (_LOCAL,), line=_LOCKS),
    Refusal(_OS, r"\[Errno 19\] No such device", "a file cannot be mapped into memory: its file system does not allow "
            "it{at}",
            "np.memmap, mmap and safetensors map files. Bucket mounts, some FUSE file systems and files of /proc and "
            "/dev do not support that.",
            (Fix("Copy the file to a local disk, or read it without a map.",
                 ("np.fromfile(path, dtype=np.uint16)", "findmnt -T FILE")),), line=r"(?i)map|safe_open|load"),
    Refusal(_OS, rf"\[Errno 75\] Value too large for defined data type{_PATH}",
            "the file system reports a value about {path} that this program cannot hold{at}",
            "A size, a time or an inode number has more bits than a 32-bit interface takes: a 32-bit Python, an old "
            "program, or a network file system (CIFS, NFS) with 64-bit inode numbers.",
            (Fix("Check that Python has 64 bits, and on which file system the path is.",
                 ("python -c 'import sys; print(sys.maxsize)'",)),),
            look=Look("Look at the file itself.", "stat {path:path}; findmnt -T {path:path}")),
    Refusal(_OS, r"\[Errno 22\] Invalid argument", "the script moves to a place before the start of a file{at}",
            "seek() with a negative position fails if the file is shorter than that: an empty file, or one that is "
            "cut off.", (Fix("Print the size of the file.", ("print(os.path.getsize(path))",)),), line=r"\bl?seek\("),
    Refusal(_OS, r"\[Errno 22\] Invalid argument", "the process is bound to CPUs that it may not use{at}",
            "The numbers are not in the job's or the container's set of CPUs, or the node has fewer.",
            (Fix("Print the CPUs that this process may use, and choose from them.",
                 ("print(os.sched_getaffinity(0))", "taskset -cp $$")),), line=r"setaffinity|cpu_affinity"),
    Refusal(_OS, r"\[Errno 22\] Invalid argument: b?['\"](?P<path>(?![A-Za-z]:)[^'\"]*[:?*|<>][^'\"]*)['\"](?! ->)",
            "the file system probably does not allow a character in the name {path}{at}",
            "Shares of Windows (CIFS), FAT and exFAT refuse : ? * | < > and quotes. A time in the name is the usual "
            "reason.", (Fix("Replace these characters.", ("time.strftime('%Y-%m-%d_%H-%M-%S')",)),), of_code=True),
    Refusal(_OS, r"\[Errno 9\] Bad file descriptor",
            "a lock needs a file that is opened for writing, or the file is closed{at}",
            "lockf() with LOCK_EX needs a file that can be written; opened for reading only, it gives this error. On "
            "NFS, flock() does, too.", (Fix("Open it to append: that changes nothing in it.", ("open(path, 'a')",)),),
            of_code=True, line=_LOCKS),
    Refusal(_OS, r"\[Errno 9\] Bad file descriptor",
            "a file, a pipe or a socket is closed, or was not opened for what the line does{at}",
            "Its number was closed by other code: os.close(), a second file object for the same number, a library that "
            "closes all files, or a with block that has ended. After a fork a worker may use what its parent closed.",
            (Fix("Open it where it is used: in the worker, in the with block.",),), of_code=True),
    Refusal("FileNotFoundError", rf"\[Errno 2\] No such file or directory{_TWO}",
            "{path} does not exist, or not any more, when it is to be moved to {to}{at}",
            "Either it was never written, or another process has moved or removed it: ranks that all write the same "
            "temporary file and rename it find it gone after the first one. The folder of the target can be missing, "
            "too.",
            (_RENAMED_BY_ONE,), look=Look("See which of the two is there.", "ls -ld {path:path} {to:folder}")),
    Refusal("FileNotFoundError", r"\[Errno 2\] No such file or directory: b?['\"](?P<path>[^'\"\s]+ [^'\"]+)['\"]",
            "there is no program of the name \"{path}\": probably a whole command line was passed as the name{at}",
            "Without shell=True, subprocess takes a text as the name of one program, with its spaces.",
            (Fix("Pass a list, one item per word.", ("subprocess.run(['python', 'prepare.py', '--out', 'data'])",
                                                     "subprocess.run(shlex.split(command))")),),
            of_code=True, raised=r"child_exception_type\(",
            line=r"\b(?:run|call|check_call|check_output|Popen)\((?!\[)"),
    Refusal("FileNotFoundError", r"\[Errno 2\] No such file or directory$",
            "the current folder of the process does not exist any more{at}",
            "Something removed or replaced it after the process had started: another job, a clean-up, a script "
            "that creates its folder again.",
            (Fix("Start the run in a folder that stays, and use whole paths.", ("cd $HOME && pwd",)),),
            line=r"\b(?:getcwd|abspath|resolve|cwd)\("),
    Refusal("FileNotFoundError", rf"\[Errno 2\] No such file or directory{_PATH}",
            "a file or folder does not exist: {path}{at}",
            "The path is relative to another folder, is not mounted on this node, was not created yet, or has spaces "
            "that a shell or a list of files did not keep.", (),
            look=Look("Check whether it exists, on every node.", "pwd; ls -ld {path:path}")),
    *(Refusal("FileNotFoundError", pattern, "a file or folder does not exist: {path}{at}",
              "The path is relative to another folder, is not mounted on this node, was not downloaded or unpacked "
              "there, or belongs to an option for which this machine has no data.", (),
              look=Look("Check whether it exists, on every node.", "pwd; ls -ld {path:path}"))
      for pattern in _OF_PACKAGES),
)
_OF_PROCESSES = (
    Refusal(_OS, rf"\[Errno 7\] Argument list too long{_PATH}",
            "the command line for {path} is too long: the system limits the sum of all arguments{at}",
            "It is about 2 MB for arguments and environment together, and 128 KiB for one argument. A list of all "
            "files of a dataset is longer.",
            (Fix("Write the list into a file, or pass it in parts.",
                 ("tar cf part.tar -T files.txt", "xargs -a files.txt -n 1000 COMMAND", "getconf ARG_MAX")),),
            of_code=True),
    Refusal(_OS, rf"\[Errno 8\] Exec format error{_PATH}",
            "the system cannot execute {path}{at}",
            "A script without #! in its first line has no interpreter. A program that was built for another kind of "
            "CPU (x86-64, aarch64), or an empty or damaged file, gives the same error.",
            (Fix("Give the script a first line, or start it through its interpreter.",
                 ("#!/bin/bash", "subprocess.run(['bash', 'SCRIPT'])")),), of_code=True,
            look=Look("See what kind of file it is.", "file {path:path}; head -c 40 {path:path}; uname -m")),
    Refusal(_OS, r"\[Errno 3\] No such process", "a process that the script signals or inspects has already ended{at}",
            "Its number was read earlier, or from a file that an older run left.",
            (Fix("Treat it as ended.", ("except ProcessLookupError: pass",)),)),
    Refusal(_OS, r"\[Errno 10\] No child processes", "the script waits for a process that is not its child, or was "
            "already waited for{at}",
            "A handler of SIGCHLD, or another part of the program, has taken its exit code.",
            (Fix("Wait in one place only.", ("process.wait()",)),), of_code=True),
    Refusal("PermissionError", r"\[Errno 1\] Operation not permitted: b?['\"](?P<path>/(?:Users|Volumes)/[^'\"]+)['\"]",
            "macOS probably does not let the program that runs Python read or write {path}{at}",
            "Desktop, Documents, Downloads, iCloud, removable and network drives are protected: the terminal or the "
            "editor in which Python runs needs a permission for them, also for your own files.",
            (Fix("Allow it in System Settings > Privacy & Security > Files and Folders (or Full Disk Access), and "
                 "start the terminal or the editor again."),
             Fix("Or keep the data and the results in another folder of your home.")),
            line=r"\b(?:open|listdir|scandir|iterdir|walk|i?glob|stat|copy\w*|move|load\w*|save\w*|read\w*|imread|"
                 r"imwrite|mkdir|makedirs|to_csv|Dataset|ImageFolder)\b",
            look=Look("See who owns it.", "ls -ldeO@ {path:path}; id")),
    Refusal("PermissionError", rf"\[Errno 1\] Operation not permitted{_PATH}",
            "this user may not change {path}{at}",
            "Its owner, its mode or its attributes (chmod, chown, utime, links) can be changed only by the owner or by "
            "root. Some network and bucket mounts allow it to no one.",
            (Fix("Skip that step, or write into a folder of your own."),),
            look=Look("See who owns it, and how it is mounted.", "ls -ld {path:path}; id; findmnt -T {path:path}")),
    Refusal("PermissionError", r"\[Errno 1\] Operation not permitted",
            "the system does not permit this call to this user or in this container{at}",
            "Signals to processes of other users, a higher priority (nice), raised limits, real-time scheduling, "
            "memory locking and debugging need root or a capability, which containers often drop.",
            (Fix("Leave that step out, or ask for the permission it needs.", ("id; grep Cap /proc/self/status",)),)),
    Refusal("PermissionError", r"\[Errno 13\] Permission denied$", "this user may not listen at that address{at}",
            "Ports below 1024 are usually for root; a socket file needs a folder that the user can write to.",
            (Fix("Use a port above 1024, or a folder of this user."),),
            of_code=True, line=r"\.bind\(|\blisten\(|serve_forever\(|\b\w*Server\("),
)
_OF_SOCKETS = (
    Refusal(_OS, r"\[Errno (?:103|110|111|113)\] [^:]+: b?['\"](?P<path>/[^'\"]+|[\w.-]+/(?!/)[^'\"]+)",
            "the file system of {path} does not answer{at}",
            "It is a network or FUSE mount whose server or program has stopped or cannot be reached.", (),
            look=Look("See what is mounted there, and from which server.", "findmnt -T {path:path}")),
    Refusal(_OS, rf"\[Errno (?:111|61)\] Connection refused{_NO_PATH}",
            "the address that the script connects to refuses the connection{at}",
            "The host answered, and refused. The server has not started yet, has ended, listens on another port or "
            "only on another address (127.0.0.1 is reachable only from its own node), or the address is another "
            "node's. Between processes of one node (multiprocessing): the process that owned the socket has ended.",
            (Fix("Check on that host whether it runs, and where it listens.", ("ss -ltnp",)), _REACH,
             Fix("If it needs time to start, try again for a while before giving up."))),
    Refusal(_OS, rf"\[Errno (?:110\] Connection|60\] Operation) timed out{_NO_PATH}",
            "the address that the script connects to does not answer{at}",
            "Nothing came back, not even a refusal: a firewall drops the packets, the address belongs to a network "
            "that this node does not have, the host is down, or the node has no internet access.", (_REACH,)),
    Refusal(_OS, rf"\[Errno 113\] No route to host{_NO_PATH}",
            "there is no way from this node to the address that the script connects to{at}",
            "The host is down, the address is of a network that this node is not in, or a firewall rejects it.",
            (_REACH,)),
    Refusal(_OS, rf"\[Errno (?:101\] Network is unreachable|100\] Network is down){_NO_PATH}",
            "this node has no network on which the address can be reached{at}",
            "A compute node or a container without internet access, an address of IPv6 on a node that has only IPv4, "
            "or an interface that is down.", (_REACH,)),
    Refusal(_OS, r"\[Errno 97\] Address family not supported", "this node or container does not support the kind of "
            "address that the script uses{at}", "Usually IPv6 is turned off, and the script or the host name asks for "
            "it.", (Fix("Use an address of IPv4.", ("socket.socket(socket.AF_INET)", "getent ahostsv4 HOST")),)),
    Refusal(_OS, rf"\[Errno 103\] Software caused connection abort{_NO_PATH}",
            "a connection was aborted on this node{at}",
            "The network changed or was lost, a timeout of the connection passed, or the other end closed it while it "
            "was being accepted.", (_REACH,)),
    Refusal(_OS, rf"\[Errno 105\] No buffer space available{_NO_PATH}",
            "the system has no memory left for the network{at}",
            "Too many connections or a full queue: the neighbor table of a large cluster, or limits of the sockets.",
            (Fix("Check the limits and the kernel log.", ("sysctl net.ipv4.neigh.default.gc_thresh3 net.core.wmem_max",
                                                          "sudo dmesg -T | tail -50"), who="admin"),)),
    Refusal("TimeoutError timeout", r"^(?:The read operation )?timed out$",
            "the other end of a connection did not answer within the time limit of the script{at}",
            "The connection exists, or is being opened, but nothing arrived in time: a server that is busy, hangs or "
            "still loads, or a firewall.",
            (_REACH, Fix("If the server is only slow, raise the limit.", ("sock.settimeout(60)",)))),
)
SYSTEM = (*_OF_FILES, *_OF_PROCESSES, *_OF_SOCKETS)
# fmt: on

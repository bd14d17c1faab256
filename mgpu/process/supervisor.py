"""How does the launcher run under mgpu as if it were started directly?

Its output reaches the terminal unchanged, through a pseudo-terminal if there is one, else through pipes; a copy goes to
the log. Signals are forwarded, keys go through the pseudo-terminal's own line discipline. When the launcher exits, the
remaining processes of the run are stopped too. Nothing here ever blocks on a reader; callbacks (a time limit, the GPUs)
are called at least twice a second while the program runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType

from mgpu.errors import CANNOT_RUN, NOT_FOUND, MgpuError, reason
from mgpu.process import exit_code, guard, open_files, processes, signals
from mgpu.process.command import Command
from mgpu.process.notices import Notices
from mgpu.process.process_ends import ProcessEnds
from mgpu.process.run_log import RunLog
from mgpu.process.stream import Stream
from mgpu.process.terminal import Terminal, is_foreground, is_terminal

_TO_LAUNCHER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_TO_RANKS = (signal.SIGUSR1, signal.SIGUSR2)
_FORCE_AFTER = 2  # a second Ctrl-C or signal kills the run without waiting; torchrun itself waits 30 s for its ranks
# A repeated signal within this time is the same request: timeout(1) signals the process and then its group; when a
# terminal closes, the kernel and then the shell send SIGHUP.
_SAME_S = 0.2
_FORCED_S = 1.0  # from TERM to KILL in that case
_GRACE_S = 5.0
_TICK_S = 0.5
_SOON_S = 0.1  # polling interval until the ranks have started
_SOON_FOR_S = 30.0
_LAST_S = 0.05  # output that arrives later than this after the end is from a leftover process
_READ_ON_S = 1.0  # … and constant output is read for at most this long before that process is killed
_READ_OUT_S = 5.0  # … and after that, if the process cannot be found and killed


@dataclass
class Ended:
    """How the launcher ended."""

    returncode: int  # as in subprocess: negative for a signal
    table: bytes  # the launcher's last table of failed ranks; empty if there was none
    tail: bytes  # the end of the output
    signalled: int | None  # the last signal that mgpu received to stop the run
    timed_out: bool  # --timeout
    left_over: tuple[int, ...]  # processes that had to be stopped afterwards
    stuck: tuple[int, ...]  # … and could not be killed
    ranks: dict[int, processes.Rank] = field(default_factory=dict)  # as last seen
    error_files: frozenset[str] = frozenset()  # of all ranks that ever existed
    seconds: float = 0.0
    at_line_start: bool = True  # of the terminal
    lost: tuple[str, ...] = ()  # streams that were not written completely: "stdout: the disk is full"
    log_full: bool = False  # the log ended early because its disk was full
    ends: dict[int, float] = field(default_factory=dict)  # of the ranks' processes: when (time.monotonic)

    @property
    def printed(self) -> bytes:
        """Return the output that shows the exit code: the table, or the end of the output."""
        return self.table or self.tail


Tick = Callable[["Supervisor"], None]


class Supervisor:
    """One launcher, its streams and its signals."""

    def __init__(
        self,
        command: Command,
        log: RunLog | None,
        ticks: Sequence[Tick] = (),
        note: Callable[[str], None] = lambda text: None,
        before_signal: Tick = lambda supervisor: None,
    ) -> None:
        """`before_signal` is called before the launcher gets a signal or Ctrl-C."""
        self.command, self.log, self.note = command, log, note
        self._before_signal = before_signal
        self.launcher: subprocess.Popen[bytes] | None = None
        self.started = self.last_output = time.monotonic()
        self.ranks: dict[int, processes.Rank] = {}
        self.signalled: int | None = None
        self.timed_out = False
        self._ticks = list(ticks)
        self._tables = exit_code.Tables()
        self._error_files: set[str] = set()
        self._streams: list[Stream] = []
        self._terminal: Terminal | None = None
        self._keys = b""  # typed, but not yet read by the program
        self._keys_ended = False
        self._guard: guard.Guard | None = None
        self._poll = select.poll()
        self._polled: dict[int, int] = {}
        self._ends = ProcessEnds()
        self._asked = 0  # how often mgpu was asked to stop the run
        self._asked_at = float("-inf")
        self._stop_by = float("inf")
        self._forced = False
        self._suspended = False
        self._next_tick = 0.0
        self._notices = Notices()

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.started

    def run(self) -> Ended:
        """Start, watch, clean up. Raises MgpuError (126, 127) if the launcher cannot be started."""
        shown = next((number for number in (1, 2) if is_terminal(number)), None)
        try:
            self._terminal = Terminal(shown) if shown is not None else None
        except OSError as error:  # a container without /dev/pts, or the limit is reached
            self.note(f"no pseudo-terminal, using pipes: {reason(error)}")
        keys = self._terminal.before if self._terminal and self._terminal.takes_keys else None
        try:
            with guard.guard_run(self.command.run_id, keys) as self._guard, self._signals():
                launcher = self._start()
                while launcher.poll() is None:
                    self._turn(_SOON_S if not self.ranks and self.seconds < _SOON_FOR_S else _TICK_S / 2)
                    self._look()
                left, stuck = self._end()
        finally:
            if self._terminal is not None:
                self._terminal.restore()
        self.note(f"the launcher exited with {launcher.returncode} after {self.seconds:.1f} s")
        return Ended(
            launcher.returncode,
            self._tables.last,
            self._tables.tail,
            self.signalled,
            self.timed_out,
            tuple(left),
            tuple(stuck),
            self.ranks,
            frozenset(self._error_files),
            self.seconds,
            all(stream.at_line_start for stream in self._streams if stream.to_terminal),
            tuple(f"{stream.name}: {stream.lost}" for stream in self._streams if stream.lost),
            self.log is not None and self.log.is_disk_full,
            {pid: at for pid, at in self._ends.at.items() if pid != launcher.pid},
        )

    # Called from outside

    def say(self, text: str, *, at_once: bool = False, important: bool = False) -> None:
        """Note a message, and print it between the program's output on a terminal; an important one on any stderr."""
        self.note(f"message: {text}")
        self._notices.add(text, important=important, log=self.log)
        if at_once and self._notices:
            self._speak(at_once=True)

    def is_insisted(self) -> bool:
        """Whether the user has asked again to stop the run. Reads the keyboard."""
        if self._terminal is not None and self._terminal.is_raw and not self._keys_ended:
            self._pass_keys(bool(select.select([0], [], [], 0)[0]))
        return self._asked >= _FORCE_AFTER or self._forced

    def stop(self, number: int = signal.SIGTERM, why: str = "") -> None:
        """Signal the launcher to stop; after a time limit the whole run is killed."""
        self.say(f"{signal.Signals(number).name} to the launcher{f': {why}' if why else ''}", important=bool(why))
        self._stop_by = min(self._stop_by, time.monotonic() + self.command.stop_s)
        self._look_before_signal()
        self._signal_launcher(number)

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the launcher in its own session, with the pseudo-terminal or pipes as its streams."""
        terminal = self._terminal
        inner = terminal.inner if terminal is not None else None
        keys = terminal is not None and terminal.takes_keys
        same = [number for number in (1, 2) if terminal is not None and is_terminal(number)]
        stdout, stderr = (inner if number in same else subprocess.PIPE for number in (1, 2))
        before = guard.parent_death_hook() if terminal is None or not keys else terminal.become_controlling
        self.note(f"started: {self.command.masked()}")
        open_files.raise_limit()
        try:
            self.launcher = launcher = subprocess.Popen(
                self.command.argv,
                env=self.command.environment(),
                start_new_session=True,
                stdin=inner if keys else None if open_files.stdin_is_open() else subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                preexec_fn=before,
            )
        except FileNotFoundError as error:
            raise MgpuError(f"the launcher was not found: {reason(error)}", NOT_FOUND) from None
        except (OSError, subprocess.SubprocessError) as error:
            raise MgpuError(f"the launcher cannot be started: {reason(error)}", CANNOT_RUN) from None
        self.started = self.last_output = time.monotonic()
        if self._guard is not None:
            self._guard.knows(launcher.pid)
        if terminal is not None:
            os.close(terminal.inner)
            self._streams.append(Stream(terminal.outer, terminal.shown_on))
            if keys and is_foreground():
                self._raw(terminal)
        for pipe, number in ((launcher.stdout, 1), (launcher.stderr, 2)):
            if pipe is not None:
                self._streams.append(Stream(pipe.fileno(), number))
        self._ends.watch(launcher.pid)
        return launcher

    # While it runs

    def _turn(self, wait_s: float) -> bool:
        """Wait for input, output or a ready reader, and pass the data on; False if there was none."""
        self._register()
        moved = False
        ready = {number for number, _ in self._poll.poll(int(wait_s * 1000))}
        self._ends.note(ready)
        for stream in self._streams:
            if stream.waits and stream.target in ready:
                stream.write()
                moved = True
            if stream.source in ready and stream.takes and (size := stream.read()):
                moved = True
                self._keep(stream, size)
        if self._terminal is not None:
            self._pass_keys(0 in ready)
        if self._notices:
            self._speak()
        return moved

    def _register(self) -> None:
        """Register the descriptors to poll; a stream with a slow reader is not read further than its buffers."""
        wanted: dict[int, int] = dict.fromkeys(self._ends.descriptors, select.POLLIN)
        for stream in self._streams:
            if stream.waits and stream.target is not None:
                wanted[stream.target] = select.POLLOUT
            if stream.takes:
                wanted[stream.source] = select.POLLIN
        terminal = self._terminal
        if terminal is not None and terminal.is_raw and not self._keys_ended:
            if self._keys:
                wanted[terminal.outer] = wanted.get(terminal.outer, 0) | select.POLLOUT
            else:
                wanted[0] = select.POLLIN
        if wanted == self._polled:
            return
        for number in self._polled.keys() - wanted:
            self._poll.unregister(number)
        for number, events in wanted.items():
            self._poll.register(number, events)
        self._polled = wanted

    def _keep(self, stream: Stream, size: int) -> None:
        self.last_output = time.monotonic()
        self._tables.feed(stream.buffer, size)
        if self.log is None:
            return
        data = memoryview(stream.buffer)[:size]
        if self._terminal is not None and stream.source == self._terminal.outer:
            data = memoryview(bytes(data).replace(b"\r\n", b"\n"))  # as written by the program
        self.log.write(data)

    def _look(self) -> None:
        """Run the periodic tasks, and kill the run after a second request to stop."""
        now = time.monotonic()
        if self._asked >= _FORCE_AFTER or now > self._stop_by:
            self.note("killing the remaining processes of the run")
            self._asked, self._stop_by, self._forced = 1, float("inf"), True
            processes.end_run(self.command.run_id, _FORCED_S)
        if now < self._next_tick and self.ranks:
            return
        self._find_ranks()
        if now < self._next_tick:
            return
        self._next_tick = now + _TICK_S
        if self._guard is not None and not self._guard.look():
            self.note("the guard was killed: started another one")
        self._take_keys()
        for tick in tuple(self._ticks):
            try:
                tick(self)
            except Exception as error:  # a bug in mgpu must not affect the training
                self.note(f"a bug in mgpu: {reason(error)}")
                self._ticks.remove(tick)
                if os.environ.get("MGPU_DEBUG"):
                    raise

    def _look_before_signal(self) -> None:
        """Look at the ranks before they are stopped. An error in it must not prevent the stop."""
        self._find_ranks()  # those that started since the last tick too
        try:
            self._before_signal(self)
        except Exception as error:
            self.note(f"a bug in mgpu: {reason(error)}")
            if os.environ.get("MGPU_DEBUG"):
                raise

    def _find_ranks(self) -> dict[int, processes.Rank]:
        """Return the current ranks, and add them to those seen so far."""
        launcher = self.launcher
        if launcher is None or launcher.returncode is not None:
            return {}
        found = processes.ranks_of(launcher.pid, self.command.known, alone=self.command.ranks == 1)
        if found and self.ranks.get(0) == processes.Rank(launcher.pid) not in found.values():
            del self.ranks[0]  # the command was taken for the only rank, until it started others
        self.ranks.update(found)
        for rank in found.values():
            self._ends.watch(rank.pid)
            if rank.error_file and rank.error_file not in self._error_files:
                self._error_files.add(rank.error_file)
                if self._guard is not None:
                    self._guard.knows(rank.error_file)
        return found

    def _speak(self, *, at_once: bool = False) -> None:
        """Print the pending messages when no line of the program is interrupted."""
        self._notices.show(self._streams, raw=bool(self._terminal and self._terminal.is_raw), at_once=at_once)

    # The end

    def _end(self) -> tuple[list[int], list[int]]:
        """Pass on the last output and stop the remaining processes. Returns those, and those that cannot be killed."""
        asked = self._asked
        self._read_on(asked)
        left, stuck = processes.end_run(self.command.run_id, _GRACE_S, self._sessions())
        self._read_out(asked)
        if left:
            self.note(f"stopped leftover processes: {' '.join(map(str, left))}")
        if self._notices:
            self._speak(at_once=True)
        self._ends.close()
        return left, stuck

    def _sessions(self) -> frozenset[int] | None:
        """Return the sessions of a run that succeeded: a process that left them, such as an upload, continues."""
        launcher = self.launcher
        if launcher is None or launcher.returncode or self.signalled or self.timed_out or self._forced:
            return None
        known = {launcher.pid, *(rank.pid for rank in self.ranks.values())}
        if len(self.ranks) < (self.command.ranks or 1):  # one ended before it was seen: its session has no leader
            left = {one.session for one in processes.processes_of_run(self.command.run_id)}
            known |= {session for session in left if processes.state_of(session) in (None, "ended")}
        return frozenset(known)

    def _read_on(self, asked: int) -> None:
        """Pass on the last output before leftover processes are stopped: those may print indefinitely."""
        until = time.monotonic() + _READ_ON_S
        while self._is_unread() and time.monotonic() < until:
            moved = self._turn(_LAST_S)
            if self._is_insisted(asked):
                self._give_up()
            if not moved and not any(stream.waits for stream in self._streams):
                return

    def _read_out(self, asked: int) -> None:
        """Pass on all remaining output, even to a slow reader. An unknown process may keep the pipes open and print."""
        begun = time.monotonic()
        while self._is_unread():
            moved = self._turn(_LAST_S)
            insisted = self._is_insisted(asked)
            late = time.monotonic() - begun >= (_READ_ON_S if insisted else _READ_OUT_S)
            if insisted:
                self._give_up()
            if late:
                for stream in self._streams:
                    stream.finish()
            if (insisted and late) or (not moved and not any(stream.waits for stream in self._streams)):
                return

    def _is_unread(self) -> bool:
        return any(not stream.ended or stream.waits for stream in self._streams)

    def _is_insisted(self, asked: int) -> bool:
        return self._asked > asked or self._forced

    def _give_up(self) -> None:
        """Drop readers that have not accepted all output."""
        for stream in self._streams:
            if stream.waits:
                stream.give_up()

    # Signals and keys

    def _signals(self) -> contextlib.AbstractContextManager[None]:
        """Forward INT, TERM, HUP, QUIT to the launcher's process group, USR1 and USR2 to the ranks; suspend on TSTP."""
        handlers: dict[signal.Signals, signals.Handler] = {
            **dict.fromkeys(_TO_LAUNCHER, self._on_end),
            **dict.fromkeys(_TO_RANKS, self._on_user),
            signal.SIGCONT: lambda number, frame: self._resume(),
            signal.SIGTSTP: lambda number, frame: self._suspend(of_group=False),
        }
        if self._terminal is not None:
            handlers[signal.SIGWINCH] = self._on_resize
        # `trap '' USR1` in a job script protects its shell: the ranks still get theirs.
        return signals.installed_handlers(handlers, even_ignored=_TO_RANKS)

    def _on_end(self, number: int, frame: FrameType | None = None) -> None:
        if self._is_asked(number):
            self.note(f"received {signal.Signals(number).name}, forwarding it to the launcher")
            self._signal_launcher(number)

    def _is_asked(self, number: int) -> bool:
        """Count a request to stop; False if it repeats the previous one."""
        now = time.monotonic()
        same = number == self.signalled and (now - self._asked_at < _SAME_S or number == signal.SIGHUP)
        self._asked_at = now
        self.signalled = number
        if not same:
            self._asked += 1
            self._look_before_signal()
            if number == signal.SIGINT and self.command.is_job:
                self._signal_launcher(signal.SIGTERM)
        return not same

    def _on_user(self, number: int, frame: FrameType | None) -> None:
        ranks = [rank.pid for rank in self._find_ranks().values()]
        self.note(f"received {signal.Signals(number).name}, forwarding it to the ranks: {' '.join(map(str, ranks))}")
        processes.signal_all(ranks, signal.Signals(number))

    def _on_resize(self, number: int, frame: FrameType | None) -> None:
        if self._terminal is not None:
            self._terminal.resize()

    def _signal_launcher(self, number: int) -> None:
        if self.launcher is not None and self.launcher.returncode is None:
            if self._suspended:
                self._resume()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.launcher.pid, number)

    def _pass_keys(self, are_there: bool) -> None:
        """Pass typed keys on to the program."""
        terminal = self._terminal
        if terminal is None or not terminal.is_raw:
            return
        if are_there and not self._keys:
            try:
                typed = os.read(0, 4096)
            except OSError:
                typed = b""
            self._keys_ended = not typed
            if (meant := terminal.signal_for(typed)) == signal.SIGTSTP:
                self._suspend(of_group=True)
                return
            if meant is not None and self._is_asked(meant):
                self.note(f"{signal.Signals(meant).name} from the keyboard")
            self._keys = typed
        if self._keys:
            with contextlib.suppress(BlockingIOError):
                try:
                    self._keys = self._keys[os.write(terminal.outer, self._keys) :]
                except OSError as error:
                    if isinstance(error, BlockingIOError):
                        raise
                    self._keys = b""  # no reader

    def _take_keys(self) -> None:
        """Start reading keys if the job was brought to the foreground."""
        if self._terminal is not None and self._terminal.takes_keys and not self._terminal.is_raw and is_foreground():
            self._raw(self._terminal)
            self._terminal.resize()

    def _raw(self, terminal: Terminal) -> None:
        if self._guard is not None:
            self._guard.set_raw(True)
        terminal.raw()

    def _suspend(self, *, of_group: bool) -> None:
        """Handle Ctrl-Z: stop the run's processes, then mgpu. The launcher has its own session and is not stopped."""
        self.note("suspended")
        self._suspended = True
        for _ in range(2):  # twice, to catch processes started meanwhile
            self._signal_run(signal.SIGSTOP)
        if self._terminal is not None:
            self._terminal.restore()
            if self._guard is not None:
                self._guard.set_raw(False)
        if of_group:  # like the terminal does; ignored if there is no shell to resume it
            handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(0, signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, handler)
        else:
            os.kill(os.getpid(), signal.SIGSTOP)
        self._resume()

    def _resume(self) -> None:
        """Handle `fg`, `bg`, or SIGCONT."""
        self._take_keys()
        if self._suspended:
            self._suspended = False
            self.note("resumed")
            self._signal_run(signal.SIGCONT)

    def _signal_run(self, number: signal.Signals) -> None:
        processes.signal_all((process.pid for process in processes.processes_of_run(self.command.run_id)), number)

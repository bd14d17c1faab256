"""How fast does this rank train, and in how much memory? In steps after the watched ones, only time is taken.

A time is one of perf_counter, or a CUDA event if the parameters are on a GPU: events are read once, at the end, so that
no step waits for the GPU. Phases: the loader; the exchange, from this rank's last gradient to the end of backward, and
in collectives that the script calls; the optimizer; saving. Whatever is in none of them is forward, backward and the
rest of the script. A phase inside another one is part of that one.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject._mgpu_rehearsal import guarded, peaks
    from mgpu.recorder.inject._mgpu_rehearsed_data import samples_in
    from mgpu.recorder.inject._mgpu_rehearsed_exchange import COLLECTIVES
    from mgpu.recorder.inject._mgpu_rehearsed_training import is_sharded
else:
    from _mgpu_rehearsal import guarded, peaks
    from _mgpu_rehearsed_data import samples_in
    from _mgpu_rehearsed_exchange import COLLECTIVES
    from _mgpu_rehearsed_training import is_sharded

# The variable with the time, on CLOCK_MONOTONIC, at which the script is stopped. Without it, nothing is measured.
UNTIL = "MGPU_REHEARSAL_UNTIL"
LEAST, MOST, SECONDS = 5, 20, 3.0  # measured steps, and the time for them if the least number needs less
_FEWEST = 3  # that make a median
_SHARE = 0.5  # of the time that is left
_PULSE_S = 1.0  # a file that grows shows that the run has not stalled


class Times:
    """The measured steps of this rank."""

    def __init__(self, rehearsal: Any) -> None:
        self.rehearsal = rehearsal
        self.until = float(os.environ.get(UNTIL, "0") or 0)
        self.leader: Any = None  # the optimizer whose steps are counted
        self.wanted = 0
        self.inside = False  # a phase
        self.phases: list[tuple[str, Any, Any]] = []  # of the step that is running
        self.steps: list[tuple[Any, list[tuple[str, Any, Any]], int]] = []  # when each ended, its phases and samples
        self.samples = self.queued = 0
        self.sizes: dict[int, int] = {}  # samples of the largest batch, by loader
        self.trained: dict[int, int] = {}  # backward passes after a batch, by loader
        self.drawn_from: int | None = None  # the loader of the last batch
        self.ready: Any = None  # when this rank's last gradient was there
        self.fired = False
        self._hooked: dict[int, Any] = {}  # parameters whose gradients are waited for: their handles
        self._last = 0
        self._lasts: set[int] = set()
        self._gpu: Any = None  # the device of the parameters; None: the CPU
        self._began: Any = None
        self._pulse = 0.0

    @property
    def on(self) -> bool:
        """Whether steps are measured now."""
        return bool(self.rehearsal.measuring)

    def stamp(self) -> Any:
        """Return the time, as a number or as an event on the GPU's stream."""
        if self._gpu is None:
            return time.perf_counter()
        cuda = sys.modules["torch"].cuda
        event = cuda.Event(enable_timing=True)
        event.record(cuda.current_stream(self._gpu))  # the script may not have set its device
        return event

    def phase(self, name: str, original: Any, args: Any, kwargs: Any) -> Any:
        """Call a function whose time belongs to a phase."""
        if not self.on or self.inside:
            return original(*args, **kwargs)
        self.inside = True
        began = self.stamp()
        try:
            return original(*args, **kwargs)
        finally:
            self.phases.append((name, began, self.stamp()))
            self.inside = False

    def backward(self, original: Any, args: Any, kwargs: Any) -> Any:
        """Call backward. What follows the last gradient of this rank is the exchange with the others."""
        if not self.on or self.inside:  # activation checkpointing calls it within itself
            found = original(*args, **kwargs)
            self._lasts.add(self._last)
            return found
        self.ready, self.inside = None, True
        if self.drawn_from is not None:
            self.trained[self.drawn_from] = self.trained.get(self.drawn_from, 0) + 1
        try:
            return original(*args, **kwargs)
        finally:
            self.inside = False
            if self.ready is not None:
                self.phases.append(("exchange", self.ready, self.stamp()))

    def before_step(self, optimizer: Any, *_: Any) -> None:
        """Before a step of any optimizer."""
        if self.on:
            if not self.inside:
                self.inside = True
                self.phases.append(("optimizer", self.stamp(), optimizer))
        elif self.until:
            guarded(lambda: self._watch_gradients(optimizer))

    def after_step(self, optimizer: Any, *_: Any) -> None:
        """After a step of any optimizer: the one that began the phase ends it."""
        name, began, whose = self.phases[-1] if self.phases else ("", None, None)
        if self.on and name == "optimizer" and whose is optimizer:
            self.phases[-1] = (name, began, self.stamp())
            self.inside = False

    def _watch_gradients(self, optimizer: Any) -> None:
        """Find out in the watched steps which gradient is the last one."""
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if id(parameter) in self._hooked or not parameter.requires_grad:
                continue
            hook = functools.partial(self._arrived, id(parameter))
            self._hooked[id(parameter)] = parameter.register_post_accumulate_grad_hook(hook)

    def _arrived(self, which: int, _: Any) -> None:
        self._last = which
        if self.on:
            self.ready, self.fired = self.stamp(), True

    def goes_on(self, optimizer: Any) -> bool:
        """After each step from the last watched one on: whether the script makes another step."""
        if self.leader is None:
            self.leader = optimizer
            return bool(guarded(self._begin))
        if optimizer is not self.leader:
            return True
        guarded(self._stepped)
        if len(self.steps) <= self.wanted:
            return True
        self.finish()
        return False

    def _begin(self) -> bool:
        known, now = self.rehearsal, time.monotonic()
        if not self.until or not known.step_seconds:
            return False
        each = median(known.step_seconds[1:] or known.step_seconds)
        texts = known.agree("watched", f"{each} {self.until - now}")
        if texts is None:
            return self._cannot("the ranks did not reach the last watched step together")
        pairs = [tuple(map(float, text.split())) for text in texts]
        longest, left = max(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
        fits = int(left * _SHARE / max(longest, 1e-6)) - 1
        self.wanted = min(MOST, max(LEAST, int(SECONDS / max(longest, 1e-6))), fits)
        if self.wanted < _FEWEST:
            return self._cannot(f"a step takes {longest:.3g} s, too long for the time limit")
        for which, handle in self._hooked.items():
            if which not in self._lasts:
                handle.remove()
        parameters = [p for group in self.leader.param_groups for p in group["params"]]
        if any(map(is_sharded, parameters)):
            self._hooked.clear()
        self._gpu = next((p.device for p in parameters if p.is_cuda), None)
        if self._gpu is not None:
            cuda = sys.modules["torch"].cuda
            cuda.synchronize(self._gpu)
            known.peaks = peaks(known)
            cuda.reset_peak_memory_stats(self._gpu)
        known.note("watched", steps=known.wanted)
        known.measuring = True
        self._began, self._pulse = self.stamp(), time.monotonic()
        return True

    def _cannot(self, why: str) -> bool:
        self.rehearsal.note("unmeasured", why=why)
        return False

    def _stepped(self) -> None:
        self.steps.append((self.stamp(), self.phases, self.samples))
        self.phases, self.samples = [], 0
        now = time.monotonic()
        if now - self._pulse > _PULSE_S:
            self._pulse = now
            self.rehearsal.note("pulse")

    def finish(self) -> None:
        """Write the measured steps. The first one settles: what the watched steps delayed is in it."""
        if self.on and guarded(self._write) is None:
            self._cannot("the times could not be read")
        self.rehearsal.measuring = False

    def _write(self) -> bool:
        if self._gpu is not None:
            sys.modules["torch"].cuda.synchronize(self._gpu)
        memory = guarded(self._memory) or {}
        known = (self.fired and bool(self._hooked)) or (self.rehearsal.world or 1) == 1
        rows, before = [], self._began
        for end, phases, samples in self.steps:
            row: dict[str, Any] = dict.fromkeys(("loader", "exchange", "optimizer", "saving"), 0.0)
            for name, first, last in phases:
                row[name] += self._between(first, last)
            row["exchange"] = row["exchange"] if known else None
            rows.append([self._between(before, end), *row.values(), samples])
            before = end
        if len(rows) > _FEWEST:
            batch, threads = self.batch(), sys.modules["torch"].get_num_threads()
            self.rehearsal.note("measured", steps=rows[1:], batch=batch, queued=self.queued, threads=threads, **memory)
        else:
            self._cannot("the script ended before enough steps were measured")
        return True

    def _between(self, first: Any, last: Any) -> float:
        return float(last - first) if self._gpu is None else float(first.elapsed_time(last)) / 1000

    def _memory(self) -> dict[str, int]:
        """Return the bytes that are allocated between steps, without gradients, and the peaks within the steps."""
        if self._gpu is None:
            return {}
        cuda = sys.modules["torch"].cuda
        gradients = (p.grad for group in self.leader.param_groups for p in group["params"])
        local = [one.to_local() if hasattr(one, "to_local") else one for one in gradients if one is not None]
        static = cuda.memory_allocated(self._gpu) - sum(one.numel() * one.element_size() for one in local)
        return {
            "static": static,
            "peak": cuda.max_memory_allocated(self._gpu),
            "held": cuda.max_memory_reserved(self._gpu),
        }

    def batch(self) -> int | None:
        """Return the samples of a full batch that was trained. Of several loaders, the one with most backward passes.

        A loader for validation delivers batches too, and may be drawn from right before a backward pass.
        """
        which = max(self.trained, key=self.trained.__getitem__, default=None)
        return self.sizes.get(which) or None if which is not None else None

    def delivered(self, iterator: Any, batch: Any) -> None:
        """A loader delivered a batch in a measured step."""
        size = samples_in(batch)
        self.samples += size
        self.drawn_from = getattr(iterator, "_mgpu", (0,))[0]
        self.sizes[self.drawn_from] = max(self.sizes.get(self.drawn_from, 0), size)
        workers, ahead = getattr(iterator, "_num_workers", 0), getattr(iterator, "_prefetch_factor", None)
        self.queued = max(self.queued, workers * (ahead or 0))


def times_of(rehearsal: Any) -> Any:
    """Return the one Times of this process."""
    if rehearsal.times is None:
        rehearsal.times = Times(rehearsal)
    return rehearsal.times


def _loaders(rehearsal: Any, module: Any) -> None:
    times, kind = times_of(rehearsal), module._BaseDataLoaderIter
    following = kind.__next__

    @functools.wraps(following)
    def fetch(self: Any) -> Any:
        batch = times.phase("loader", following, (self,), {})
        if times.on:
            guarded(lambda: times.delivered(self, batch))
        return batch

    kind.__next__ = fetch


def _optimizers(rehearsal: Any, module: Any) -> None:
    times = times_of(rehearsal)
    module.register_optimizer_step_pre_hook(times.before_step)
    before = dict(module._global_optimizer_post_hooks)  # one of them ends the step: this one must come first
    module._global_optimizer_post_hooks.clear()
    module.register_optimizer_step_post_hook(times.after_step)
    module._global_optimizer_post_hooks.update(before)


def _backward(rehearsal: Any, module: Any) -> None:
    times, original = times_of(rehearsal), module.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        return times.backward(original, args, kwargs)

    module.backward = backward


def _phase(name: str, *functions: str) -> Any:
    """Count the time in functions of a module to a phase."""

    def hook(rehearsal: Any, module: Any) -> None:
        times = times_of(rehearsal)
        for function in functions:
            owner, _, attribute = function.rpartition(".")
            place = getattr(module, owner) if owner else module
            if hasattr(place, attribute):
                setattr(place, attribute, _timed(times, name, getattr(place, attribute)))

    return hook


def _timed(times: Any, name: str, original: Any) -> Any:
    @functools.wraps(original)
    def timed(*args: Any, **kwargs: Any) -> Any:
        return times.phase(name, original, args, kwargs)

    return timed


HOOKS = {
    "torch.utils.data.dataloader": _loaders,
    "torch.optim.optimizer": _optimizers,
    "torch.autograd": _backward,
    "torch.distributed.distributed_c10d": _phase("exchange", *COLLECTIVES),
    "torch.serialization": _phase("saving", "save"),
    "safetensors.torch": _phase("saving", "save_file"),
    "torch.distributed.checkpoint.state_dict_saver": _phase("saving", "save"),
    "accelerate.accelerator": _phase("saving", "Accelerator.save_state"),
}

"""An exception whose message can continue on the next lines: what of them belongs to it?"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from mgpu.readers.log.counters import training_step
from mgpu.readers.log.learned_prefixes import HEAD
from mgpu.readers.log.line import Line, shown_message
from mgpu.readers.log.message_lines import (
    ANNOUNCES,
    CONVERTED,
    NOT_OF_MESSAGE,
    ONE_LINE,
    OPENS_REASON,
    end_of_converted,
    whole_message,
)
from mgpu.secrets_masking import masked
from mgpu.snapshot import UncaughtException

_MESSAGE_LINES = 30  # maximum lines of a message
_MORE_LINES, _MORE_CHARS = 8, 1000  # of a message, kept after its first line
_MASKED_CHARS = 4096  # of a message, searched for secrets; far fewer are kept
_CONVERTED_LINES = 200  # of TensorFlow's traceback in a message
_ADVICE, _ADVICE_LINES = "IMPORTANT: PLEASE READ THIS FOR ADVICE ON HOW TO SOLVE THIS ISSUE", 40
_ADVISED_OF = re.compile(r"Original error was: (?P<message>\S.*)")
_MODEL = re.compile(r"(?P<name>[A-Za-z_]\w*)\($")
_LAYER = re.compile(r"\s+(?:\(\w[\w-]*\): .*|\)|[\w.]+=.*)$")
_MODEL_ENDS = re.compile(r"\) (?P<message>\S.*)")
_KEYS = re.compile(r"\s*(?:Missing|Unexpected) key\(s\) in state_dict: ")
_KEYS_CHARS = 160  # of a list of names, so that the other list is not cut


@dataclass
class OpenMessage:
    """An exception whose message can continue."""

    found: UncaughtException
    left: int = _MESSAGE_LINES
    signatures: list[str] = field(default_factory=list)
    more: list[str] = field(default_factory=list)  # the lines of the message after its first
    alone: bool = False  # its traceback is missing
    blank: bool = False  # an empty line followed: the message continues only with a line that introduces its reason
    complete: bool = False  # no further line belongs to the message
    advised: int = 0  # lines of numpy's advice so far
    layers: int = 0  # lines of a model's layers in the message so far
    converted: int = 0  # lines of TensorFlow's traceback in the message so far, before the exception that ends it

    def in_converted(self, line: Line) -> bool:
        """Whether a line is in TensorFlow's traceback, which is the message. Its last line becomes the message."""
        message, text = self.found.message, line.text
        if text.strip() == CONVERTED and not self.more and ANNOUNCES.match(message):  # a layer's has one of its own
            self.found = replace(self.found, message=CONVERTED)
            return True
        if text.strip() and not text[:1].isspace():
            self.converted = _CONVERTED_LINES  # other output: what follows is not of the message
        if message != CONVERTED or self.more or self.converted >= _CONVERTED_LINES:
            return False
        self.converted += 1
        if ends := end_of_converted(text):
            self.found = replace(self.found, type=ends[0], message=shown_message(ends[1]))
        return True

    def in_layers(self, line: Line) -> bool:
        """Whether a line is in the print of a model's layers, with which the message begins. What ends it remains."""
        opened = _MODEL.match(self.found.message)
        if opened is None or self.more or self.layers >= _CONVERTED_LINES:
            return False
        self.layers += 1
        if ends := _MODEL_ENDS.match(line.text):
            self.found = replace(self.found, message=shown_message(f"{opened['name']}(...) {ends['message']}"))
            return True
        if not _LAYER.match(line.text):
            self.layers = _CONVERTED_LINES
        return self.layers < _CONVERTED_LINES

    def in_advice(self, line: Line) -> bool:
        """Whether a line is in numpy's advice about a failed import. The line that ends it has the message."""
        if not self.found.message and not self.more and line.text.startswith(_ADVICE):
            self.advised = 1
        if not self.advised:
            return False
        if ends := _ADVISED_OF.match(line.text):
            self.found = replace(self.found, message=shown_message(ends["message"]))
        self.complete |= ends is not None
        self.advised = 0 if ends or self.advised > _ADVICE_LINES or HEAD in line.text else self.advised + 1
        return bool(ends or self.advised)

    def read(self, line: Line) -> None:
        """Add a line to the message, if it continues it: up to the first empty line, or what others print."""
        text = line.text
        last = self.more[-1] if self.more else self.found.message
        if not text.strip():
            self.blank |= bool(self.more) or not (last.endswith(":") or ANNOUNCES.match(last))
            return
        self.complete |= self.blank and not OPENS_REASON.match(text)
        self.blank = False
        self.complete |= text == f"{self.found.type}: {self.found.message}"  # of another rank, without its traceback
        self.complete |= not self.more and not text[:1].isspace() and bool(ONE_LINE.match(self.found.message))
        self.complete |= bool(line.at or NOT_OF_MESSAGE.search(text) or HEAD in text or training_step(text))
        if self.complete or len(self.more) >= _MORE_LINES:
            return
        self.more.append(text[: _KEYS_CHARS if _KEYS.match(text) else _MASKED_CHARS].rstrip())

    def whole(self) -> UncaughtException:
        """Return the exception with its whole message."""
        message, lines = whole_message(self.found.message, masked("\n".join(self.more))[:_MORE_CHARS].split("\n"))
        signatures = tuple(dict.fromkeys(self.signatures))
        return replace(self.found, signatures=signatures, message=message, more="\n".join(lines) or None)

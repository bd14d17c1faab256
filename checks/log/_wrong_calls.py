"""Which argument of a call into torch or Python is wrong, as the message shows without naming it?"""

from __future__ import annotations

import re
from collections.abc import Callable

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import UncaughtException

from .._calls import asked_by_script
from .._wording import at_place
from ._messages import short_name
from ._own_objects import NAME, Meaning

_RANGE = re.compile(
    r"random_ expects 'from' to be less than 'to', but got from=(?P<low>-?\d+) >= to=(?P<high>-?\d+)|"
    r"low >= high|empty range (?:for randrange\(\)|in randrange\()"
)
_UPPER = re.compile(
    rf"(?:random_\((?:to=)?|(?:randint|randrange)\((?:low=)?(?:[\w.-]+, ?)?(?:high=)?)(?P<of>{NAME})"
    r"(?=[ )+-]|, ?(?:[(\[]|size))"
)
_NO_DIMENSION = re.compile(r"Dimension specified as (?P<dim>-?\d+) but tensor has no dimensions")
_PERMUTED = re.compile(r"input\.dim\(\) = (?P<has>\d+) is not equal to len\(dims\) = (?P<given>\d+)")
_CUT_PERMUTED = re.compile(r"permute\(\w*\): number of dimensions in the tensor input does not")
# One item of a tensor as a slice, which keeps the dimension that an index takes away: x[i:i+1].
_SLICE_OF_ONE = re.compile(r"(?P<of>[A-Za-z_][\w.]*)\[(?P<at>\w+) ?: ?(?P=at) ?\+ ?1\]")
_TAKES_IMAGE = re.compile(r"\b(?:wandb\.Image|\w*(?:to_pil_image|ToPILImage\(\)|imshow|save_image))\(")
_ENDS_IN_CALL = re.compile(rf"(?P<of>{NAME})\.(?:permute|transpose)\(")
_CALL = re.compile(
    r"(?P<call>[\w.]+)\(\) (?:takes (?:from \d+ to )?(?P<takes>\d+) positional arguments? but (?P<given>\d+) (?:was|"
    r"were) given"
    r"|missing (?P<count>\d+) required (?:positional|keyword-only) arguments?: (?P<missing>.+))"
)
_ITEM = re.compile(r"(?P<of>[A-Za-z_][\w.]*)\[['\"](?P<key>\w+)['\"]\]")
_ASKS = re.compile(r"\b(?:input|raw_input|getpass)\(|\.prompt\(|click\.confirm\(")


def _scheduler(one: UncaughtException) -> Meaning | None:
    """Explain ReduceLROnPlateau, the only scheduler of torch whose step() needs a value."""
    if not re.search(r"ReduceLROnPlateau\.step\(\) missing .*'metrics'", one.message) and not (
        re.search(r"\bstep\(\) missing .*'metrics'", one.message) and "step()" in (one.own_code or "")
    ):
        return None
    call = re.search(rf"(?P<of>{NAME})\.step\(\)", one.own_code or "")
    name = call["of"] if call else "scheduler"
    return Meaning(
        f"ReduceLROnPlateau needs the value that it watches: {name}.step() has none ({one.place})",
        "This scheduler lowers the learning rate if a value no longer improves, so its step() takes that value. All "
        "other schedulers of torch take none.",
        (
            Fix("Pass it once per epoch, after the validation.", (python("{:dotted}.step(val_loss)", name),)),
            Fix(
                "Or use a scheduler that only counts steps.",
                (python("{:dotted} = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)", name),),
            ),
        ),
    )


def _empty_range(one: UncaughtException) -> Meaning | None:
    """Explain a random number from an empty range: its upper end is 0 or below the lower one."""
    found = _RANGE.search(one.message)
    if found is None:
        return None
    ends = f" from {found['low']} up to {found['high']}" if found["high"] else ""
    upper = _UPPER.search(one.own_code or one.code or "")
    name = upper["of"] if upper else None
    return Meaning(
        f"a random whole number is drawn{ends}, and that range is empty ({one.place})",
        "The upper end must be above the lower one (only random.randint includes it). It is usually a length or a "
        f"number of something that is 0 or too small here{f': {name}' if name else ''}, such as an empty list, a text "
        "shorter than the part that is cut out of it, or an option that was left at 0.",
        (
            Fix(
                f"Print {name or 'the upper end'}, and skip the case in which there is nothing to draw from.",
                (python("print({:dotted})", name),) if name else (),
            ),
        ),
    )


def _scalar(one: UncaughtException) -> Meaning | None:
    found = _NO_DIMENSION.search(one.message)
    if found is None:
        return None
    return Meaning(
        f"a tensor is a single number, without dimensions, and {one.place or 'the script'} uses its dimension "
        f"{found['dim']}",
        "A loss, a mean or sum without dim=, an item of a one-dimensional tensor, or squeeze() of a batch of one is a "
        "single number. The line was written for a tensor with a batch dimension.",
        (
            Fix(
                "Print the shapes before that line, and pass the tensor from before it was reduced.",
                ("print(x.shape)",),
            ),
            Fix(
                "If one number is meant, give it a dimension.",
                ("x = x.reshape(1)", "x = x.squeeze(-1)  # not squeeze()"),
            ),
        ),
    )


def _with_batch(one: UncaughtException) -> Meaning | None:
    """Explain a single image that still has its batch dimension, where something takes one image."""
    found, code = _PERMUTED.search(one.message), one.own_code or ""
    takes, part = _TAKES_IMAGE.search(code), _SLICE_OF_ONE.search(code)
    more = int(found["has"]) == int(found["given"]) + 1 if found else bool(_CUT_PERMUTED.search(one.message) and part)
    if not more or takes is None or ".permute(" in code:
        return None
    call = takes[0].strip("(")
    kept, index = (part[0], f"{part['of']}[{part['at']}]") if part else ("", "images[0]")
    numbers = f"It has {found['has']} dimensions, and {call}() takes {found['given']}. " if found else ""
    return Meaning(
        f"{call} gets {kept or 'a tensor'} with its batch dimension, and takes one image ({one.place})",
        f"{numbers}A slice such as x[i:i+1] keeps the batch dimension, also if it has one image. An index, x[i], takes "
        "it away.",
        (Fix(f"Pass one image, without the batch dimension: {index}."),),
    )


def _permuted(one: UncaughtException) -> Meaning | None:
    found = _PERMUTED.search(one.message)
    if found is None:
        return None
    call = _ENDS_IN_CALL.search(one.own_code or "")
    name = call["of"] if call else "the tensor"
    more = "more" if int(found["has"]) > int(found["given"]) else "fewer"
    return Meaning(
        f"{name} has {found['has']} dimensions, and permute() lists {found['given']} ({one.place})",
        f"It has {more} dimensions than the line was written for: a batch dimension that is there twice or not at all, "
        "an image without channels, or the output of another model. permute() must name each dimension once.",
        (
            Fix(
                "Print its shape before that line, and add or remove the dimension where it is made.",
                (python("print({:dotted}.shape)", name),) if call else ("print(x.shape)",),
            ),
        ),
    )


def _text_as_dict(one: UncaughtException) -> Meaning | None:
    """Explain an item of a text that is read by name: the code expects a dict."""
    code = one.own_code or one.code or ""
    found = _ITEM.search(code)
    if not one.message.startswith("string indices must be integers") or found is None or not one.place:
        return None
    name, key = found["of"], found["key"]
    return Meaning(
        f"{name} is a text, not a dict, and {one.place} reads its key '{key}'",
        f"A for loop over a dict gives its keys, which are texts, and not its values. Or {name} is a line of JSON that "
        "was not parsed, a file name instead of its content, or an entry of a list that has another form than the "
        "code expects.",
        (
            Fix(
                f"Print {name}, and look at where it comes from.",
                (python("print(type({:dotted}), {:dotted})", name, name),),
            ),
            Fix(
                "If it comes from a dict, loop over the values; if it is JSON, parse it.",
                (
                    python("for {:name} in data.values():", name)
                    if name.isidentifier()
                    else "for item in data.values():",
                    python("{:dotted} = json.loads({:dotted})", name, name),
                ),
            ),
        ),
    )


def _asks_without_terminal(one: UncaughtException) -> Meaning | None:
    """Explain a program that waits for a person's answer where there is no terminal."""
    short, code = short_name(one.type), f"{one.own_code or ''}\n{one.code or ''}"
    closed = short == "OSError" and "[Errno 9] Bad file descriptor" in one.message and _ASKS.search(code)
    no_input = short == "EOFError" and one.message.startswith("EOF when reading a line")
    if not closed and not no_input:
        return None
    where = at_place(one)
    return Meaning(
        f"the program asks a question, and no terminal is there to answer it{where}",
        "input() reads from the standard input. nohup, cron, Slurm, processes of multiprocessing and containers "
        "without -it have none, or one that is closed.",
        (
            Fix(
                "Run it in a terminal that stays open, or answer from a file.",
                ("tmux new -s train", "python train.py < answers.txt"),
            ),
            Fix(
                "Or replace the question with an option, and ask only if a person is there.",
                ("if sys.stdin and sys.stdin.isatty(): note = input('Note: ')",),
            ),
        ),
    )


def _old_environment(call: str, expected: str, place: str) -> Meaning:
    return Meaning(
        f"{call}() of the environment does not return {expected} values, as {place} expects",
        "The line is written for gymnasium, and gym since 0.26. The environment probably has the old form: step() "
        "returns 4 values, and reset() the observation alone. Vectorized environments of Stable-Baselines3 always do.",
        (
            Fix(
                "Take what it returns.",
                ("obs, reward, done, info = env.step(action)" if call == "step" else "obs = env.reset()",),
            ),
        ),
    )


def _of_environment(one: UncaughtException) -> Meaning | None:
    """Explain what an environment of gymnasium returns, in code that was written for gym before 0.26."""
    code = one.own_code or one.code or ""
    call = re.search(r"\benvs?\w*(?:\.\w+)?\.(?P<call>step|reset)\(", code)
    wrong = re.search(r"values to unpack \(expected|expected sequence of length|inhomogeneous shape", one.message)
    if call is None or wrong is None or not one.place or not one.raised_in_own_code:
        return None  # a wrapper's line: see _refused_by_programs.py
    step = call["call"] == "step"
    unpacked = re.search(r"values to unpack \(expected (\d)", one.message)
    if unpacked and unpacked[1] == ("5" if step else "2"):
        return _old_environment(call["call"], unpacked[1], one.place)
    gives = "5 values (terminated and truncated in place of done)" if step else "a pair: the observation and a dict"
    new = "obs, reward, terminated, truncated, info = env.step(action)" if step else "obs, info = env.reset(seed=seed)"
    return Meaning(
        f"{call['call']}() of the environment returns {gives}, and {one.place} was written for another release of gym",
        "gym 0.26 and gymnasium changed what reset() and step() return. Wrappers and simulators that kept the old form "
        "fail the other way round: with 4 values, or with the observation alone.",
        (
            Fix("Take what the installed release returns.", (python(new), "done = terminated or truncated")),
            Fix(
                "Or install the release that the code was written for.",
                ("pip install 'gym<0.26'", "pip show gymnasium"),
            ),
        ),
    )


_ALL: tuple[Callable[[UncaughtException], Meaning | None], ...] = (
    _scheduler,
    _empty_range,
    _scalar,
    _with_batch,
    _permuted,
    _text_as_dict,
    _asks_without_terminal,
    _of_environment,
)


def wrong_call(one: UncaughtException) -> Meaning | None:
    """Return what was wrong with the call; None if the message does not show it."""
    return next(filter(None, (kind(one) for kind in _ALL)), None)


def _or_class(name: str) -> str:
    return f"|class {name}\\b" if name[:1].isupper() else ""


def call_that_does_not_fit(one: UncaughtException) -> Meaning | None:
    """Explain arguments that a function of the script's own, or one that it calls, does not take or lacks."""
    found = _CALL.search(one.message)
    if not found or not (one.raised_in_own_code or asked_by_script(one)):
        return None
    call = found["call"].lstrip(".")  # of a function in a function, what follows <locals>
    short = call.removesuffix(".__init__")
    code = one.own_code if one.own_code else None
    if found["missing"]:
        title = f"your call at {one.place} does not pass {found['missing']} to {short}(), which needs it"
    else:
        takes, given = found["takes"], found["given"]
        title = (
            f"your call at {one.place} passes {given} positional arguments to {short}(), which takes {takes} (of a "
            "method, both count self)"
        )
    return Meaning(
        title,
        "Call and definition do not fit: one of the two was changed, another class of that name is used, or the batch "
        "has other keys than forward() has arguments." + (f' The line is "{code}".' if code else ""),
        (
            Fix(
                "Compare the call with the definition.",
                (
                    shell(
                        "grep -rnE --include='*.py' {} .",
                        f"def {call.rpartition('.')[2]}\\({_or_class(short.partition('.')[0])}",
                    ),
                ),
            ),
        ),
    )

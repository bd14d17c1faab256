"""Which value of the script's line is of another kind than the line needs: a text, a tuple, a file of another mode?

Python's message has the types, and the line of code the names. Texts for `exceptions.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import Log, UncaughtException

from ._messages import of_own_line, short_name
from ._own_objects import NAME, PLAIN, Meaning

# What a tensor has, and a tuple or a list does not.
_OF_TENSORS = frozenset(
    re.findall(
        r"\w+",
        "view shape size to cuda cpu detach backward dim reshape permute transpose squeeze unsqueeze item mean sum "
        "argmax softmax dtype device float long numpy requires_grad grad_fn flatten contiguous logits loss "
        "last_hidden_state",
    )
)
# What arrays of numpy have, too.
_OF_ARRAYS = frozenset(
    {"shape", "size", "reshape", "transpose", "squeeze", "item", "mean", "sum", "argmax", "dtype", "flatten"}
)
_JOIN = Fix("If all its items have one size, make an array or a tensor of them.", ("np.array(x)", "torch.stack(x)"))
_LACKS = re.compile(r"'(?P<kind>tuple|list)' object has no attribute '(?P<name>\w+)'")
_BY_NAME = re.compile(r"(?P<kind>tuple|list) indices must be integers or slices, not str")
# A column of one row: train_data[3]['input_ids'].
_CELL = re.compile(
    r"(?P<data>[A-Za-z_][\w.]*(?:\[['\"]\w+['\"]\])?)\[(?:\d+|[a-z_]+)\]\[['\"](?P<column>input_ids|attention_mask|labels|"
    r"token_type_ids|pixel_values|input_values|input_features|decoder_input_ids)['\"]\]\.(?P<name>\w+)"
)
_SAMPLES = re.compile(r"^(?:features|examples|batch|samples|items|instances|rows|inputs)\b")
_JOINED = re.compile(r"can only concatenate str \(not \"(?P<other>\w+)\"\) to str")
_SIZE = re.compile(
    r"(?P<call>\w+)\(\): argument '\w+' failed to unpack the object at pos (?P<position>\d+) with error \"type must be "
    r"tuple of ints, ?but got (?P<got>\w+)\""
)
_ADDED = "If a text is meant, convert the number with str(). If a number is meant, it was read as text"
_MISPLACED = (
    "It was probably passed in the place of another argument (a device or a name where the function expects a number), "
    "or read as text"
)
_NOT_LISTED = re.compile(r"(?P<item>'[^']*'|\"[^\"]*\"|\S+) is not in list$|^list\.index\(x\): x not in list$")
_ACCESSOR = re.compile(
    r"Can only use \.(?P<accessor>\w+) accessor with (?:(?P<kind>[\w ]+?) values|a '(?P<dtype>\w+)' dtype)"
)
_LOOK = "Look at the type, and convert the column before."
_CONVERTERS = {
    "dt": (
        "a date",
        Fix(_LOOK, ("print(df.dtypes)", "df['time'] = pd.to_datetime(df['time'], format='mixed')  # pandas 2")),
    ),
    "str": ("a text", Fix(_LOOK, ("print(df.dtypes)", "df = pd.read_csv(path, dtype={'name': str})"))),
    "cat": ("a category", Fix(_LOOK, ("print(df.dtypes)", "df['kind'] = df['kind'].astype('category')"))),
}
_PICKLE = re.compile(r"\b(?:pickle|cPickle|dill|cloudpickle|joblib)\.(?P<do>load|dump)\(")
_AS_TEXT = re.compile(r"a bytes-like object is required, not 'str'|write\(\) argument must be str, not bytes")
_MODE = re.compile(r"\bopen\([^()]*,\s*(?:mode ?= ?)?['\"](?P<mode>[rwaxbt+]{1,3})['\"]")
_REMOVED = re.compile(
    r"deprecated since version (?P<version>[\d.]*\d) and is now removed\.?"
    r"(?: `(?P<old>[\w.]+)` is deprecated in favor of `(?P<new>[\w.]+)`)?"
)
_EXP_OF_LOSS = re.compile(r"\bexp\((?![^()]{0,80}(?:eval|val_|valid|test))[^()]{0,80}(?:loss|nll)", re.I)
_NOT_FINITE = (
    Fix("Find where the value comes from.", ("print(repr(value))", "print(df.isna().sum())  # of a table of pandas")),
    Fix(
        "Decide what such a value means: leave the row out, fill it, or skip it.",
        ("df = df.dropna(subset=['name'])", "n = int(x) if math.isfinite(x) else 0"),
    ),
)
_TOO_LARGE = (
    Fix("Print the argument before that line.", ("print(x)",)),
    Fix(
        "Limit it, or compute with logarithms. numpy gives inf instead of an exception.",
        ("math.exp(min(x, 700))", "p = 1.0 if x >= 0 else math.exp(x)  # a probability of acceptance", "np.exp(x)"),
    ),
)
_LOSSES = frozenset({"loss_logged", "training_loss_finite", "training_loss_nan"})


def _only(pattern: str, code: str) -> str | None:
    names = {match["of"] for match in re.finditer(pattern, code)}
    return names.pop() if len(names) == 1 else None


def _cell_of_dataset(one: UncaughtException) -> Meaning | None:
    """Explain a tokenized column of a row that is a list, because the data set gives Python's own types."""
    lacks = _LACKS.match(one.message)
    found = [cell for cell in _CELL.finditer(one.code or "") if lacks and cell["name"] == lacks["name"]]
    if not lacks or lacks["kind"] != "list" or len(found) != 1 or not of_own_line(one):
        return None
    data, column, name = found[0]["data"], found[0]["column"], found[0]["name"]
    ask = (Fix("To see the type of any value, call type().", ("print(type(value))",)),) if name == "type" else ()
    of_sample = bool(_SAMPLES.search(data)) or " in __call__" in (one.place or "")
    whose = "a sample" if of_sample else f"a row of {data}"
    form = "" if of_sample else python("{:dotted}.set_format('torch')", data)
    return Meaning(
        f"'{column}' of {whose} is a list, and .{name} belongs to tensors ({one.place})",
        "A data set of Hugging Face's datasets gives Python's own lists and numbers, also for what a tokenizer with "
        "return_tensors='pt' made, unless a format is set.",
        (
            Fix(
                "Let the data set return tensors, or convert this one.",
                (form or "dataset.set_format('torch')  # where it is made", "torch.tensor(value)"),
            ),
            *ask,
        ),
    )


def _several_values(one: UncaughtException) -> Meaning | None:
    """Explain a tuple or a list that is used as a tensor, or as a dict."""
    lacks, by_name = _LACKS.match(one.message), _BY_NAME.match(one.message)
    found = lacks or by_name
    if not found or not of_own_line(one) or (lacks and lacks["name"] not in _OF_TENSORS):
        return None
    code = one.code or ""
    if lacks:
        name, used = _only(rf"(?<![\w.])(?P<of>{NAME})\.{lacks['name']}\b", code), f"reads its {lacks['name']}"
    else:
        name, used = _only(rf"(?<![\w.])(?P<of>{PLAIN})\[['\"]", code), "reads an item of it by name"
    kind = found["kind"]
    returned = "what a call returns" if lacks and re.search(rf"\)\.{lacks['name']}\b", code) else "a value"
    of_list = "a batch that was not collated, rows of a file, or a list of results" if kind == "list" else ""
    why = of_list or (
        "a layer or a model that returns several values (nn.LSTM, nn.MultiheadAttention, models of transformers with "
        "return_dict=False), a dataset that yields (inputs, labels), or a comma at the end of a line"
    )
    part = python("print(type({:dotted}), len({:dotted}))", name, name) if name and re.fullmatch(PLAIN, name) else ""
    return Meaning(
        f"{name or returned} is a {kind}, and {one.place} {used}",
        f"The code expects {_expected(lacks['name']) if lacks else 'a dict'} there. Usual reasons: {why}.",
        (
            Fix("Print what it has, and take the part that is meant.", (part or "print(type(out), len(out))",)),
            *((_JOIN,) if lacks and kind == "list" and lacks["name"] in _OF_ARRAYS else ()),
            Fix("If a model returned it, take the first of several values.", ("out = model(x)[0]", "out, h = lstm(x)")),
        ),
    )


def _expected(name: str) -> str:
    return "an array or a tensor" if name in _OF_ARRAYS else "one tensor or an output object"


def _joined(other: str, place: str) -> Meaning:
    why = ""
    fix = Fix("Use an f-string, or convert the value.", ("print(f'epoch {epoch}: {loss}')", "'epoch ' + str(n)"))
    if other == "NoneType":
        why = " None is usually an option, a variable of the environment or a field of a config that is not set."
        fix = Fix("Print both values, and set the one that is None.", ("print(repr(value))",))
    return Meaning(
        f"a text and a value of type {other} are joined with + ({place})",
        f"Python joins only texts with texts.{why}",
        (fix,),
    )


def _text_as_number(one: UncaughtException) -> Meaning | None:
    """Explain a text that is added to a number, or used as a size."""
    code, joined, size = one.code or "", _JOINED.match(one.message), _SIZE.match(one.message)
    if not (joined or size) or not one.place:
        return None
    quoted = re.search(r"['\"] {0,2}\+|\+ {0,2}f?['\"]", code)
    if joined and (joined["other"] not in ("int", "float") or quoted):
        return _joined(joined["other"], one.place)
    name = None
    if joined:
        name = _only(rf"(?<![\w.'\"])(?P<of>{PLAIN}) {{0,2}}\+ {{0,2}}[\w.]", code)
    elif size and (call := re.search(rf"\b{size['call']}\((?P<arguments>[^()]*)", code)):
        parts = [part.strip() for part in call["arguments"].split(",")]
        at = int(size["position"]) - 1
        name = parts[at] if at < len(parts) and re.fullmatch(PLAIN, parts[at]) else None
    if size and (name is None or size["got"] != "str"):
        return None  # a float, or in a layer: the table of torch's modules has it
    kind = "text" if joined or (size and size["got"] == "str") else (size["got"] if size else "text")
    used = "adds a number to it" if joined else "uses it as a number"
    return Meaning(
        f"{name or 'a value'} is a {kind}, and {one.place} {used}",
        f"{_ADDED if joined else _MISPLACED}: argparse without type=int, an environment variable, a config or a CSV "
        "file.",
        (
            Fix(
                "Print it, and pass the arguments of that function by name.",
                (python("print(repr({:dotted}))", name) if name else "print(repr(value))", "solve(model, x, m=5)"),
            ),
            Fix("Convert it where it is read.", ("parser.add_argument('--steps', type=int)", "int(text)")),
        ),
    )


def _not_in_list(one: UncaughtException) -> Meaning | None:
    found = _NOT_LISTED.search(one.message)
    index = re.search(rf"(?P<of>{NAME})\.index\((?P<what>[^()]+)\)", one.code or "")
    if short_name(one.type) != "ValueError" or not found or not index or not of_own_line(one):
        return None
    name, item = index["of"], found["item"] or index["what"]
    return Meaning(
        f"{name} has no item {item} ({one.place})",
        f"The line looks up its position. If {name} is a header or a list of classes, the file has other columns or "
        "labels than the code expects: another version of the data, other spelling, spaces or capital letters, another "
        "separator, or a mark at the start of the file (BOM).",
        (
            Fix("Print what it has, before that line.", (python("print({:dotted})", name) or "print(items)",)),
            Fix(
                "Use a name that it has, or correct the file or the option that gives the name.",
                ("head -n 2 FILE", "open(path, encoding='utf-8-sig')"),
            ),
        ),
        of_code=False,
    )


def _asked_with_tensor(one: UncaughtException) -> Meaning | None:
    if short_name(one.type) != "KeyError" or not one.message.startswith("tensor(") or not of_own_line(one):
        return None
    asked = re.search(rf"(?P<of>{PLAIN})\[(?P<key>{PLAIN})\]", one.code or "")
    table, key = (asked["of"], asked["key"]) if asked else ("a dict", "key")
    return Meaning(
        f"{table} is asked with a tensor, {one.message}, which never equals one of its keys ({one.place})",
        "A dict finds a tensor only by its identity: tensor(1) is not 1. Batches of a DataLoader, and items of a "
        "tensor in a loop, are tensors.",
        (
            Fix(
                "Ask with the number itself.",
                (python("{:dotted}[{:dotted}.item()]", table, key) if asked else "table[key.item()]", "ids.tolist()"),
            ),
        ),
    )


def _file_mode(one: UncaughtException) -> Meaning | None:
    """Explain a file that was opened to read and is written, or the other way round, or as text for pickle."""
    short, code = short_name(one.type), one.own_code or one.code or ""
    mode, pickled = _MODE.search(code), _PICKLE.search(code)
    if short == "UnsupportedOperation" and one.message in ("read", "not readable", "write", "not writable", "truncate"):
        reads = "read" in one.message
        opened, wanted = ("write", "read") if reads else ("read", "written")
        shown = f" with mode '{mode['mode']}'" if mode else ""
        emptied = (
            " Opening it with w has emptied it: if it had content, restore it or make it again."
            if reads and (not mode or "w" in mode["mode"])
            else ""
        )
        binary = bool(pickled or (mode and "b" in mode["mode"]))
        modes = ("open(path, 'rb')", "open(path, 'r')") if reads else ("open(path, 'wb')", "open(path, 'w')")
        return Meaning(
            f"a file was opened to {opened} only{shown}, and is {wanted} ({one.place or 'the script'})",
            f"The mode of open() decides what is allowed.{emptied}",
            (Fix("Open it with the mode that fits.", (modes[0] if binary else modes[1],)),),
        )
    decoding = short == "UnicodeDecodeError" and "'utf-8' codec" in one.message
    decoding = decoding and "encoding=" not in code  # pickle.load() decodes the texts of Python 2 in it
    if pickled and (decoding or (short == "TypeError" and _AS_TEXT.match(one.message))):
        loads = pickled["do"] == "load"
        command = "with open(path, 'rb') as f: x = pickle.load(f)" if loads else "pickle.dump(x, open(path, 'wb'))"
        return Meaning(
            f"pickle needs a file in binary mode, and this one was opened as text ({one.place or 'the script'})",
            "pickle reads and writes bytes. Without b in its mode, open() gives text.",
            (Fix("Add b to the mode.", (command,)),),
        )
    return None


def _too_large(one: UncaughtException) -> Meaning | None:
    """Explain exp() of a large value, such as a loss that diverged, and NaN that becomes an integer."""
    short, code = short_name(one.type), one.code or ""
    of_exp = short == "OverflowError" and one.message.startswith(("math range error", "(34, "))
    found = re.match(r"cannot convert float (?P<value>NaN|infinity) to integer", one.message)
    if not found and not (of_exp and re.search(r"\b(?:exp|pow|cosh)\(|\*\*", f"{code} {one.own_code or ''}")):
        return None
    of_loss = re.search(r"loss|ppl|perplex|nll", code, re.I)
    what = "a loss" if of_loss else "a value"
    place, why = one.place or "the script", ""
    if found:
        title = f"{what} is {found['value']}, and {place} makes an integer of it"
        why = "An empty cell of a table, a mean of nothing and 0/0 are NaN. " if found["value"] == "NaN" else ""
    else:
        title = f"{what} is too large for a floating point number ({place})"
        why = "exp() fails from about 710 on, and ** if the result is above 1.8e308. "
    return Meaning(
        title,
        f"{why}If it is computed from the loss, the training probably diverged before this line: look at the losses "
        "above it.",
        (_NOT_FINITE if found else _TOO_LARGE)
        if not of_loss
        else (
            Fix(
                "If the training diverged, lower the learning rate, warm it up, and clip the gradients.",
                ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",),
            ),
            Fix("Keep the print from ending the run.", ("math.exp(min(loss, 50))", "if math.isfinite(loss): ...")),
        ),
        of_code=False,
    )


def too_large_at_once(one: UncaughtException, log: Log) -> Meaning | None:
    """Explain exp() of a loss in a log that shows no step before it: such a training has not diverged."""
    code = f"{one.code or ''} {one.own_code or ''}"
    if short_name(one.type) != "OverflowError" or not one.message.startswith(("math range error", "(34, ")):
        return None
    logged = {each.name for each in log.shows if each.file != one.file or each.line < one.line}
    if log.reached is not None or not logged.isdisjoint(_LOSSES) or not _EXP_OF_LOSS.search(code):
        return None
    runs = log.last_run.earlier if log.last_run else 0
    others = " The log has earlier runs: compare the settings of this one with those of a run that worked."
    return Meaning(
        f"a loss is too large for a floating point number ({one.place or 'the script'}), and the log shows no step "
        "before it",
        "exp() fails from about 710 on; an untrained model has a cross entropy near the logarithm of the number of "
        "classes, 10.4 for 32,000 tokens. If this is the first step, the loss is huge with the initial weights and "
        "settings: inputs or features that are not scaled (powers and products grow fast), an initialization that is "
        f"too large, a sum over tokens instead of a mean, or weights of another model.{others if runs else ''}",
        (
            Fix(
                "Print what the first batch gives, before the loss is computed.",
                ("print(inputs.abs().max(), outputs.abs().max(), loss.item())",),
            ),
            Fix("Scale the inputs and features (normalize them), or initialize the output layer with smaller values."),
            Fix(
                "If the program logs rarely and earlier losses were normal: lower the learning rate, warm it up, and "
                "clip the gradients.",
                ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",),
            ),
        ),
        of_code=False,
    )


def _accessor(one: UncaughtException) -> Meaning | None:
    found = _ACCESSOR.match(one.message)
    if not found or found["accessor"] not in _CONVERTERS:
        return None
    kind, convert = _CONVERTERS[found["accessor"]]
    why = (
        "pandas read the column as numbers, because its cells look like numbers or are empty."
        if found["accessor"] == "str"
        else f"pandas read the column as another type: one value that is not {kind}, another format, or missing values "
        "make it an object column. Dates of a CSV file stay texts until they are converted."
    )
    return Meaning(
        f"a column of the table does not hold {found['kind'] or found['dtype']} values, which .{found['accessor']} "
        f"needs ({one.place or 'the script'})",
        why,
        (convert,),
        of_code=False,
    )


def _removed(one: UncaughtException) -> Meaning | None:
    found = _REMOVED.search(one.message)
    if not found or not found["old"]:
        return None
    return Meaning(
        f"{found['old']} no longer exists: this torch has {found['new']} instead ({one.place or 'the script'})",
        f"It was deprecated in {found['version']} and then removed. The code was written for an older torch. The order "
        "of the arguments and what is returned can differ.",
        (
            Fix(
                "Change the call, after you have read how the new function is called.",
                (python("help({:dotted})", found["new"]), shell("grep -rn --include='*.py' {:dotted} .", found["old"])),
            ),
        ),
    )


_KINDS: tuple[Callable[[UncaughtException], Meaning | None], ...] = (
    _cell_of_dataset,
    _several_values,
    _text_as_number,
    _not_in_list,
    _asked_with_tensor,
    _file_mode,
    _too_large,
    _accessor,
    _removed,
)


def wrong_kind(one: UncaughtException) -> Meaning | None:
    """Return which value of the line is of another kind than it needs; None if message and line do not show it."""
    return next((meant for kind in _KINDS if (meant := kind(one))), None)

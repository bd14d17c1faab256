"""What do Python, its own library and numpy refuse, and which value of the script was it?"""

from __future__ import annotations

from dataclasses import replace

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from ._own_objects import Meaning
from ._refusal import Look, Refusal
from ._refused_arrays import ARRAYS
from ._refused_by_library import BEFORE_OTHERS, LIBRARY
from ._refused_by_system import SYSTEM

# fmt: off
_TEXT = Fix("Convert it.", ("str(value)",))
_PRINTED = Fix("Print it, and find where it gets this value.", ("print(repr(value))",))
_ONE_NUMBER = ("A text or a list where one number is expected, or None from a function without a return. ~ is for "
               "integers and masks: a float there is often a missing value (NaN).")
# Of a property; a field of a named tuple has no name in the message.
_NO_SETTER = r"^(?:property '(?P<name>\w+)' of '(?P<cls>\w+)' object has no setter|can't set attribute '(?P<old>\w+)')"
_PATHS = (
    Refusal("ValueError", r"cannot mmap an empty file", "the file that is mapped into memory is empty{at}",
            "Its preparation failed or has not finished: another rank or job still writes it, or a disk was full.",
            (Fix("Check the size, and make the file again.", ("ls -la FILE",)),)),
    Refusal("ValueError", r"mmap length is greater than file size|mmap offset is greater than file size",
            "the file is smaller than the shape or the offset with which it is mapped{at}",
            "The file is cut off or still being written, or the shape, the offset or the dtype is of another file "
            "(uint32 in place of uint16 needs twice the bytes).",
            (Fix("Compare the bytes: the shape times the size of one value.",
                 ("print(os.path.getsize(path))", "np.memmap(path, dtype=np.uint16, mode='r')")),)),
    Refusal("ValueError", r"Size of available data is not a multiple of the data-type size|"
            r"buffer size must be a multiple of element size",
            "the number of bytes does not fit the dtype: it is not a multiple of the size of one value{at}",
            "The file or the buffer is cut off, has a header, or holds values of another dtype.",
            (Fix("Print the size, and compare with the code that wrote it.", ("print(os.path.getsize(path))",)),)),
    Refusal("ValueError", r"I/O operation on closed file|write to closed file|read of closed file|seek of closed file",
            "a file is used after it was closed{at}",
            "Usually the line is after the end of the with block that opened it, or another function closed it "
            "(logging, a library that closes stdout).",
            (Fix("Move the line into the with block, or open the file again.", ("with open(path, 'a') as f: ...",)),),
            of_code=True),
    Refusal("ValueError TypeError", r"embedded null (?:byte|character)", "a path or an argument has a zero byte in "
            "it{at}", "It was read from binary data, from a field of a fixed length, or with another encoding "
                      "(UTF-16).",
            (Fix("Print it, and cut the zero bytes off.", ("print(repr(path))", r"path.rstrip('\x00')")),)),
    Refusal("SameFileError", r"(?P<path>'[^']+') and '[^']+' are the same file", "{path} is copied onto itself{at}",
            "Source and target are one file: the same path, or a link to it. Nothing was copied.",
            (Fix("Skip it if they are the same.", ("if not os.path.samefile(a, b): shutil.copy(a, b)",)),),
            of_code=True),
    Refusal("Error", r"Destination path '(?P<path>[^']+)' already exists", "{path} exists already, so nothing was "
            "moved "
            "there{at}", "shutil.move into a folder keeps the name. It is from an earlier run, or another rank was "
            "first.", (Fix("Move to a name of its own, or let one rank do it.", ("shutil.move(tmp, f'{out}/{name}')",
            )),),
            look=Look("See what it is.", "ls -ld {path:path}")),
    Refusal("ReadError", r"Unknown archive format '(?P<path>[^']+)'|unknown archive format", "Python cannot unpack "
            "this "
            "kind of archive: {path}{at}", "shutil.unpack_archive and tarfile know zip, tar, gz, bz2 and xz by the end "
            "of the name; zst since Python 3.14.",
            (Fix("Unpack it with its own program.", ("tar --zstd -xf FILE", "file FILE")),), of_code=True),
    Refusal("Error", r"^\[\('(?P<path>[^']+)', '[^']+', [\"'](?P<why>[^\"]+?)[\"']\)", "a folder could not be copied "
            "completely, first at {path}: {why}{at}", "shutil.copytree copies the rest and reports all files that "
             "failed "
            "at the end. A link whose target does not exist, a file that was removed meanwhile, or permissions are "
            "usual.", (Fix("Copy links as links, or leave such files out.",
                           ("shutil.copytree(a, b, symlinks=True)",
                            "shutil.copytree(a, b, ignore_dangling_symlinks=True)")),)),
    Refusal("TypeError", r"^expected str, bytes or os.PathLike object, not (?P<got>int|float|NoneType|bool)$",
            "an argument or a variable of a command is a {got}, and it must be a text{at}",
            "subprocess takes a list of texts, and so does its environment.",
            (Fix("Convert all of them.", ("subprocess.run([str(x) for x in command])",)),), of_code=True,
            line=r"\bsubprocess\.|\bPopen\(|\bcheck_(?:call|output)\("),
    Refusal("TypeError", r"^stat: path should be string, bytes, os.PathLike or integer, not (?P<got>\w+)|"
            r"^expected str, bytes or os.PathLike object, not (?P<other>(?!NoneType)\w+)|"
            r"^join\(\) argument must be str, bytes, or os.PathLike object, not '(?P<third>(?!NoneType)\w+)'",
            "a path is not a text but a {got}{other}{third}{at}",
            "A list of paths, a number or an open file was passed where one path is expected: several files from "
            "glob(), an option with nargs, an index.",
            (Fix("Print it, and pass one path.", ("print(type(path), path)", "[os.path.getsize(f) for f in files]")),),
            of_code=True),
    Refusal("TypeError", r"^str expected, not (?P<got>\w+)$", "a variable of the environment is set to a {got}, and it "
            "must be a text{at}", "os.environ holds texts only.", (_TEXT,), of_code=True, line="environ"),
    Refusal("RuntimeError", r"Could not determine home directory|Can't determine home directory",
            "the home folder of the user is not known{at}",
            "HOME is not set, ~NAME names a user that does not exist on this node, or the container has no entry for "
            "this user number.", (Fix("Set HOME, or use a whole path.", ("export HOME=/home/$USER", "id")),)),
    Refusal("ValueError", r"not allowed to raise maximum limit|current limit exceeds maximum limit",
            "the script asks for a higher limit than this user may set{at}",
            "resource.setrlimit can raise the soft limit up to the hard one. Only root can raise that.",
            (Fix("Ask for no more than the hard limit.",
                 ("hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]", "ulimit -Hn")),), of_code=True),
    Refusal("TimeoutExpired", r"Command (?P<command>.+) timed out after (?P<time>[\d.]+) seconds",
            "a command did not end within {time} s: {command}{at}",
            "It hangs, waits for an answer or for the network, or needs longer on this node. run() and "
            "check_output() have killed it; after Popen.wait() or communicate() it still runs.",
            (Fix("Run it by itself, and see what it waits for; if it is only slow, raise the timeout."),)),
)
_VALUES = (
    Refusal("TypeError", r"^'(?P<got>int|float|bool|NoneType|function|type|module)' object is not (?P<use>iterable)$",
            "a value of type {got} is used where several values are expected{at}",
            "A loop, a list() or an unpacking needs a list, a tuple or another collection. A number in place of "
            "range(number), a function that was not called, or one that returned a single value are usual.",
            (Fix("Print it, and use what is meant.", ("print(type(value), value)", "for epoch in range(epochs): ...")),
             ),
            of_code=True),
    # Before it, Python prints what is called: of a model, all its layers.
    Refusal("TypeError", r"^\w+\(\.\.\.\) argument after \*\* must be a mapping, not (?P<got>\w+)$",
            "the line unpacks a {got} with **, where it needs a dict{at}",
            "model(**batch) passes each field of a batch under its name. A collate function that returns the samples "
            "as they are gives a list of dicts; a TensorDataset, or a data set that returns tuples, gives tuples.",
            (Fix("Return one dict of tensors from the collate function.",
                 ("DataLoader(dataset, collate_fn=transformers.default_data_collator)",
                  "print(type(batch), batch[0].keys())")),
             Fix("If it is a tuple or a list of tensors, pass them by position.", ("model(*batch)",))), of_code=True),
    Refusal("TypeError", r"^cannot unpack non-iterable (?P<got>\w+) object$",
            "one value of type {got} is unpacked into several names{at}",
            "The function or item on the right gives one value, and the line expects more. NoneType: the function has "
            "no return on that path.",
            (Fix("Print what it gives, and take that.", ("out = evaluate(); print(type(out), out)",)),), of_code=True),
    Refusal("TypeError", r"^'(?P<got>dict_keys|dict_values|dict_items|zip|map|generator|set|filter)' object is not "
            r"subscriptable", "a {got} has no item by number{at}", "It gives its items one after another.",
            (Fix("Make a list of it first.", ("list(items)[0]", "next(iter(items))")),), of_code=True),
    Refusal("TypeError", r"^'NoneType' object is not subscriptable$",
            "something is None where the line takes an item of it with [ ]{at}",
            "A call on this line, or a value that it reads, gave nothing: a function without a return on that path, a "
            "lookup that found nothing, a file that could not be read (cv2.imread).",
            (Fix("Print each part of the line before a [.", ("print(repr(value))",)),), of_code=True),
    Refusal("TypeError", r"^'(?P<got>\w+)' object is not subscriptable$|^type '(?P<of>\w+)' is not subscriptable$",
            "the line takes an item with [ ] of a {got}{of}, which has no items by number or name{at}",
            "A function or a method is called with ( ); map, zip, generators, sets and views of a dict have to become "
            "a list first; a number or an object has attributes.",
            (Fix("Print what it is, and take the value in its own way.",
                 ("print(type(value))", "list(pairs)[0]", "x.size(0)")),), of_code=True),
    Refusal("TypeError", r"^object of type '(?P<got>\w+)' has no len\(\)$", "the length of a {got} is not known{at}",
            "A generator, a map or an iterable dataset gives its items one after another; a number has no length.",
            (Fix("Make a list of it, or count while reading.", ("items = list(items); print(len(items))",)),),
            of_code=True),
    Refusal("TypeError", r"^'(?P<got>\w+)' object is not callable$", "a {got} is called like a function{at}",
            "The name holds a value and not a function: a variable of the same name has replaced it (len = 3), [ ] was "
            "meant, or a comma or an operator is missing before the bracket. A module in place of its function: "
            "from tqdm import tqdm.",
            (Fix("Print what it is, and search for where the name is set.", ("print(type(value))",)),), of_code=True),
    Refusal("TypeError", r"unsupported operand type\(s\) for (?P<op>\S+): '(?P<left>\w+)' and '(?P<right>\w+)'",
            "the line computes {op} of a {left} and a {right}, which Python does not know{at}",
            "One of them has another type than the code expects: a number that was read as text (YAML reads 1e-4 as "
            "text, argparse without type=), a list in place of an array, a value that is None.",
            (Fix("Print both types before that line, and convert where the value is read.",
                 ("print(type(a), type(b))", "float(cfg['lr'])")),), of_code=True),
    Refusal("TypeError", r"^can't multiply sequence by non-int of type '(?P<got>\w+)'$",
            "a text or a list is multiplied by a {got}: it was meant to be a number{at}",
            "A value from a config, the command line or the environment was read as text. YAML reads 1e-4 as text "
            "(1.0e-4 is a number), and argparse without type=float, too.",
            (Fix("Convert it where it is read.", ("lr = float(cfg['lr'])", "parser.add_argument('--lr', type=float)")),
             ),
            of_code=True),
    Refusal("TypeError", r"'(?P<op>[<>]=?)' not supported between instances of '(?P<left>\w+)' and '(?P<right>\w+)'",
            "a {left} and a {right} are compared with {op}{at}",
            "One of them has another type than the code expects: a number that was read as text, a value that is None "
            "because it was never set, dicts that a sort or a heap reaches if the values before them are equal.",
            (Fix("Print both types, and convert or set the one that is wrong.",
                 ("print(type(a), type(b))", "heapq.heappush(heap, (loss, step, item))")),), of_code=True),
    Refusal("TypeError", r"^bad operand type for (?:unary )?(?P<op>\S+): '(?P<got>\w+)'",
            "{op} is computed of a {got}, which does not have it{at}", _ONE_NUMBER, (_PRINTED,), of_code=True),
    Refusal("TypeError", r"^type (?P<other>\w+) doesn't define (?P<op>__\w+__) method",
            "{op} is computed of a {other}, which does not have it{at}", _ONE_NUMBER, (_PRINTED,), of_code=True),
    Refusal("TypeError", r"^can only concatenate (?P<left>list|tuple) \(not \"(?P<right>\w+)\"\) to",
            "a {left} and a {right} are joined with +{at}", "+ joins two lists, or two tuples.",
            (Fix("Make both the same kind.", ("files + [name]", "tuple(shape) + (3,)")),), of_code=True),
    Refusal("TypeError", r"^(?:int\(\) argument must be a string, a bytes-like object or a (?:real )?number, not|"
            r"float\(\) argument must be a string or a (?:real )?number, not) '(?P<got>\w+)'",
            "a {got} is converted to a number{at}",
            "int() and float() take one text or number. None is an option or a field that is not set; a list is "
            "several values, or an option with nargs.",
            (Fix("Print it, and pass one value.", ("print(repr(value))",)),), of_code=True),
    Refusal("TypeError", r"^(?P<what>list|tuple|string|str|byte|range) ?(?:object )?indices must be integers(?: or "
            r"slices)?"
            r", not (?P<got>'?(?!str|'str')\w+'?)", "an index of a {what} is a {got}{at}",
            "/ gives a number with a decimal point, also if the result is whole; a tensor or a tuple is no index of a "
            "list.", (Fix("Use // or int(), or an array that can be indexed so.", ("items[int(i)]", "items[n // 2]")),),
            of_code=True),
    Refusal("TypeError", r"^string indices must be integers", "an item of a text is read by a name: the value is a "
            "text "
            "where the code expects a dict{at}",
            "A loop over a dict gives its keys; a JSON text was not parsed, or parsed once too little.",
            (Fix("Print it, and take the value.", ("print(type(row), row)", "for key, row in rows.items(): ...",
                                                   "json.loads(row)")),), of_code=True),
    Refusal("TypeError", r"^'(?P<got>str|tuple|range|bytes)' object does(?:n't| not) support item (?P<do>assignment|"
            r"deletion)", "an item of a {got} is changed, which cannot change{at}", "Texts, tuples and ranges are "
            "fixed once they are made.", (Fix("Make a new one, or a list.", ("batch = list(batch)",
                                                                           "x = x.replace('a', 'b')")),), of_code=True),
    Refusal("TypeError", r"unsupported format string passed to (?P<got>(?!NoneType)[\w.]+)\.__format__",
            "a {got} is printed with the format of one number{at}",
            "Formats such as :.3f are for one number. A list, a dict, a tensor or an array of several values needs one "
            "number first.", (Fix("Take one value.", ("f'{loss.item():.3f}'", "f'{np.mean(values):.3f}'")),),
            of_code=True),
    Refusal("ValueError", r"Unknown format code '(?P<code>\w)' for object of type '(?P<got>\w+)'",
            "a {got} is printed with the format {code}, which is for another type{at}",
            "d is for integers, f, e and g for numbers, s for texts. A number that was read as text, or a mean where "
            "a count was, is usual.",
            (Fix("Convert it, or use another format.", ("f'{float(x):.3f}'", "f'{int(n):d}'")),), of_code=True),
    Refusal("TypeError ValueError", r"not enough arguments for format string|not all arguments converted during string "
            r"formatting|%\w format: a (?:real )?number is required, not (?P<got>\w+)",
            "a text with % has other placeholders than the values behind it{at}",
            "The number of %d, %s and %f must equal the number of values, in a tuple, and their types must fit. If no "
            "formatting was meant, the value before % is a text in place of a number.",
            (Fix("Use an f-string.", ("print(f'step {step} loss {loss}')",)),), of_code=True),
    Refusal("IndexError KeyError", r"^Replacement index (?P<n>\d+) out of range for positional args tuple",
            "a text for format() has more {{}} than there are values{at}", "Its numbers begin at 0: value {n} is "
            "missing.", (Fix("Pass as many values, or use an f-string.", ("print(f'step {step} loss {loss}')",)),),
            of_code=True),
    Refusal("KeyError", r"^'(?P<name>\w+)'$", "a text for format() names {name}, which is not passed{at}",
            "Each {{name}} in the text needs a value of that name. Braces of the text itself are written twice.",
            (Fix("Pass it by name.", ("text.format(step=step, loss=loss)",)),), of_code=True,
            line=r"^[^\[]*['\"]\.format\([^\[]*$"),
    Refusal("TypeError", r"^sequence item (?P<n>\d+): expected str instance, (?P<got>\w+) found",
            "join() got a {got} at place {n}, and joins only texts{at}", "All items must be texts.",
            (Fix("Convert them.", ("','.join(map(str, values))",)),), of_code=True),
    Refusal("TypeError", r"^(?:exceptions must derive from BaseException|catching classes that do not inherit from "
            r"BaseException is not allowed)", "something that is no exception is raised or caught{at}",
            "raise and except need a class of exceptions, not a text.",
            (Fix("Raise an exception.", ("raise ValueError('bad config')",)),), of_code=True),
    Refusal("TypeError AttributeError", r"^'?(?P<got>\w+)'? object does not support the (?:asynchronous )?context "
            r"manager protocol|^__enter__$", "the object behind with is no context: a {got}{at}",
            "A function that returns one was not called, or returned None.",
            (Fix("Call it.", ("with torch.no_grad(): ...",)),), of_code=True),
    Refusal("TypeError", r"^Can't instantiate abstract class (?P<cls>\w+) (?:with|without an implementation for) "
            r"abstract methods? (?P<names>.+)", "{cls} does not define {names}, which its base class requires{at}",
            "The method is missing, has another name, or is indented into another one.",
            (Fix("Define it in that class, with exactly this name."),), of_code=True),
    Refusal("TypeError", r"^(?:object\.__init__\(\)|(?P<cls>\w+)\(\)) takes (?:exactly one argument|no arguments)",
            "a class without an __init__ of its own gets arguments{at}",
            "The class, or the base class that super().__init__() calls, has no __init__ that takes them: its name is "
            "misspelled, it is indented wrongly, or the base class was left out.",
            (Fix("Define it, or pass no arguments.", ("def __init__(self, dim): ...",)),), of_code=True),
    Refusal("TypeError", r"^(?:isinstance|issubclass)\(\) arg (?P<n>\d)", "isinstance() or issubclass() got a value "
            "where "
            "it needs a class{at}", "Argument 2 is a class or a tuple of classes, not its name as a text.",
            (Fix("Pass the class itself.", ("isinstance(x, (int, float))",)),), of_code=True),
    Refusal("TypeError", r"argument after \*\*? must be (?:a mapping|an iterable), not (?P<got>\w+)",
            "what is passed with * or ** is a {got}, not a dict or a list{at}",
            "An option or a section of a config that is not set is None.",
            (Fix("Pass an empty dict in its place.", ("build(**(extra or {}))",)),), of_code=True),
    Refusal("AttributeError", rf"{_NO_SETTER}$", "{name}{old} of self is a property that can only be read, and the "
            "line sets it{at}",
            "The class of the line, or one that it derives from, computes it with @property, so that it cannot be "
            "stored. Libraries turn attributes into properties, too: the base class can be newer than the script.",
            (Fix("Override the property in the class of the line, or store the value under a name of its own.",
                 ("@property", "def name(self): return self._name")),),
            of_code=True, own=True, line=r"^\s*self\.\w+(?:\s*:[^=]+)?\s*=[^=]"),
    Refusal("AttributeError", rf"{_NO_SETTER}$", "the attribute {name}{old} is a property that can only be read, and "
            "the line sets it{at}", "It has no setter: the object computes it.",
            (Fix("Set what the property computes from, or pass the value where the object is made."),), of_code=True),
    Refusal("AttributeError", r"^can't set attribute$", "an attribute that can only be read is set{at}",
            "It is a property without a setter, or a field of a named tuple.",
            (Fix("Set what the property computes from, or make a changed copy.", ("p = p._replace(x=3)",)),),
            of_code=True),
    Refusal("AttributeError", r"^type object '(?P<cls>\w+)' has no attribute '(?P<name>\w+)'",
            "the class {cls} itself has no {name}{at}",
            "Values that __init__ sets belong to an object, not to the class: the brackets that make an object may be "
            "missing. Otherwise the name is misspelled, or another release of a package has it.",
            (Fix("Use the object, or a name that the class has.", ("trainer = Trainer(); trainer.lr",)),),
            of_code=True),
    Refusal("AttributeError", r"^'(?P<got>\w*iterator|generator|enumerate|zip|map)' object has no attribute 'next'",
            "a {got} has no method next(): that was Python 2{at}", "DataLoader's iterators had one in old releases.",
            (Fix("Use the function.", ("batch = next(it)",)),), of_code=True),
    Refusal("AttributeError", r"^(?P<name>[A-Z][A-Z_\d]*)$", "an enumeration has no member {name}{at}",
            "The name is misspelled, has other letters (upper or lower case), or was added in another release.",
            (Fix("Print its members.", ("print(list(Mode))",)),), of_code=True),
    Refusal("ValueError", r"^(?P<value>'[^']*'|\S+) is not a valid (?P<cls>[\w.]+)$",
            "{cls} has no member with the value {value}{at}",
            "The value comes from an option, a config or a file, and is misspelled or of another release.",
            (Fix("Print the values that exist.", ("print([m.value for m in Mode])",)),), of_code=True),
)
# What Python says of any value: of a package's own line the reason can be another one.
_OF_OWN_LINES = tuple(replace(known, own=True) for known in _VALUES)
_ALL = (*_PATHS, *_OF_OWN_LINES, *LIBRARY, *ARRAYS, *SYSTEM)
# fmt: on


def refused_before_others(one: UncaughtException) -> Meaning | None:
    """Return what was refused, for messages of which a more general answer would say less."""
    return next((meant for known in BEFORE_OTHERS if (meant := known.read(one, one.message))), None)


def refused_by_python(one: UncaughtException) -> Meaning | None:
    """Return what Python, its library, numpy or the system refused; None if no entry has the message."""
    return next((meant for known in _ALL if (meant := known.read(one, one.message))), None)

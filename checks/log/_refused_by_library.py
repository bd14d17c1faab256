"""What do the modules of Python's library refuse: settings, tables of texts, queues, threads, lists and dicts?

Texts for `_refused_by_python.py`.
"""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Look, Refusal
from ._refused_formats import FORMATS

# fmt: off
_OF_LIBRARY = (
    Refusal("ArgumentError", r"argument (?P<name>\S+): conflicting option strings?: (?P<same>\S+)",
            "the option {same} is defined twice{at}",
            "Two add_argument() calls, or a parent parser and this one, have the same name.",
            (Fix("Remove one of the two, or let the later one win.",
                 ("argparse.ArgumentParser(conflict_handler='resolve')",)),), of_code=True),
    Refusal("NoSectionError NoOptionError", r"^No (?:section: '(?P<section>[^']+)'|option '(?P<name>[^']+)' in "
            r"section: "
            r"'(?P<inside>[^']+)')", "the INI file has no section or option {section}{name}{at}",
            "ConfigParser.read() does not complain about a file that does not exist: the parser is then empty. Or the "
            "file is of another version. Option names are read in lower case.",
            (Fix("Print what was read.", ("print(config.read(path), config.sections())",)),), of_code=True),
    Refusal("MissingSectionHeaderError DuplicateOptionError DuplicateSectionError ParsingError "
            "InterpolationSyntaxError InterpolationMissingOptionError", r"(?P<said>.+)",
            "the INI file has a mistake: {said}{at}",
            "Each option needs a [section] above it, names must not repeat, and a single % is the start of a "
            "reference.",
            (Fix("Correct the file. Write %% for a percent sign, or turn references off.",
                 ("configparser.ConfigParser(interpolation=None)",)),), of_code=True),
    Refusal("ValueError", r"^Not a boolean: (?P<text>.*)", "an option that should be yes or no is {text!r}{at}",
            "ConfigParser takes 1, yes, true, on, 0, no, false and off.", (Fix("Use one of these words."),),
            of_code=True),
    Refusal("Error", r"^field larger than field limit \((?P<most>\d+)\)", "a cell of a CSV file is longer than {most} "
            "characters{at}", "Either the texts are that long, or a quote that is not closed joins many lines into one "
            "cell.", (Fix("If the texts are long, raise the limit.", ("csv.field_size_limit(10**9)",)),
                      Fix("If not, find the quote that is not closed.",
                          ("awk -F'\"' 'NF % 2 == 0 {print NR; exit}' FILE",)))),
    Refusal("Error", r"^iterator should return strings, not bytes", "a CSV file was opened in binary mode{at}",
            "csv reads texts.", (Fix("Open it as text.", ("open(path, newline='', encoding='utf-8')",)),),
            of_code=True),
    Refusal("ValueError", r"^dict contains fields not in fieldnames: (?P<names>.+)", "a row for the CSV file has "
            "columns "
            "that its header lacks: {names}{at}", "A metric appears only in some steps (an evaluation), and DictWriter "
            "was made with the names of the first row.",
            (Fix("List all names at the start.", ("csv.DictWriter(f, fieldnames=all_names, restval='')",)),),
            of_code=True),
    Refusal("TypeError", r"^keys must be str, int, float, bool or None, not (?P<got>\w+)", "a dict that is written as "
            "JSON has a {got} as a key{at}", "JSON has texts as keys only.",
            (Fix("Convert the keys.", ("json.dump({str(k): v for k, v in x.items()}, f)",)),), of_code=True),
    Refusal("ValueError", r"Out of range float values are not JSON compliant", "NaN or infinity is written as JSON, "
            "which "
            "has neither{at}", "A loss or metric diverged or was not computed, and allow_nan=False forbids it.",
            (Fix("Write None in its place, and look why the value is not finite.",
                 ("x if math.isfinite(x) else None",)),)),
    Refusal("TypeError", r"^the JSON object must be str, bytes or bytearray, not (?P<got>\w+)",
            "json.loads() got a {got}, and reads texts{at}",
            "A dict is already parsed, a file needs json.load(), and None means that the text was not found.",
            (Fix("Print it before.", ("print(type(text))", "json.load(f)")),), of_code=True),
    Refusal("TypeError", r"^Strings must be encoded before hashing|^Unicode-objects must be encoded before hashing",
            "hashlib got a text, and needs bytes{at}", "A text has bytes only in an encoding.",
            (Fix("Encode it.", ("hashlib.sha256(text.encode('utf-8'))",)),), of_code=True),
    Refusal("TypeError", r"^can't (?:subtract|compare) offset-naive and offset-aware datetimes",
            "a time with a time zone and one without are combined{at}", "datetime.now() has none.",
            (Fix("Give both one.", ("datetime.now(timezone.utc)",)),), of_code=True),
    Refusal("RuntimeError", r"cannot schedule new futures after (?:interpreter )?shutdown", "work is given to a pool "
            "that "
            "was closed{at}", "The with block of the pool has ended, or the program is ending while a thread still "
            "works. An exception before that can be the reason.",
            (Fix("Submit within the with block, and wait for the results there."),), of_code=True),
    Refusal("AssertionError", r"^(?P<got>-?\d[\d.e+-]*) not (?P<how>(?:less|greater) than(?: or equal to)?) "
            r"(?P<limit>-?\d[\d.e+-]*)",
            "a limit of a test was missed: it measured {got}, which is not {how} {limit}{at}", "Nothing crashed: the "
            "program ran, and the test compares a result (a time, a rate, an accuracy, a difference) with a limit of "
            "its own. The result changes with the hardware, its load, the versions and the settings.",
            (Fix("Read in the output above that line what was measured, and compare it with an earlier good run: GPUs, "
                 "versions, settings, other load on the machine.", ()),
             Fix("If this machine cannot reach the limit, change the limit in the test.",
                 ("git log -p -- TEST_FILE.py",))),
            line=r"\bself\.assert(?:Less|Greater)\w*\(", of_code=True),
    Refusal("AssertionError", r"daemonic processes are not allowed to have children", "a process that may not start "
            "others starts some{at}", "Workers of a DataLoader and of multiprocessing.Pool are daemons: they cannot "
                                      "have "
            "workers of their own.", (Fix("Use no workers inside, or a pool whose processes are no daemons.",
                                      ("DataLoader(..., num_workers=0)", "concurrent.futures.ProcessPoolExecutor()")),),
            of_code=True),
    Refusal("ValueError", r"cannot find context for '(?P<name>[^']+)'", "multiprocessing has no start method "
            "{name}{at}",
            "It has fork, spawn and forkserver; Windows has only spawn.",
            (Fix("Choose one that exists.", ("multiprocessing.set_start_method('spawn')",)),), of_code=True),
    Refusal("ValueError", r"^Unknown level: (?P<name>.+)", "logging has no level {name}{at}",
            "Names are in upper case: DEBUG, INFO, WARNING, ERROR, CRITICAL.",
            (Fix("Use one of them.", ("logging.basicConfig(level='INFO')",)),), of_code=True),
    Refusal("Error", r"^unsupported locale setting", "this system or container does not have the locale that is "
            "set{at}",
            "LC_ALL, LANG or the script names a locale that is not installed.",
            (Fix("Use one that exists.", ("export LC_ALL=C.UTF-8", "locale -a")),)),
    Refusal("ValueError", r"^mutable default (?P<what>.+) for field (?P<name>\w+) is not allowed",
            "the dataclass field {name} has a default that all objects would share: {what}{at}",
            "Since Python 3.11 this holds for every default that is not hashable, also for another dataclass.",
            (Fix("Make it for each object.", ("field(default_factory=lambda: [0.9, 0.95])",
                                              "field(default_factory=Opt)")),), of_code=True),
    Refusal("TypeError", r"^non-default argument '(?P<name>\w+)' follows default argument", "the field {name} has no "
            "default, and follows one that has{at}", "In a dataclass, fields without a default come first, also those "
            "of a base class.", (Fix("Move it up, or give it a default.", ("@dataclass(kw_only=True)",)),),
            of_code=True),
    Refusal("FrozenInstanceError", r"cannot assign to field '(?P<name>\w+)'", "the field {name} of a frozen "
            "dataclass is "
            "changed{at}", "frozen=True forbids it.", (Fix("Make a changed copy.", ("dataclasses.replace(cfg, lr=3)",
            )),),
            of_code=True),
    Refusal("TypeError", r"^asdict\(\) should be called on dataclass instances", "asdict() got something that is no "
            "object "
            "of a dataclass{at}", "It is a dict already, or the class itself.",
            (Fix("Print what it is.", ("print(type(cfg))",)),), of_code=True),
)
_OF_WORK = (
    Refusal("RuntimeError", r"^(?P<what>dictionary|Set|deque|OrderedDict) (?:changed size|keys changed|mutated) during "
            r"iteration", "a {what} is changed while a loop goes through it{at}",
            "The loop adds or removes items, or another thread does.",
            (Fix("Go through a copy.", ("for key in list(state): ...",)),), of_code=True),
    Refusal("RuntimeError", r"^generator raised StopIteration", "next() in a generator found no more items{at}",
            "Since Python 3.7 that ends the program, not the generator: the data inside has ended.",
            (Fix("End the generator there.", ("x = next(it, None); if x is None: return",)),)),
    Refusal("RuntimeError", r"cannot be called from a running event loop|This event loop is already running",
            "asyncio is started inside of an event loop that already runs{at}",
            "A notebook has one, and so has every async function.",
            (Fix("Wait for it instead.", ("result = await f()",)),), of_code=True),
    Refusal("TypeError ValueError", r"^'coroutine' object is not|^a coroutine was expected, got", "an async function "
            "is "
            "used like a common one, or the other way round{at}", "Calling it gives a coroutine, which has to be "
            "awaited.", (Fix("Await it.", ("result = await fetch()", "asyncio.run(fetch())")),), of_code=True),
    Refusal("RuntimeError", r"^threads can only be started once|^cannot join thread before it is started",
            "a thread is started twice, or waited for before its start{at}", "A thread runs once.",
            (Fix("Make a new one for each start.", ("threading.Thread(target=f).start()",)),), of_code=True),
    Refusal("ValueError", r"^signal only works in main thread", "a signal handler is set outside of the main "
            "thread{at}",
            "A library that a thread starts sets one. Python allows it in the main thread only.",
            (Fix("Set it in the main thread, before the thread starts."),), of_code=True),
    Refusal("Empty", r"^$", "nothing arrived in a queue within the time limit{at}",
            "What should fill it is slow, hangs or has ended.",
            (Fix("Check the process or thread that puts items in, and its own errors above."),), line=r"\.get\("),
    Refusal("Full", r"^$", "a queue stayed full: nothing took items from it{at}",
            "What should empty it is slow, hangs or has ended.",
            (Fix("Check the process or thread that takes items, and its own errors above."),), line=r"\.put\("),
    Refusal("TimeoutError", r"^$", "a result did not come within the time limit that the script set{at}",
            "The work is slow, hangs, or waits for something that does not come.",
            (Fix("Look at what it does: print the stacks of all threads.", ("faulthandler.dump_traceback_later(60)",)),
             ),
            line=r"\bresult\(|wait_for|timeout"),
    Refusal("UnpicklingError", r"^A load persistent id instruction was encountered", "a file that torch.save wrote "
            "is read "
            "with pickle{at}", "It refers to tensors that are stored beside it.",
            (Fix("Use torch.", ("torch.load(path, map_location='cpu')",)),), of_code=True),
    Refusal("ValueError", r"^unsupported pickle protocol: (?P<n>\d+)", "the file was pickled with protocol {n}, "
            "which this "
            "Python does not have{at}", "A newer Python wrote it, or the file is no pickle.",
            (Fix("Use the newer Python, or write it with an older protocol.", ("pickle.dump(x, f, protocol=4)",)),)),
    Refusal("TypeError ValueError", r"^state vector must be a tuple|^set_state can only be used with legacy "
            r"MT19937|^RNG "
            r"state must be a torch\.ByteTensor|^RNG state is wrong size|^expected a torch\.ByteTensor",
            "the state of a random generator that is restored has another form{at}",
            "A checkpoint moves or converts it: JSON makes lists of tuples, map_location moves it to the GPU, "
            "and a state of another generator or device does not fit.",
            (Fix("Restore it in its own form.", ("random.setstate((v, tuple(s), g))",
                                                 "torch.set_rng_state(state.cpu())")),), of_code=True),
    Refusal("RuntimeError", r"^No active exception to re-?raise", "a bare raise was reached outside of an except "
            "branch{at}", "There is no exception that it could pass on. Often it was left there to stop the program "
            "while debugging, after some prints.",
            (Fix("If it was only for debugging, remove it: nothing else failed there.", ()),
             Fix("If it reports an error, name the exception.", ("raise ValueError('why')",))), of_code=True),
    Refusal("AttributeError", r"^cannot assign (?P<what>\w+) before Module\.__init__\(\) call", "a {what} is set in a "
            "torch module before super().__init__() was called{at}", "nn.Module prepares its lists of layers and "
            "parameters there.", (Fix("Call it first, in every __init__.", ("super().__init__()",)),), of_code=True),
    Refusal("TypeError", r"^a bytes-like object is required, not 'str'|^can't concat str to bytes",
            "bytes and a text are mixed{at}", "A file with b in its mode, a socket and the output of a command give "
            "and take bytes.", (Fix("Decode the bytes, encode the text, or open the file as text.",
                                    ("out.decode()", "subprocess.run(..., text=True)", "open(path, 'w')")),),
            of_code=True),
    Refusal("TypeError", r"^write\(\) argument must be str, not (?P<got>\w+)", "a {got} is written into a file that "
            "takes "
            "texts{at}", "A file without b in its mode takes texts only.",
            (Fix("Convert it, or open the file in binary mode.", ("f.write(f'{value}\\n')", "open(path, 'wb')")),),
            of_code=True),
    Refusal("ValueError", r"^math domain error|^expected a (?:positive|nonnegative) input",
            "a function of math got a number outside of its range, such as the logarithm of 0{at}",
            "log() needs more than 0, sqrt() at least 0, and acos() -1 to 1.",
            (Fix("Print it, and find why: a count that stayed 0, an empty batch, a difference that rounding made "
                 "negative, 1.0000001 in acos().", ("print(repr(x))",)),)),
    Refusal("OverflowError", r"^int too large to convert to float|^Python int too large to convert to C",
            "a whole number is too large for the type that it is converted to{at}", "A float ends at 1.8e308, int64 at "
            "9.2e18, a C int ends at 2147483647. 10**400 as \"no limit\" is usual.",
            (Fix("Use a limit that the type has.", ("sys.maxsize", "np.iinfo(np.int64).max")),), of_code=True),
    Refusal("ImportError", r"(?P<path>\blib(?:cuda(?:debugger)?|nvidia-[\w-]+)\.so[\d.]*): file too short",
            "the driver's library {path} is an empty file{at}",
            "The image holds an empty stand-in for it, and the container was probably started without GPU access.",
            (Fix("Start the container with GPU access, and check that it sees them.",
                 ("docker run --gpus all ...", "nvidia-smi")),)),
    Refusal("ImportError", r"(?P<path>\S+\.so[\d.]*): (?:file too short|wrong ELF class|invalid ELF header)",
            "a compiled module is damaged, or for another kind of CPU: {path}{at}",
            "Its build or copy was interrupted, or it was built on another architecture.",
            (Fix("Build or install it again in this environment.",
                 ("pip install --force-reinstall --no-deps PACKAGE",)),),
            of_code=True, look=Look("See what it is.", "file {path:path}; uname -m")),
    Refusal("TypeError", r"^metaclass conflict|^Cannot create a consistent method resolution", "the base classes of "
            "a class "
            "cannot be combined{at}", "A base is named before a class that derives from it, or two bases have "
                                      "different "
            "metaclasses (ABC, Enum, nn.Module).", (Fix("Change their order, the most special one first, or leave the "
                                                        "base out that the others already have."),), of_code=True),
    Refusal("UnicodeEncodeError", r"'latin-1' codec can't encode characters? (?P<what>.+)",
            "a text has letters that latin-1 lacks: {what}{at}",
            "HTTP headers are sent as latin-1: often a token or key that was pasted with a curly quote or an invisible "
            "character. Or a file or database was opened with latin-1.",
            (Fix("Find the places of such letters without printing a key. Write files as UTF-8.",
                 ("print([i for i, c in enumerate(value) if ord(c) > 255])", "open(path, 'w', encoding='utf-8')")),)),
    Refusal("UnicodeEncodeError", r"'utf-8' codec can't encode (?P<what>.*): surrogates not allowed",
            "a text has halves of characters (surrogates), which UTF-8 cannot write: {what}{at}",
            "They come from names of files or bytes that are no UTF-8, or from JSON that was cut within an emoji.",
            (Fix("Read the text in its right encoding. To write names of files unchanged, keep their bytes.",
                 ("open(path, 'w', encoding='utf-8', errors='surrogateescape')",)),)),
    Refusal("UnicodeEncodeError", r"'(?P<codec>[\w-]+)' codec can't encode characters? (?P<what>.+)", "a text has "
            "characters that {codec} cannot write: {what}{at}",
            "ascii and the code pages of Windows lack most letters.",
            (Fix("Write UTF-8.", ("open(path, 'w', encoding='utf-8')", "export PYTHONUTF8=1")),)),
)
_OF_ITEMS = (
    Refusal("AttributeError", r"^'NoneType' object has no attribute '(?P<name>groups?|start|end|span)'",
            "a pattern was not found in a text: re.match or re.search gave None{at}",
            "The name or line has another form than the pattern: a suffix such as .tmp, another separator, an empty "
            "text. re.match looks at the beginning only.",
            (Fix("Print the text, and handle the case.", ("print(repr(text))", "if match := re.search(p, text): ...")),
             ), line=r"\bre\.|(?:match|search|regex|pattern|_re|\bm)\b|(?:match|search|finditer)\("),
    Refusal("AttributeError", r"^'NoneType' object has no attribute '(?P<name>\w+)'", "something is None where the "
            "line "
            "reads .{name}{at}", "A call on this line, or a value that it reads, gave nothing: a function without a "
            "return on that path, a lookup that found nothing, an object that only some modes or only rank 0 have.",
            (Fix("Print each part of the line before its last dot.", ("print(repr(value))",)),), own=True),
    Refusal("IndexError", r"^(?P<what>list|tuple|string|range object|heap) index out of range", "a {what} has fewer "
            "items "
            "than "
            "the line reads{at}", "It is shorter than expected (a text that was split into fewer parts, a pattern of "
            "file names that matched nothing, fewer files than ranks), or the index was computed for a longer one.",
            (Fix("Print the length and the index.", ("print(len(items), i)",)),), own=True),
    Refusal("IndexError", r"^(?:pop|popleft) from (?:an )?empty|^pop index out of range|^list assignment index out of "
            r"range",
            "a list has fewer items than the line takes or sets{at}", "It is empty or shorter: nothing was put in, or "
            "more was taken out. An item of a list can be set only if it exists.",
            (Fix("Ask for its length first, or append.", ("if items: items.pop()", "items.append(value)")),), own=True),
    Refusal("KeyError", r"^'?(?P<key>[^']+)'?$", "the key {key} is taken out, but is not there{at}",
            "It was removed before, never set, or has another name.",
            (Fix("Allow that it is missing.", ("cfg.pop('KEY', None)", "names.discard(x)")),), own=True,
            line=r"\.(?:pop|remove)\("),
    Refusal("ValueError", r"list\.remove\(x\): x not in list|^substring not found|^(?P<what>'[^']+') is not in list",
            "a value is looked up that is not there{at}", "A name has another spelling, or was removed before.",
            (Fix("Print what there is.", ("print(repr(value), items)",)),), own=True),
    Refusal("ValueError", r"^(?:max|min)\(\) (?:arg|iterable argument) is (?:an )?empty", "the largest or smallest of "
            "nothing is taken{at}", "A pattern of files, a filter or a list of results has no items.",
            (Fix("Ask first, or give a default.", ("max(values, default=None)",)),)),
    Refusal("ValueError", r"^could not convert string to float: (?P<text>.*)",
            "a column of texts is used as numbers, such as {text}{at}",
            "A table has a column of names, dates or categories, or a text in place of a missing number ('', '?', "
            "'1,5'). These functions need numbers.",
            (Fix("See which columns have texts.", ("print(df.dtypes)",)),
             Fix("Encode categories, convert numbers, or leave the column out.",
                 ("pd.get_dummies(df)", "pd.to_numeric(df['c'], errors='coerce')"))),
            within=r"^(?:pandas|sklearn|xgboost|lightgbm|imblearn|statsmodels)/"),
    Refusal("ValueError", r"^invalid literal for int\(\) with base \d+: (?P<text>.*)|^could not convert string to "
            r"float: "
            r"(?P<other>.*)", "a text that is converted to a number is none: {text}{other}{at}",
            "It is empty, has a unit, a comma, a decimal point or a name in it: a variable of the environment, a file "
            "name, a cell of a table.", (Fix("Print it, and cut out the number.", ("print(repr(text))",)),)),
    Refusal("ValueError", r"^The number of weights does not match the population", "there are not as many weights as "
            "items "
            "to draw from{at}", "A class or a file was added or removed in one of the two.",
            (Fix("Print both lengths.", ("print(len(items), len(weights))",)),)),
    Refusal("NameError", r"^cannot access free variable '(?P<name>\w+)' where it is not associated",
            "{name} is used in an inner function before the outer one has set it{at}",
            "The line that sets it did not run: it is in a branch, or comes later.",
            (Fix("Set it before the inner function is called."),), of_code=True),
    Refusal("ValueError", r"^(?P<path>'[^']+') is not in the subpath of (?P<base>'[^']+')|^'[^']+' does not start with",
            "a path is not inside of the folder that it is compared with: {path}{at}",
            "Path.relative_to() needs a path below that folder, and both whole or both relative.",
            (Fix("Make both whole first.", ("path.resolve().relative_to(root.resolve())",)),)),
    Refusal("ValueError", r"^zip\(\) argument (?P<n>\d+) is (?P<how>shorter|longer) than argument", "two lists that "
            "are read "
            "side by side have different lengths: number {n} is {how}{at}", "zip(strict=True) refuses that.",
            (Fix("Print both lengths, and where each is made.", ("print(len(a), len(b))",)),)),
    Refusal("ValueError", r"^range\(\) arg 3 must not be zero|^negative shift count|^empty separator|^chr\(\) arg "
            r"not in",
            "an argument of a call has a value that it cannot have: zero, empty or negative{at}",
            "It was computed or read from a setting: a step, a separator, a count.",
            (Fix("Print it, and where it comes from.", ("print(repr(value))",)),), of_code=True),
    Refusal("TypeError", r"^Population must be a sequence", "random.sample got a set or a dict{at}",
            "Since Python 3.11 it needs a list.", (Fix("Make a sorted list of it.", ("random.sample(sorted(s), k)",)),),
            of_code=True),
    Refusal("StatisticsError", r"requires at least", "the mean or spread of too few values is taken{at}",
            "A filter, an epoch or a list of results left none.", (Fix("Print how many there are.",
                                                                      ("print(len(values))",)),)),
    Refusal("KeyError", r"^'popitem\(\): dictionary is empty'", "the last item of an empty dict is taken{at}",
            "Nothing was put in, or more was taken out.", (Fix("Ask first.", ("if items: items.popitem()",)),)),
    Refusal("UserWarning DeprecationWarning FutureWarning RuntimeWarning", r"(?P<said>.+)",
            "a warning ends the run, because warnings are errors here: {said}{at}",
            "python -W error, PYTHONWARNINGS or warnings.simplefilter('error') raises each warning.",
            (Fix("Follow the warning, or show it only.", ("warnings.simplefilter('default')", "unset PYTHONWARNINGS")),
             )),
)
# Other entries say less of these: that an argument is missing.
BEFORE_OTHERS = (
    Refusal("TypeError", r"load\(\) missing 1 required positional argument: 'Loader'",
            "PyYAML 6 needs to be passed how to read the file: yaml.load() without a Loader was removed{at}",
            "The line was written for PyYAML before 6.0.",
            (Fix("Use the safe one.", ("yaml.safe_load(f)", "pip show pyyaml")),), of_code=True),
    Refusal("KeyError", r"^'?(?P<key>[^']+)'?$", "an enumeration has no member {key}{at}",
            "The name is misspelled, has other letters (upper or lower case), or was added in another release.",
            (Fix("Print its members.", ("print(list(Mode))",)),), of_code=True, raised=r"_member_map_\[",
            own=True),
    Refusal("TypeError", r"^'(?:type|ABCMeta)' object is not subscriptable$",
            "the line takes an item of the class {of} itself, and not of an object of it{at}",
            "A class has no items. An object is meant, or the name holds a class in place of what it should hold.",
            (Fix("Make an object first, or use the name of the object.", ("table = Table(...); table[0]",)),),
            of_code=True, own=True,
            line=r"^(?!(?:async )?def |class |@|[\w.]+ ?: )(?:.*[=(,\s])?(?P<of>[A-Z]\w*[a-z]\w*)"
                 r"\[(?:-?\d+|['\"]|[ijkn]\]|\w*(?:idx|index|key|name)\])"),
    Refusal("TypeError", r"^'(?:type|ABCMeta)' object is not subscriptable$|unsupported operand type\(s\) for \|: "
            r"(?!'NoneType' and 'NoneType')'(?:type|ABCMeta|(?:types\.)?GenericAlias|_GenericAlias|"
            r"_UnionGenericAlias|NoneType)' and '(?:type|NoneType|ABCMeta|(?:types\.)?GenericAlias|_GenericAlias)'",
            "the code probably needs a newer Python: it writes types as list[int] (3.9) or int | None (3.10){at}",
            "An older Python evaluates them when it loads the file. Otherwise, the line takes an item of a class "
            "itself.", (Fix("Use a newer Python, or begin the file with this line: annotations are then not evaluated.",
                            ("python --version", "from __future__ import annotations")),), of_code=True),
)
LIBRARY = (*_OF_LIBRARY, *FORMATS, *_OF_WORK, *_OF_ITEMS)
# fmt: on

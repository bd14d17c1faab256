"""Does a module of Python's own library lack a name because a file of the project has the module's name?

If the script itself asks for a name that the module never had, the script is wrong and no file hides the module.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

# What later releases of Python removed: the module is Python's own, and the Python is newer than the code.
_REMOVED = frozenset(
    {
        "time.clock",
        "fractions.gcd",
        "platform.dist",
        "platform.linux_distribution",
        "ssl.wrap_socket",
        "ast.Num",
        "ast.Str",
        "ast.Bytes",
        "ast.NameConstant",
        "locale.format",
        "pkgutil.ImpImporter",
        "pkgutil.find_loader",
        "base64.encodestring",
        "base64.decodestring",
        "plistlib.readPlist",
        "string.letters",
        "string.maketrans",
        "unittest.makeSuite",
        "configparser.SafeConfigParser",
        "importlib.find_loader",
        "html.parser",
        "os.getcwdu",
        "string.join",
        "itertools.izip",
        "sys.maxint",
        "xml.etree",
        "importlib.metadata",
        "importlib.util",
        "concurrent.futures",
        "os.errno",
        "email.Utils",
        "threading._shutdown",
        "random.jumpahead",
    }
)


# What these modules have in every release of Python 3. Their names are short, and files of projects often have them.
_CERTAIN = {
    "code": "InteractiveConsole InteractiveInterpreter interact compile_command",
    "copy": "copy deepcopy Error",
    "csv": "reader writer DictReader DictWriter field_size_limit QUOTE_ALL QUOTE_MINIMAL",
    "email": "message_from_string message_from_bytes message_from_file",
    "glob": "glob iglob escape",
    "inspect": "signature getsource isclass isfunction getmembers stack",
    "io": "StringIO BytesIO open TextIOWrapper",
    "json": "load loads dump dumps JSONDecodeError JSONEncoder JSONDecoder",
    "logging": "getLogger basicConfig info warning error debug Formatter StreamHandler FileHandler INFO DEBUG",
    "math": "sqrt log exp floor ceil pi cos sin log2 log10 isnan inf pow fabs",
    "operator": "itemgetter attrgetter add mul itruediv",
    "pickle": "load loads dump dumps HIGHEST_PROTOCOL Unpickler Pickler",
    "platform": "system machine platform node python_version python_implementation",
    "profile": "Profile run runctx",
    "queue": "Queue Empty Full LifoQueue PriorityQueue SimpleQueue",
    "random": "random randint choice choices shuffle seed sample Random uniform gauss getstate setstate randrange",
    "select": "select poll error",
    "shutil": "copy copyfile rmtree move which copytree",
    "signal": "signal SIGINT SIGTERM Signals SIG_DFL SIG_IGN",
    "statistics": "mean median stdev variance StatisticsError",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits punctuation printable Template Formatter",
    "struct": "pack unpack calcsize Struct error",
    "tempfile": "mkdtemp mkstemp TemporaryDirectory NamedTemporaryFile gettempdir",
    "time": "time sleep perf_counter strftime localtime gmtime monotonic",
    "token": "tok_name EXACT_TOKEN_TYPES NAME NUMBER STRING",
    "tokenize": "open generate_tokens tokenize detect_encoding TokenError",
    "warnings": "warn filterwarnings simplefilter catch_warnings",
}
_BUILT_IN = frozenset({"time"})  # in the interpreter itself, so that no file hides it
# What is in a class of the same name in the module.
_OF_CLASS = {"datetime": "now today strptime fromtimestamp utcnow fromisoformat combine utcfromtimestamp"}

_DISTUTILS = Meaning(
    "the installed setuptools is newer than this torch's TensorBoard writer allows: distutils has no version",
    "setuptools brings its own distutils since release 59.6, which does not import its part version by itself. torch "
    "before 1.11 expects that.",
    (
        Fix("Use an older setuptools, or a newer torch.", ("pip install setuptools==59.5.0",)),
        Fix("Or import that part before torch.utils.tensorboard.", ("import distutils.version",)),
    ),
)


def is_removed(module: str, name: str) -> bool:
    """Whether another release of Python has the name, or another module has to be imported for it."""
    return f"{module}.{name}" in _REMOVED


def _of_script(raised: UncaughtException | None) -> bool:
    """Whether the script's own line asks for the name, not a package's."""
    return raised is None or not raised.packages or not raised.packages[-1]


def _of_class(module: str, name: str) -> Meaning:
    whole = shell("{:name}.{:name}.{:name}(...)", module, module, name)
    return Meaning(
        f"the module {module} has no {name}: the class {module}.{module} has it",
        f"After `import {module}`, {module} is the module.",
        (Fix("Name the class too.", (whole, shell("from {:name} import {:name}", module, module))),),
    )


def _never_had(module: str, name: str, raised: UncaughtException | None) -> Meaning:
    place = raised.place if raised and raised.place else "the script"
    shown = shell('python -c \'import {:name} as m; print(getattr(m, "__file__", "built in"), dir(m))\'', module)
    hidden = "" if module in _BUILT_IN else f" Or a file {module}.py of the project hides Python's module."
    return Meaning(
        f"Python's module {module} has no {name}, and {place} uses it",
        f"The name is of another module or package, or misspelled, or only a newer Python has it.{hidden}",
        (Fix("See which file is imported, and what it has.", (shown,)),),
    )


def explain_shadowed(module: str, name: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain a name that one of Python's own modules certainly has, or never had; None for any other module."""
    if (module, name) == ("distutils", "version"):
        return _DISTUTILS
    if name in _OF_CLASS.get(module, "").split():
        return _of_class(module, name)
    if module not in _CERTAIN or is_removed(module, name):
        return None
    if name not in _CERTAIN[module].split() and _of_script(raised):
        return _never_had(module, name, raised)
    if module in _BUILT_IN:
        return None
    other = "" if name in _CERTAIN[module].split() else " Or the package was written for another release of Python."
    return Meaning(
        f"a file or folder named {module} is probably imported in place of Python's own module {module}: it has no "
        f"{name}",
        f"Python looks for modules in the folder of the script first. A file {module}.py there hides the module of the "
        f"same name, also from packages that import it.{other}",
        (
            Fix(
                "See which file is imported, and rename it if it is yours.",
                (
                    shell('python -c \'import {:name} as m; print(getattr(m, "__file__", "built in"))\'', module),
                    shell("ls -d {:name}.py {:name}", module, module),
                ),
            ),
        ),
    )

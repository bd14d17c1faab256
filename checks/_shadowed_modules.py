"""Does a module of Python's own library lack a name because a file of the project has the module's name?"""

from __future__ import annotations

import sys

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning

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


def is_removed(module: str, name: str) -> bool:
    """Whether another release of Python has the name, or another module has to be imported for it."""
    return f"{module}.{name}" in _REMOVED


def explain_shadowed(module: str, name: str) -> Meaning | None:
    """Explain a name that one of Python's own modules certainly has; None for any other module."""
    if module not in sys.stdlib_module_names or module.startswith("_") or is_removed(module, name):
        return None
    return Meaning(
        f"a file or folder named {module} is probably imported in place of Python's own module {module}: it has no "
        f"{name}",
        f"Python looks for modules in the folder of the script first. A file {module}.py there hides the module of the "
        "same name, also from packages that import it.",
        (
            Fix(
                "See which file is imported, and rename it if it is yours.",
                (
                    shell("python -c 'import {:name} as m; print(m.__file__)'", module),
                    shell("ls -d {:name}.py {:name}", module, module),
                ),
            ),
        ),
    )

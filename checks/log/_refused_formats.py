"""Which file or text has another form: archives, databases, HDF5, TOML, dates, patterns, addresses?

Texts for `_refused_by_library.py`.
"""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Look, Refusal

# fmt: off
_DAMAGED = Fix("Compare its size with another copy, then copy or download it again.", ("ls -la FILE", "file FILE"))
_OF_FORMATS = (
    Refusal("KeyError", r"There is no item named '(?P<name>[^']+)' in the archive|filename '(?P<other>[^']+)' not "
            r"found",
            "the archive has no file {name}{other}{at}",
            "The list of samples belongs to another version of the archive, or the names in it begin with a folder.",
            (Fix("List what is in it.", ("unzip -l FILE | head", "tar tf FILE | head")),)),
    Refusal("EOFError", r"^Compressed file ended before the end-of-stream marker was reached",
            "a compressed file is cut off{at}", "Its download or copy was interrupted, the disk was full, or another "
            "process still writes it.", (_DAMAGED, Fix("Test it.", ("gzip -t FILE",)))),
    Refusal("error OSError", r"^Error -3 while decompressing data|^Invalid data stream|^Error -5 while decompressing",
            "compressed data is damaged, or was not compressed in this way{at}",
            "The file was changed or cut by a copy, or it is of another format than its name says.", (_DAMAGED,)),
    Refusal("RuntimeError", r"is encrypted, password required|^Bad password for file", "the ZIP archive has a "
            "password{at}", "Reading a file in it needs that password.",
            (Fix("Unpack it once, by hand, or pass the password.", ("archive.setpassword(b'...')",)),), of_code=True),
    Refusal("TypeError", r"^File must be opened in binary mode", "a TOML file was opened as text{at}",
            "tomllib reads bytes.", (Fix("Add b to the mode.", ("tomllib.load(open('config.toml', 'rb'))",)),),
            of_code=True),
    Refusal("TOMLDecodeError TomlDecodeError", r"(?P<said>.+)", "the TOML file has a mistake: {said}{at}",
            "Texts need quotes, true and false have small letters, and no name is set twice.",
            (Fix("Correct that line of the file."),), of_code=True),
    Refusal("RepresenterError", r"cannot represent an object", "YAML cannot write one of the values{at}",
            "safe_dump writes Python's own numbers, texts, lists and dicts only: not values of numpy, paths or "
            "objects.", (Fix("Convert it before.", ("float(value)", "str(path)", "value.tolist()")),), of_code=True),
    Refusal("ValueError", r"^malformed node or string", "a text is no plain value of Python{at}",
            "ast.literal_eval reads numbers, quoted texts, lists, tuples, dicts, True, False and None. Names, calls "
            "and words without quotes are none of these.",
            (Fix("Print the text, and put its words in quotes, or read it as YAML.", ("print(repr(text))",
                                                                                     "yaml.safe_load(text)")),)),
    Refusal("ValueError", r"^Circular reference detected", "a dict or list that is written as JSON contains itself{at}",
            "An object refers back to its owner.", (Fix("Write only the values that are needed."),), of_code=True),
    Refusal("ValueError", r"^No closing quotation", "a text that is split like a command line has a quote that is not "
            "closed{at}", "An apostrophe counts as one.", (Fix("Print it.", ("print(repr(text))",)),)),
    Refusal("ValueError", r"time data (?P<text>'[^']*') does not match format (?P<format>'[^']*')|unconverted data "
            r"remains: (?P<rest>.*)|^Invalid isoformat string: (?P<iso>'[^']*')",
            "a date or time has another form than the code expects: {text}{iso}{rest}{at}",
            "The file or the name was written with another format.",
            (Fix("Print the text, and use a format that fits it.", ("datetime.strptime(text, '%Y-%m-%d %H:%M')",)),)),
    Refusal("error PatternError", r"^(?:missing \)|unterminated|nothing to repeat|bad escape|multiple repeat|"
            r"unbalanced|unknown extension)(?P<rest>.*)", "a regular expression has a mistake{at}",
            "A character such as ( [ * + ? has a meaning. A file name or a text that is used as a pattern has to be "
            "escaped.", (Fix("Print the pattern, and escape what is meant literally.", ("re.escape(text)",)),),
            of_code=True),
    Refusal("IndexError", r"^no such group", "a regular expression has no group of that number or name{at}",
            "Groups are the pairs of ( ) in the pattern, counted from 1; (?: ) does not count.",
            (Fix("Print them.", ("print(match.groups())",)),), of_code=True),
    Refusal("error", r"^unpack requires a buffer of (?P<all>\d+) bytes|^argument (?:out of range|for '.' must)|"
            r"^'\w' format requires|^required argument is not", "struct got bytes or numbers that do not fit its "
            "format{at}", "The file is cut off or has another format, or a number is too large or negative for its "
            "type.", (Fix("Print the length and the size of the format.", ("print(len(raw), struct.calcsize('<II'))",
            )),)),
    Refusal("Error", r"Incorrect padding|Invalid base64", "a text in base64 is cut off or changed{at}", "Its length is "
            "not a multiple of 4.", (Fix("Print its length and its end.", ("print(len(text), text[-20:])",)),)),
    Refusal("DatabaseError", r"^file is not a database|disk image is malformed", "the file is no database of SQLite, "
            "or is "
            "damaged{at}", "Another kind of file, a copy that was cut off, or a database on a network disk that "
                           "several "
            "nodes wrote to.", (Fix("Check it, and restore a copy.",
                                    ("file FILE", "sqlite3 FILE 'PRAGMA integrity_check'")),)),
    Refusal("OperationalError", r"^unable to open database file", "the file of the database cannot be opened or "
            "created{at}", "Its folder does not exist or cannot be written, on this node.",
            (Fix("Create the folder first.", ("os.makedirs(os.path.dirname(path), exist_ok=True)", "ls -ld DIR")),)),
    Refusal("OperationalError", r"^no such (?P<what>table|column): (?P<name>\S+)", "the database has no {what} "
            "{name}{at}",
            "It is another or a new, empty file (SQLite creates a missing one), or of another version.",
            (Fix("Look at what it has.", ("sqlite3 FILE .schema",)),)),
    Refusal("OperationalError",
            r"^table (?P<name>\S+) has (?P<has>\d+) columns? but (?P<given>\d+) values? were supplied",
            "the table {name} of the database has {has} columns, and the INSERT gives {given} values{at}",
            "An INSERT that does not name its columns gives a value for each. The table was probably made by another "
            "version of the code: CREATE TABLE IF NOT EXISTS leaves one that exists as it is.",
            (Fix("Compare its columns with those that the code creates.",
                 ("sqlite3 FILE .schema", "grep -rniE 'create table|insert .*into' --include='*.py' .")),
             Fix("Name the columns, or add to the table what it lacks. If its rows can be computed again, let the code "
                 "make a new file.", ("INSERT INTO t (a, b) VALUES (?, ?)", "mv FILE FILE.old")))),
    Refusal("OperationalError", r"^table (?P<name>\S+) has no column named (?P<column>\S+)",
            "the table {name} of the database has no column {column}{at}",
            "The table was probably made by another version of the code: CREATE TABLE IF NOT EXISTS leaves one that "
            "exists as it is.",
            (Fix("Look at the columns that it has, and add this one, or let the code make a new file.",
                 ("sqlite3 FILE .schema", "ALTER TABLE t ADD COLUMN c", "mv FILE FILE.old")),)),
    Refusal("OperationalError", r"^(?P<given>\d+) values for (?P<has>\d+) columns",
            "the INSERT names {has} columns and gives {given} values{at}",
            "The list of columns and the list of values (or of question marks) have different lengths.",
            (Fix("Count both in that statement.", ("INSERT INTO t (a, b) VALUES (?, ?)",)),), of_code=True),
    Refusal("ProgrammingError", r"^SQLite objects created in a thread can only be used in that same thread",
            "a connection to SQLite is used in another thread than the one that opened it{at}",
            "A pool of threads, or a loader's pin-memory thread, got the connection of the main thread.",
            (Fix("Open a connection in each thread or worker.", ("sqlite3.connect(path)",)),), of_code=True),
    Refusal("IntegrityError", r"^(?:UNIQUE|PRIMARY KEY) constraint failed: (?P<name>.+)",
            "the database has a row with the same {name} already{at}",
            "It was written before: by an earlier run, or by another rank.",
            (Fix("Let one rank write, and look at the row that is there. INSERT OR IGNORE would drop the new row "
                 "without a message.", ("sqlite3 FILE .schema",)),)),
    Refusal("IntegrityError", r"^(?P<what>NOT NULL|CHECK) constraint failed: (?P<name>.+)",
            "a value breaks a rule of the table ({what}): {name}{at}",
            "A value is missing (None), or outside of what the table allows.",
            (Fix("Print the row before it is written.", ("sqlite3 FILE .schema",)),)),
    Refusal("URLError", r"unknown url type: https\b",
            "this Python cannot load https addresses: it has no ssl module{at}",
            "It was built without OpenSSL, or its library is not found.",
            (Fix("Check it, and use another Python.", ("python -c 'import ssl; print(ssl.OPENSSL_VERSION)'",)),),
            of_code=True),
    Refusal("ValueError URLError MissingSchema InvalidSchema", r"unknown url type: '?(?!https\b)(?P<url>[^'>]+)|"
            r"Invalid URL '?(?P<other>[^']*)'?: No sch|No connection adapters were found for '?(?P<third>[^']+)",
            "this is no address that the library can load: {url}{other}{third}{at}",
            "An address begins with http:// or https://. A path of a file needs open(), and s3:// or gs:// a library "
            "of its own.", (Fix("Pass a whole address, or open the file.", ("fsspec.open('s3://BUCKET/KEY')",)),),
            of_code=True),
)
_OF_HDF5 = (
    Refusal("OSError FileNotFoundError", r"Unable to (?:synchronously )?create file \(unable to open file: name = "
            r"'(?P<path>[^']+)', errno = 2\b",
            "the folder of an HDF5 file that the script writes does not exist: {path}{at}",
            "Writing creates the file, but not the folders above it. The path is relative to the folder in which the "
            "run was started, unless it begins with /.",
            (Fix("Create the folder first.", ("os.makedirs(os.path.dirname(path), exist_ok=True)",)),),
            look=Look("See which part of the path is missing.", "pwd; namei {path:path}")),
    Refusal("KeyError", r"Unable to (?:synchronously )?open object \(object '(?P<name>[^']+)' doesn't exist",
            "the HDF5 file has no {name}{at}", "It was written with other names, or by another version of the code.",
            (Fix("List what is in it.", ("h5ls -r FILE", "print(list(f.keys()))")),)),
    Refusal("OSError FileNotFoundError PermissionError BlockingIOError", r"file \(unable to open file: name = "
            r"'(?P<path>[^']+)', errno = \d+, error message = '(?P<said>[^']+)'",
            "the HDF5 file {path} could not be opened: {said}{at}",
            "The path is relative to another folder, is not on this node, or may not be read by this user.", (),
            look=Look("Look at the file, on every node.", "pwd; ls -ld {path:path}")),
    Refusal("OSError FileNotFoundError BlockingIOError", r"Unable to (?:synchronously )?(?P<do>open|create) file "
            r"\((?P<said>[^()=]+?)[,:)]", "an HDF5 file could not be opened: {said}{at}",
            "\"file signature not found\" and \"truncated file\" mean that it is damaged or not HDF5; \"unable to "
            "lock\" "
            "that another process has it open for writing, or that the disk has no locks.",
            (Fix("Check it, and who has it open.", ("ls -la FILE", "h5ls FILE", "fuser -v FILE")),)),
    Refusal("ValueError", r"Unable to (?:synchronously )?create \w+ \(name already exists\)",
            "the HDF5 file already has something of this name{at}", "It was opened to append, and an earlier run or "
            "step wrote the same name.", (Fix("Write under a name of its own for each run.",
                                              ("f.create_dataset(f'loss_{run}', data=values)",)),)),
)
FORMATS = (*_OF_FORMATS, *_OF_HDF5)
# fmt: on

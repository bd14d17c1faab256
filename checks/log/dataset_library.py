"""Did Hugging Face's datasets or evaluate refuse a file, a column, a split or a function?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._deepspeed_config_cases import CONFIG_AS_TEXT
from ._json_cases import BROKEN_JSON, DATA_FILES
from ._one_process_cases import OF_SCIKIT_LEARN

_LOADING = "https://huggingface.co/docs/datasets/loading"
_PROCESS = "https://huggingface.co/docs/datasets/process"
_TABLE = "https://github.com/huggingface/datasets/blob/main/src/datasets/table.py"
_DATASET = "https://github.com/huggingface/datasets/blob/main/src/datasets/arrow_dataset.py"
_NO_FILES = re.compile(r"^No such files?: '(?P<folder>[^']{1,400})/(?:dataset_info|state)\.json'")
_OF_DICT = re.compile(r"^datasets/dataset_dict\.py in load_from_disk$")


def _split_incomplete(_: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a split that a saved DatasetDict lists, and whose files are missing; None if it is another failure."""
    found = _NO_FILES.search(raised.message) if raised is not None else None
    if raised is None or not found or not any(map(_OF_DICT.search, raised.frames)):
        return None
    return Meaning(
        "the saved dataset is incomplete: the folder of a split lacks files that save_to_disk() writes",
        "The call is the right one: dataset_dict.json was found, and lists this split. Its folder has no "
        "dataset_info.json or no state.json: the save was interrupted, only a part was copied or uploaded (.gitignore, "
        "Git LFS), or the path is relative and leads to another copy.",
        (
            Fix(
                "See what is there, and copy the whole folder from where it was made.",
                (
                    shell("ls -la {:path}", found["folder"]),
                    shell("git check-ignore -v {:path}", f"{found['folder']}/state.json"),
                ),
            ),
            Fix("Or save it again.", ("dataset.save_to_disk(FOLDER)",)),
            Fix("If the path is relative, check in which folder the script runs.", ("print(os.path.abspath(FOLDER))",)),
        ),
    )


# fmt: off
ROWS = (
    Row("log_dataset_files_differ", "root", "script",
        r"Couldn't cast .*because column names don't match|All the data files must have the same columns|"
        r"CastError: Couldn't cast$|Couldn't cast array of type|"
        r"JSON parse error: Column\(?.{0,200}\)? (?:changed from|was specified twice)|"
        r"The features can't be aligned because",
        ("datasets.table.CastError: Couldn't cast id: int64 to {'text': Value('string')} because column names don't "
         "match", "TypeError: Couldn't cast array of type string to null",
         "datasets.exceptions.DatasetGenerationCastError: An error occurred: All the data files must have the same "
         "columns, but at some point there are 1 new columns ({'id'})",
         "pyarrow.lib.ArrowInvalid: JSON parse error: Column(/a/b) changed from string to array in row 3"),
        "the files or rows of the dataset have different columns or types",
        "datasets reads all files of a split into one table. A column that is missing, empty or a list in some rows "
        "has another type there.",
        (Fix("Find the row, and give every row the same columns and types.", ("head -n 2 DATA/*.jsonl",)),
         Fix("Or load files of different structure separately, or state the types.",
             ("load_dataset('json', data_files=FILES, features=features)",)),
         Fix("After a change, delete the cached copy.", ("load_dataset(..., download_mode='force_redownload')",))),
        _TABLE, cases=DATA_FILES),
    Row("log_parquet_row_group_too_large", "root", "script",
        r"Nested data conversions not implemented for chunked array outputs",
        ("pyarrow.lib.ArrowNotImplementedError: Nested data conversions not implemented for chunked array outputs",),
        "pyarrow cannot read a Parquet file: a row group with nested columns is too large for one Arrow array",
        "Lists and structs (images, conversations) of a whole row group are read at once, and an Arrow array holds at "
        "most 2 GB.",
        Fix("Write the file again with smaller row groups.",
            ("dataset.to_parquet('PATH.parquet', batch_size=1000)",
             "pyarrow.parquet.write_table(table, 'PATH.parquet', row_group_size=1000)")),
        "https://github.com/apache/arrow/issues/21526"),
    Row("log_dataset_name_wrong", "root", "script",
        r"BuilderConfig '?[^'\s]+'? not found\. Available|Config name is missing|"
        r"Bad split: [^\s.]+\. Available splits|Unknown split \"?[^\s\".]+\"?\. Should be one of",
        ("ValueError: BuilderConfig 'en' not found. Available: ['default']", "ValueError: Config name is missing.",
         "ValueError: Bad split: test. Available splits: ['train']",
         "ValueError: Unknown split \"validation\". Should be one of ['train']."),
        "the dataset has no configuration or split of that name",
        "The message lists those that it has.",
        Fix("Use one of them, or make the split yourself.",
            ("load_dataset(NAME, CONFIG, split='train')", "dataset.train_test_split(test_size=0.05, seed=0)")),
        _LOADING),
    Row("log_dataset_saved_otherwise", "root", "script",
        r"trying to load a dataset that was saved using `save_to_disk`|"
        r"is neither a `Dataset` directory nor a `DatasetDict` directory|"
        r"Expected to load a `Dataset` object",
        ("ValueError: You are trying to load a dataset that was saved using `save_to_disk`. Please use "
         "`load_from_disk` instead.",
         "FileNotFoundError: Directory data/x is neither a `Dataset` directory nor a `DatasetDict` directory."),
        "the dataset is loaded in another way than it was saved",
        "load_from_disk() reads what save_to_disk() wrote; load_dataset() reads data files (JSON, Parquet, text) and "
        "names on the Hub.",
        Fix("Use the other function.", ("datasets.load_from_disk(FOLDER)",
                                        "datasets.load_dataset('parquet', data_dir=FOLDER)")), _LOADING,
        explain=_split_incomplete),
    Row("log_map_rows_differ", "root", "script",
        r"Column \d+ named \S+ expected length \d+ but got length \d+|"
        r"Column lengths mismatch: columns",
        ("pyarrow.lib.ArrowInvalid: Column 1 named input_ids expected length 1000 but got length 328",),
        "map() returned columns of different lengths",
        "A batched function (packing, splitting, filtering) changed the number of rows, but the old columns keep "
        "theirs.",
        Fix("Remove the old columns in the same call.",
            ("dataset.map(function, batched=True, remove_columns=dataset.column_names)",)), _PROCESS),
    Row("log_map_result_wrong", "root", "script", r"Provided `function` which is applied to .{1,80} returns",
        ("TypeError: Provided `function` which is applied to all elements of table returns a variable of type <class "
         "'list'>. Make sure provided `function` returns a variable of type `dict`",),
        "the function given to map() returns something else than a dictionary of columns",
        "With batched=True it must return lists of equal length, otherwise one value per column.",
        Fix("Return a dictionary.", ("return {{'input_ids': ids, 'labels': labels}}",)), _PROCESS),
    Row("log_arrow_too_large", "root", "script",
        r"There was an overflow with type|offset overflow while concatenating arrays|"
        r"(?:List|String|Binary)?\s?[Aa]rray cannot (?:contain|reserve space for) more than 21474836\d\d",
        ("OverflowError: There was an overflow with type <class 'list'>. Try to reduce writer_batch_size to have "
         "batches smaller than 2GB.", "pyarrow.lib.ArrowInvalid: offset overflow while concatenating arrays",
         "pyarrow.lib.ArrowCapacityError: array cannot contain more than 2147483646 bytes, have 2147483648"),
        "a batch of the dataset is larger than 2 GB, Arrow's limit for one array",
        "Images, audio or long texts of 1000 samples are written at once.",
        Fix("Write fewer samples at once.", ("dataset.map(function, batch_size=50, writer_batch_size=50)",)), _DATASET),
    Row("log_dataset_of_newer_release", "root", "library",
        r"Feature type '(?P<type>\w+)' not found\. Available feature types",
        ("ValueError: Feature type 'List' not found. Available feature types: ['Value', 'ClassLabel', 'Sequence']",),
        "the dataset was written by a newer release of datasets: the installed one does not know the type {type}",
        "datasets 4.0 (2025-07) replaced Sequence with List in what it saves and caches.",
        (Fix("Upgrade datasets on every node.", ("pip install --upgrade datasets", "pip show datasets")),
         Fix("Or load the original files again into another cache.", ("export HF_DATASETS_CACHE=/scratch/$USER/old",))),
        "https://github.com/huggingface/datasets/releases/tag/4.0.0",
        summary="The dataset was written by a newer release of datasets."),
    Row("log_dataset_without_rows", "root", "script",
        r"Please pass `features` or at least one example when writing data|"
        r"doesn't contain any data files|No \(supported\) data files found"
        r'|Tried to read an empty table\.|\" corresponds to no data!',
        ("datasets.arrow_writer.SchemaInferenceError: Please pass `features` or at least one example when writing data",
         "datasets.exceptions.EmptyDatasetError: The directory at /data/x doesn't contain any data files",
         "datasets.exceptions.DataFilesNotFoundError: No (supported) data files found in org/name",
         "ValueError: Instruction \"train[:0%]\" corresponds to no data!"),
        "the dataset has no rows or no data files",
        "The folder is empty or not mounted on this node, its files have another format, or a filter removed "
        "everything.",
        Fix("Check the files on every node.", ("ls DATA | head", "print(len(dataset))")), _LOADING),
    Row("log_json_damaged", "root", "script",
        r"JSONDecodeError: (?P<what>.+)",
        ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
         "json.decoder.JSONDecodeError: Extra data: line 2 column 1 (char 120)"),
        "a file or an answer is not valid JSON: {what}",
        "It is empty (written by an interrupted run, or by several ranks at once), is an error page or a Git LFS "
        "pointer, or has one object per line (Extra data: JSON lines).",
        (Fix("Check the file that {the_traceback} names.",
             ("head -c 300 FILE", "python -m json.tool FILE > /dev/null")),
         Fix("If several ranks write it, let one of them do it.", ("if rank == 0: json.dump(...)",))),
        "https://docs.python.org/3/library/json.html#json.JSONDecodeError",
        summary="A file or an answer is not valid JSON.", cases=BROKEN_JSON,
        because_of=("log_dataset_files_differ", "log_deepspeed_config_not_read")),
    Row("log_table_damaged", "root", "script",
        r"(?:EmptyDataError|ParserError|ArrowInvalid): (?P<what>No columns to parse from file|Error tokenizing data.*|"
        r"CSV parse error: .+|Could not open Parquet .*)",
        ("pandas.errors.EmptyDataError: No columns to parse from file",
         "pandas.errors.ParserError: Error tokenizing data. C error: Expected 3 fields in line 12, saw 5"),
        "a table file is empty, cut off or of another format: {what}",
        "An empty file: its writing or download was interrupted, or another rank is still writing it. Other fields "
        "in a "
        "line: a separator or quotes within a value. No magic bytes: not Parquet at all (a Git LFS pointer, an HTML "
        "page).",
        (Fix("Look at the file, on the node that failed.", ("ls -la FILE; head -c 300 FILE", "git lfs pull")),
         Fix("For CSV, name the separator, or skip the lines that do not fit.",
             ("pd.read_csv(path, sep=';', on_bad_lines='warn')",))),
        "https://pandas.pydata.org/docs/reference/api/pandas.errors.ParserError.html",
        summary="A table file is empty, cut off or of another format."),
    Row("log_text_not_utf8", "root", "script",
        r"UnicodeDecodeError: '(?P<codec>[\w-]+)' codec can't decode byte (?P<byte>0x\w+) in position (?P<place>\d+)",
        ("UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80 in position 12: invalid start byte",),
        "a file that is read as text ({codec}) is not: byte {byte} at position {place}",
        "It is binary or compressed (a checkpoint, .gz, .parquet), or has another encoding. With 'ascii', the "
        "environment of the ranks has no UTF-8 locale, or the file is a pickle that Python 2 saved.",
        (Fix("Check what it is.", ("file FILE", "export PYTHONUTF8=1", "open(path, encoding='utf-8')")),
         Fix("For a pickle of Python 2, name the encoding.", ("pickle.load(f, encoding='latin1')",))),
        "https://docs.python.org/3/library/exceptions.html#UnicodeDecodeError", cases=(CONFIG_AS_TEXT,),
        summary="A file that is read as text is not text."),
    Row("log_media_decoder_missing", "root", "library",
        r"please install 'torchcodec'|Could not load libtorchcodec",
        ("ImportError: To support decoding audio data, please install 'torchcodec'.",
         "RuntimeError: Could not load libtorchcodec. Likely causes:"),
        "audio or video cannot be decoded: torchcodec is missing, or does not fit this torch or FFmpeg",
        "datasets 4 decodes with torchcodec, which is built for one torch release and loads the system's FFmpeg.",
        (Fix("Install the release for this torch, and FFmpeg.",
             ("pip install --upgrade torchcodec", "conda install -c conda-forge 'ffmpeg<8'",
              "pip show torch torchcodec")),
         Fix("Or use datasets 3, which decodes with soundfile.", ("pip install 'datasets<4' soundfile librosa",))),
        "https://github.com/pytorch/torchcodec#installing-torchcodec"),
    Row("log_metric_cache_shared", "root", "script",
        r"another (?:evaluation module|metric) instance is already using the local cache file|"
        r"Expected to find locked file .* from process|"
        r"Error in _?finalize: another (?:evaluation module|metric) instance"
        r"|Cannot acquire lock, too many metric instance|annot acquire lock on cached file|"
        r"Couldn't acquire lock on \S+ from process|Metric cache file doesn't exist",
        ("ValueError: Error in finalize: another evaluation module instance is already using the local cache file.",
         "ValueError: Expected to find locked file /x/default_experiment-1-0.arrow.lock from process 1 but it doesn't "
         "exist.",
         "ValueError: Metric cache file doesn't exist. Please make sure that you call `add` or `add_batch` at least "
         "once before calling `compute`."),
        "several ranks or runs use the same cache file of a metric",
        "evaluate.load() in every rank writes to one file per name.",
        (Fix("Gather predictions, and compute the metric on the main process only.",
             ("predictions, labels = accelerator.gather_for_metrics((predictions, labels))",
              "if accelerator.is_main_process: metric.compute(...)")),
         Fix("Or give each run a name of its own.", ("evaluate.load('accuracy', experiment_id=RUN_NAME)",))),
        "https://huggingface.co/docs/evaluate/package_reference/loading_methods"),
    Row("log_metric_input_wrong", "root", "script",
        r"Predictions and/or references don't match the expected format|"
        r"Found input variables with inconsistent numbers of samples|"
        r"Mismatch in the number of predictions \(\d+\) and references",
        ("ValueError: Predictions and/or references don't match the expected format.",
         "ValueError: Found input variables with inconsistent numbers of samples: [100, 98]",
         "ValueError: Mismatch in the number of predictions (100) and references (98)"),
        "the metric got predictions and references that do not fit together, or not its format",
        "Numbers of both differ if padded or duplicated samples of the last batch are gathered for one of them only. "
        "Token metrics need lists of strings or ids, not logits.",
        Fix("Gather both together, which drops the duplicates, and decode before computing.",
            ("accelerator.gather_for_metrics((predictions, labels))",)),
        "https://github.com/huggingface/evaluate/blob/main/src/evaluate/module.py", cases=(OF_SCIKIT_LEARN,)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)

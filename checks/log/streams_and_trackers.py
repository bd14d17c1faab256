"""Did a streaming dataset (WebDataset, MosaicML Streaming, LitData) or an experiment tracker stop the run?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import every, message, never, several_ranks, within

_WEBDATASET = "https://github.com/webdataset/webdataset/blob/main/src/webdataset/shardlists.py"
_FILTERS = "https://github.com/webdataset/webdataset/blob/main/src/webdataset/filters.py"
_STREAMING = "https://github.com/mosaicml/streaming/blob/main/streaming/base/shared/prefix.py"
_LITDATA = "https://github.com/Lightning-AI/litData/blob/main/src/litdata/streaming/dataset.py"
_WANDB = "https://docs.wandb.ai/support/"
_MLFLOW = "https://mlflow.org/docs/latest/ml/tracking/"

# fmt: off
_USE_DATABASES = within(r"^(?:outlines|diskcache|mlflow|optuna|ray|wandb)/")
_SQLITE = "https://www.sqlite.org/faq.html#q5"
_LOCKED = (
    Case(every(message(r"database is locked"), never(several_ranks)),
         "a database file (SQLite) is locked: another process or connection is writing to it",
         "SQLite lets one writer in at a time, and the others wait a few seconds (5 in Python) before they fail. "
         "Another run, a notebook, a worker or a viewer has the file open, or a connection of this program has not "
         "committed. On network disks (NFS, Lustre) the locks themselves often do not work.",
         (Fix("Find what has the file open.", ("fuser -v FILE", "lsof FILE")),
          Fix("Wait longer, and commit or close each connection soon.",
              ("sqlite3.connect(path, timeout=60)", "connection.commit()")),
          Fix("If several processes write, use a server or one file for each, on a disk of the machine.")),
         "sqlite3.OperationalError: database is locked\n", _SQLITE),
    Case(every(message(r"readonly database"), never(several_ranks)),
         "a database file (SQLite) cannot be written",
         "The file, or the folder in which SQLite creates its journal, is read-only for this user or on this mount, or "
         "the file was deleted or replaced while it was open.",
         (Fix("Check both, and the mount.", ("ls -ld FILE FOLDER; id", "findmnt -T FILE")),),
         "sqlite3.OperationalError: attempt to write a readonly database\n", _SQLITE),
)
_DATABASES = (
    Case(every(message(r"disk I/O error"), never(several_ranks), never(_USE_DATABASES)),
         "a database file (SQLite) could not be read or written: disk I/O error",
         "SQLite locks and maps its files, which network disks (NFS, Lustre, BeeGFS) support badly or not at all. A "
         "full disk or an exceeded quota gives the same message. If a package opened a database of its own, the folder "
         "of the Python environment is on such a disk.",
         (Fix("Copy the database to a disk of the node, or put the Python environment there.",
              ("df -hT . ~ /tmp", "python -m venv /tmp/venv && /tmp/venv/bin/pip install -r requirements.txt")),
          Fix("Check for space and quota.", ("df -h .; df -i .", "quota -s"))),
         "Traceback (most recent call last):\n"
         '  File "/w/encode.py", line 9, in <module>\n'
         "    field = galois.GF(2)\n"
         '  File "/lustre/venv/lib/python3.10/site-packages/galois/_databases/_interface.py", line 57, in fetch\n'
         "    self.cursor.execute(\n"
         "sqlite3.OperationalError: disk I/O error\n",
         "https://www.sqlite.org/faq.html#q5"),
)
ROWS = (
    Row("log_shards_not_split", "root", "script",
        r"add an explicit nodesplitter to your input pipeline for multi-node training",
        ("ValueError: you need to add an explicit nodesplitter to your input pipeline for multi-node training",),
        "WebDataset has no rule that divides the shards over the ranks",
        "Without a node splitter every rank would read the same shards, so WebDataset stops if there are several "
        "ranks.",
        Fix("Split by node, or draw shards at random on each rank.",
            ("wds.WebDataset(urls, nodesplitter=wds.split_by_node, shardshuffle=100)",
             "wds.WebDataset(urls, resampled=True).with_epoch(10000)")), _WEBDATASET),
    Row("log_sample_lacks_part", "root", "script",
        r"didn't find \[?(?P<keys>['\"{][^\]]*?)\]? in \[",
        ("ValueError: didn't find ['jpg', 'png'] in ['__key__', '__url__', 'txt']",),
        "a sample of the tar files has no part named {keys}",
        "WebDataset groups files by their name up to the first dot. Another extension, a dot in the name or an "
        "incomplete tar file leaves a part out.",
        Fix("List a shard, name all extensions, or skip such samples.",
            ("tar tf shard-000000.tar | head", "dataset.to_tuple('jpg;png;jpeg', 'txt', "
                                               "handler=wds.warn_and_continue)")),
        _FILTERS, summary="A sample of a WebDataset's tar files lacks a part."),
    Row("log_stream_folder_used_twice", "root", "script",
        r"Reused local directory: (?P<folders>.+)",
        ("ValueError: Reused local directory: ['/tmp/mds/train'] vs ['/tmp/mds/train']. Provide a different one. If "
         "using "
         "a unique local directory, try deleting the local directory and call "
         "`streaming.base.util.clean_stale_shared_memory()`",),
        "two streaming datasets use the same local folder, or a killed run left its shared memory: {folders}",
        "MosaicML Streaming registers each local folder in shared memory of the node. A killed run does not remove its "
        "entry, and two jobs on one node share it.",
        Fix("Remove the stale entries before the dataset is created, and give each dataset its own folder.",
            ("streaming.base.util.clean_stale_shared_memory()", "ls /dev/shm | head",
             "StreamingDataset(..., local='/tmp/mds/train')")), _STREAMING,
        summary="Two streaming datasets use the same local folder."),
    Row("log_litdata_index_missing", "root", "script",
        r"Index file not found(?: at|:) (?:\S+)|The provided dataset `[^`]+` doesn't contain any \S+ file",
        ("FileNotFoundError: Index file not found at /cache/index.json.",
         "ValueError: The provided dataset `/data/train` doesn't contain any index.json file."),
        "the folder is not a dataset that litdata wrote: its index.json is missing",
        "optimize() writes the index at its end. It was stopped, wrote elsewhere, or the path names raw files.",
        Fix("Write it with optimize(), and pass that output folder.",
            ("litdata.optimize(fn, inputs, output_dir='/data/train', "
             "chunk_bytes='64MB')", "ls /data/train/index.json")),
        "https://github.com/Lightning-AI/litData/blob/main/src/litdata/utilities/dataset_utilities.py"),
    Row("log_stream_state_other", "root", "script",
        r"The provided `(?:\w+)`[\w ]* state doesn't match the current one|"
        r"support resume only when world_size, num_workers, and batch_size match",
        ("ValueError: The provided `seed` state doesn't match the current one. Found `43` instead of `42`.",
         "ValueError: CombinedStreamingDataset and ParallelStreamingDataset support resume only when world_size, "
         "num_workers, and batch_size match the checkpoint."),
        "the saved position of the streaming dataset is for other settings than this run's",
        "The position means the same samples only with the same seed, shuffle, folder, ranks, workers and batch.",
        Fix("Resume with the settings that saved it, or start the data again without its state."), _LITDATA),
    Row("log_wandb_service_gone", "root", "library",
        r"ServiceStartTimeoutError|WandbServiceConnectionError|WandbServiceNotOwnedError|"
        r"Timed out waiting for wandb service to start|ServiceStartPortError|ServiceStartProcessError",
        ("wandb.sdk.service.service.ServiceStartTimeoutError: Timed out waiting for wandb service to start after 30.0 "
         "seconds. Try increasing the timeout with the `_service_wait` setting.",
         "wandb.sdk.lib.service_connection.WandbServiceConnectionError: Failed to connect to internal service."),
        "the helper process of Weights & Biases did not start, or has disappeared",
        "It runs beside each process that calls wandb.init(). A busy or small host, a full temporary disk, many ranks "
        "that start it at once, or a fork after wandb.init() keep it from answering.",
        (Fix("Start wandb on the main process only, and give the helper more time.",
             ("if accelerator.is_main_process: wandb.init(settings=wandb.Settings(_service_wait=300))",
              "df -h /tmp")),
         Fix("Or log offline, and upload later.", ("export WANDB_MODE=offline", "wandb sync wandb/offline-run-*"))),
        _WANDB),
    Row("log_wandb_process_ended", "secondary", "library", r"The wandb backend process has shutdown",
        ("Exception: The wandb backend process has shutdown",),
        "the helper process of Weights & Biases ended while the run went on",
        "Something stopped both, or the helper alone: Ctrl-C, the end of a sweep's agent, a closed terminal, the OOM "
        "killer. The log does not show what.",
        (Fix("Check whether memory ran out, and wandb's own log of the run.",
             ("sudo dmesg -T | grep -i 'killed process' | tail", "tail wandb/latest-run/logs/debug-internal.log")),
         Fix("A newer wandb reports more of it.", ("pip install -U wandb",))), _WANDB, because_of=("log_interrupted",)),
    Row("log_mlflow_refused", "root", "library",
        r"(?:MlflowException|RestException): (?P<what>API request to \S+ failed|Could not find experiment.*|The "
        r"configured "
        r"tracking uri scheme.*|Changing param values.*|[A-Z_]{6,}: .*)",
        ("mlflow.exceptions.MlflowException: API request to http://mlflow:5000/api/2.0/mlflow/runs/create failed with "
         "exception HTTPConnectionPool(host='mlflow', port=5000)",
         "mlflow.exceptions.RestException: INVALID_PARAMETER_VALUE: Changing param values is not allowed. Param with "
         "key='lr' was already logged"),
        "MLflow refused the run's data, or could not be reached: {what}",
        "Compute nodes often cannot reach the tracking server. If every rank logs to one run, the second value of a "
        "parameter is refused; so are values of a resumed run that changed.",
        (Fix("Log on the main process only, or log to a folder.",
             ("export MLFLOW_TRACKING_URI=file:///shared/mlruns", "TrainingArguments(report_to='none')")),
         Fix("If a resumed run changes parameters, start a new MLflow run.", ("unset MLFLOW_RUN_ID",))), _MLFLOW,
        summary="MLflow refused the run's data, or could not be reached."),
    Row("log_sqlite_locked", "root", "library",
        r"sqlite3\.OperationalError: (?P<what>database is locked|disk I/O error|attempt to write a readonly database)",
        ("sqlite3.OperationalError: database is locked",),
        "a database file (SQLite) that several ranks use: {what}",
        "SQLite's locks do not work on many network disks, and several ranks must not write the same file: MLflow, "
        "Optuna, diskcache and outlines use such files.",
        Fix("Write from one rank only, to a disk of the node, or use a server.",
            ("export OUTLINES_CACHE_DIR=/tmp/outlines-$SLURM_PROCID", "export MLFLOW_TRACKING_URI=file:///tmp/mlruns")),
        "https://www.sqlite.org/faq.html#q5", summary="A database file that several ranks use is locked.",
        cases=(*_DATABASES, *_LOCKED)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)

"""Did loading the data fail: loader workers, files, disks?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import either, every, line_of, said, shown, within
from ._file_call_cases import CALLS, COMMANDS, CREATED_BEFORE, OTHER_END_CLOSED, WANDB_ENDED
from ._full_disks import (
    FULL,
    INCOMPLETE,
    OF_TRAINERS,
    WRITE_FAILED,
    WRITE_FAILED_IN_TRAINER,
    WRITE_REFUSED,
    explain_full,
)
from ._library_cases import EPOCH_WITHOUT_STEPS
from ._loader_cases import WORKERS
from ._one_process_cases import BYTES_NO_IMAGE, DATASET_EMPTY, FILE_NO_IMAGE, FILES_NOT_CLOSED, LENGTH_OF_STREAM
from ._path_cases import HOMES, LEFT_BY_EARLIER_RUN, NOT_A_FOLDER, PATHS, RELATIVE
from ._platform_paths import DENIED, MISSING, MISSING_LAST, READ_ONLY
from ._sample_shapes import explain_shapes
from ._system_cases import PROGRAM_MISSING

_DATA = "https://pytorch.org/docs/stable/data.html"
_SHARING = "https://pytorch.org/docs/stable/multiprocessing.html"
_ERRNO = "https://man7.org/linux/man-pages/man3/errno.3.html"
_PYTHON = "https://docs.python.org/3/library/exceptions.html#os-exceptions"
# fmt: off
_SHM = Fix("Give the container more shared memory.",
           ("df -h /dev/shm", "docker run --ipc=host ...", "docker run --shm-size=16g ...",
            "mgpu doctor --only shm_too_small,shm_tight_for_loaders"))
_FEWER = Fix("Use fewer workers.", ("DataLoader(..., num_workers=2)", "mgpu doctor --only cpus_leave_no_loader"))
_CACHES = Fix("Move caches out of the home folder.",
              ("export HF_HOME=/scratch/$USER/hf TRITON_CACHE_DIR=/tmp/triton-$USER",))
_SAVES = within(
    r" in (?:_?save_checkpoint\w*|save_pretrained|save_model|save_state|_save_optimizer_and_scheduler|"
    r"save_fsdp_(?:model|optimizer))$")
_QUOTA_TITLE = "your disk quota is exceeded: the run could not save its model or a checkpoint"
_QUOTA_WHY = (
    "The limit is on space or the number of files. Often checkpoints of earlier steps and runs fill it, or caches. The "
    "save that failed is incomplete: use the one before it, if it has another name.")
_QUOTA_SAMPLE = (
    'Traceback (most recent call last):\n  File "/v/lib/python3.11/site-packages/{file}", line 7, in '
    "{function}\n    self.save_model(output_dir)\n"
    '  File "/v/lib/python3.11/site-packages/torch/serialization.py", line 7, in save\n    _save(obj, path)\n'
    "OSError: [Errno 122] Disk quota exceeded\n")
_QUOTA_OF_CHECKPOINT = (
    Case(every(_SAVES, shown("trainer_of_transformers")), _QUOTA_TITLE, _QUOTA_WHY,
         (Fix("Keep fewer checkpoints, and write them less often.",
              ("TrainingArguments(save_total_limit=2, save_steps=1000)",)),
          Fix("Delete old ones, or write to a disk with more room.",
              ("quota -s", "du -sh OUTPUT_DIR/* | sort -h | tail",
               "TrainingArguments(output_dir='/scratch/USER/run')")),
          _CACHES),
         _QUOTA_SAMPLE.format(file="transformers/trainer.py", function="_save_checkpoint"),
         "https://huggingface.co/docs/transformers/main_classes/trainer"),
    Case(_SAVES, _QUOTA_TITLE, _QUOTA_WHY,
         (Fix("Keep fewer checkpoints, and write them less often. Delete old ones, or write to a disk with more room.",
              ("quota -s", "du -sh OUTPUT_DIR/* | sort -h | tail")),
          _CACHES),
         _QUOTA_SAMPLE.format(file="accelerate/accelerator.py", function="save_state"), _ERRNO),
)
_PINNING = Case(
    said(r"Pin memory thread exited unexpectedly"),
    "the thread that copies batches into pinned memory ended, and its message is missing",
    "With pin_memory=True one thread per rank copies the workers' batches. It ends if CUDA failed in this process, if "
    "a worker died while it sent a batch, or if host memory cannot be locked. The first error of this rank is before "
    "this one.",
    (Fix("Load without that thread: the real error then appears.", ("DataLoader(..., pin_memory=False)",)),
     Fix("Check memory and its limits.", ("free -g; ulimit -l; df -h /dev/shm", "mgpu doctor --only limits,memory"))),
    "RuntimeError: Pin memory thread exited unexpectedly\n",
    "https://github.com/pytorch/pytorch/blob/main/torch/utils/data/dataloader.py")
_INDEX_FILES = (
    Case(either(within(r"datasets/(?:gpt|bert|t5|blended|masked|indexed|multimodal|sft)\w*dataset\w*\.py"),
                said(r"[-_](?:document|sample|shuffle|doc|dataset)_(?:index|idx|sample_index)\.npy")),
         "an index file of Megatron's dataset is missing on this node: {path}",
         "Rank 0 builds the index files and writes them next to the data or to --data-cache-path; the other ranks only "
         "read them. On another node's own disk (not shared) they do not exist.",
         (Fix("Use a folder that all nodes share.", ("--data-cache-path /shared/index_cache",)),
          Fix("Or copy the files of rank 0 to every node.", ("ls -l {path:path}", "df -h --output=fstype,target .")),),
         "[rank6]: Traceback (most recent call last):\n"
         '[rank6]:   File "/opt/megatron-lm/megatron/core/datasets/gpt_dataset.py", line 484, in '
         "_build_document_sample_shuffle_indices\n[rank6]:     document_index = numpy.load(path)\n"
         "[rank6]: FileNotFoundError: [Errno 2] No such file or directory: "
         "'/local/cache/0b7c-GPTDataset-train-document_index.npy'",
         "https://github.com/NVIDIA/Megatron-LM/issues/907"),
    Case(said(r"cache-\w+\.arrow|/(?:preprocessed|tokenized|cached?)\w*/\S+\.(?:arrow|pt|npy|bin|json|parquet)"),
         "a cached or prepared data file is missing on this node: {path}",
         "Usually one rank prepares it and the others read it. They do not find it if the cache is on each node's own "
         "disk, or if they do not wait until it is written.",
         (Fix("Use a cache folder that all nodes share, or prepare the data on one rank of every node.",
              ("export HF_HOME=/shared/hf", "with training_args.main_process_first(local=True):")),
          Fix("Check whether it exists on every node.", ("srun --ntasks-per-node=1 ls -ld {path:path}",))),
         "[rank8]: Traceback (most recent call last):\n"
         '[rank8]:   File "/x/train.py", line 3, in main\n[rank8]:     dataset = load()\n'
         "[rank8]: FileNotFoundError: [Errno 2] No such file or directory: '/tmp/hf/cache-3f9a.arrow'",
         "https://huggingface.co/docs/datasets/about_cache"),
)

_OF_DRIVE = Case(
    every(shown("google_drive"), line_of("log_disk_failed", r"\[Errno (?:5|107)\]")),
    "Google Drive, which Colab mounts as a folder, failed while it was read or written",
    "The mount reads each file over the network. Folders with thousands of files, many small reads in several workers, "
    "and a used up quota of Drive end with errno 5 (Input/output error). The code and the file are not the fault.",
    (Fix("Copy the data to the local disk as one archive, and read it there.",
         ("cp /content/drive/MyDrive/data.zip /content/ && unzip -q /content/data.zip -d /content/data",)),
     Fix("Mount it again, and wait if the quota of the day is used up.",
         ("drive.flush_and_unmount(); drive.mount('/content/drive')",))),
    'Traceback (most recent call last):\n  File "/content/drive/MyDrive/project/train.py", line 9, in main\n'
    "    image = Image.open(path)\nOSError: [Errno 5] Input/output error: '../data/7.png'\n",
    "https://research.google.com/colaboratory/faq.html")
_CONTAINER = "https://github.com/pytorch/pytorch/blob/main/caffe2/serialize/inline_container.cc"
_NO_FOLDER = Case(
    line_of("log_checkpoint_file_not_created", r"Parent directory \S+ does not exist"),
    "torch.save could not create its file: the folder of that file does not exist on this node",
    "torch.save creates files, not folders. The path is one of another machine or user, of a disk that is not mounted "
    "here, or relative to another working folder, or the script never creates it. Neither a full disk nor a quota "
    "causes this message.",
    (Fix("Set the output folder to one of this machine, where the script or its config names it.",
         ("pwd", "df -h")),
     Fix("If the path is right, create it on every rank before saving.",
         ("os.makedirs(os.path.dirname(path), exist_ok=True)",))),
    "RuntimeError: Parent directory /home/ann/runs/checkpoints does not exist.\n", _CONTAINER)
ROWS = (
    Row("log_loader_out_of_shm", "root", "script",
        r"is killed by signal: Bus error|[Bb]us error encountered in worker|"
        r"unable to (?:write to file|mmap \d+ bytes from file|allocate shared memory).*torch_|"
        r"unable to write to file </torch_",
        ("RuntimeError: DataLoader worker (pid 46794) is killed by signal: Bus error. It is possible that dataloader's "
         "workers are out of shared memory.", "ERROR: Unexpected bus error encountered in worker. This might be "
                                              "caused by "
         "insufficient shared memory (shm).",
         "RuntimeError: unable to write to file </torch_4711_2_3>: No space left on device (28)",
         "RuntimeError: unable to mmap 1024 bytes from file </torch_99_1>: Cannot allocate memory (12)"),
        "the DataLoader's workers ran out of shared memory (/dev/shm)",
        "Workers pass batches through it. Containers get 64 MB by default.", (_SHM, _FEWER),
        "https://github.com/pytorch/pytorch/issues/5040"),
    Row("log_loader_worker_died", "root", "script",
        r"DataLoader worker \(pid(?:\(s\))? ?[\d, ]+\) "
        r"(?:is killed by signal: (?!Bus|Hangup)|exited unexpectedly)|"
        r"DataLoader worker .* is killed by signal: Killed|"
        r"Unexpected (?:segmentation fault|floating-point exception) encountered in worker",
        ("RuntimeError: DataLoader worker (pid(s) 3216) exited unexpectedly",
         "RuntimeError: DataLoader worker (pid 99) is killed by signal: Killed. ",
         "RuntimeError: DataLoader worker (pid 7) is killed by signal: Segmentation fault. ",
         "ERROR: Unexpected segmentation fault encountered in worker."),
        "a DataLoader worker died",
        "Killed: host memory ran out (each worker copies the data it touches). Segmentation fault: a decoding library "
        "crashed. Otherwise it exited by itself.",
        (Fix("Check whether the kernel killed it.", ("sudo dmesg -T | grep -i 'killed process' | tail",)), _FEWER,
         Fix("Find the sample: without workers, the traceback shows it.", ("DataLoader(..., num_workers=0)",))),
        "https://github.com/lm-sys/FastChat/issues/568", cases=WORKERS),
    Row("log_background_worker_died", "root", "script",
        r"background workers? (?:is|are) no longer alive",
        ("RuntimeError: One or more background workers are no longer alive. Exiting. Please check the print statements "
         "above for the actual error message",),
        "a process that prepares the data died",
        "The library that starts it (batchgenerators, as in nnU-Net) only sees that it ended. It was killed because "
        "host memory or /dev/shm was full, crashed while it decoded a file, or raised an exception further up.",
        (Fix("Check whether the kernel killed it, and whether memory is full.",
             ("sudo dmesg -T | grep -i 'killed process' | tail", "free -g; df -h /dev/shm")),
         Fix("Use fewer such processes.", ("export nnUNet_n_proc_DA=4", "nnUNetv2_preprocess -np 4 ..."))),
        "https://github.com/MIC-DKFZ/nnUNet/issues/2162",
        because_of=("log_killed_for_memory",)),
    Row("log_checkpoint_file_not_created", "root", "script",
        r"^(?:\w+Error: )?(?:File \S+ cannot be opened|Parent directory \S+ does not exist)\.?$",
        ("RuntimeError: File out/checkpoints/checkpoint_0.pt cannot be opened.",
         "RuntimeError: Parent directory out/checkpoints does not exist."),
        "torch.save could not create its file",
        "The folder does not exist, the disk or the quota is full, or this user may not write there. torch does not "
        "report which.",
        Fix("Check all three, and create the folder on every rank before saving.",
            ("df -h .; df -i .; quota -s", "mgpu doctor --only storage",
             "os.makedirs(os.path.dirname(path), exist_ok=True)")),
        _CONTAINER, cases=(_NO_FOLDER,)),
    Row("log_loader_timed_out", "root", "script", r"DataLoader timed out after (?P<seconds>\S+) seconds",
        ("RuntimeError: DataLoader timed out after 300 seconds",),
        "a DataLoader worker returned no batch for {seconds} s",
        "The disk, a file server or a download does not respond, or a worker is stuck on a lock.",
        Fix("Check how fast the data folder is, and where the worker waits.",
            ("mgpu doctor --only data_folder_on_slow_storage,folder_answers_slowly", "py-spy dump --pid PID")), _DATA,
        summary="A DataLoader worker did not return a batch in time."),
    Row("log_loader_exception", "wrapper", "script",
        r"Caught \w+ in (?:DataLoader worker process|pin memory thread)|Pin memory thread exited unexpectedly",
        ("RuntimeError: Caught RuntimeError in DataLoader worker process 0.", "Caught KeyError in DataLoader worker "
         "process 3.", "RuntimeError: Pin memory thread exited unexpectedly"),
        "a DataLoader worker raised an exception; its own message has the reason",
        "torch prints the worker's exception below the line 'Original Traceback'.",
        Fix("Read the worker's exception. Without workers the traceback is shorter.",
            ("DataLoader(..., num_workers=0)",)), _DATA, cases=(_PINNING,)),
    Row("log_loader_many_workers", "secondary", "script",
        r"suggested max number of worker in current system is (?P<most>\d+)",
        ("This DataLoader will create 999 worker processes in total. Our suggested max number of worker in current "
         "system is 2, which is smaller",),
        "more DataLoader workers than CPUs: this process can use {most}",
        "All ranks together start ranks x num_workers. Too many make loading slow, or freeze it.", _FEWER, _DATA,
        tags=("before_ranks", "hint"),
        summary="A rank starts more DataLoader workers than it has CPUs."),
    Row("log_files_exhausted", "root", "script",
        r"Too many open files|received 0 items of ancdata|\[Errno 24\]",
        ("OSError: [Errno 24] Too many open files", "RuntimeError: received 0 items of ancdata",
         "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode: Too many open files (24)"),
        "the process reached its limit on open files",
        "DataLoader workers share tensors through file descriptors. The limit (ulimit -n) is often 1024.",
        Fix("Raise it, or share tensors by file name.",
            ("ulimit -n 65536", "torch.multiprocessing.set_sharing_strategy('file_system')",
             "mgpu doctor --only open_files_limit_low")), _SHARING, cases=(FILES_NOT_CLOSED,)),
    Row("log_quota_exceeded", "root", "script", r"Disk quota exceeded|\[Errno 122\]",
        ("OSError: [Errno 122] Disk quota exceeded",),
        "your disk quota is exceeded",
        "The limit is on space or the number of files. Often a cache in $HOME (Hugging Face, pip, Triton) fills it.",
        (FULL, _CACHES), _ERRNO, cases=_QUOTA_OF_CHECKPOINT),
    Row("log_disk_full", "root", "script",
        r"(?P<what>^(?!.*(?:/dev/shm|nccl-|posix_fallocate|/torch_)).*No space left on device.*|"
        r"Not enough free disk space to download|I/O error: No space left"
        r"|Not enough disk space\. Needed:)",
        ("OSError: [Errno 28] No space left on device",
         "UserWarning: Not enough free disk space to download the file. The expected file size is: 1 "
                         "MB.",
         "safetensors_rust.SafetensorError: Error while serializing: I/O error: No space left on device (os error 28)",
         "OSError: Not enough disk space. Needed: 10.00 GiB (download: 1.00 GiB, generated: 9.00 GiB, "
         "post-processed: Unknown size)"),
        "the disk is full",
        "Checkpoints with optimizer states need 12 to 16 bytes per parameter. A full /tmp or cache folder causes the "
        "same error.",
        (FULL, Fix("Delete old checkpoints, and keep fewer of them.")), _ERRNO, cases=(OF_TRAINERS,),
        explain=explain_full),
    Row("log_checkpoint_write_failed", "root", "script",
        r"PytorchStreamWriter failed writing file|basic_ios::clear: iostream error|"
        r"inline_container\.cc:\d+\] ?\.? unexpected pos",
        ("RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 704 vs 598",
         "RuntimeError: [enforce fail at inline_container.cc:603] . PytorchStreamWriter failed writing file data/1: "
         "file write failed"),
        WRITE_REFUSED, INCOMPLETE, WRITE_FAILED,
        "https://github.com/NVIDIA/Megatron-LM/issues/878", cases=(WRITE_FAILED_IN_TRAINER,),
        because_of=("log_disk_full", "log_quota_exceeded", "log_disk_failed", "log_file_handle_stale")),
    Row("log_disk_read_only", "root", "script", r"\[Errno 30\]|Read-only file system",
        ("OSError: [Errno 30] Read-only file system: '/data/out'",),
        "the disk is mounted read-only",
        "It is a container image, a read-only data mount, or a file system that the kernel remounted read-only after "
        "an error.",
        Fix("Write to another disk, and check how this one is mounted.",
            ("findmnt -T PATH", "mgpu doctor --only output_folder_not_writable,disk_error_logged")), _ERRNO,
        cases=READ_ONLY),
    Row("log_file_handle_stale", "root", "script", r"Stale (?:NFS )?file handle|\[Errno 116\]",
        ("OSError: [Errno 116] Stale file handle: '/home/u/.triton/cache/x'",
         "FileNotFoundError: Stale NFS file handle"),
        "a file on a network disk was replaced or removed while it was open",
        "Several nodes share a cache (Triton, torch_extensions, Hugging Face) or a checkpoint on NFS.",
        Fix("Keep caches on a local disk of each node.",
            ("export TRITON_CACHE_DIR=/tmp/triton-$USER TORCH_EXTENSIONS_DIR=/tmp/ext-$USER",
             "mgpu doctor --only compile_cache_on_network")),
        "https://github.com/deepspeedai/DeepSpeed/issues/5205"),
    Row("log_disk_failed", "root", "script", r"\[Errno 5\]|Input/output error|\[Errno 121\]|"
        r"Transport endpoint is not connected|Cannot send after transport endpoint shutdown",
        ("OSError: [Errno 5] Input/output error: '/data/x'", "OSError: [Errno 107] Transport endpoint is not connected",
         "OSError: [Errno 108] Cannot send after transport endpoint shutdown"),
        "a disk or a file server failed during an access",
        "A disk is broken, a mount was lost (FUSE, Lustre, NFS), or a server evicted this client.",
        Fix("Check the kernel log.", ("sudo dmesg -T | tail -50", "findmnt -T PATH",
                                      "mgpu doctor --only disk_error_logged,lustre_unhealthy"), who="admin"),
        _ERRNO, cases=(_OF_DRIVE,)),
    Row("log_permission_denied", "root", "script",
        r"PermissionError: \[Errno 13\] Permission denied: ['\"]?(?!/tmp/ray\b)(?P<path>[^'\"\s]+(?: [^'\"\s]+)*)",
        ("PermissionError: [Errno 13] Permission denied: '/data/out/model.bin'",),
        "this user cannot open {path}",
        "The folder belongs to another user, or a container that runs as root created the files.",
        Fix("Check who owns it.", ("ls -ld {path:path}; id", "mgpu doctor --only "
                                   "output_folder_not_writable,cache_not_writable")),
        _PYTHON, cases=(*DENIED, *HOMES), summary="This user cannot open a file or folder."),
    Row("log_file_missing", "root", "script",
        r"(?:unable to open file <(?=.{1,500}No such file)|"
        r"FileNotFoundError: (?:\[Errno 2\] No such file or directory: "
        r"(?!.*(?:tmp-checkpoint|/nvcc'|\.incomplete|\.lock|latest_checkpointed_|/\.metadata|rank_?\d|\.distcp|"
        r"rng_state_\d|/\.triton/|inductor))(?=\S+$)|"
        r"(?:Unable to find|Couldn't find any data file at|Couldn't find file at) )'?)"
        r"(?P<path>[^'\s]+?)(?:> in read-only mode|[.']*(?:\s|$))",
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
         "FileNotFoundError: Couldn't find any data file at /data/x.",
         "FileNotFoundError: Unable to find '/data/x.json'",
         "RuntimeError: unable to open file </data/x.safetensors> in read-only mode: No such file or directory (2)"),
        "a file that the script reads does not exist: {path}",
        "The path is relative to another folder, is not mounted on this node, or another rank has not written it yet.",
        Fix("Check whether it exists on every node.", ("pwd; ls -ld {path:path}",
                                                       "srun --ntasks-per-node=1 ls -ld {path:path}")),
        _PYTHON, because_of=("log_path_in_slurm_spool",),
        cases=(*COMMANDS, PROGRAM_MISSING, *_INDEX_FILES, *MISSING, *PATHS, *CALLS, RELATIVE, *MISSING_LAST),
        summary="A file that the script reads does not exist."),
    Row("log_cache_raced", "root", "script",
        r"FileNotFoundError: .*(?:\.incomplete|\.lock)'?|FileExistsError: \[Errno 17\] ",
        ("FileNotFoundError: [Errno 2] No such file or directory: '/home/u/.cache/huggingface/x.incomplete'",
         "FileExistsError: [Errno 17] File exists: 'out/logs'"),
        "several ranks created the same file or folder at the same time",
        "Each of them downloads, prepares or creates what only one should.",
        Fix("Let one rank do it first, then the others.",
            ("with accelerator.main_process_first():", "os.makedirs(path, exist_ok=True)",
             "mgpu doctor --script train.py")),
        "https://github.com/huggingface/accelerate/blob/main/docs/source/concept_guides/deferring_execution.md",
        cases=(*CREATED_BEFORE, NOT_A_FOLDER, LEFT_BY_EARLIER_RUN)),
    Row("log_dataset_smaller_than_ranks", "root", "script",
        r"assert len\(indices\) == self\.total_size|Number of indices \(\d+\) does not match total_size",
        ("    assert len(indices) == self.total_size",
         "AssertionError: Number of indices (3) does not match total_size (8)"),
        "the dataset probably has fewer samples than there are ranks",
        "DistributedSampler fills up the last samples, but older releases of torch cannot repeat a dataset that is "
        "smaller than half the number of ranks.",
        Fix("Check why it is so small, or start fewer ranks.",
            ("print(len(dataset))", "accelerate launch --num_processes 2 ...")),
        "https://github.com/pytorch/pytorch/blob/main/torch/utils/data/distributed.py"),
    Row("log_dataset_empty", "root", "script",
        # The group keeps a line with another number from being read as this one with a typing mistake.
        r"num_samples should be a positive integer value, but got num_samples=(?P<number>0)(?![\d.])",
        ("ValueError: num_samples should be a positive integer value, but got num_samples=0",),
        "the dataset is empty, at least on one rank",
        "The sampler has {number} samples: the path has no files, a filter removed all, or there are fewer shards than "
        "ranks.",
        Fix("Count the samples on each rank.", ("ls DATA | head",)),
        "https://github.com/pytorch/pytorch/blob/main/torch/utils/data/sampler.py", cases=(DATASET_EMPTY,)),
    Row("log_samples_of_different_size", "root", "script", r"stack expects each tensor to be equal size|"
        r"each element in list of batch should be of equal size|Trying to resize storage that is not resizable",
        ("RuntimeError: stack expects each tensor to be equal size, but got [512] at entry 0 and [417] at entry 1",),
        "samples of different sizes cannot be stacked into a batch",
        "The default collate function only stacks.",
        Fix("Pad or resize in a collate function.",
            ("DataLoader(..., collate_fn=DataCollatorWithPadding(tokenizer))",)),
        _DATA, explain=explain_shapes),
    Row("log_image_damaged", "root", "script", r"cannot identify image file|image file is truncated",
        ("PIL.UnidentifiedImageError: cannot identify image file '/data/a.jpg'",
         "OSError: image file is truncated (23 bytes not processed)"),
        "a data file is damaged: an image cannot be read",
        "A download was cut short, or the file is not an image.",
        Fix("Find and remove it.", ("python -c \"import sys; from PIL import Image; "
                                    "[Image.open(f).load() for f in sys.argv[1:]]\" DATA/*",)),
        "https://pillow.readthedocs.io/en/stable/PIL.html", cases=(BYTES_NO_IMAGE, FILE_NO_IMAGE)),
    Row("log_kernel_lost_parent", "root", "script", r"^(?!\s).*Parent appears to have exited, shutting down",
        ("[IPKernelApp] WARNING | Parent appears to have exited, shutting down.",
         "Message: 'Parent appears to have exited, shutting down.'"),
        "the notebook's kernel stopped because the program that had started it (Jupyter, an editor) ended",
        "A kernel watches its parent process and exits with it: the server was stopped, its session or container "
        "ended, or the terminal or ssh connection that ran it closed. An error while it writes this message is a "
        "consequence.",
        Fix("Run long training outside of the notebook, detached from the session.",
            ("jupyter nbconvert --to script NOTEBOOK.ipynb", "mgpu launch --detach train.py")),
        "https://github.com/ipython/ipykernel/pull/233"),
    Row("log_stdout_closed", "secondary", "script", r"BrokenPipeError: \[Errno 32\]",
        ("BrokenPipeError: [Errno 32] Broken pipe",),
        "the program wrote to a pipe that has no reader",
        "The reader (head, less, tee) exited, or a worker lost its parent.",
        Fix("Redirect the output to a file.", ("mgpu launch train.py > train.log 2>&1",)), _PYTHON,
        because_of=("log_kernel_lost_parent",), cases=(WANDB_ENDED, OTHER_END_CLOSED)),
    Row("log_steps_unknown", "root", "script",
        r"max_steps must be set to a positive value if dataloader does not have a length|"
        r"max_steps has to be specified|object of type '\w*IterableDataset' has no len\(\)",
        ("ValueError: args.max_steps must be set to a positive value if dataloader does not have a length, was -1",
         "TypeError: object of type 'IterableDataset' has no len()"),
        "the dataset has no length, and the number of steps is not set",
        "A streamed dataset has no known end.",
        Fix("Set the number of steps.", ("TrainingArguments(max_steps=10000)",)),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py",
        cases=(EPOCH_WITHOUT_STEPS, LENGTH_OF_STREAM)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)

"""checks/storage"""

from __future__ import annotations

import pytest

from mgpu.snapshot import Folder, Storage
from tests.checks.facts import DOCKER, GIB, Case, fails, folder, informs, problem, skips, storage, table, warns, well

FULL = 500_000_000
CHECKPOINT = 12_000_000_000
HUB = "/home/ada/.cache/huggingface/hub"
OFFLINE = {"HF_HUB_OFFLINE": "1"}


def temporary(**changes: object) -> Folder:
    return folder("temporary", "/tmp", **changes)


def hub(**changes: object) -> Folder:
    return folder("hf_cache", HUB, **changes)


def silent(role: str, path: str) -> Folder:
    """As the probe leaves a folder that did not answer."""
    return Folder(role, path, None, error="no answer in 3 s", answered=False)  # type: ignore[arg-type]


def triton(**changes: object) -> Folder:
    return folder("triton_cache", "/home/ada/.triton/cache", **changes)


CASES = (
    # folder_does_not_answer
    fails("folder_does_not_answer", "/home/ada/.triton/cache: no answer in 3 s", "findmnt",
        storage=storage(silent("triton_cache", "/home/ada/.triton/cache"))),
    fails("folder_does_not_answer", "the current folder, the temporary folder and the home folder", "umount",
        storage=storage(*(silent(role, "/mnt") for role in ("current", "temporary", "home", "named")))),
    well("folder_does_not_answer", "8 folders responded"),
    well("folder_does_not_answer", "responded", storage=storage(hub(exists=False, error="Permission denied"))),
    skips("folder_does_not_answer", "storage was not checked", storage=None),
    # folder_answers_slowly: a second
    warns("folder_answers_slowly", "the current folder took 1.0 s to respond", "df -h /work/run",
        storage=storage(folder(stat_s=1.0, filesystem="nfs4"))),
    warns("folder_answers_slowly", "/data took 2.5 s", "df -h /data",
        storage=storage(folder(stat_s=1.0), folder("named", "/data", stat_s=2.5))),
    well("folder_answers_slowly", "took 999 ms", storage=storage(folder(stat_s=0.999))),
    skips("folder_answers_slowly", "no folder responded",
        storage=Storage((silent("home", "/h"),))),
    # named_folder_missing
    fails("named_folder_missing", "/data does not exist here", "mkdir -p /data",
        storage=storage(folder("named", "/data", exists=False))),
    well("named_folder_missing", "1 named folder of 1 found", storage=storage(folder("named", "/data"))),
    skips("named_folder_missing", "no folder was named"),
    skips("named_folder_missing", "no folder responded", storage=storage(silent("named", "/data"))),
    # output_folder_not_writable: a read-only mount that is named is data
    warns("output_folder_not_writable", "the current folder is not writable: it belongs to another user", "cd ~",
        storage=storage(folder(writable=False))),
    warns("output_folder_not_writable", "its file system is mounted read-only", "cd ~",
        storage=storage(folder(writable=False, read_only=True))),
    warns("output_folder_not_writable", "/out is not writable", "cd ~",
        storage=storage(folder("named", "/out", writable=False))),
    well("output_folder_not_writable", "/work/run: writable"),
    well("output_folder_not_writable", "writable",
        storage=storage(folder("named", "/data", writable=False, read_only=True))),
    warns("output_folder_not_writable", "mounted read-only", "touch",
        storage=storage(folder("output", "/data/out", writable=False, read_only=True))),
    skips("output_folder_not_writable", "did not respond", storage=storage(silent("current", "/work/run"))),
    # output_folder_exhausted: 100 MB
    fails("output_folder_exhausted", "99 MB free for the current folder", "du -xsh /work/run",
        storage=storage(folder(free_bytes=100_000_000 - 1))),
    fails("output_folder_exhausted", "0 MB free for /out", "df -h /out",
        storage=storage(folder("named", "/out", exists=False, free_bytes=0))),
    well("output_folder_exhausted", "95 MiB free", storage=storage(folder(free_bytes=100_000_000))),
    skips("output_folder_exhausted", "the free space of the output folders is unknown",
        storage=storage(folder(free_bytes=None))),
    # output_folder_full: 500 MB, or a thousand inodes
    warns("output_folder_full", "the disk of the current folder is full: 477 MiB free of 1000 GiB", "du -xsh /work/run",
        storage=storage(folder(free_bytes=FULL - 1))),
    warns("output_folder_full", "is full: 999 free inodes", "df -i /work/run",
        storage=storage(folder(free_inodes=999))),
    warns("output_folder_full", "the disk of /out is full: 0 MiB free", "df",
        storage=storage(folder("named", "/out", free_bytes=0))),
    well("output_folder_full", "477 MiB free", storage=storage(folder(free_bytes=FULL))),
    well("output_folder_full", "500 GiB free", storage=storage(folder(free_inodes=1000))),
    well("output_folder_full", "500 GiB free", storage=storage(folder(free_inodes=None))),
    skips("output_folder_full", "the free space of the output folders is unknown",
        storage=storage(folder(writable=False, free_bytes=0))),
    # output_folder_small: less than a checkpoint of a billion parameters
    informs("output_folder_small", "11 GiB free for checkpoints in the current folder", "df -h",
        storage=storage(folder(free_bytes=CHECKPOINT - 1))),
    well("output_folder_small", "space", storage=storage(folder(free_bytes=CHECKPOINT))),
    well("output_folder_small", "space", storage=storage(folder(free_bytes=0))),
    skips("output_folder_small", "the free space of the output folders is unknown",
        storage=storage(folder(free_bytes=None))),
    # temporary_folder_unusable
    warns("temporary_folder_unusable", "the temporary folder /tmp is full: 477 MiB free", "export TMPDIR=~/tmp",
        storage=storage(temporary(free_bytes=FULL - 1))),
    warns("temporary_folder_unusable", "does not exist", "TMPDIR", storage=storage(temporary(exists=False))),
    warns("temporary_folder_unusable", "is not writable", "TMPDIR", storage=storage(temporary(writable=False))),
    well("temporary_folder_unusable", "/tmp on ext4, 500 GiB free"),
    well("temporary_folder_unusable", "/tmp on ext4", storage=storage(temporary(free_bytes=None))),
    skips("temporary_folder_unusable", "did not respond", storage=storage(silent("temporary", "/tmp"))),
    skips("temporary_folder_unusable", "is unknown", storage=storage(temporary(free_bytes=None, writable=None))),
    # temporary_folder_on_network
    warns("temporary_folder_on_network", "/tmp is on nfs4", "export TMPDIR=/tmp",
        storage=storage(temporary(filesystem="nfs4"))),
    warns("temporary_folder_on_network", "/tmp is on lustre", "TMPDIR",
        storage=storage(temporary(filesystem="lustre"))),
    well("temporary_folder_on_network", "/tmp is on ext4"),
    skips("temporary_folder_on_network", "unknown", storage=storage(temporary(filesystem=None))),
    # temporary_folder_in_memory
    informs("temporary_folder_in_memory", "/tmp is in memory (tmpfs)", "TMPDIR",
        storage=storage(temporary(filesystem="tmpfs"))),
    well("temporary_folder_in_memory", "/tmp is on ext4"),
    skips("temporary_folder_in_memory", "unknown", storage=storage(temporary(filesystem=None))),
    # current_folder_vanishes
    informs("current_folder_vanishes", "in the layer of this container", "docker run -v",
        storage=storage(folder(filesystem="overlay")), container=DOCKER),
    informs("current_folder_vanishes", "in memory: checkpoints will be lost", "df -h",
        storage=storage(folder(filesystem="tmpfs"))),
    well("current_folder_vanishes", "on overlay", storage=storage(folder(filesystem="overlay"))),
    well("current_folder_vanishes", "on ext4", container=DOCKER),
    skips("current_folder_vanishes", "unknown", storage=storage(folder(filesystem=None))),
    # data_folder_on_slow_storage: home and runs on NFS are as usual, data sets there starve the GPUs
    informs("data_folder_on_slow_storage", "/data is on nfs4", "rsync -a /data/",
        storage=storage(folder("named", "/data", filesystem="nfs4"))),
    informs("data_folder_on_slow_storage", "/data is on fuse.s3fs", "rsync",
        storage=storage(folder("named", "/data", filesystem="fuse.s3fs"))),
    informs("data_folder_on_slow_storage", "the current folder is on 9p", "rsync",
        storage=storage(folder(filesystem="9p"))),
    well("data_folder_on_slow_storage", "nfs4", storage=storage(folder(filesystem="nfs4"))),
    well("data_folder_on_slow_storage", "ext4"),
    skips("data_folder_on_slow_storage", "no folder responded", storage=storage(folder(filesystem=None))),
    # compile_cache_on_network: once something is in it, or a variable names it
    warns("compile_cache_on_network", "/home/ada/.triton/cache on nfs4", "TRITON_CACHE_DIR=/tmp/$USER/triton_cache",
        storage=storage(triton(filesystem="nfs4"))),
    warns("compile_cache_on_network", "on lustre", "export TORCH_EXTENSIONS_DIR=/tmp/$USER/torch_extensions",
        storage=storage(folder("extensions", "/home/ada/.cache/torch_extensions", filesystem="lustre"))),
    warns("compile_cache_on_network", "on gpfs", "export TORCHINDUCTOR_CACHE_DIR=",
        storage=storage(folder("inductor_cache", "/gpfs/x", filesystem="gpfs", exists=False)),
        env={"TORCHINDUCTOR_CACHE_DIR": "/gpfs/x"}),
    well("compile_cache_on_network", "3 compile caches on ext4"),
    well("compile_cache_on_network", "on nfs4 and ext4", storage=storage(triton(filesystem="nfs4", exists=False))),
    well("compile_cache_on_network", "1 unknown", storage=storage(silent("triton_cache", "/t"))),
    skips("compile_cache_on_network", "unknown", storage=storage(
        *(silent(role, "/t") for role in ("triton_cache", "inductor_cache", "extensions")))),
    # cache_not_writable
    warns("cache_not_writable", "/home/ada/.triton/cache not writable (not yours)", "export TRITON_CACHE_DIR=",
        storage=storage(triton(writable=False))),
    warns("cache_not_writable", f"{HUB} not writable (read-only)", "export HF_HOME=/tmp/$USER/hf_home",
        storage=storage(hub(writable=False, read_only=True))),
    warns("cache_not_writable", "(cannot be created)", "TORCH_HOME",
        storage=storage(folder("torch_cache", "/home/ada/.cache/torch", exists=False, writable=False))),
    well("cache_not_writable", "5 writable cache folders"),
    well("cache_not_writable", "5 writable cache folders", storage=storage(hub(writable=False, read_only=True)),
        env=OFFLINE),
    skips("cache_not_writable", "no cache folder responded", storage=Storage((folder(),))),
    # hf_cache_full
    warns("hf_cache_full", "the disk of the Hugging Face cache is full: 477 MiB free", "export HF_HOME=",
        storage=storage(hub(free_bytes=FULL - 1))),
    well("hf_cache_full", "500 GiB free for models"),
    skips("hf_cache_full", "nothing will be downloaded", storage=storage(hub(free_bytes=0)), env=OFFLINE),
    skips("hf_cache_full", "is unknown", storage=storage(hub(free_bytes=None))),
    # hf_cache_empty_offline
    warns("hf_cache_empty_offline", f"HF_HUB_OFFLINE is set, but {HUB} contains no model", "hf download",
        storage=storage(hf_cache_models=0), env=OFFLINE),
    warns("hf_cache_empty_offline", "contains no model", "hf download",
        storage=storage(hub(exists=False), hf_cache_models=0), env={"HF_HUB_OFFLINE": "true"}),
    well("hf_cache_empty_offline", "3 models and datasets", env=OFFLINE),
    skips("hf_cache_empty_offline", "not set", storage=storage(hf_cache_models=0)),
    skips("hf_cache_empty_offline", "not set", storage=storage(hf_cache_models=0), env={"HF_HUB_OFFLINE": "0"}),
    skips("hf_cache_empty_offline", "could not be read", storage=storage(hf_cache_models=None), env=OFFLINE),
    # hf_cache_on_network
    informs("hf_cache_on_network", "the Hugging Face cache is on lustre", "export HF_HUB_OFFLINE=1",
        storage=storage(hub(filesystem="lustre"))),
    well("hf_cache_on_network", "is on ext4"),
    well("hf_cache_on_network", "forbids downloads", storage=storage(hub(filesystem="nfs4")), env=OFFLINE),
    skips("hf_cache_on_network", "unknown", storage=storage(hub(filesystem=None))),
    # lustre_unhealthy
    warns("lustre_unhealthy", "Lustre reports: NOT HEALTHY", "lfs check servers",
        storage=storage(lustre_health="NOT HEALTHY")),
    well("lustre_unhealthy", "healthy", storage=storage(lustre_health="healthy")),
    skips("lustre_unhealthy", "no Lustre here"),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_paths_are_quoted_in_commands() -> None:
    found = problem("named_folder_missing", storage=storage(folder("named", "/my data; rm -rf /", exists=False)))
    assert found.fixes[0].commands == ("mkdir -p '/my data; rm -rf /'",)


def test_a_full_disk_is_shown_with_what_was_read() -> None:
    evidence = problem("output_folder_full", storage=storage(folder(free_bytes=0, total_bytes=GIB))).evidence
    assert evidence["path"] == "/work/run" and evidence["free_bytes"] == 0 and evidence["filesystem"] == "ext4"

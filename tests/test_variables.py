"""checks/_variables.py, checks/_grammars.py, checks/environ/_pytorch.py: the tables, and the grammars of their values.

Numbers are compared with the C library's strtoll, the allocator's options and TORCH_DISTRIBUTED_DEBUG with PyTorch.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections import Counter
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mgpu import engine

engine.load()  # makes mgpu.checks importable, which nobody else imports by name
_grammars: Any = importlib.import_module("mgpu.checks._grammars")
_variables: Any = importlib.import_module("mgpu.checks._variables")
_pytorch: Any = importlib.import_module("mgpu.checks.environ._pytorch")

NCCL = _variables.NCCL
VERSIONS: tuple[tuple[int, ...], ...] = (
    (), (2, 4, 8), (2, 10, 3), (2, 16, 5), (2, 21, 5), (2, 23, 4), (2, 24, 3), (2, 29, 7), (2, 30, 7), (2, 31, 2),
    (2, 32, 3), (2, 99),
)  # fmt: skip
NEW = (2, 32, 3)

# --- the table ----------------------------------------------------------------------------------------------------


def test_every_name_stands_once() -> None:
    twice = [name for name, number in Counter(v.name for v in _variables.VARIABLES).items() if number > 1]
    assert twice == []
    assert len(NCCL) == len(_variables.VARIABLES) > 250


def test_names_are_of_nccl_and_of_nobody_else() -> None:
    assert all(name.startswith("NCCL_") and name == name.upper() for name in NCCL)
    assert {name for name in NCCL if _variables.is_foreign(name)} <= {"NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN"}
    assert not set(_variables.NEVER_READ) & set(NCCL)
    assert set(_pytorch.TORCH_ALIASES) <= _variables.FOREIGN


def test_versions_make_sense() -> None:
    for variable in NCCL.values():
        assert variable.until is None or variable.since < variable.until <= _variables.NEWEST_NCCL
        assert variable.since <= _variables.NEWEST_NCCL
        if variable.instead:
            successor = NCCL[variable.instead.partition("=")[0]]
            assert successor.until is None


@pytest.mark.parametrize(
    ("name", "version", "read"),
    [
        ("NCCL_ALGO", (2, 4, 8), False),
        ("NCCL_ALGO", (2, 5, 6), True),
        ("NCCL_NVLS_ENABLE", (2, 16, 5), False),
        ("NCCL_NVLS_ENABLE", (2, 17, 1), True),
        ("NCCL_TREE_THRESHOLD", (2, 4, 8), True),
        ("NCCL_TREE_THRESHOLD", (2, 5, 6), False),
        ("NCCL_TREE_THRESHOLD", (), False),  # unknown: taken for a new one
        ("NCCL_SHM_USE_CUDA_MEMCPY", (2, 30, 4), True),
        ("NCCL_SHM_USE_CUDA_MEMCPY", (2, 30, 7), False),
        ("NCCL_CONF_FILE", (2, 22, 3), False),
        ("NCCL_DEBUG", (2, 3, 5), True),
        ("NCCL_DEBUG", (2, 99), True),
        ("NCCL_RUN_DIAGNOSTICS", (2, 30, 7), False),
        ("NCCL_RUN_DIAGNOSTICS", (2, 31, 2), True),
        ("NCCL_IB_RAIL_POLICY", (2, 31, 2), False),
        ("NCCL_IB_RAIL_POLICY", (2, 32, 6), True),
        ("NCCL_NET_GDR_MLOPART", (2, 31, 2), True),
        ("NCCL_NET_GDR_MLOPART", (2, 32, 3), False),
    ],
)
def test_which_version_reads_what(name: str, version: tuple[int, ...], read: bool) -> None:
    assert NCCL[name].read_by(version) is read


# --- the grammars -------------------------------------------------------------------------------------------------

# Examples of the user guide, and values seen in production scripts.
GOOD: dict[str, tuple[str, ...]] = {
    "NCCL_SOCKET_IFNAME": ("eth", "=eth0", "=eth0,eth1", "^docker", "^=docker0", "^docker,lo", "eno1,eth0", ""),
    "NCCL_SOCKET_FAMILY": ("AF_INET", "AF_INET6"),
    "NCCL_SOCKET_MAGIC": ("0x4d2", "12345", ""),
    "NCCL_SOCKET_NTHREADS": ("1", "4", "16"),
    "NCCL_CROSS_NIC": ("0", "1", "2"),
    "NCCL_IB_HCA": (
        "mlx5", "=mlx5_0:1,mlx5_1:1", "^=mlx5_1,mlx5_4", "=mlx5_0:1:0:0,mlx5_1:1:0:1", "=mlx5_0::0:0,mlx5_1::0:1",
    ),
    "NCCL_IB_TIMEOUT": ("14", "20", "22", "31", "0x16"),
    "NCCL_IB_GID_INDEX": ("3", "-1", "0"),
    "NCCL_IB_ADDR_FAMILY": ("AF_INET",),
    "NCCL_IB_ADDR_RANGE": ("10.0.0.0/8", "fd00::/64", "address-0a1b2c3d/24", ""),
    "NCCL_IB_TC": ("106", "0", "255"),
    "NCCL_NET": ("IB", "Socket", "AWS Libfabric"),
    "NCCL_NET_PLUGIN": ("none", "/opt/lib/libnccl-net.so", "ofi"),
    "NCCL_DEBUG": ("VERSION", "WARN", "INFO", "info", "TRACE", "Abort", "ATTN"),
    "NCCL_DEBUG_LEVELS": ("ATTN", "WARN,TRACE", "ALL"),
    "NCCL_IB_RAIL_POLICY": ("CX9:FLIP", "NONE"),
    "NCCL_DEBUG_FILE": ("/tmp/nccl.%h.%p", "/dev/stderr", "log"),
    "NCCL_DEBUG_SUBSYS": ("INIT,BOOTSTRAP,ENV", "^INIT,COLL", "all", "init,graph,env,tuning", "P2P"),
    "NCCL_DEBUG_TIMESTAMP_FORMAT": ("[%F %T.%9f] ", ""),
    "NCCL_DEBUG_TIMESTAMP_LEVELS": ("WARN,INFO,TRACE", "^TRACE", "ALL", ""),
    "NCCL_CTA_POLICY": ("DEFAULT", "EFFICIENCY|ZERO", "0", "2"),
    "NCCL_NETDEVS_POLICY": ("AUTO", "MAX:2", "all"),
    "NCCL_TOPO_FILE": ("/opt/microsoft/ndv4-topo.xml", "topo.xml"),
    "NCCL_P2P_DISABLE": ("0", "1"),
    "NCCL_P2P_LEVEL": ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS", "0", "4", "5"),
    "NCCL_NET_GDR_LEVEL": ("LOC", "SYS", "3"),
    "NCCL_BUFFSIZE": ("1024", "8388608", "0x800000"),
    "NCCL_NTHREADS": ("64", "128", "256", "512"),
    "NCCL_MAX_CTAS": ("1", "32", "64"),
    "NCCL_CHECK_MODE": ("DEFAULT", "DEBUG_LOCAL", "debug_global"),
    "NCCL_LAUNCH_MODE": ("PARALLEL", "GROUP"),
    "NCCL_IB_QPS_PER_CONNECTION": ("1", "8", "128"),
    "NCCL_ALGO": (
        "Ring", "tree,ring", "^tree", "ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring",
        "allreduce:^tree", "NVLS,NVLSTree,PAT", "Ring;", "",
    ),
    "NCCL_PROTO": ("Simple", "LL,LL128,Simple", "^LL128", "LL,Simple;allreduce:^LL", "^LL128;allreduce:LL128"),
    "NCCL_NVLS_ENABLE": ("0", "1", "2"),
    "NCCL_NET_MERGE_POLICY": ("ALL", "rail"),
    "NCCL_MNNVL_CLIQUE_ID": ("-1", "-2", "7"),
    "NCCL_RAS_ADDR": ("localhost:28028", "[::1]:12345", "host-0a1b2c3d:28028"),
    "NCCL_SET_THREAD_NAME": ("1", "0", "true"),
    "NCCL_IB_PKEY": ("0", "1", "***"),
}  # fmt: skip
# Nonsense, and mistakes seen in issues; the second is what is said of it.
BAD: dict[str, tuple[tuple[str, str], ...]] = {
    "NCCL_SOCKET_IFNAME": (
        ("eth0, eth1", "spaces"), ("eth0;eth1", "semicolons"), ("eth*", "literally"), ("eth0,^lo", "start of the list"),
        ("!lo", "start of the list"), ("e", "too short"),
    ),
    "NCCL_SOCKET_FAMILY": (("af_inet", "AF_INET"), ("IPv4", "AF_INET"), ("4", "AF_INET")),
    "NCCL_SOCKET_NTHREADS": (("0", "1 to 16"), ("17", "1 to 16")),
    "NCCL_IB_HCA": (("mlx5_0:a", "port number"), ("mlx5_0 mlx5_1", "spaces"), ("mlx5_0:1:2:3:4", "is ignored")),
    "NCCL_IB_TIMEOUT": (("0", "no timeout"), ("32", "no timeout"), ("22s", "reads 22")),
    "NCCL_IB_RETRY_CNT": (("8", "0 to 7"), ("seven", "reads 0")),
    "NCCL_IB_ADDR_RANGE": (("10.0.0.0", "CIDR"), ("10.0.0.0/33", "more than 32"), ("fd00::/129", "more than 128")),
    "NCCL_IB_TC": (("256", "8 bits"),),
    "NCCL_IB_SL": (("16", "4 bits"),),
    "NCCL_DEBUG": (("1", "nothing is logged"), ("DEBUG", "nothing"), ("ERROR", "nothing")),
    "NCCL_DEBUG_LEVELS": (("DEBUG", "default"),),
    "NCCL_IB_RAIL_POLICY": (("FLIP", "ignores it"),),
    "NCCL_DEBUG_FILE": (("~/nccl.log", "~"),),
    "NCCL_DEBUG_SUBSYS": (("NETWORK", "default"), ("INIT,NETWORK", "default"), ("INIT;ENV", "default")),
    "NCCL_CTA_POLICY": (("7", "DEFAULT"), ("FAST", "not a policy")),
    "NCCL_NETDEVS_POLICY": (("MAX", "AUTO"), ("MAX:0", "AUTO"), ("2", "AUTO")),
    "NCCL_TOPO_FILE": (("~/topo.xml", "~"),),
    "NCCL_P2P_DISABLE": (("true", "reads 0"), ("yes", "reads 0"), ("2", "only 1")),
    "NCCL_IB_DISABLE": (("True", "reads 0"), ("on", "reads 0")),
    "NCCL_P2P_LEVEL": (("phb", "PHB in capitals"), ("NODE", "no such path"), ("-1", "no such path"), ("PIX ", "PIX")),
    "NCCL_BUFFSIZE": (("4M", "drops the unit"), ("4 MiB", "reads 4"), ("0", "at least 1"), ("1e6", "reads 1")),
    "NCCL_NTHREADS": (("100", "maximum"), ("1024", "maximum"), ("32", "minimum"), ("many", "reads 0")),
    "NCCL_MAX_CTAS": (("0", "1 to 64"), ("65", "1 to 64")),
    "NCCL_MIN_NCHANNELS": (("010", "octal: NCCL reads 8"), ("08", "reads 0")),
    "NCCL_LL128_NTHREADS": (("9" * 40, "too large"),),
    "NCCL_CHECK_MODE": (("1", "DEFAULT"),),
    "NCCL_ALGO": (
        ("Rings", "stops with an error"), ("Ring, Tree", "with a space"),
        ("allgather:ring;tree", "has no function name"),
        ("allsum:ring", "not an NCCL function"), ("allreduce:", "is unknown"), ("Collnet", "is unknown"),
    ),
    "NCCL_PROTO": (("LL64", "stops"), ("Ring", "stops")),
    "NCCL_NVLS_ENABLE": (("3", "0 to 2"), ("true", "reads 0")),
    "NCCL_RAS_ADDR": (("28028", "HOST:PORT"), ("localhost:99999", "HOST:PORT"), ("::1:28028", "HOST:PORT")),
    "NCCL_SET_THREAD_NAME": (("yes", "reads 0"),),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_what_the_guide_allows_is_allowed(name: str, value: str) -> None:
    assert NCCL[name].grammar(value, NEW) is None


@pytest.mark.parametrize(
    ("name", "value", "words"), [(name, value, words) for name, values in BAD.items() for value, words in values]
)
def test_what_it_does_not_allow_is_told(name: str, value: str, words: str) -> None:
    misread = NCCL[name].grammar(value, NEW)
    assert misread is not None
    assert words in misread.effect


@pytest.mark.parametrize(
    ("name", "value", "version", "fatal"),
    [
        ("NCCL_ALGO", "Rings", (2, 24, 3), True),
        ("NCCL_ALGO", "Rings", (2, 23, 4), False),
        ("NCCL_ALGO", "Rings", (), False),
        ("NCCL_ALGO", "PAT", (2, 22, 3), False),  # known from 2.23 on
        ("NCCL_ALGO", "ring;allreduce:tree", (2, 23, 4), False),
        ("NCCL_PROTO", "LL,", (2, 24, 3), None),
        ("NCCL_ALGO", "PAT", (2, 23, 4), None),
        ("NCCL_MAX_CTAS", "64", (2, 24, 3), False),
        ("NCCL_MAX_CTAS", "64", (2, 25, 1), None),
        ("NCCL_CTA_POLICY", "ZERO", (2, 28, 9), False),
        ("NCCL_CTA_POLICY", "ZERO", (2, 29, 2), None),
        ("NCCL_P2P_LEVEL", "C2C", (2, 24, 3), False),
        ("NCCL_P2P_LEVEL", "C2C", (2, 26, 2), None),
        ("NCCL_DEBUG", "ATTN", (2, 31, 2), False),
        ("NCCL_DEBUG", "ATTN", (2, 32, 3), None),
        ("NCCL_DEBUG_TIMESTAMP_LEVELS", "WARN,ATTN", (2, 31, 2), False),
        ("NCCL_DEBUG_SUBSYS", "INIT, NET", (2, 29, 7), False),
        ("NCCL_DEBUG_SUBSYS", "INIT, NET", (2, 30, 7), None),
        ("NCCL_DEBUG_SUBSYS", "NETWORK", (2, 29, 7), False),
        ("NCCL_SET_THREAD_NAME", "true", (2, 29, 7), False),
        ("NCCL_DEBUG", "INFO ", (2, 30, 4), False),
        ("NCCL_DEBUG", "INFO ", (2, 30, 7), None),
    ],
)
def test_versions_read_differently(name: str, value: str, version: tuple[int, ...], fatal: bool | None) -> None:
    misread = NCCL[name].grammar(value, version)
    assert (misread and misread.fatal) == fatal


def test_what_an_algorithm_leaves_for_each_function() -> None:
    chosen = _grammars.ALGO.chosen("tree;allreduce:^tree;bogus:ring")
    assert chosen["BROADCAST"] == {"TREE"}
    assert "TREE" not in chosen["ALLREDUCE"] and "RING" in chosen["ALLREDUCE"]
    assert _grammars.ALGO.chosen("allreduce:tree")["BROADCAST"] == frozenset(_grammars.ALGORITHMS)


VALUES = st.one_of(
    st.text(max_size=30),
    st.text("0123456789xXabcLl, ^=:;~%-+[]/.kMG|", max_size=20),
    st.lists(st.sampled_from(["ring", "tree", "allreduce", "LL", "LL128", ":", ";", ",", "^", "eth0", "=", "1"]),
             max_size=8).map("".join),
    st.sampled_from(["9" * 5000, "0" * 5000, "0x" + "f" * 5000, "\x00", "²", "٣", "***", "\ud800"]),
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(value=VALUES, version=st.sampled_from(VERSIONS))
@example(value="9" * 5000, version=NEW)
def test_no_value_takes_a_grammar_down(value: str, version: tuple[int, ...]) -> None:
    for grammar in {id(variable.grammar): variable.grammar for variable in NCCL.values()}.values():
        misread = grammar(value, version)
        assert misread is None or (misread.effect and "\n" not in misread.effect.replace(value, ""))
    _grammars.level(value, version)
    _grammars.ALGO.chosen(value)
    _grammars.PROTO.chosen(value)
    _pytorch.allocator_fault(value)


# --- numbers, as the C library reads them -------------------------------------------------------------------------

_LIBC: Any = ctypes.CDLL(None)
_LIBC.strtoll.restype = ctypes.c_longlong
_LIBC.strtoll.argtypes = (ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int)


@settings(deadline=None, max_examples=500)
@given(
    st.one_of(
        st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=12),
        st.from_regex(r"[ \t]*[+-]?(0[xX]?)?[0-9a-fA-F]{0,12}[a-z ]{0,3}", fullmatch=True),
        st.integers(-(2**63), 2**63 - 1).map(str),
    )
)
@example("08")
@example("0x")
@example("0xg")
@example("-0x10")
@example(" \t+017abc")
def test_numbers_are_read_as_by_strtoll(text: str) -> None:
    assert _grammars.c_integer(text)[0] == _LIBC.strtoll(text.encode(), None, 0)


# --- near misses --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(name=st.sampled_from(sorted(NCCL)), data=st.data())
def test_a_slip_of_one_letter_finds_the_name_back(name: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(6, len(name) - 1))
    slip = data.draw(st.sampled_from([name[:place] + name[place + 1 :], name[:place] + "Q" + name[place:]]))
    if slip in NCCL or len(name) < 9:
        return
    meant = _variables.nearest_name(slip, NCCL)
    assert meant is not None
    assert _variables.edit_distance(slip, meant, 2) <= 1


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCCL_DISABLE_P2P", "NCCL_P2P_DISABLE"),
        ("NCCL_SOCKET_IFANME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_IB_GID_IDX", "NCCL_IB_GID_INDEX"),
        ("NCCL_IB_GID", None),
        ("NCCL_P2P_DISABLED", "NCCL_P2P_DISABLE"),
        ("NCCL_ALGOS", "NCCL_ALGO"),
        ("NCCL_NETS", "NCCL_NET"),
        ("NCCL_HOME", None),
        ("NCCL_MAKE_IT_FAST", None),
        ("NCCL_", None),
    ],
)
def test_which_name_was_meant(name: str, meant: str | None) -> None:
    assert _variables.nearest_name(name, NCCL) == meant


@settings(deadline=None, max_examples=200)
@given(st.text("ABC", max_size=7), st.text("ABC", max_size=7))
def test_the_distance_is_one(a: str, b: str) -> None:
    far = _variables.edit_distance(a, b, 9)
    assert far == _variables.edit_distance(b, a, 9)
    assert (far == 0) == (a == b)
    assert abs(len(a) - len(b)) <= far <= max(len(a), len(b))
    assert _variables.edit_distance(a, b, 1) == min(far, 2)


# --- PyTorch ------------------------------------------------------------------------------------------------------

# Options that a CPU build of PyTorch reads too, with values of every kind.
SETTINGS = st.one_of(
    st.builds("expandable_segments:{}".format, st.sampled_from(["True", "False", "true", "1", "", "yes", "None"])),
    st.builds("max_split_size_mb:{}".format, st.one_of(st.integers(0, 300).map(str), st.sampled_from(["x", ""]))),
    st.builds("garbage_collection_threshold:{}".format, st.sampled_from(["0.8", "0", "1", "x", "", ".5", "0.001"])),
    st.builds("roundup_power2_divisions:{}".format, st.sampled_from(["4", "3", "8", "x", "[256:1,512:2,>:4]", ""])),
    st.builds("pinned_use_background_threads:{}".format, st.sampled_from(["True", "False", "on"])),
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(SETTINGS, min_size=1, max_size=3).map(",".join), st.sampled_from(["", " "]))
@example("max_split_size_mb:19", "")
@example("max_split_size_mb:20", "")
@example("expandable_segments:True,", "")
@example("max_split_size_mb=128", "")
def test_the_allocator_is_read_as_by_pytorch(value: str, blank: str) -> None:
    torch = pytest.importorskip("torch")
    value = value.replace(",", f"{blank},{blank}")
    try:
        torch._C._accelerator_setAllocatorSettings(value)
        refused = False
    except (ValueError, RuntimeError):
        refused = True
    finally:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
    assert (_pytorch.allocator_fault(value) is not None) == refused, value


@pytest.mark.parametrize("value", ["OFF", "INFO", "DETAIL", "info", "Detail", "1", "", "INFO ", "TRACE", "true"])
def test_the_debug_level_is_read_as_by_pytorch(value: str) -> None:
    distributed: Any = pytest.importorskip("torch.distributed")
    with mock.patch.dict(os.environ, {"TORCH_DISTRIBUTED_DEBUG": value}):
        try:
            distributed.set_debug_level_from_env()
            refused = False
        except (ValueError, RuntimeError):
            refused = True
    distributed.set_debug_level(distributed.DebugLevel.OFF)
    assert (value.upper() not in _pytorch.TORCH_DEBUG_LEVELS) == refused


def test_the_names_of_pytorch_that_are_in_its_library_are_known() -> None:
    """What an installed PyTorch reads must not be called a mistake."""
    torch = pytest.importorskip("torch")
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    if not os.path.exists(path):
        pytest.skip("no libtorch_cpu.so")
    import mmap
    import re

    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = {
            match.decode() for match in re.findall(rb"\0((?:TORCH_NCCL|TORCH_FR|TORCH_GLOO|GLOO)_[A-Z0-9_]+)\0", data)
        }
    assert found
    assert {
        name: meant
        for name in found - _pytorch.TORCH_NAMES
        if (meant := _variables.nearest_name(name, _pytorch.TORCH_NAMES))
    } == {}

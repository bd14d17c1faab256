"""checks/script: starting, and the launchers that a rank's variable belongs to"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.snapshot import ScriptFault
from tests.bad_scripts import bad, good, read
from tests.checks.facts import Case, informs, script, table, warns, well
from tests.checks.test_script_output import STARTS_ITS_RANKS

RELATIVE = (ScriptFault(3, kind="relative", name=".kit", of="tools.train"),)
IN_PACKAGE = (ScriptFault(2, kind="package", name="src.data", of="src.train"),)
BY_MPI = """\
import os, torch
from torch.nn.parallel import DistributedDataParallel as DDP
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))
torch.distributed.init_process_group("nccl", rank=rank, world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]))
model = DDP(torch.nn.Linear(2, 2).cuda())
for batch in range(3):
    model(batch).sum().backward()
"""

OPTIONS = """\
import argparse, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("--eval", action="store_true")
parser.add_argument("--mode", default="fit")
args = parser.parse_args()
fit, f, test, size, flag, rank, Base, other = map(int, sys.argv)
"""

CASES = (
    informs("script_is_part_of_package", "line 3: `from .kit import` works only in a module",
        "mgpu launch -m tools.train", at=(3, 1), script=script(faults=RELATIVE)),
    informs("script_is_part_of_package", "works only in a module", "python -m tools.train", script=replace(
        read(STARTS_ITS_RANKS), faults=RELATIVE)),
    informs("script_is_part_of_package", "works only in a module", "in the folder that contains its package",
        script=script(faults=(replace(RELATIVE[0], of="my tools.train"),))),
    informs("script_is_part_of_package", "works only in a module", "mgpu launch -m own.tools.train",
        script=script(faults=RELATIVE, path="own/tools/train.py")),
    informs("script_is_part_of_package", "works only in a module", "mgpu launch -m tools.train",
        script=script(faults=RELATIVE, path="own/tools/train.py", module="tools.train")),
    well("script_is_part_of_package", "started as a module", script=script(faults=RELATIVE, command_known=True)),
    well("script_is_part_of_package", "no relative import", script=script()),
    informs("script_imports_its_own_package", "line 2: src.data is found only from the folder that contains src",
        "mgpu launch -m src.train", at=(2, 1), script=script(speaks="ddp", faults=IN_PACKAGE, path="src/train.py")),
    informs("script_imports_its_own_package", "is found only from", "cd own && mgpu launch -m src.train",
        script=script(speaks="ddp", faults=IN_PACKAGE, path="own/src/train.py")),
    informs("script_imports_its_own_package", "is found only from", "python -m src.train",
        script=replace(read("loss.backward()\noptimizer.step()\n"), faults=IN_PACKAGE, path="src/train.py")),
    well("script_imports_its_own_package", "started as a module",
        script=script(faults=IN_PACKAGE, path="src/train.py", command_known=True)),
    well("script_imports_its_own_package", "started as a module", script=script(faults=IN_PACKAGE, path="train.py")),
    warns("script_starts_its_own_ranks", "spawn starts the ranks itself", "python -m tools.train", script=replace(
        bad("group-its-own-ranks"), faults=RELATIVE)),
    warns("script_imports_missing_name", "kit does not define Trainer", "Correct the name", at=(2, 1),
        script=script(faults=(ScriptFault(2, kind="import", name="Trainer", of="kit"),))),
    well("script_imports_missing_name", "define what it imports", script=script(faults=RELATIVE)),
    warns("script_call_lacks_argument", "main() is called without args", "Give the argument",
        script=bad("launching-function-without-its-argument")),
    well("script_call_lacks_argument", "all required arguments",
        script=good("launching-function-without-its-argument")),
    warns("script_imports_broken_module", "kit.py line 7: invalid syntax: every start", "Correct the line",
        script=script(faults=(ScriptFault(7, file="kit.py", kind="syntax", name="invalid syntax", of="kit"),))),
    well("script_imports_broken_module", "as far as they were read", script=script(faults=RELATIVE)),
    *(warns("script_uses_undefined_name", f"nothing in the file defines {name}", "Import or define", script=read(text))
        for name, text in (
            ("login", "print(1)\nlogin(token=1)\n"),
            ("stop", "import signal\nif True:\n    signal.signal(signal.SIGTERM, stop)\n"),
            ("late", "def fit(model):\n    if model is None:\n        raise OSError\n    late(model)\nfit(1)\n"),
            ("late", f"{OPTIONS}if args.eval:\n    quit()\nif args.mode == 'fit' and rank == 0:\n    late()\n"),
            ("late", f"{OPTIONS}def end():\n    late()\ndef main():\n    if not args.eval:\n        end()\nmain()\n"),
            ("late", "class Log:\n    def end(self):\n        late()\nlog = Log()\ntry:\n    1\nfinally:\n log.end()"),
            ("late", "from torch import nn\nclass N(nn.Module):\n    def forward(self):\n        late()\nN()\n"),
            ("size", "class Log:\n    def __init__(self):\n        self.size = size\nLog()\n"),
            ("a and b", "print(a)\nprint(b)\nprint(a)\n"))),
    *(informs("script_may_use_undefined_name", f"defines late: NameError if {condition}", "Import or define",
        script=read(f"{OPTIONS}{text}")) for condition, text in (
            ("args.eval", "if args.eval:\n    late()\n"),
            ("not (f is None) and args.eval", "if f is None:\n    fit()\nelif args.eval:\n    late()\n"),
            ("not (args.mode == 'test')", "if args.mode == 'test':\n    test()\n    quit()\nargs.mode = f()\nlate()\n"),
            ("flag", "scale = late() if flag else 1\n"),
            ("not (size)", "scale = size or late()\n"),
            ("hasattr(fit, 'head')", "def end():\n    late()\nif hasattr(fit, 'head'):\n    end()\n"),
            ("flag", "class Log:\n    def __init__(self):\n        late()\nlog = Log() if flag else None\n"))),
    *(well(check, "are defined", script=read(f"{OPTIONS}{text}"))
        for check in ("script_uses_undefined_name", "script_may_use_undefined_name") for text in (
            "def flag(s):\n    if s in 'yes no':\n        return s\n    else:\n        raise late.Error(s)\nflag(1)\n",
            "if args.eval is None:\n    late()\n    raise SystemExit(1)\n",
            "if not args.eval:\n    late()\n    sys.exit('no data')\n",
            "try:\n    fit()\nexcept OSError:\n    late()\n    raise\n",
            "def rescue():\n    late()\ntry:\n    fit()\nexcept OSError:\n    rescue()\n",
            "def rescue():\n    late()\ntry:\n    rescue()\nexcept Exception:\n    pass\n",
            "import contextlib\nwith contextlib.suppress(Exception):\n    late()\n",
            "class Log:\n    def show(self):\n        late()\nlog = Log()\nother.show()\n",
            "class Log(Base):\n    def show(self):\n        late()\nlog = Log()\n",
            "hook = lambda x: late(x)\n")),
    *(well("script_uses_undefined_name", "are defined", script=read(text)) for text in (
        "from kit import *\nlogin(token=1)\n",
        "try:\n    login()\nexcept NameError:\n    pass\n",
        "exec(open('config.py').read())\nprint(batch_size)\n",
        "def never():\n    login()\n",
        "class Log:\n    def __setstate__(self, state):\n        login()\nLog()\n",
        "def fit():\n    return 1\n    login()\nfit()\n",
        "import sys\nif sys.version_info < (3,):\n    text = unicode\n",
        "def set_up():\n    global device\n    device = 1\nset_up()\nprint(device)\n",
        "def fit(model: Model) -> Model:\n    return [one for one in model]\nfit(1)\n",
        "try:\n    print()\nexcept ValueError as error:\n    print(error)\n",
        "match 1:\n    case {'a': one, **rest}:\n        print(one, rest)\n",
        "get_ipython()\nprint(__file__)\nassert 1 == 2, text\n")),
    warns("script_stops_in_debugger", "breakpoint() stops every rank", "Remove the line",
        script=bad("launching-breakpoint-left-in")),
    well("script_stops_in_debugger", "no line stops", script=good("launching-breakpoint-left-in")),
    *(well("script_stops_in_debugger", "no line stops", script=read(text)) for text in (
        "if args.debug:\n    breakpoint()\n",
        "def show(x):\n    import pdb\n    pdb.set_trace()\n",
        "try:\n    main()\nexcept Exception:\n    import pdb\n    pdb.post_mortem()\n",
        "try:\n    main()\nexcept Exception:\n    import IPython\n    IPython.embed()\n",
        "if rank == 0:\n    breakpoint()\n")),
    warns("script_stops_in_debugger", "pdb.set_trace() stops", "Remove",
        script=read("import pdb\nfor batch in loader:\n    pdb.set_trace()\n")),
    informs("script_rank_from_mpi", "OMPI_COMM_WORLD_RANK: only mpirun", "mpirun -np 2 python train.py",
        script=read(BY_MPI)),
    *(well("script_rank_from_mpi", "not come from MPI alone", script=read(text)) for text in (
        BY_MPI.replace("OMPI_COMM_WORLD_RANK", "RANK"),
        BY_MPI.replace('"OMPI_COMM_WORLD_RANK", 0', '"OMPI_COMM_WORLD_RANK", os.environ.get("RANK", 0)'),
        BY_MPI.replace("rank = int", "rank = args.rank\nif 'OMPI_COMM_WORLD_RANK' in os.environ:\n    rank = int"))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()

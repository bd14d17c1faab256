"""Did a program beside torch stop the run: Java, Kaldi's scripts, snakemake, XGBoost, a database, a simulator?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_JAVA = "https://docs.oracle.com/en/java/javase/17/docs/specs/man/java.html"
_EXECVE = "https://man7.org/linux/man-pages/man2/execve.2.html"

# fmt: off
ROWS = (
    Row("log_java_heap_full", "root", "kernel",
        r"java\.lang\.OutOfMemoryError: (?:Java heap space|GC overhead limit)",
        ('Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
         "java.lang.OutOfMemoryError: GC overhead limit exceeded"),
        "a Java program that the run starts ran out of host memory",
        "Java takes at most what -Xmx allows, by default a quarter of the machine. It is not a GPU's memory. "
        "Tokenizers, parsers, metrics (METEOR, SPICE) and Spark are such programs.",
        Fix("Give it more, or smaller inputs.", ("export JAVA_TOOL_OPTIONS=-Xmx16g", "free -g")), _JAVA),
    Row("log_java_native_memory", "root", "kernel",
        r"java\.lang\.OutOfMemoryError: [Uu]nable to create|There is insufficient memory for the Java Runtime "
        r"Environment|Could not reserve enough space for (?:\S+ )?object heap",
        ("java.lang.OutOfMemoryError: unable to create new native thread",
         "# There is insufficient memory for the Java Runtime Environment to continue.",
         "Could not reserve enough space for 33554432KB object heap"),
        "Java got no more memory or threads from the system",
        "The node or the job's limit is full, -Xmx asks for more than there is, or the limit of processes is reached.",
        Fix("Check the limits, and let Java ask for less.",
            ("free -g; ulimit -u", "export JAVA_TOOL_OPTIONS=-Xmx4g")), _JAVA),
    Row("log_java_jar_missing", "root", "script", r"Error: Unable to access jarfile (?P<path>\S+)",
        ("Error: Unable to access jarfile stanford-corenlp.jar",),
        "a Java program does not exist at this path: {path}",
        "The path is relative to another folder, or the program was not downloaded.",
        Fix("Look from the folder that the run starts in.", ("pwd", "ls -l {path:path}")), _JAVA,
        summary="A Java program that the run starts does not exist."),
    Row("log_kaldi_job_failed", "wrapper", "launcher",
        r"\b(?P<runner>run|queue|slurm|parallel)\.pl: (?:\d+ / \d+ failed|job failed(?: with status \d+)?), log is in "
        r"(?P<path>(?P<folder>\S*/)\S+)",
        ("run.pl: 1 / 1 failed, log is in exp/train/log/train.1.log",
         "run.pl: job failed, log is in exp/asr/train.log", "queue.pl: 3 / 8 failed, log is in exp/log/make.*.log"),
        "a command that {runner}.pl started failed; its output is in another file: {path}",
        "Recipes of Kaldi and ESPnet write the output of each command into a log of its own. A * in the name stands "
        "for the number of the command.",
        Fix("Find the file of a command that failed, and read it.",
            ("grep -rlE 'Ended \\(code [1-9]|status [1-9]' {folder:path}", "tail -n 50 FILE.log",
             "mgpu doctor --log FILE.log")),
        "https://kaldi-asr.org/doc/queue.html",
        tags=("exit_only",), summary="A command of a Kaldi or ESPnet recipe failed."),
    Row("log_snakemake_rule_failed", "wrapper", "launcher",
        r"^(?:\[.*\] ?)?Error in rule (?P<rule>\w+)(?=,|:)",
        ("Error in rule train:",),
        "snakemake reports that its rule {rule} failed; what the rule's command printed has the reason",
        "Its output is above, or in the file that the line with 'log:' names.",
        Fix("Read that file, or run the rule by itself.",
            ("ls -t .snakemake/log | head -n 1", "snakemake -c1 -p --until {rule}")),
        "https://snakemake.readthedocs.io/en/stable/project_info/faq.html",
        tags=("exit_only",), summary="A rule of snakemake failed."),
    Row("log_arguments_too_long", "root", "launcher", r"(?:^|: )(?P<path>[\w./-]+): Argument list too long$",
        ("run.sh: line 8: /usr/bin/python: Argument list too long",),
        "the command line of {path} is too long for the system",
        "The shell replaces * with all names that match: too many files for one command.",
        Fix("Give the program a folder, a list in a file, or a pattern in quotes.",
            ("find DIR -name '*.txt' > files.txt", "python train.py --data 'DIR/*.txt'")), _EXECVE,
        summary="A command line is too long for the system."),
    Row("log_boosting_without_gpu", "root", "library",
        r"No visible GPU is found for XGBoost|XGBoost version not compiled with GPU support|"
        r"(?:GPU|CUDA) Tree Learner was not enabled in this build|No OpenCL device found",
        ("xgboost.core.XGBoostError: [12:00:00] ../src/gbm/gbtree.cc:588: Check failed: common::AllVisibleGPUs() >= 1 "
         "(0 vs. 1) : No visible GPU is found for XGBoost.",
         "lightgbm.basic.LightGBMError: GPU Tree Learner was not enabled in this build.",
         "lightgbm.basic.LightGBMError: No OpenCL device found"),
        "XGBoost or LightGBM is to use a GPU, and this installation or this process has none",
        "Their usual packages have no support for GPUs in some versions, or CUDA_VISIBLE_DEVICES hides the GPUs.",
        Fix("Check what the process sees, or compute on the CPU.",
            ("nvidia-smi -L", "echo $CUDA_VISIBLE_DEVICES", "XGBClassifier(device='cpu')",
             "LGBMClassifier(device_type='cpu')")),
        "https://xgboost.readthedocs.io/en/stable/gpu/index.html"),
    Row("log_dynamics_without_gpu", "root", "library",
        r"GPUs was requested but no GPU was detected|OpenMMException: No compatible CUDA device is available|"
        r"There is no registered Platform called \"(?:CUDA|OpenCL)\"",
        ("Using GPUs was requested but no GPU was detected.",
         "openmm.OpenMMException: No compatible CUDA device is available",
         'openmm.OpenMMException: There is no registered Platform called "CUDA"'),
        "the molecular dynamics program (OpenMM, GROMACS) finds no GPU that it can use",
        "No GPU is visible to it, the driver is older than its CUDA, or it was built without CUDA.",
        Fix("Check both.", ("nvidia-smi", "python -m openmm.testInstallation", "gmx --version | grep -i gpu")),
        "https://docs.openmm.org/latest/userguide/application/01_getting_started.html"),
    Row("log_simulation_unstable", "root", "script",
        r"Exception: (?:Particle (?:coordinate|position) is NaN|Energy is NaN)|"
        r"MujocoException: .*Nan, Inf or huge value in Q",
        ("openmm.OpenMMException: Particle coordinate is NaN.  For more information, see https://github.com/openmm",
         "mujoco_py.builder.MujocoException: Got MuJoCo Warning: Nan, Inf or huge value in QACC at DOF 0. Check for "
         "NaN."),
        "the simulation became unstable: positions or accelerations are NaN or too large",
        "The time step is too large, bodies overlap at the start (a structure that was not minimized), or the policy "
        "gives actions that are NaN or far out of range.",
        (Fix("Check the actions, and limit them.", ("action = np.clip(action, low, high)", "np.isfinite(x).all()")),
         Fix("Use a smaller time step, or minimize the energy first.", ("simulation.minimizeEnergy()",))),
        "https://github.com/openmm/openmm/wiki/Frequently-Asked-Questions"),
    Row("log_mujoco_path_missing", "root", "library",
        r"Missing path to your environment variable|You appear to be missing MuJoCo\.",
        ("Missing path to your environment variable. ",
         "Exception: You appear to be missing MuJoCo.  We expected to find the file here: /home/u/.mujoco/mujoco210"),
        "mujoco_py does not find MuJoCo 2.1 or NVIDIA's libraries in LD_LIBRARY_PATH",
        "mujoco_py needs MuJoCo in ~/.mujoco/mujoco210, and its folder in LD_LIBRARY_PATH before Python starts.",
        (Fix("Install it there, and set the path in the job script.",
             ("export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$HOME/.mujoco/mujoco210/bin:/usr/lib/nvidia",)),
         Fix("Or use the new package, with environments of version 4 or 5.", ("pip install 'gymnasium[mujoco]'",))),
        "https://github.com/openai/mujoco-py"),
    Row("log_simulator_silent", "root", "script",
        r"time-out of \d+ms while waiting for the simulator|UnityTimeOutException|"
        r"UnityEnvironmentException: Couldn't launch",
        ("RuntimeError: time-out of 10000ms while waiting for the simulator, make sure the simulator is ready and "
         "connected to localhost:2000",
         "mlagents_envs.exception.UnityTimeOutException: The Unity environment took too long to respond."),
        "the simulator does not answer",
        "It was not started, crashed, needs a display, takes longer to load than the timeout, or another copy uses its "
        "port.",
        Fix("Start it by itself, look at its own log, and give each copy a port of its own.",
            ("ss -ltnp | grep 2000", "./CarlaUE4.sh -RenderOffScreen",
             "UnityEnvironment(worker_id=1, no_graphics=True)")),
        "https://carla.readthedocs.io/en/latest/build_faq/"),
    Row("log_service_not_running", "root", "network",
        r"\b(?P<service>redis|pymongo|elasticsearch|opensearchpy|psycopg2|neo4j|kafka|pymilvus)(?:\.\w{1,60}){0,4}\."
        r"\w{0,60}(?:Error|Exception|Timeout|Unavailable|NoBrokersAvailable): ?"
        r"(?=.*(?:[Cc]onnection refused|NoBrokersAvailable|timed out))",
        ("redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.",
         "pymongo.errors.ServerSelectionTimeoutError: localhost:27017: [Errno 111] Connection refused",
         "psycopg2.OperationalError: connection to server at localhost, port 5432 failed: Connection refused"),
        "a service that the program uses does not answer ({service})",
        "Nothing listens at that address, or it is overloaded: it runs on another machine (localhost in a job is the "
        "compute node), was not started, or the address is wrong.",
        Fix("Start it, or correct its address.", ("ss -ltnp", "grep -rn 'localhost' --include='*.yaml' .")),
        "https://docs.python.org/3/library/exceptions.html#ConnectionRefusedError",
        summary="A service that the program uses (a database, a queue) does not answer."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)

"""Is the address of the main node wrong, or not usable here?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

from ._own_sockets import OWN_ADDRESS

_ENV = "https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization"
_AGENT = "https://github.com/pytorch/pytorch/issues/150532"
# fmt: off
_SET = ("export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)", "ip -br addr")

ROWS = (
    Row("log_master_name_unknown", "root", "network",
        r"network address of \((?!None\b)[\w.-]+, \d+\).*cannot be retrieved|"
        r"ValueError: host not found: |"
        r"(?:DistNetworkError|DistStoreError|RuntimeError): .*(?:gai error|Name or service not known|"
        r"Temporary failure in name resolution)",
        ("torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of "
         "(job-master-0, 23456). The IPv6 network addresses of (job-master-0, 23456) cannot be retrieved (gai error: "
         "-2 - Name or service not known).", "ValueError: host not found: Name or service not known"),
        "a rank could not resolve the name of the main node",
        "The name is neither in DNS nor in /etc/hosts of this node or container, or the pod or its service does not "
        "exist yet. With the c10d backend torchrun passes on the first node's own host name, although the endpoint is "
        "an address.",
        (Fix("Use an address, or a name that every node resolves.",
             ("getent hosts HOST", "export MASTER_ADDR=ADDRESS",
              "mgpu doctor --only hostname_unresolvable,master_unresolvable")),
         Fix("torchrun with c10d: give each node's own address, or use the static rendezvous.",
             ("torchrun --rdzv-backend=c10d --rdzv-endpoint=ADDRESS:29500 --local-addr=$(hostname -I | cut -d' ' -f1) "
              "...", "torchrun --node-rank=N --master-addr=ADDRESS --master-port=29500 ...")),
         Fix("Kubernetes: check the headless service, and wait for the first pod.",
             ("kubectl get svc,pods", "kubectl exec POD -- getent hosts HOST"))), _AGENT,
        because_of=("log_master_address_malformed",)),
    Row("log_host_not_found", "secondary", "network",
        r"^(?:nslookup: can't resolve '|\*\* server can't find |ping: (?:unknown host )?|"
        r"nc: getaddrinfo for host \"|Host )(?P<host>(?!huggingface\.co|github\.com|pypi\.org)[\w-]+(?:\.[\w-]+)*)"
        r"\.?(?:'|\"|: NXDOMAIN| not found: \d|: (?:Name or service not known|Temporary failure in name|"
        r"Name does not resolve)|$)",
        ("nslookup: can't resolve 'train-master-0': Name does not resolve",
         "** server can't find train-worker-0.train.default.svc.cluster.local: NXDOMAIN",
         "ping: train-master-0: Name or service not known", "ping: unknown host train-master-0",
         "Host node7 not found: 3(NXDOMAIN)", 'nc: getaddrinfo for host "train-master-0" port 23456: Name or service'),
        "the name of another node does not resolve here: {host}",
        "The launcher needs it to reach the main node. Its pod or its headless service does not exist (yet), has "
        "another name or namespace, or the name is neither in DNS nor in /etc/hosts of this node.",
        (Fix("Check the name on this node, and what MASTER_ADDR is.",
             ("getent hosts {host:host}", "echo $MASTER_ADDR",
              "mgpu doctor --only hostname_unresolvable,master_unresolvable")),
         Fix("Kubernetes: check that the pod and its headless service exist, and that the first pod still runs.",
             ("kubectl get svc,pods -o wide",))), _AGENT, tags=("before_ranks",),
        summary="The host name of another node does not resolve."),
    Row("log_master_address_malformed", "root", "launcher",
        r"(?:addresses of|address of|connect to|to host) [(\[]?(?P<address>\d+\.\d+\.\d+\.\d+/\d+|\w+://[^\s,)]+|"
        r"[\w.-]+\[[\d,-]+\][\w.-]*|\d+\.\d+\.\d+\.\d+ \d+\.[\d. ]+|[\w-]+,[\w,-]+|\$\w+)(?:[\]),:]|$)",
        ("[W socket.cpp:697] [c10d] The IPv6 network addresses of (10.0.0.5/24, 29500) cannot be retrieved (gai error: "
         "-2 - Name or service not known).",
         "The IPv6 network addresses of (node[01-04], 29500) cannot be retrieved (gai error: -2 - Name or service not "
         "known).",
         "The IPv4 network addresses of (tcp://10.0.0.1, 29500) cannot be retrieved (gai error: -2 - Name or service "
         "not known).",
         "[W socket.cpp:697] [c10d] The IPv6 network addresses of (10.1.0.4 172.17.0.1, 29500) cannot be retrieved "
         "(gai error: -2 - Name or service not known)."),
        "MASTER_ADDR is {address}, which is not one node's name or address",
        "It must be one host name or IP address: no netmask (/24), no list of nodes, no second address (`hostname -I` "
        "prints all), no tcp://.",
        Fix("Set the main node's name, or one address of it.", _SET), _ENV,
        summary="MASTER_ADDR is not one node's name or address."),
    Row("log_master_port_invalid", "root", "launcher",
        r"port must be 0-65535|Port could not be cast to integer value as '|"
        r"Invalid value for --master[-_]port|port number must be between",
        ("OverflowError: bind(): port must be 0-65535.",
         "ValueError: Port could not be cast to integer value as '29500:29500'"),
        "the rendezvous port is not a number from 1 to 65535",
        "It is computed from a job id without a limit, is empty, or the address contains a second port.",
        Fix("Compute a port between 10000 and 60000.",
            ("export MASTER_PORT=$((10000 + SLURM_JOB_ID % 50000))", "mgpu launch --port auto train.py")), _ENV),
    Row("log_address_not_of_this_node", "root", "launcher",
        r"server socket has failed to .*(?:code: -99\b|errno: 99\b|EADDRNOTAVAIL)|"
        r"OSError: \[Errno 99\] Cannot assign requested address",
        ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
         "port: 29500, useIpv6: 0, code: -99, name: EADDRNOTAVAIL, message: address not available",
         "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 99 - Cannot assign requested "
         "address).", "OSError: [Errno 99] Cannot assign requested address"),
        "this node cannot listen at the configured address, because it does not have it",
        "MASTER_ADDR belongs to another node or to the host outside the container, or IPv6 is turned off.",
        Fix("Use an address of the node with rank 0.",
            ("ip -br addr", "getent hosts $MASTER_ADDR", "mgpu doctor --only hostname_is_elsewhere")), _ENV,
        cases=(OWN_ADDRESS,)),
    Row("log_port_not_allowed", "root", "launcher",
        r"server socket has failed to .*(?:code: -13\b|errno: 13\b|EACCES)",
        ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
         "port: 80, useIpv6: false, code: -13, name: EACCES, message: permission denied",),
        "this user may not listen on the rendezvous port",
        "Ports below 1024 are for root.", Fix("Use a port above 1024.", ("mgpu launch --port auto train.py",
                                                                        "torchrun --master-port=29500 ...")), _ENV),
    Row("log_mpi_without_master_address", "root", "launcher", r"multinode run but MASTER_ADDR env not set, please",
        ("ValueError: Looks like distributed multinode run but MASTER_ADDR env not set, please try exporting rank 0's "
         "hostname as MASTER_ADDR",),
        "ranks on several nodes were started without MASTER_ADDR",
        "mpirun and similar launchers set the ranks, but not where they meet. Only torchrun and accelerate launch do.",
        Fix("Pass the first node's name to all ranks.",
            ("mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 ...", "accelerate launch --main_process_ip HOST ...")),
        "https://github.com/huggingface/accelerate/blob/v1.0.0/src/accelerate/state.py"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)

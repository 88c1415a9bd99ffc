"""Which process of how many this is, and where they meet: as told on the command line, or by what started it."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from apiece.errors import UserError

PORT = 7654
WAYS = ("slurm", "kubernetes")
COORDINATOR, PROCESSES, PROCESS = "APIECE_COORDINATOR", "APIECE_PROCESSES", "APIECE_PROCESS"


class Hosts(NamedTuple):
    """Where the processes of a run meet ("host:port" of process 0), how many they are, and which this one is."""

    coordinator: str
    processes: int
    process: int


def find_hosts(hosts: str, process: int | None, env: Mapping[str, str]) -> Hosts:
    """What `--hosts` and `--process` say, with what the environment adds.

    `hosts` is a list of machines, one for each process and process 0's first ("a:7654,b,c"; a machine may stand there
    more than once); or "slurm" (numbers of tasks and nodes from SLURM), "kubernetes" (an indexed job's number, the rest
    from APIECE_COORDINATOR and APIECE_PROCESSES), or "env" (all three of APIECE_COORDINATOR, APIECE_PROCESSES and
    APIECE_PROCESS).

    >>> find_hosts("node1,node2", 1, {})
    Hosts(coordinator='node1:7654', processes=2, process=1)
    >>> find_hosts("slurm", None, {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "n[07-08,11],m1"})
    Hosts(coordinator='n07:7654', processes=4, process=3)
    >>> try: find_hosts("env", None, {"APIECE_COORDINATOR": "a:1", "APIECE_PROCESS": "0"})
    ... except UserError as error: print(error)
    --hosts env: APIECE_PROCESSES is not set; it is the number of processes
    """
    if hosts == "slurm":
        nodes = _wanted(env, "SLURM_JOB_NODELIST", hosts, "the nodes of the job: start it with srun")
        told = env.get(COORDINATOR) or _first_node(nodes)
        return _checked(told, _number(env, "SLURM_NTASKS", hosts, "the number of tasks: start it with srun"),
                        _number(env, "SLURM_PROCID", hosts, "the number of this task: start it with srun"))  # fmt: skip
    if hosts in ("kubernetes", "env"):
        told = _wanted(env, COORDINATOR, hosts, "'host:port' of process 0")
        count = _number(env, PROCESSES, hosts, "the number of processes")
        name = PROCESS if hosts == "env" else "JOB_COMPLETION_INDEX"
        about = (
            "the number of this process, from 0 on" if hosts == "env" else "an indexed job's: completionMode: Indexed"
        )
        return _checked(told, count, _number(env, name, hosts, about))
    listed = [host.strip() for host in hosts.split(",")]
    if len(listed) < 2 or not all(listed):
        raise UserError(f"--hosts '{hosts}' is a list of two machines or more, one for each process (a:7654,b), or one "
                        f"of: {', '.join((*WAYS, 'env'))}")  # fmt: skip
    if process is None:
        process = _number(env, PROCESS, hosts, f"say which of the {len(listed)} processes this is: --process K, or it")
    return _checked(listed[0], len(listed), process)


def _checked(coordinator: str, processes: int, process: int) -> Hosts:
    if processes < 2:
        raise UserError(f"{processes} process: several machines are two processes or more; leave --hosts out")
    if not 0 <= process < processes:
        raise UserError(f"process {process} of {processes}: processes are numbered from 0 to {processes - 1}")
    named = re.fullmatch(r"[^\s:]+:\d+|\[[0-9a-fA-F:]+\]:\d+", coordinator)
    return Hosts(coordinator if named else f"{coordinator}:{PORT}", processes, process)


def _wanted(env: Mapping[str, str], name: str, hosts: str, about: str) -> str:
    if not env.get(name):
        raise UserError(f"--hosts {hosts}: {name} is not set; it is {about}")
    return env[name]


def _number(env: Mapping[str, str], name: str, hosts: str, about: str) -> int:
    told = _wanted(env, name, hosts, about)
    if not told.isdigit():
        raise UserError(f"--hosts {hosts}: {name} = '{told}' is no number; it is {about}")
    return int(told)


def _first_node(nodes: str) -> str:
    """The first of SLURM's list of nodes.

    >>> _first_node("gpu[003-010,12]"), _first_node("alpha,beta"), _first_node("rack[1,2]node[5-6]")
    ('gpu003', 'alpha', 'rack1node5')
    """
    depth, first = 0, ""
    for letter in nodes:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            break
        first += letter
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first)

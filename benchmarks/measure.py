"""Times systems side by side, each in a process of its own.

A process, because thread counts are read once at start, because imports would mix, and because peak memory is counted
per process. All processes of a workload are started and warmed up first and then take turns, one repeat each, so that a
neighbour's burst of work falls on all of them. Only one runs at a time; the others sleep on a pipe.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from apiece.machine import peak_memory_mb


@dataclasses.dataclass(frozen=True)
class Job:
    """One line of the table: `module` of this package has a `System(workload, method, threads, **options)`."""

    module: str
    system: str
    workload: dict[str, Any]
    method: str
    threads: int
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


class Worker:
    """The process of one job, seen from outside."""

    def __init__(self, job: Job):
        self.job = job
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.measure", json.dumps(dataclasses.asdict(job))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment(job.threads),
            text=True,
        )
        self.first: dict[str, Any] = {}  # the first round
        self.timings: list[dict[str, Any]] = []  # per round, one entry per repeat
        self.rounds, self.seconds, self.spent = 0, 0.0, 0.0
        self.missing: str | None = None
        self.failed = False
        self.info = self.answer()

    def warm_up(self, rounds: int, repeats: int, seconds: float) -> None:
        """One round that compiles and one that does not; from that, how many rounds a repeat shall have."""
        self.seconds = seconds
        self.first = self.run(1)
        self.spent = 0.0  # compiling is not measuring
        steady = self.run(1)
        if not self.missing:
            self.rounds = max(1, min(rounds, int(seconds / repeats / steady["seconds"])))

    def repeat(self) -> None:
        """One more timing, unless there is one and the time is used up."""
        if not self.timings or self.spent < self.seconds:
            answer = self.run(self.rounds)
            self.timings += [answer] if answer else []

    def run(self, rounds: int) -> dict[str, Any]:
        """Seconds per round of so many rounds, and what the process knows by then; nothing when it is missing."""
        if self.missing:
            return {}
        start = time.perf_counter()
        answer = self.ask(rounds)
        self.spent += time.perf_counter() - start
        return answer

    def answer(self) -> dict[str, Any]:
        """The process's next line; when it has died or cannot start, `missing` says why."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {}
        self.missing = answer.get("missing")
        if not line:
            self.errors.seek(0)
            last = self.errors.read().decode(errors="replace").strip().splitlines() or ["no message"]
            self.missing, self.failed = f"failed: {last[-1]}", True
        return answer

    def ask(self, rounds: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{rounds}\n")
            self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()  # a worker ends when nobody asks any more
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


def environment(threads: int) -> dict[str, str]:
    """Our environment with the thread counts that BLAS, OpenMP and XLA read when they start."""
    env = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        env[name] = str(threads)
    env["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # compile_seconds shall mean something
    env["XLA_FLAGS"] = f"{env.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={threads}".strip()
    return env


def measure(
    jobs: list[Job], rounds: int, repeats: int, seconds: float, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """A row per job, in the jobs' order. A repeat has `rounds` rounds, or as many as fit into `seconds` in all."""
    with contextlib.ExitStack() as stack:
        workers = []
        for job in jobs:
            worker = Worker(job)
            stack.callback(worker.close)
            workers.append(worker)
            worker.warm_up(rounds, repeats, seconds)
            say(f"{job.workload['name']} {label(job)}: {worker.missing or 'ready'}")
        for repeat in range(repeats):
            for worker in workers:
                worker.repeat()
            say(f"{jobs[0].workload['name']} repeat {repeat + 1} of {repeats}")
        return [row(worker) for worker in workers]


def label(job: Job) -> str:
    return f"{job.system} {job.method}, {job.threads} thread{'s' * (job.threads > 1)}"


def row(worker: Worker) -> dict[str, Any]:
    """The JSON row of a worker that has run all its repeats."""
    job, timings = worker.job, worker.timings
    out: dict[str, Any] = {
        "workload": job.workload["name"],
        "system": job.system,
        "method": job.method,
        "threads": job.threads,
        **job.options,
    }
    if worker.missing:
        return out | {"missing": worker.missing, "failed": worker.failed}
    seconds = [t["seconds"] for t in timings]
    median = statistics.median(seconds)
    return out | {
        "seconds_per_round": median,
        "best_seconds_per_round": min(seconds),
        "draw_seconds_per_round": statistics.median(t["drawing"] for t in timings),
        "peak_mb": timings[-1]["peak_mb"],
        "compile_seconds": max(0.0, worker.first["seconds"] - median) if worker.info["compiles"] else 0.0,
        "rounds": worker.rounds,
        "repeats": len(timings),
        "loss_after_first_round": worker.first["loss"],
        **worker.info["facts"],
    }


# ---- inside the process ----


def pin(threads: int) -> None:
    """Keep this process on so many cores, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])


@contextlib.contextmanager
def own_stdout() -> Iterator[IO[str]]:
    """The pipe to the parent; whatever a library prints goes to stderr instead."""
    pipe = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with pipe:
        yield pipe


def serve(job: Job) -> None:
    """Build the job's system, then answer every line "rounds" on stdin with the seconds they took."""
    pin(job.threads)
    with own_stdout() as pipe:
        try:
            from .workloads import Workload

            module = importlib.import_module(f"benchmarks.{job.module}")
            shape: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in job.workload.items()}
            workload = Workload(**shape)
            start = time.perf_counter()
            system = module.System(workload, job.method, job.threads, **job.options)
            setup = time.perf_counter() - start
        except ModuleNotFoundError as error:
            print(json.dumps({"missing": f"{error.name} is not installed"}), file=pipe)
            return
        facts = getattr(system, "facts", {})
        print(json.dumps({"setup": setup, "compiles": getattr(module, "COMPILES", False), "facts": facts}), file=pipe)
        for line in sys.stdin:
            rounds = int(line)
            seconds, drawing = system.run(rounds)
            memory = peak_memory_mb()  # before the loss, which is not part of the run
            answer = {
                "seconds": seconds / rounds,
                "drawing": drawing / rounds,
                "peak_mb": memory,
                "loss": system.loss(),
            }
            print(json.dumps(answer), file=pipe)


if __name__ == "__main__":
    serve(Job(**json.loads(sys.argv[1])))

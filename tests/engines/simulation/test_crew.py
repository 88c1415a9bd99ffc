"""Processes that meet: who is let in, what goes between them, and what is said when one is gone. In threads."""

import socket
import threading

import pytest

from apiece.engines.simulation.crew import Crew, LostProcess, join_crew
from apiece.engines.simulation.hosts import find_hosts
from apiece.errors import UserError


@pytest.fixture
def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def in_threads(*works):
    """What each gives, or the error that it raises."""
    found = [None] * len(works)

    def one(k, work):
        try:
            found[k] = work()
        except UserError as error:
            found[k] = error

    threads = [threading.Thread(target=one, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    return found


def crew_of(count, address):
    joins = [lambda k=k: join_crew(address, count, k, "a run", wait=20) for k in range(count)]
    return in_threads(*joins)


def test_everybody_gets_what_everybody_said_in_their_order(address):
    crews = crew_of(3, address)
    said = [b"zero", b"", bytes(1 << 20)]
    found = in_threads(*[lambda c=crew: c.gather("words", said[c.process]) for crew in crews])
    assert found == [said] * 3
    wishes = in_threads(*[lambda c=crew: c.agree("a wish", c.process == 0) for crew in crews])
    assert wishes == [True] * 3
    for crew in crews:
        crew.close()


def test_a_process_that_is_gone_or_late_is_told_of(address):
    first, second = crew_of(2, address)
    first.wait = 0.1
    with pytest.raises(LostProcess, match=r"process 1 did not come within 0 s; .*apiece resume"):
        first.gather("words", b"")
    with pytest.raises(LostProcess, match="process 0 is gone"):
        second.gather("words", b"")


def test_processes_at_different_steps_do_not_mix_their_numbers(address):
    crews = crew_of(2, address)
    first, _ = in_threads(lambda: crews[0].gather("round 3", b""), lambda: crews[1].gather("round 4", b""))
    assert "process 1 is at 'round 4' where this process is at 'round 3'" in str(first)
    for crew in crews:
        crew.close()


@pytest.mark.parametrize(
    ("processes", "process", "of", "words"),
    [(3, 1, "a run", "one of 3 processes, and these are 2"), (2, 1, "another", "another spec, or another version")],
)
def test_a_process_of_another_run_is_refused_and_told_why(address, processes, process, of, words):
    first, wrong = in_threads(
        lambda: join_crew(address, 2, 0, "a run", wait=1.5), lambda: join_crew(address, processes, process, of, wait=20)
    )
    assert words in str(wrong)
    assert "process(es) 1 of 2 did not come" in str(first)


def test_noise_at_the_door_is_ignored(address):
    host, port = address.split(":")

    def knock():
        with socket.create_connection((host, int(port)), timeout=5) as link:
            link.sendall((3).to_bytes(4, "little") + b"{!}")

    def second():
        knocked = False
        while not knocked:
            try:
                knock()
                knocked = True
            except OSError:
                pass
        return join_crew(address, 2, 1, "a run", wait=20)

    crews = in_threads(lambda: join_crew(address, 2, 0, "a run", wait=20), second)
    assert all(isinstance(crew, Crew) for crew in crews)
    for crew in crews:
        crew.close()


def test_a_port_that_is_taken_and_a_process_0_that_never_comes_are_told_of(address):
    host, port = address.split(":")
    with pytest.raises(UserError, match="found no process 0"):
        join_crew(address, 2, 1, "a run", wait=0.3)
    with socket.create_server((host, int(port))), pytest.raises(UserError, match="choose another port"):
        join_crew(address, 2, 0, "a run", wait=0.3)


SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
POD = {"APIECE_COORDINATOR": "job-0.svc:7000", "APIECE_PROCESSES": "4", "JOB_COMPLETION_INDEX": "3"}
PLAIN = {"APIECE_COORDINATOR": "a:1", "APIECE_PROCESSES": "2", "APIECE_PROCESS": "0"}


@pytest.mark.parametrize(("way", "env"), [("slurm", SLURM), ("kubernetes", POD), ("env", PLAIN)])
def test_settings_of_what_started_it_are_taken_whole_or_refused(way, env):
    assert find_hosts(way, None, env).processes in (2, 4)
    for name in env:
        with pytest.raises(UserError, match=f"--hosts {way}: {name} is not set"):
            find_hosts(way, None, {key: value for key, value in env.items() if key != name})
        if name.endswith(("PROCID", "NTASKS", "PROCESSES", "PROCESS", "INDEX")):
            with pytest.raises(UserError, match=f"{name} = 'two' is no number"):
                find_hosts(way, None, {**env, name: "two"})


@pytest.mark.parametrize(
    ("hosts", "process", "words"),
    [
        ("a", 0, "a list of two machines or more"),
        ("a,,b", 0, "a list of two machines or more"),
        ("a,b", None, "say which of the 2 processes this is"),
        ("a,b", 2, "numbered from 0 to 1"),
    ],
)
def test_half_given_hosts_are_refused_in_words(hosts, process, words):
    with pytest.raises(UserError, match=words):
        find_hosts(hosts, process, {})


def test_hosts_may_be_listed_with_a_port_or_without():
    assert find_hosts("a,b,c", 2, {}) == ("a:7654", 3, 2)
    assert find_hosts("a:9,b", None, {"APIECE_PROCESS": "1"}) == ("a:9", 2, 1)
    assert find_hosts("[::1]:9,b", 0, {}).coordinator == "[::1]:9"

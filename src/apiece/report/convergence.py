"""Whether the methods of a run have come to rest, in words: what more rounds or other settings might change."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from apiece.client.schedule import ENDLESS
from apiece.experiment.record import Convergence, Record
from apiece.report.numbers import counted, listed, number, percent

NAMED = 8  # methods that a sentence lists


def convergence(record: Record, run: str = "RUN") -> list[str]:
    """What is to be said of a record; `run` is what its folder is called in a command."""
    found = {name: method.convergence for name, method in record.methods.items() if method.convergence}
    told = [
        _until_rest(found, record.spec),
        _tested(record),
        _improving({name: mine for name, mine in found.items() if mine.improves}, record.spec, run),
        _rising([name for name, mine in found.items() if mine.state == "rising"]),
        _unknown({name: mine for name, mine in found.items() if mine.state == "unknown"}, len(found)),
        _edges(found),
    ]
    return [sentence for sentence in told if sentence]


def so_far(record: Record) -> list[str]:
    """Which verdicts of the table wait for methods that still improve, in short."""
    behind = [name for name, gap in record.ranking.behind.items() if gap.so_far]
    told = [f"{record.ranking.order[0]} is ahead so far: {still_improving(behind)}, and may catch up."] * bool(behind)
    waiting = {name: method.harm for name, method in record.methods.items() if method.harm and method.harm.so_far}
    alone = record.methods.get(record.over)
    if waiting and alone is not None and alone.improves:
        return [*told, f"Whom it hurts is so far only, and nothing is proved: {record.over} still improves."]
    accused = [name for name, harm in waiting.items() if harm.hurt_proved > 0]
    catching_up = f"Nobody is proved hurt yet: {still_improving(accused)}, and may catch up with {record.over}."
    return told + [catching_up] * bool(accused)


def _improving(found: dict[str, Convergence], spec: dict[str, Any], run: str) -> str:
    if not found:
        return ""
    names = list(found)[:NAMED]
    more = [f"{len(found) - NAMED} more"] if len(found) > NAMED else []
    gains = listed([percent(found[name].gain / found[name].loss) for name in names])
    whose, order = ("its", "") if len(found) == 1 else ("their", ", in this order")
    twice = 2 * spec["train"]["rounds"]
    return (f"Still improving: {listed(names + more)}. As many rounds again are expected to lower {whose} validation "
            f"loss by {gains}{order}. {_go_on(spec['train'], twice, run)}")  # fmt: skip


def _until_rest(found: dict[str, Convergence], spec: dict[str, Any]) -> str:
    """How many rounds each method took, where that was not given."""
    if not spec["train"].get("until_rest") or not found:
        return ""
    each = [f"{name} {mine.rounds:,}" for name, mine in found.items()]
    return f"Rounds until validation rests, at most {spec['train']['rounds']:,}: {listed(each)}."


def _tested(record: Record) -> str:
    """That a run was continued when its test results were known."""
    if not record.tested:
        return ""
    before = listed([f"{rounds:,}" for rounds in record.tested])
    return (f"The test was seen before, after {before} rounds: whoever went on because of what it said chose by test "
            f"data. Settings are those that tuning chose with {record.tested[0]:,} rounds.")  # fmt: skip


def ends_as_planned(train: dict[str, Any]) -> bool:
    """Whether a run's end was part of its plan, so that more rounds are another run.

    >>> ends_as_planned({"rounds": 100}), ends_as_planned({"schedule": "linear"})
    (False, True)
    """
    return train.get("schedule", "constant") not in ENDLESS or train.get("stop") is not None


def _go_on(train: dict[str, Any], rounds: int, run: str) -> str:
    """How to get more rounds: the same run longer, or another one where the end was part of the plan."""
    if ends_as_planned(train):
        return f"Its step sizes or its stopping were planned for these rounds: start a new run with --rounds {rounds}."
    return f"Go on: apiece resume {run} --rounds {rounds}"


def _rising(names: list[str]) -> str:
    if not names:
        return ""
    return (f"Getting worse: the validation loss of {listed(names)} grows over the last quarter of the rounds. A table "
            "[train.stop] in the spec keeps the best round; fewer rounds or smaller steps may do, too.")  # fmt: skip


def _unknown(found: dict[str, Convergence], methods: int) -> str:
    if not found:
        return ""
    whose = "the methods have" if len(found) == methods > 1 else f"{listed(list(found))} {_has(found)}"
    few = [mine for mine in found.values() if mine.looks < 4]
    if few:
        rounds = few[0].rounds
        remedy = f"--evaluate-every {max(1, rounds // 20)}, or more rounds" if rounds >= 16 else "run 20 rounds or more"
        return (f"Too few looks to tell whether {whose} come to rest: {few[0].looks} at validation in the last quarter "
                f"of {counted(rounds, 'round')}, and four are needed: {remedy}.")  # fmt: skip
    return (f"Too much noise to tell whether {whose} come to rest: validation moves up and down by more than it could "
            "fall. Smaller steps, larger batches or more rounds may show it.")  # fmt: skip


class AtEdge(NamedTuple):
    """A value that tuning chose at an end of what was tried: it in words, and the setting that looks beyond it."""

    method: str
    words: str
    option: str
    beyond: str


def chosen_at_edges(found: Mapping[str, Convergence | None]) -> list[AtEdge]:
    """All such values of the methods of a run."""
    at = [(name, edge) for name, mine in found.items() if mine for edge in mine.edges]
    told = []
    for name, edge in at:
        ends = (edge.value / 10, edge.value) if edge.end == "lowest" else (edge.value, 10 * edge.value)
        option = f"{name}.{edge.option}"
        words = f"{option} = {number(edge.value, 4)} ({edge.end})"
        told.append(AtEdge(name, words, option, f"{{range = [{ends[0]:.3g}, {ends[1]:.3g}]}}"))
    return told


def _edges(found: dict[str, Convergence]) -> str:
    at = chosen_at_edges(found)
    if not at:
        return ""
    each = [one.words for one in at]
    more = [f"{len(each) - NAMED} more"] if len(each) > NAMED else []
    return (f"Chosen at the edge of what was tried: {listed(each[:NAMED] + more)}. A better value may lie beyond it: "
            f"methods.{at[0].option} = {at[0].beyond} in the spec looks there.")  # fmt: skip


def still_improving(names: Iterable[str]) -> str:
    """Who still improves, in a sentence.

    >>> still_improving(["local"]), still_improving(["local", "ditto"])
    ('local still improves', 'local and ditto still improve')
    """
    who = list(names)
    return f"{listed(who)} still {'improves' if len(who) == 1 else 'improve'}"


def _has(names: Iterable[Any]) -> str:
    return "has" if len(list(names)) == 1 else "have"

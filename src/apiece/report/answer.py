"""The answer of a run: which method to use, why, what to expect of it, whom it hurts, and what to do next."""

import shlex
from typing import Any, NamedTuple

import pyarrow.compute as pc

from apiece.experiment.conclude import recommended
from apiece.experiment.record import MethodRecord
from apiece.report.convergence import chosen_at_edges, ends_as_planned
from apiece.report.findings import beaten_by_constants, counted_points, score_text
from apiece.report.numbers import counted, known, listed, number, percent, plus_minus, size, span
from apiece.report.story import Story

NAMED = 8  # clients or methods that a sentence lists
EDGES = 4  # values at the edge of what was tried
LIKELY, MOST_AT_RISK = 0.5, 3  # a chance to be hurt, above which clients are named; and how many
LOOKS = 4  # at validation, in the last quarter of the rounds, to tell whether a method rests


class Step(NamedTuple):
    """Something to do next: why, and the command."""

    why: str
    command: str


class Answer(NamedTuple):
    """One sentence, what speaks for it, what to expect of it by question, and what to do next."""

    headline: str
    because: list[str]
    facts: list[tuple[str, str]]
    steps: list[Step]


def answer(story: Story) -> Answer:
    """What a run says to somebody who has to decide; validation chooses, and test results tell what to expect."""
    ranked, run = story.record.ranking, shlex.quote(story.name)
    if not ranked.scored:
        why = "every method diverged" if ranked.diverged else "the run holds no method"
        spec = f"apiece compare --spec {run}/spec.toml --out {run}-again"
        return Answer(
            f"Nothing to run yet: {why}.", [], [], [Step("Smaller steps or another model, then again:", spec)]
        )
    chosen = recommended(story.record)
    chosen = chosen if chosen in ranked.scored else ranked.scored[0]
    method = story.methods[chosen]
    beaten = beaten_by_constants(story, ranked.scored)
    settings = written_options(method)
    headline = f"Run {chosen} with {settings}." if settings else f"Run {chosen}; it has nothing to tune."
    if (harm := method.harm) is not None and known(harm.gain.low) and harm.gain.low <= 0:
        over = f"being {story.alone}" if story.baseline in story.methods else "a constant answer"
        gain = plus_minus(harm.gain, 1, 1, sign=True)
        headline = f"Nothing is shown to beat {over} here ({gain} points). If one has to be chosen: {_lower(headline)}"
    if chosen == story.baseline:
        headline = f"Let every client train alone ({chosen}{' with ' + settings if settings else ''})."
    if beaten:
        headline = f"Use none of these models yet: {_lower(beaten[0])}"
    return Answer(headline, _because(story, chosen), _facts(story, chosen), _steps(story, chosen, run))


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def written_options(method: MethodRecord) -> str:
    """What was tuned, with the values that were chosen; of an untuned method the options of its first trial.

    >>> from apiece.experiment.record import Candidate
    >>> tuned = MethodRecord.model_construct(tuning=[Candidate(options={"lam": 0.3}, validation_loss=1)], chosen=0)
    >>> written_options(tuned)
    'lam = 0.3'
    """
    options = method.tuning[method.chosen or 0].options if method.tuning else {}
    write = lambda value: number(value, 4) if isinstance(value, int | float) and not isinstance(value, bool) else value
    return ", ".join(f"{key} = {write(value)}" for key, value in options.items() if value is not None)


def _because(story: Story, chosen: str) -> list[str]:
    ranked = story.record.ranking
    told = []
    what = "loss" if ranked.chosen_by == "loss" else story.metric.label
    if ranked.by_validation == chosen:
        told.append(f"Because it has the best validation {what}, which the test data did not touch"
                    f"{_validation(story, chosen)}.")  # fmt: skip
    harm = story.methods[chosen].harm
    if harm is not None and known(harm.gain.mean):
        of = "points of accuracy" if story.metric.percent else "points"
        over = f"over being {story.alone}" if story.baseline in story.methods else f"over what it has {story.alone}"
        told.append(f"A client gains {plus_minus(harm.gain, 1, 1, sign=True)} {of} {over}, on average.")
    best = ranked.scored[0]
    if chosen != best and (gap := ranked.behind.get(chosen)) is not None:
        apart = "and is ahead of it beyond chance" if gap.told_apart else f"and cannot be told apart from {chosen}"
        told.append(f"On test data {best} scores {score_text(story, best)}, {apart}.")
    equal = [name for name in ranked.behind if name != chosen and not ranked.behind[name].told_apart]
    if chosen == best and equal and story.seeds > 1:
        told.append(f"Not told apart from it by these seeds and test examples: {_some(equal)}. Any of them will do as "
                    "well, as far as this run can tell.")  # fmt: skip
    if story.seeds == 1:
        told.append("One seed: there is no interval, and another seed may choose otherwise.")
    return told


def _validation(story: Story, chosen: str) -> str:
    """What validation said of the chosen method, and of the next."""
    key = "loss" if story.record.ranking.chosen_by == "loss" else story.metric.key
    factor, unit = (1.0, "") if key == "loss" else (story.metric.factor, f" {story.metric.unit}".rstrip())
    found = {
        name: one
        for name in story.record.ranking.scored
        if (one := story.methods[name].statistic("validation", key, "mean" if key == "loss" else "mean_weighted"))
    }
    others = [name for name in found if name != chosen]
    if chosen not in found or not others:
        return ""
    sign = -1 if key != "loss" and story.metric.higher else 1
    nearest = min(others, key=lambda name: sign * found[name].mean)
    write = lambda name: f"{number(factor * found[name].mean, 3)}{unit}"
    return f": {write(chosen)}, the next is {nearest} with {write(nearest)}"


def _some(names: list[str]) -> str:
    return listed(names[:NAMED] + ([f"{len(names) - NAMED} more"] if len(names) > NAMED else []))


def _facts(story: Story, chosen: str) -> list[tuple[str, str]]:
    method = story.methods[chosen]
    worst = story.score(chosen, "test", "worst10")
    expected = f"test {story.metric.label} {score_text(story, chosen)}"
    if worst is not None:
        expected += (
            f"; the worst-off tenth of the clients {plus_minus(worst, story.metric.factor, story.metric.places)}"
        )
        expected += f" {story.metric.unit}".rstrip()
    facts = [("Expected", expected + ".")]
    if (new := story.score(chosen, "new_clients")) is not None:
        written = plus_minus(new, story.metric.factor, story.metric.places) + f" {story.metric.unit}".rstrip()
        count = counted(story.record.federation.new_clients, "client")
        facts.append(("New clients", f"{written}, of {count} that never trained."))
    facts.append(("Proved hurt", _hurt(story, chosen)))
    facts.append(("Converged", _converged(story, chosen)))
    facts.append(("Cost", _cost(story, method)))
    return facts


def _hurt(story: Story, chosen: str) -> str:
    method = story.methods[chosen]
    harm = method.harm
    if harm is None:
        return f"nobody: it is what others are compared with ({story.baseline})." if method.hurt is None else "unknown."
    between = span(harm.hurt_expected_low, harm.hurt_expected_high)
    expected = (f" Expected to lose more than {counted_points(harm.delta)}: {percent(harm.hurt_expected)} of the "
                f"clients{f' ({between})' if between else ''}.")  # fmt: skip
    if not harm.named and not harm.hurt_proved:
        return ("nobody" + (" so far" if harm.so_far else "")) + "." + expected + _at_risk(story, chosen)
    whom = _some(harm.named) if harm.named else f"{round(harm.hurt_proved * harm.clients):,} clients"
    return f"{whom}{', so far: something still improves' if harm.so_far else ''}." + expected


def _at_risk(story: Story, chosen: str) -> str:
    """Whom to look at first where nothing is proved: clients that are more likely hurt than not."""
    if story.verdicts is None:
        return ""
    mine = story.verdicts.filter(pc.equal(story.verdicts["method"], chosen))
    found = zip(mine["client"].to_pylist(), mine["risk"].to_pylist(), strict=True)
    likely = sorted(((risk, client) for client, risk in found if risk is not None and risk > LIKELY), reverse=True)
    told = [f"{client} ({percent(risk)})" for risk, client in likely[:MOST_AT_RISK]]
    return f" Most at risk: {listed(told)}." if told else ""


def _converged(story: Story, chosen: str) -> str:
    found = story.methods[chosen].convergence
    moving = [name for name, method in story.methods.items() if method.improves and name != chosen]
    others = f" Of the others, {_some(moving)} still {'improves' if len(moving) == 1 else 'improve'}." if moving else ""
    if found is None:
        return "nobody looked: an older version finished this run."
    words = {
        "resting": "yes: its validation loss has come to rest.",
        "improving": "not yet: as many rounds again are expected to lower its validation loss by "
                     f"{percent(found.gain / found.loss) if found.loss else 'something'}.",
        "rising": "it gets worse: its validation loss grows over the last quarter of the rounds.",
        "diverged": "no: it diverged.",
        "unknown": f"unknown: {counted(found.looks, 'look')} at validation in the last quarter of the rounds, and four "
                   "are needed." if found.looks < LOOKS else
                   "unknown: validation moves up and down by more than it could still fall.",
    }  # fmt: skip
    if not moving and len(story.methods) > 1 and all(_rests(other) for other in story.methods.values()):
        others = " So have all the others."
    return words[found.state] + others


def _rests(method: MethodRecord) -> bool:
    return method.convergence is not None and method.convergence.state == "resting"


def _cost(story: Story, method: MethodRecord) -> str:
    spent = method.costs
    sent = spent.get("bytes_up", 0) + spent.get("bytes_down", 0)
    rounds = counted(int(spent.get("rounds") or 0), "round")
    work = f"{number(spent.get('gradients'), 3)} gradients, {number(spent.get('seconds'))} seconds on this machine"
    return f"{rounds}, {size(sent) if sent else 'nothing'} sent by and to all clients together, {work}."


def _longer(train: dict[str, Any], run: str, rounds: int) -> str:
    """The command for more rounds: the same run longer, or another one where the end was part of the plan."""
    if ends_as_planned(train):
        return f"apiece compare --spec {run}/spec.toml --rounds {rounds} --out {run}-longer"
    return f"apiece resume {run} --rounds {rounds}"


def _look_closer(train: dict[str, Any], run: str, looks: int) -> Step:
    """What shows whether a method has come to rest, where a run cannot tell."""
    rounds = train["rounds"]
    if looks >= LOOKS:
        return Step("Whether it rests is hidden by noise: more rounds may show it.", _longer(train, run, 2 * rounds))
    if rounds < 16:
        return Step("Too few rounds to tell whether it rests.", _longer(train, run, 20))
    often = f"--evaluate-every {max(1, rounds // 20)}"
    again = f"apiece compare --spec {run}/spec.toml {often} --out {run}-closer"
    return Step("Too few looks at validation to tell whether it rests: look more often.", again)


def _steps(story: Story, chosen: str, run: str) -> list[Step]:
    train, steps = story.record.spec.get("train", {}), []
    moving = [name for name, method in story.methods.items() if method.improves]
    found = story.methods[chosen].convergence
    harm = story.methods[chosen].harm
    if harm is not None and known(harm.gain.low) and harm.gain.low <= 0 and story.baseline in story.methods:
        why = "As good, as far as this run can tell, and nothing is sent: each client's own model."
        command = f"apiece predict {run} CLIENT new.csv --method {shlex.quote(story.baseline)}"
        steps.append(Step(why, command))
    if moving and train.get("rounds"):
        why = f"{_some(moving)} still {'improves' if len(moving) == 1 else 'improve'}: go on."
        steps.append(Step(why, _longer(train, run, 2 * train["rounds"])))
    elif found is not None and found.state == "unknown" and train.get("rounds"):
        steps.append(_look_closer(train, run, found.looks))
    if at := chosen_at_edges({name: method.convergence for name, method in story.methods.items()}):
        # The chosen method's first: the others' edges matter as far as they might have been chosen instead.
        at.sort(key=lambda one: one.method != chosen)
        beyond = " ".join(f"-s {shlex.quote(f'{one.option}={one.beyond}')}" for one in at)
        command = f"apiece compare --spec {run}/spec.toml {beyond} --out {run}-wider"
        words = [one.words for one in at[:EDGES]] + [f"{len(at) - EDGES} more"] * (len(at) > EDGES)
        why = f"Tuning stopped at the edge of what it tried: {listed(words)}. Look beyond it."
        steps.append(Step(why, command))
    if story.seeds < 3:
        command = f"apiece compare --spec {run}/spec.toml --seeds 3 --out {run}-seeds"
        steps.append(Step("Three seeds, to tell methods apart.", command))
    by = f"--method {shlex.quote(chosen)}"
    steps.append(Step("Use a client's model on new rows.", f"apiece predict {run} CLIENT new.csv {by}"))
    steps.append(Step("A model for a client that is not here yet.", f"apiece onboard {run} rows.csv --name NAME {by}"))
    return steps

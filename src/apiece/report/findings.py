"""What a run found, in sentences that claim no more than the numbers carry."""

import shlex

from apiece.evaluate import Interval
from apiece.report.convergence import convergence, still_improving
from apiece.report.numbers import counted, fixed, known, listed, number, percent, places_for, plus_minus, span
from apiece.report.story import Metric, Story

NAMED = 8  # methods that a sentence lists; a longer list is the table's business


def findings(story: Story) -> list[str]:
    """The sentences at the head of the page, the most important first."""
    ranked = story.record.ranking
    order, lost = ranked.scored, ranked.diverged
    if not order:
        return ["No method has a test result: every one diverged." if lost else "The run holds no method."]
    sentences = [*ranking(story, order), *told_apart(story, order), *beaten_by_constants(story, order)]
    sentences += [against_local(story, ranked.beside_local)] if ranked.beside_local else []
    sentences += [*by_validation(story, order), *newcomers(story, order)]
    if lost:
        sentences.append(f"{listed(lost)} diverged: a model gave no finite number, so there is no test result.")
    return sentences + convergence(story.record, shlex.quote(story.name))


def ranking(story: Story, order: list[str]) -> list[str]:
    """The methods by weighted test score."""
    metric = story.metric
    if len(order) == 1:
        return [f"{order[0]} has a test {metric.label} of {score_text(story, order[0])}."]
    rest = [f"{name} {score_text(story, name)}" for name in order[1:]]
    rest = rest if len(rest) <= NAMED else rest[:NAMED] + [f"{len(rest) - NAMED} more in the table"]
    best = "highest" if metric.higher else "lowest"
    return [f"{order[0]} has the {best} test {metric.label}: {score_text(story, order[0])}.", f"Next: {listed(rest)}."]


def score_text(story: Story, name: str, part: str = "test") -> str:
    """A method's weighted score with its interval and unit."""
    return _written(story.metric, story.score(name, part))


def _written(metric: Metric, found: Interval | None) -> str:
    unit = f" {metric.unit}" if metric.unit else ""
    text = plus_minus(found, metric.factor, metric.places) + unit
    return text.replace(" ", "\N{NO-BREAK SPACE}")  # a number and its unit stay on one line


def told_apart(story: Story, order: list[str]) -> list[str]:
    """Which differences to the best method the seeds support."""
    behind = story.record.ranking.behind
    if not behind:
        return []
    if story.seeds < 2:
        return ["One seed: no interval. A second seed may reverse the order; run three or more to tell methods apart."]
    unit = " points" if story.metric.percent else ""

    def gap(name: str) -> str:
        mean, low, high, half = behind[name].interval
        places = max(1, places_for(half, mean)) if story.metric.percent else places_for(half, mean)
        return f"{name} ({fixed(mean, places)}{unit} behind, interval {fixed(low, places)} to {fixed(high, places)})"

    clear = [name for name in behind if behind[name].told_apart]
    so_far = [name for name in behind if behind[name].so_far]
    close = [name for name in behind if name not in clear and name not in so_far]
    whom = listed([gap(name) for name in so_far[:NAMED]])
    ahead = [f"{order[0]} is ahead of {whom} so far: {still_improving(so_far)}, and may catch up with more rounds."]
    ahead = ahead if so_far else []
    if close:
        rest = f"; it is told apart from {listed(clear)}" if clear else ""
        near = listed([gap(name) for name in close[:NAMED]])
        near = f"{order[0]} is not told apart by {story.seeds} seeds and these test examples from {near}{rest}."
        return [near, *ahead]
    if not clear:
        return ahead
    nearest = min(clear, key=lambda name: behind[name].interval.mean)
    every = "every other method; the nearest is " if len(clear) > 1 else ""
    every = f"{listed(clear)}; the nearest is " if so_far and len(clear) > 1 else every
    return [f"{story.seeds} seeds and these test examples tell {order[0]} apart from {every}{gap(nearest)}.", *ahead]


def beaten_by_constants(story: Story, order: list[str]) -> list[str]:
    """Which answers that look at no example are as good as the best method, or better."""
    best, sign = story.score(order[0]), 1 if story.metric.higher else -1
    found = {name: one.statistic("test", story.metric.key, "mean_weighted") for name, one in story.constants.items()}
    better = [name for name, score in found.items() if best and score and sign * score.mean >= sign * best.mean]
    each = [f"{story.constants[name].about} ({_written(story.metric, found[name])})" for name in better]
    return [f"No method is better than answering {listed(each)}: nothing was learned here."] if each else []


def against_local(story: Story, name: str) -> str:
    """Who is better off than alone, who is hurt; the raw count only beside what chance would make of a tie."""
    found, beside = story.methods[name].harm, story.methods[name].beside_local
    assert found is not None and beside is not None
    up, equal, down = beside.better, beside.same, beside.worse
    scores = "scores" if up == 1 else "score"
    text = f"Of {counted(up + equal + down, 'client')}, {up:,} {scores} better with {name} than {story.alone}"
    tied = found.naive_if_tied
    if known(tied):
        text += (f", {equal:,} the same" if equal else "") + f", {down:,} worse"
        text += f" (with no true difference, chance alone would make {percent(tied)} look worse)"
    proved, share = round(found.hurt_proved * found.clients), percent(found.hurt_expected)
    between = span(found.hurt_expected_low, found.hurt_expected_high)
    whom = "none is" if proved == 0 else f"{proved:,} {'is' if proved == 1 else 'are'}"
    who = f" ({listed(found.named)})" if found.named else ""
    verdict, so_far = f"{whom} proved hurt{who}", " so far" if found.so_far else ""
    if found.so_far and proved:
        moving = [one for one in (story.record.over, name) if one in story.methods and story.methods[one].improves]
        looks = f"{proved:,} {'looks' if proved == 1 else 'look'}"
        verdict, so_far = f"so far {looks} hurt{who}, which proves nothing while {still_improving(moving)}", ""
    text += f"; {verdict}{so_far}; the expected share hurt by more than {counted_points(found.delta)} is {share}"
    return text + (f" ({between})." if between else ".")


def counted_points(points: float) -> str:
    """A margin in words.

    >>> counted_points(1.0), counted_points(2.5)
    ('1 point', '2.5 points')
    """
    return f"{number(points)} {'point' if points == 1 else 'points'}"


def by_validation(story: Story, order: list[str]) -> list[str]:
    """Whom validation alone would choose: the honest choice, as test results chose nothing."""
    chosen = story.record.ranking.by_validation
    if chosen is None:
        return []
    what = "loss" if story.record.ranking.chosen_by == "loss" else story.metric.label
    if chosen == order[0]:
        return [f"Validation {what} alone, which the test data did not touch, chooses {chosen} too."]
    score = score_text(story, chosen)
    return [
        f"Validation {what} alone would choose {chosen} instead (test {story.metric.label} {score}): "
        "that is the choice a deployment could have made without looking at test data."
    ]


def newcomers(story: Story, order: list[str]) -> list[str]:
    """How clients fare that never took part in training."""
    count = story.record.federation.new_clients
    scored = [name for name in order if story.score(name, "new_clients")]
    if not count or not scored:
        return []
    write = lambda name: f"{name} {score_text(story, name, 'new_clients')}"
    named = [name for name in scored if name in (order[0], "local")] or scored[:1]
    few = "; too few for a judgement" if count < 10 else ""
    told = [f"{counted(count, 'new client')} that never trained: {listed([write(n) for n in named])}{few}."]
    return told + by_examples(story, [name for name in named if story.methods[name].newcomers])


def by_examples(story: Story, named: list[str]) -> list[str]:
    """How the same newcomers fare with the fewest examples, and with about the middle number of those looked at."""
    found = {name: mine for name in named if (mine := story.methods[name].newcomers)}
    if not found:
        return []
    examples = next(iter(found.values())).examples
    told = []
    for at in sorted({0, (len(examples) - 1) // 2} - {len(examples) - 1}):  # with all of them was said before
        scores = {name: mine.scores[at] for name, mine in found.items()}
        each = [f"{name} {_written(story.of_task, score)}" for name, score in scores.items() if known(score.mean)]
        told += [f"with {examples[at]:,}, {listed(each)}"] if each else []
    return [f"The same clients by how many of their training examples they may use: {'; '.join(told)}."] if told else []

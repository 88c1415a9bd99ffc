"""FedCLUP and pFedMe on pictures: from Local to Global, on all classes and on a client's own.

The FedCLUP paper deals MNIST and CIFAR-10 to clients with 2, 6 or 10 classes each and trains softmax regression
("logit"), CNN2, CNN5 (MNIST) and CNN3 (CIFAR) with Local, FedAvg ("Global"), and FedCLUP and pFedMe at high, medium and
low personalization: lambda = 0.5, 1.5, 2.5 (logit), 0.2, 0.5, 2.5 (MNIST CNNs), 0.1, 0.5, 1 (CIFAR). It prints accuracy
on the test set, all classes of it. That cannot be every client's own model: one that has met two classes is right on
at most a fifth of ten, and .32 to .65 are printed. The mean of all models fits ("averaged"), and is what the paper's
public program measures; here both are judged, and each client's own classes as well.

Softmax regression has the settings of that program: 10 clients, drawn from a cut for many more (there 300, here 40, as
the pictures suffice for), so that with two classes each some digits are nobody's; 180 pictures to train on, step size
0.01, 5 local epochs, batches of 32, 20 rounds, FedCLUP's server step 1/lambda. "Local" averaged is the mean of models
that never met. The published networks are run "until stable convergence"; ours have few filters (16-32, 8-8-16-16-32,
16-32-32), half the height and width, 10 clients with 45 to 75 examples and 20 rounds, and where their validation
losses still fall nothing is decided. Their step sizes are chosen (0.001, 0.01 or 0.1) by accuracy on everybody's
validation examples together, at medium personalization with the first seed in 5 rounds, for all degrees and seeds; so
are pFedMe's inner ones. pFedMe takes 5 inner steps and outer steps half-way to what they find (lr lambda = 1/2), so
that lambda changes how personal models are, not how fast the shared one learns; all methods compute as many gradients.
The global test set is everybody's test examples together. Every seed has other pictures, other clients and another
initial model, so intervals tell of all that chance does.
"""

from typing import Any

import numpy as np

from apiece.experiment.contest import counter, steps
from apiece.experiment.train import Watch
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.fedclup import ladder as ladder
from apiece.reproduce.fedclup.images_runs import CASES, EPOCHS, ROUNDS, TUNED, Case, Cell, played, rivals_of
from apiece.reproduce.fedclup.ladder import Accuracy, gains
from apiece.reproduce.fedclup.published import DEGREES, INDEPENDENT, LADDERS, LOW, published, rung
from apiece.reproduce.verdict import Claim, Reproduction, mean_of, within

HELD = (2, 6, 10)
PROGRAM = "MNIST logit"  # at the settings of the paper's public program, and judged after its 20 rounds


def run(quick: bool, watch: Watch) -> Reproduction:
    """`quick`: softmax regression only, with 2 and 10 classes a client."""
    names = ["MNIST logit"] if quick else list(CASES)
    held = (2, 10) if quick else HELD
    total = len(held) * sum(steps(rivals_of(CASES[name]), range(CASES[name].seeds)) for name in names)
    step = counter(watch, total)
    cells = {name: played(name, held, step) for name in names}
    claims = [claim for name in names for claim in claims_of(name, cells[name], quick)]
    settings: dict[str, Any] = {
        "rounds": ROUNDS,
        "epochs": EPOCHS,
        "rounds of tuning": TUNED,
        "cases": {name: described(CASES[name]) for name in names},
        "step sizes": {f"{name}, {k} classes": cells[name][k].step_size for name in names for k in held},
    }
    for name in names:
        settings |= {f"{name}: accuracy, published and ours": table(name, cells[name])}
        settings |= {f"{name}, 2 classes a client, on own classes": gains(cells[name][2].outcomes)}
    return Reproduction(claims, figure(cells), settings, NOTES)


NOTES = (
    "A client that holds two classes has at most 0.20 on ten: published accuracies above are of an averaged model.",
    "Networks whose validation losses still fall after 20 rounds decide nothing, neither for nor against the paper.",
    "A quick run has softmax regression only, with 2 and 10 classes a client.",
)


def claims_of(name: str, cells: dict[int, Cell], quick: bool) -> list[Claim]:
    """What is said of a task."""
    claims = []
    for held, cell in cells.items():
        for method in LADDERS:
            names = ["local", *(rung(method, degree) for degree in DEGREES), "fed_avg"]
            moving = "" if name == PROGRAM else ladder.still_moving(cell.outcomes, names)
            for called, accuracy, source in (("averaged", cell.averaged, "paper"), ("own", cell.every, "here")):
                where = f"{name}, {held} classes, {called} model{'s' * (called == 'own')} on all classes"
                claims.append(ladder.grows(where, accuracy, method, moving, source))
                claims.append(ladder.between(where, accuracy, method, moving, source))
        if name == PROGRAM:
            path = ("local", *(rung("fed_clup", degree) for degree in DEGREES), "fed_avg")
            for who, wanted in zip(path, INDEPENDENT[held], strict=True):
                what = f"{name}, {held} classes, averaged model on all classes: {who}, to 0.06"
                claims.append(within(what, wanted, mean_of(cell.averaged[who]), by=0.06, source="reference"))
    claims.append(ladder.fewer_classes(name, {held: cell.every["local"] for held, cell in cells.items()}))
    claims += [ladder.more_on_own(f"{name}, 2 classes", cells[2].own, method, "fed_avg") for method in LADDERS]
    if quick:
        return claims
    claims += [ladder.more_on_own(f"{name}, 2 classes", cells[2].own, m, rung(m, LOW)) for m in LADDERS]
    outcomes = [cell.outcomes for cell in cells.values()]
    rungs = {method: [rung(method, degree) for degree in DEGREES] for method in LADDERS}
    resting = {
        m: next(filter(None, (ladder.still_moving(of, names) for of in outcomes)), "") for m, names in rungs.items()
    }
    late = "" if name == PROGRAM else " ".join(filter(None, resting.values()))
    claims.append(ladder.same_order(name, {held: cell.averaged for held, cell in cells.items()}, late))
    return [*claims, *(ladder.fewer_rounds(name, outcomes, method, resting[method]) for method in LADDERS)]


def described(case: Case) -> dict[str, Any]:
    """A row of the table of cases."""
    task, (high, medium, low) = case.task, case.lams
    return {
        "clients": task.clients,
        "training examples": task.train,
        "batch": case.batch,
        "lambda high": high,
        "medium": medium,
        "low": low,
        "seeds": case.seeds,
    }


def table(name: str, cells: dict[int, Cell]) -> dict[str, dict[str, float]]:
    """By classes a client and method: the printed accuracy on all classes, ours with half intervals, on own classes."""
    rows = {}
    for held, cell in cells.items():
        printed = published(name, held)
        for method in ORDER:
            found = {"averaged": cell.averaged, "own models": cell.every, "own models, own classes": cell.own}
            row = {"published": printed[method]}
            for called, accuracy in found.items():
                mean = mean_of(accuracy[method])
                row |= {called: mean.value, f"+- ({called})": mean.interval[1] - mean.value}
            rows[f"{held} classes, {method}"] = row
    return rows


ORDER = ("local", *(rung(method, degree) for method in LADDERS for degree in DEGREES), "fed_avg")


def figure(cells: dict[str, dict[int, Cell]]) -> Figure:
    """A panel for each task: accuracy from Local over three degrees of personalization to Global."""

    def line(label: str, accuracy: Accuracy, method: str, style: int) -> Line:
        means = [mean_of(accuracy[name]) for name in ("local", *(rung(method, d) for d in DEGREES), "fed_avg")]
        low, high = zip(*(mean.interval for mean in means), strict=True)
        return Line(label, range(5), [mean.value for mean in means], low, high, style=style)

    def panel(name: str, by_held: dict[int, Cell]) -> Panel:
        lines = [
            line(f"FedCLUP, averaged, {held}", cell.averaged, "fed_clup", HELD.index(held))
            for held, cell in by_held.items()
        ]
        lines.append(line("FedCLUP, all, 2", by_held[2].every, "fed_clup", 3))
        lines.append(line("FedCLUP, own, 2", by_held[2].own, "fed_clup", 4))
        lines.append(line("pFedMe, own, 2", by_held[2].own, "pfedme", 5))
        return Panel(name, "0 Local, 1 high, 2 medium, 3 low personalization, 4 Global", "accuracy", lines)

    def losses(name: str, held: int, cell: Cell) -> Panel:
        names = ("local", *(rung("fed_clup", degree) for degree in DEGREES), "fed_avg")
        rounds = lambda who: [point["round"] for point in cell.outcomes[who][0].curve]
        loss = lambda who: np.mean([[p["validation_loss"] for p in one.curve] for one in cell.outcomes[who]], axis=0)
        lines = [Line(who, rounds(who), loss(who), style=style) for style, who in enumerate(names)]
        return Panel(f"{name}, {held} classes: validation loss", "rounds", "mean over clients", lines, log_y=True)

    caption = (
        "Accuracy with 95% intervals over seeds, 2, 6 or 10 classes a client: of the mean of the clients' models on "
        "everybody's test pictures (averaged), of the clients' own models on these (all), on their own classes (own)."
    )
    panels = [panel(name, by_held) for name, by_held in cells.items()]
    panels += [losses(name, held, by_held[held]) for name, by_held in cells.items() for held in (2, 10)]
    return Figure("From Local to Global on pictures", caption, panels)

"""The advice in plain sentences: what to do, why, and what is in doubt. Numbers with intervals, never without."""

import numpy as np

from apiece.advise.choose import Choice
from apiece.advise.differ import Difference
from apiece.advise.foresee import Expected, Foreseen
from apiece.advise.pilot import FEWEST_FOR_GROUPS, Pilot

STRONG, MILD = 0.66, 0.33  # shares of a model that own data decide
NO_MORE = 5  # clients that a sentence names
FOLDS_TOLD = {1: "One fold", 2: "Two folds", 4: "Four folds"}
UNSURE_TIMES = 1.3  # the usual doubt: above it a client is asked for more examples


def answer(
    choice: Choice, pilot: Pilot, seen: Foreseen, lam: float, own: float, numbers: bool, ids: np.ndarray
) -> list[str]:
    """Three sentences: what to do, what it is worth, and whom it may hurt; `numbers`: a regression."""
    said = seen.errors["advised"]
    of = " of the targets' variance" if numbers else ""
    expected = (f"Expected {'squared error' if numbers else 'error'} {said.mean:.1f} %{of} (90 %: {said.low:.1f} to "
                f"{said.high:.1f})")  # fmt: skip
    shared, local = (f"{seen.errors[kind].mean:.1f} %" for kind in ("shared", "local"))
    if choice.named == "shared":
        worth = f"{expected}; personalizing would change it by {_ends(seen.gains['path'])}; alone it would be {local}."
    elif choice.named == "local":
        worth = f"{expected}; federation would change it by {_ends(seen.gains['path'])}; one shared model has {shared}."
    else:
        worth = (f"{expected}, against {shared} shared (gain {_ends(seen.gains['shared'])}) and {local} alone (gain "
                 f"{_ends(seen.gains['local'])}).")  # fmt: skip
    return [_with_guard(_what(choice, pilot, lam, own), choice, ids), worth, _whom(seen, ids)]


def _with_guard(what: str, choice: Choice, ids: np.ndarray) -> str:
    """What to do, and who is to keep to a model of its own all the same."""
    if not len(choice.alone):
        return what
    named = ", ".join(str(ids[i]) for i in choice.alone[:NO_MORE])
    more = f" and {len(choice.alone) - NO_MORE} more" if len(choice.alone) > NO_MORE else ""
    if len(choice.alone) == 1:
        return f"{what[:-1]}; {named} is better off alone, and keeps to a model of its own."
    return f"{what[:-1]}; {named}{more} are better off alone, and keep to models of their own."


def _what(choice: Choice, pilot: Pilot, lam: float, own: float) -> str:
    degree = "strongly" if own > STRONG else "mildly" if own < MILD else "halfway"
    if choice.named == "shared":
        return "Share one model: do not personalize."
    if choice.named == "local":
        return f"Do not federate: each client is as well off alone{', with a ridge' if len(pilot.ridges) else ''}."
    if choice.named == "groups":
        return f"Train one model for each of {choice.groups} groups of clients."
    if choice.named == "tuned":
        _, part, passes = pilot.names[choice.at[choice.kinds.index("tuned")]].split()
        what = "all layers" if part == "all" else f"{part} layers alone"
        return f"Fine-tune the shared network for {passes} passes over a client's data, {what}."
    pulled = f"lambda = {lam:.2g} for a client of {pilot.usual:.0f} examples"
    if choice.named == "stack":
        most = sorted(((w, k) for w, k in zip(choice.weights, choice.kinds, strict=True) if w >= 0.05), reverse=True)
        parts = ", ".join(f"{WORDS[kind]} {weight:.0%}" for weight, kind in most)
        return f"Mix models (stack): {parts}; {pulled}."
    if len(pilot.ridges) == 0:
        return (f"Share all but the last layer: each client's own is pulled to the shared one, {pulled} (its own data "
                f"then decide {own:.0%} of it).")  # fmt: skip
    return (f"Personalize {degree}: a ridge to the shared model, {pulled} (its own data then decide {own:.0%} of its "
            "model).")  # fmt: skip


WORDS = {"shared": "shared", "path": "between shared and own", "nearer": "nearer to own", "local": "local",
         "groups": "of its group", "tuned": "fine-tuned"}  # fmt: skip


def _whom(seen: Foreseen, ids: np.ndarray) -> str:
    found = seen.hurt
    if found is None:
        return "Nobody has held-out examples to say who is worse off than alone."
    count = lambda share: f"{share * found.clients:.0f}"
    proved = int(found.proved.sum())
    low, high = ("?", "?") if np.isnan(found.hurt_expected_low) else map(count, (found.hurt_expected_low,
                                                                                found.hurt_expected_high))  # fmt: skip
    said = (f"Of {found.clients} clients, {proved} {'is' if proved == 1 else 'are'} proved worse off than alone; "
            f"{count(found.hurt_expected)} ({low} to {high}) {'is' if count(found.hurt_expected) == '1' else 'are'} "
            "expected to lose more than a point")  # fmt: skip
    risky = int(np.nanargmax(found.risk))
    if found.risk[risky] < 0.25:
        return said + "."
    return f"{said}; most at risk: {ids[seen.judged[risky]]} ({found.risk[risky]:.0%})."


def reasons(
    choice: Choice, pilot: Pilot, seen: Foreseen, found: Difference, kind: str, shares: tuple[float, float],
    numbers: bool, partners: bool,
) -> list[str]:  # fmt: skip
    """Why: how different clients are, what the path, local and groups gave, what the stack adds."""
    said = []
    if np.isfinite(found.z) and not found.memorised:
        few = len(pilot.sizes) < FEWEST_FOR_GROUPS
        none = "are too few to tell their difference from chance by gradients" if few else (
            "show no difference in their gradients that could not be chance")  # fmt: skip
        said.append(f"Clients {'differ' if found.z >= 2 else none} (z = {found.z:.1f}): true models lie "
                    f"{found.radius:.2g} a parameter from the shared one; {pilot.usual:.0f} examples alone leave a "
                    f"noise of {found.noise:.2g}.")  # fmt: skip
    said.append(_why_different(choice, kind, *shares, numbers))
    if "groups" in choice.kinds:
        best = min(seen.errors[name].mean for name in choice.kinds if name != "groups")
        said.append(f"Models of {choice.groups} groups have an expected error of {seen.errors['groups'].mean:.1f} %, "
                    f"the best without groups {best:.1f} %.")  # fmt: skip
    if partners:
        said.append("With whom: with everybody. Held-out examples confirm no groups; whether single partners help is "
                    "not tried here, but by all_for_all, whose page shows them.")  # fmt: skip
    if choice.named == "stack":
        said.append(f"The mixture beats its best part ({WORDS[choice.single]}) by {choice.better:.3g} in log loss (+- "
                    f"{choice.doubt:.2g}) on examples that its weights have not seen.")  # fmt: skip
    elif np.isfinite(choice.doubt):
        said.append(f"A mixture of all candidates would change the log loss by {-choice.better:+.2g} (+- "
                    f"{choice.doubt:.2g}): not enough to be worth several models.")  # fmt: skip
    if choice.kappa == np.inf:
        said.append("One setting for all: held-out examples do not support weights of a client's own.")
    return said


def _why_different(choice: Choice, kind: str, label: float, feature: float, numbers: bool) -> str:
    """Labels, inputs or meaning: what explains the difference on held-out examples."""
    own = "a mean of one's own" if numbers else "own label frequencies"
    if kind == "none":
        return "Nothing personal was found that held-out examples would confirm."
    if kind == "label":
        what = "Targets lie higher at some clients" if numbers else "Labels are differently frequent"
        return f"{what}: {label:.0%} of the gain is that of {own}."
    if kind == "feature" and (choice.named == "shared" or feature < 0.5):
        return "Inputs differ between clients, and mean the same to all: one model can serve them."
    if kind == "feature":
        return f"Inputs lie elsewhere at some clients: {feature:.0%} of the gain is that of moving their mean back."
    return (f"The same input means something else to different clients: {own} would bring {label:.0%} of the gain, "
            f"inputs moved to a common mean {feature:.0%}.")  # fmt: skip


def doubts(choice: Choice, pilot: Pilot, seen: Foreseen, found: Difference, folds: int, grouped: bool) -> list[str]:
    """What cannot be known, or went beyond what was planned."""
    said, held = [], pilot.first.count[:, 0]
    low, high = np.quantile(held, [0.1, 0.9]) if len(held) else (0, 0)
    width = (seen.gains["shared"].high - seen.gains["shared"].low) / 2
    if choice.named == "shared":
        width = (seen.gains["path"].high - seen.gains["path"].low) / 2
    said.append(f"{FOLDS_TOLD[folds]} of {low:.0f} to {high:.0f} held-out examples a client: "
                f"differences under {width:.1f} points cannot be seen.")  # fmt: skip
    if pilot.extended:
        said.append("The best point lay at the end of the path: the grid was extended.")
    if found.memorised:
        said.append(f"The pilot has memorised its data (z = {found.z:.0f}): moments are not used.")
    if len(pilot.sizes) < 8:
        said.append(f"{len(pilot.sizes)} clients: nothing can be said about groups, nor about single clients.")
    elif len(pilot.ridges) == 0:
        alone = 0 if seen.hurt is None else seen.hurt.clients
        said.append(f"Groups of networks were not looked for; what is said of alone is said of {alone} clients that "
                    "trained a network alone.")  # fmt: skip
    elif not grouped:
        said.append("Groups were not looked for: the budget did not allow it.")
    if int((held == 0).sum()):
        said.append(f"{int((held == 0).sum())} clients have no held-out example: they are advised as everybody.")
    return said


def ask_for_more(seen: Foreseen, pilot: Pilot, ids: np.ndarray) -> list[str]:
    """Whose further examples would tell most, if some clients stand out: nothing, or a sentence."""
    doubt = np.nan_to_num(np.asarray(seen.client_doubts, np.float64))
    some = doubt[doubt > 0]
    if len(some) < FEWEST_FOR_GROUPS or doubt.max() < UNSURE_TIMES * float(np.median(some)):
        return []
    most = np.argsort(-doubt)[:3]
    named = ", ".join(f"{ids[i]} ({pilot.sizes[i]})" for i in most if doubt[i] >= UNSURE_TIMES * np.median(some))
    return [f"More examples would tell most at {named}: what this is worth to them is least certain."]


def _ends(found: Expected) -> str:
    """A difference in points, with its interval."""
    return f"{found.mean:.1f}, 90 %: {found.low:.1f} to {found.high:.1f}"

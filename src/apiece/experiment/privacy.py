"""A spec's differential privacy: what is refused, how much noise that is, and the promise that stands in the record."""

import importlib.metadata
import math
from collections.abc import Callable
from typing import Any

import jax

from apiece.engines.contact import visit_shapes
from apiece.engines.world.cohort import Participation
from apiece.errors import UserError
from apiece.experiment.record import PrivacyRecord
from apiece.experiment.spec_tables import PrivateSpec, TrainSpec
from apiece.protocol import Data, Method, Params
from apiece.wrap.accountant import Draw, epsilon_of, noise_for, slack_of
from apiece.wrap.private import averages_replies, check_numbers, private

# Of the catalog, those whose merge looks like an average in the first round, or in a trial, and is none.
APART = {
    "all_for_all": "its server keeps a model for each client, so that its merge is no average of the replies",
    "dynamic_lambda": "its server steps back by validation losses, which clients without validation rows do not send",
    "l2gd": "its server counts who is new",
    "fed_proto": "its server divides sums of features by counts of classes, of which some are near zero under noise",
}


def draw_of(train: TrainSpec, population: int) -> Draw:
    """What the accountant is told of who takes part: nothing better than everybody, unless clients are drawn by lot.

    >>> draw_of(TrainSpec(probability=0.2), 50), draw_of(TrainSpec(cohort=50), 50).sampling
    (Draw(sampling='poisson', clients=50, rate=0.2), 'everybody')
    """
    by_lot = train.participation is None and train.availability is None
    if by_lot and train.probability is not None and train.probability < 1:
        return Draw("poisson", population, train.probability)
    if by_lot and train.cohort is not None and train.cohort < population:
        return Draw("fixed", population, train.cohort / population)
    return Draw("everybody", population)


def expected_clients(train: TrainSpec, population: int) -> float:
    """How many clients a round has on average, if nobody is away: what sums are divided by.

    >>> expected_clients(TrainSpec(probability=0.5), 30), expected_clients(TrainSpec(), 30)
    (15.0, 30.0)
    """
    if train.probability is not None:
        return train.probability * population
    return float(min(train.cohort or population, population))


def noise_of(train: TrainSpec, population: int) -> float:
    """The noise of a round's sum, in clips: given, or what the accountant finds for the epsilon."""
    wanted = asked_for(train, population)
    if wanted.noise is not None:
        return wanted.noise
    assert wanted.epsilon is not None
    return noise_for(wanted.epsilon, wanted.delta, train.rounds, draw_of(train, population))


def asked_for(train: TrainSpec, population: int) -> PrivateSpec:
    """The table [train.private], if what it promises can be kept under the rest of the spec; else a `UserError`."""
    wanted = train.private
    assert wanted is not None
    if train.arrivals is not None:
        raise UserError("train.private goes with rounds: where replies are merged as they arrive ([train.arrivals]) no "
                        "accountant here knows how often a client takes part; leave one of them out")  # fmt: skip
    if train.defence is not None:
        raise UserError("train.private and train.defence exclude each other: a rule that looks at single replies, or "
                        "refuses some by the length of others, moves by more than one client's clip. The clip itself "
                        "bounds what anybody does; leave [train.defence] out")  # fmt: skip
    if train.attack is not None:
        raise UserError("train.private and train.attack exclude each other: a simulated attacker sees what all others "
                        "send, and its reply would carry that past the clip; leave one of them out")  # fmt: skip
    if train.compress is not None and wanted.at == "clients":
        raise UserError("train.compress and noise at the clients exclude each other: what is left of noised replies "
                        "adds up to less noise than was accounted for; take private.at = 'server'")  # fmt: skip
    if wanted.delta >= 1 / population:
        raise UserError(f"train.private.delta = {wanted.delta:g} is no promise to {population} clients: whoever "
                        f"publishes one of them at random keeps it; take one far below "
                        f"{1 / population:.2g}")  # fmt: skip
    return wanted


def refuse_public_noise(train: TrainSpec) -> None:
    """A `UserError` if noise would be drawn from a seed that all sites of a deployed run know."""
    if train.private is not None and not train.private.secret:
        raise UserError(
            "train.private of a deployed run takes its noise from the run's seed, which every site knows: whoever "
            "knows it can take the noise away. Write secret = true into [train.private]: then "
            + ("each site draws its part from its own machine" if train.private.at == "clients" else "the server draws "
               "it from its own machine")
        )  # fmt: skip


def noised_by(train: TrainSpec, population: int) -> Callable[[Method, Any], Method]:
    """What makes a method private, as the spec says."""
    wanted = asked_for(train, population)
    how: dict[str, Any] = dict(clip=wanted.clip, at=wanted.at, quantile=wanted.quantile, secret=wanted.secret)
    how |= dict(noise=noise_of(train, population), expected=expected_clients(train, population))
    return lambda method, reply: private(method, **how)


def refuse_unaveraged(name: str, method: Method, params: Params, client: Data, population: int) -> None:
    """A `UserError` that says why a method (before it is made private) cannot be; nothing if it can."""
    _, reply = visit_shapes(method, params, (client.x, client.y), client.capacity or 1)
    said = f"method '{name}' under [train.private]: "
    if name in APART:
        raise UserError(f"{said}{APART[name]}; take another method, or leave the table out")
    try:
        check_numbers(reply)
    except UserError as error:
        raise UserError(said + str(error)) from None
    if not averages_replies(method, params, reply, population):
        raise UserError(
            f"{said}its merge is no average of the replies (it keeps models or numbers of single clients, groups them, "
            "or weighs replies by what they say), and of differentially private replies the average is all there is; "
            "take another method, or leave the table out"
        )


def privacy_of(train: TrainSpec, population: int) -> PrivacyRecord | None:
    """The promise that a run of this spec keeps; None: none was asked for."""
    if train.private is None:
        return None
    wanted, draw = asked_for(train, population), draw_of(train, population)
    noise = noise_of(train, population)
    epsilon = epsilon_of(noise, wanted.delta, train.rounds, draw)
    places = Participation(train.cohort, train.probability, exact=True).places(population)
    slack = (1 + math.exp(min(epsilon, 700))) * slack_of(draw, places, train.rounds)
    if slack >= wanted.delta:
        raise UserError(f"train.private: epsilon = {epsilon:.3g} is so large that the few rounds in which more clients "
                        f"are drawn than fit spend delta = {wanted.delta:g}; lower it, or take a cohort of a fixed "
                        "size")  # fmt: skip
    return PrivacyRecord(
        epsilon=epsilon,
        delta=wanted.delta,
        slack=slack,
        noise=noise,
        clip=wanted.clip,
        quantile=wanted.quantile,
        sampling=draw.sampling,
        rate=draw.rate,
        rounds=train.rounds,
        clients=population,
        adjacency=draw.adjacency,
        at=wanted.at,
        secret=wanted.secret,
        accountant=f"dp-accounting {importlib.metadata.version('dp-accounting')}, RDP",
        assumptions=_assumptions(wanted, draw),
        not_covered=list(NOT_COVERED),
    )


NOT_COVERED = (
    "tuning, early stopping and the choice of a method, which look at clients' own scores",
    "scales, step sizes and other statistics of the data that were found before training",
    "the scores, curves and tables of this record, which are clients' own numbers",
    "personal parts and models, which are not noised: they are not sent, and whoever is given one sees its client",
)


def _assumptions(wanted: PrivateSpec, draw: Draw) -> list[str]:
    by_lot = {
        "everybody": "every client may take part in every round: no amplification by sampling is claimed",
        "poisson": "each client is drawn on its own with this probability, and nobody learns who was drawn",
        "fixed": "so many clients are drawn without replacement, and nobody learns who was drawn",
    }
    noise = {
        "server": "the server is trusted with single replies, which it clips, sums and noises",
        "clients": "the server adds up before it looks: a single reply has but a small part of the noise",
    }
    source = (
        "noise is drawn from the operating system's randomness"
        if wanted.secret
        else "noise is drawn from the run's seed: a simulation; whoever knows the seed can take the noise away"
    )
    again = "each run of a method, of a seed or of a tuning trial spends this epsilon once more"
    return [by_lot[draw.sampling], noise[wanted.at], source, again]


def privacy_notes(found: PrivacyRecord | None) -> list[str]:
    """The promise in words, for terminal and page."""
    if found is None:
        return []
    clip = f"clip {found.clip:g}" if found.quantile is None else f"clip at quantile {found.quantile:g}"
    drawn = {
        "everybody": f"all {found.clients} clients",
        "poisson": f"each of {found.clients} clients with probability {found.rate:.3g}",
        "fixed": f"{round(found.rate * found.clients)} of {found.clients} clients",
    }[found.sampling]
    return [
        f"privacy: epsilon = {found.epsilon:.3g} at delta = {found.delta:g} for what one run's clients send "
        f"({found.adjacency}; noise {found.noise:.3g} x {clip}, at the {found.at}; {drawn} in each of {found.rounds} "
        f"rounds; {found.accountant}); everybody counts alike",
        f"privacy assumes: {'; '.join(found.assumptions)}",
        f"privacy does not cover: {'; '.join(found.not_covered)}",
    ]


def check_privacy(
    name: str, method: Method, train: TrainSpec, init: Callable[[Any], Params], client: Data, population: int
) -> None:
    """A `UserError` if a spec asks for privacy that this method, or this federation, cannot have."""
    if train.private is not None:
        privacy_of(train, population)
        refuse_unaveraged(name, method, jax.eval_shape(init, jax.random.key(0)), client, population)

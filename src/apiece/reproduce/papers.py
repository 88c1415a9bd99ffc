"""What a reader of the five papers would want to know first: sentences, each of which rests on a row of a verdict.

(sentence, reproduction, claim, verdict): a test holds every sentence to its row.
"""

from typing import NamedTuple

from apiece.reproduce.verdict import FAILS, HOLDS, UNDECIDED


class Sentence(NamedTuple):
    """What is said, and the row that it follows from."""

    text: str
    reproduction: str
    claim: str
    verdict: str


_SHARED = "equal work, tau = {}: FFGG ends lowest, log of its |F| over the best rival's after 1000 rounds"
_RATE = "log of (|theta - theta*|^2 over (1 - step mu/2)^R of the start's), worst attack and R"
_ENVELOPE = "it follows the lower envelope of the fixed lams, largest ratio over the rounds, below 1.1"
_LADDER = "averaged model on all classes: fed_clup's accuracy at low less that at high personalization"
_NEAR = (
    "averaged model on all classes: Global above fed_clup high, below 0.05 (published for 20 rounds of softmax "
    "regression: 0.20)"
)

PAPERS: dict[str, list[Sentence]] = {
    "Federated asymptotics (Cheng, Chadha and Duchi 2021)": [
        Sentence("The limits of the seven linear estimators hold once their misprints are corrected", "asymptotics",
                 "ftfa (identity, d/n = 2): risk, to 5%", HOLDS),
        Sentence("as printed, the formulas for FTFA and RTFA do not", "asymptotics",
                 "ftfa (identity, d/n = 2): risk by the formula (15)-(16) as printed, to 5%", FAILS),
        Sentence("they hold client by client where covariances, sizes, radii and noises differ", "asymptotics",
                 "ftfa (unlike clients: all differ): mean risk, to 5%", HOLDS),
        Sentence("on frozen features fine-tuning gains over FedAvg for people's activities", "last-layer",
                 "HAR by subject: FTFA above FedAvg, in points", HOLDS),
        Sentence("but is behind training alone there", "last-layer",
                 "HAR by subject: FTFA above training alone, in points", FAILS),
        Sentence("on Shakespeare's roles it gains much over training alone", "last-layer",
                 "Shakespeare by role: FTFA above training alone, in points", HOLDS),
        Sentence("but is not told apart from FedAvg, over the whole published grids", "last-layer",
                 "Shakespeare by role: FTFA above FedAvg, in points", UNDECIDED),
        Sentence("pFedMe does not take twenty times FedAvg's time", "last-layer",
                 "Shakespeare by role: seconds of pFedMe over those of FedAvg, to a half", FAILS),
    ],
    "FedCLUP": [
        Sentence("Rounds grow with lambda and with the condition number", "fedclup-linear",
                 "rounds grow with lam: least ratio of neighbours, over all federations", HOLDS),
        Sentence("not by the printed order, which has its fraction upside down", "fedclup-linear",
                 "rounds are of the order kappa (lam + L)/(lam + mu), as printed: those at lam = 50 over those at 0.01"
                 ", up to a factor of 2", FAILS),
        Sentence("more local steps save most rounds at a small lambda, not at a large one", "fedclup-linear",
                 "kappa = 50: local steps save more rounds at lam = 10 than at 0.02: saving there over saving here",
                 FAILS),
        Sentence("on pictures of few classes a client the averaged model moves from Local to Global with lambda",
                 "fedclup-images", f"MNIST logit, 2 classes, {_LADDER}", HOLDS),
        Sentence("trained longer, even high personalization comes near to Global", "fedclup-images",
                 f"MNIST logit, 160 rounds, 2 classes, {_NEAR}", HOLDS),
        Sentence("with all ten classes at every client it does not so move", "fedclup-images",
                 f"MNIST logit, 10 classes, {_LADDER}", FAILS),
        Sentence("what is printed for Local is then of the clients' own models", "fedclup-images",
                 "MNIST logit, 10 classes: the printed accuracy of Local is that of the own models, to 0.03", HOLDS),
        Sentence("dynamic lambda does not follow the lower envelope of the fixed ones", "dynamic-lambda",
                 f"R = 0.1, all from zeros: {_ENVELOPE}", FAILS),
    ],
    "Self-FL (Chen, Ding and others 2022)": [
        Sentence("The printed rule is not the posterior mean: its error is fifty times what it believes",
                 "self-fl-synthetic", "100 clients, all variances 1: squared error of the printed rule, to 5%", FAILS),
        Sentence("that of the posterior mean is what it believes", "self-fl-synthetic",
                 "100 clients, all variances 1: of the Bayes rule, to 5%", HOLDS),
        Sentence("where clients are unlike, Self-FL as printed is behind training alone", "self-fl-synthetic",
                 "case 2, C = 1: own error of self_fl over training alone", FAILS),
        Sentence("on digits it is behind Ditto", "self-fl-images",
                 "own models, tenth with most samples: accuracy of self_fl less that of ditto, points", FAILS),
        Sentence("by less without the listing's slips and its smoothing, but still", "self-fl-images",
                 "own models, tenth with most samples: accuracy of self_fl (unsmoothed) less that of ditto, points",
                 FAILS),
        Sentence("the shared model is better with the start adjusted alone than with the steps or the weights",
                 "self-fl-images",
                 "shared model: accuracy with the start adjusted alone, less the weights alone, points", HOLDS),
        Sentence("but nothing shows that it is better than with no adjustment", "self-fl-images",
                 "shared model: accuracy with the start adjusted alone, less no adjustment, points", UNDECIDED),
        Sentence("and all three together are worse than none", "self-fl-images",
                 "shared model: accuracy with all three adjustments, less none, points", FAILS),
        Sentence("a wake word has fewer false accepts than the detector that all set out from", "wake-word",
                 "self_fl, shared: false accepts relative to the warm start, all types, below 1", HOLDS),
        Sentence("own detectors more than Ditto's", "wake-word",
                 "self_fl, own: false accepts over those of ditto (e), all types, below 1", FAILS),
        Sentence("and weighting clients by size does no harm that is like the published one", "wake-word",
                 "fed_avg, shared: false accepts weighted by size over those weighted equally, above 2", FAILS),
        Sentence("with twenty clients, clusters by device type have fewer false accepts", "wake-word",
                 "twenty clients, shared: false accepts with clusters by types over those without clusters, below 1",
                 HOLDS),
    ],
    "All-for-one and All-for-all (Even, Massoulié and Scaman 2022)": [
        Sentence("With exact similarities learning together is better than alone and than as one", "all-for-all-mean",
                 "b exact: least share of the error of local and of fed_avg that all_for_all saves, t >= 10", HOLDS),
        Sentence("with noisy ones it is not at every noise level", "all-for-all-mean",
                 "b with noise 0.5: error over that of local, t = 1000", FAILS),
        Sentence("networks find groups that nobody named, and gain over training alone by them", "all-for-all-groups",
                 "skewed labels: all_for_all less training alone, points", HOLDS),
        Sentence("to two points they are as good as if they had been told the groups", "all-for-all-groups",
                 "skewed labels: all_for_all less the true groups, points", HOLDS),
        Sentence("the mixing matrix does not have spectral radius 1", "all-for-all-mean",
                 "star of 100: spectral radius of W", FAILS),
        Sentence("all-for-one's printed bound lacks a factor", "all-for-all-mean",
                 "all-for-one, own gradients only: error below the printed bound", FAILS),
    ],
    "FFGG": [
        Sentence("At equal work FFGG ends lowest with 500 inner steps", "ffgg-quadratic", _SHARED.format(500), HOLDS),
        Sentence("with 100 L2GD does", "ffgg-quadratic", _SHARED.format(100), FAILS),
        Sentence("nobody needs to wait: with a shared optimum late replies lead there", "ffgg-async",
                 "optimum shared, policy 'new': |F| at the end (largest of all repetitions)", HOLDS),
        Sentence("and the mean gradient on the way stays below what the theorem says at its step", "ffgg-async",
                 "optimum shared, policy 'new', proved step: mean |F_m|^2 over R versions, over its bound (worst R)",
                 HOLDS),
        Sentence("with few liars, each rule's own constant and the proved step, the proved rate holds",
                 "ffgg-byzantine", f"few liars, krum over buckets of 5: {_RATE}", HOLDS),
        Sentence("the share of liars that is withstood is a quarter of what is printed", "ffgg-byzantine",
                 "largest share of liars that is withstood, mu = 0.5, L = 1.5, l = 1.5, rho = 1.0", FAILS),
        Sentence("on pictures by writer private input layers, output layers and adapters gain over FedAvg", "partial",
                 "images, adapter private: points above FedAvg", HOLDS),
        Sentence("which part gains most is open", "partial",
                 "images: the most accurate split is adapter: points above the best other one that is published",
                 UNDECIDED),
        Sentence("on text by role a private first block of a transformer does not gain", "partial",
                 "text, first block private: points above FedAvg", FAILS),
    ],
}  # fmt: skip


def paragraph(sentences: list[Sentence]) -> str:
    """As one paragraph, every part with a link to the reproduction that it follows from.

    >>> paragraph([Sentence("It holds", "asymptotics", "a", HOLDS), Sentence("so does this", "partial", "b", HOLDS)])
    'It holds ([asymptotics](#asymptotics)); so does this ([partial](#partial)).'
    """
    return "; ".join(f"{one.text} ([{one.reproduction}](#{one.reproduction}))" for one in sentences) + "."

"""A text for each author: guess the next character, with all layers shared but the last, which is each author's own.

Run it: python examples/texts.py [folder]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import apiece

WORDS = {
    "sailor": "wind sail rope deck storm harbour mast tide gull anchor north captain",
    "cook": "salt butter onion stir slowly pot taste pepper bread oven garlic simmer",
    "clerk": "ledger invoice paid stamp copy file noon desk signed letter account due",
}


def write_texts(folder: Path, authors: int = 6, words: int = 900) -> None:
    """Made up: one file per author; two authors of each trade, each with favourite words and a habit of punctuation."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for k in range(authors):
        trade = list(WORDS)[k % 3]
        own, common = WORDS[trade].split(), ["the", "a", "and", "of", "to", "in", "was", "with", "that", "it"]
        odds = rng.dirichlet(np.full(len(own), 0.7))
        text = [str(rng.choice(own, p=odds) if n % 2 else rng.choice(common)) for n in range(words)]
        mark = "!" if k % 2 else "."
        lines = [" ".join(text[n : n + 8]) + mark for n in range(0, words, 8)]
        (folder / f"{trade}{k // 3}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


with tempfile.TemporaryDirectory() as temporary:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary, "authors")
    write_texts(folder)

    # The file's name is the client. The beginning of a text trains, its end tests; sequences of 40 characters.
    federation = apiece.data.load(folder, length=40)
    print(f"{federation.clients} authors, {len(federation.classes)} characters, {federation.train.rows} sequences")

model = apiece.models.char_lstm(len(federation.classes), width=32, layers=1)
results = {}
for method in ("fed_avg", "fed_per"):  # one model for all; shared layers with an output layer apiece
    how = dict(rounds=20, evaluate_every=20, options={"steps": 10, "lr": 2.0, "batch": 8})
    results[method] = apiece.fit(method, model, federation, **how)
    test, spent = results[method].evaluate()["test"]["accuracy"], results[method].costs
    print(f"{method} guesses {test['mean_weighted']:.3f} of the characters, {spent['bytes_up'] / 1e6:.2f} MB sent up")


def continued(author: str, begin: str, length: int = 30) -> str:
    """What the author's own model writes next, one most likely character after the other."""
    place = {character: k for k, character in enumerate(federation.classes)}
    model = results["fed_per"].personal(author)
    for _ in range(length):
        x = np.array([[place.get(c, 0) for c in begin[-40:].rjust(40)]], federation.train.x.dtype)
        begin += federation.classes[int(results["fed_per"].predict(model, x)[0, -1].argmax())]
    return begin


for author in ("sailor0", "cook0"):
    print(f"{author} would write: {continued(author, 'in the ')!r}")

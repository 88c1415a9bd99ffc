"""A folder of pictures for each client: read as it is, and a small convolutional network for each.

Run it: python examples/pictures.py [folder]    (needs Pillow: pip install 'apiece[images]')
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import apiece


def draw(shape: str, rng: np.random.Generator, dark: bool) -> Image.Image:
    """A circle, a square or a cross somewhere on 16 x 16 pixels, with noise; some cameras see black on white."""
    picture = Image.new("L", (16, 16), 20)
    pen, (x, y), r = ImageDraw.Draw(picture), rng.integers(5, 11, 2), int(rng.integers(3, 5))
    box = (int(x) - r, int(y) - r, int(x) + r, int(y) + r)
    if shape == "cross":
        pen.line(box, 230)
        pen.line((box[0], box[3], box[2], box[1]), 230)
    else:
        (pen.ellipse if shape == "circle" else pen.rectangle)(box, outline=230)
    pixels = np.clip(np.asarray(picture) + rng.normal(0, 15, (16, 16)), 0, 255).astype(np.uint8)
    return Image.fromarray(255 - pixels if dark else pixels)


def write_pictures(folder: Path, cameras: int = 8, each: int = 12) -> None:
    """<camera>/<shape>/<number>.png; every third camera is inverted, and each prefers one of the shapes."""
    rng = np.random.default_rng(0)
    for k in range(cameras):
        for s, shape in enumerate(("circle", "square", "cross")):
            here = folder / f"camera{k}" / shape
            here.mkdir(parents=True)
            for number in range(each * 2 if s == k % 3 else each):
                draw(shape, rng, dark=k % 3 == 0).save(here / f"{number:02d}.png")


with tempfile.TemporaryDirectory() as temporary:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary, "cameras")
    write_pictures(folder)

    federation = apiece.data.load(folder)  # the folder's layout says it all: no options
    print(f"{federation.clients} clients, classes {federation.classes}, pictures {federation.train.x.shape[1:]}")

# Layers have names: conv0, conv1, out. A private part is chosen by them.
stages = [apiece.models.Stage(8), apiece.models.Stage(16)]
model = apiece.models.cnn(federation.train.x.shape[1:], len(federation.classes), stages)

results = {}
for method, options in {"fed_avg": {}, "partial": {"private": "conv0"}}.items():  # one for all; an own first layer
    how = dict(rounds=15, evaluate_every=15, options={"steps": 10, "lr": 0.1, **options})
    results[method] = apiece.fit(method, model, federation, **how)
    test = results[method].evaluate()["test"]["accuracy"]
    print(f"{method:8} test accuracy {test['mean_weighted']:.3f}, worst tenth of the clients {test['worst10']:.3f}")

x, y = federation.test.client(0)
scores = results["partial"].predict("camera0", x[:5])
says = [federation.classes[k] for k in scores.argmax(1)]
print("camera0's own model says", says, "of", [federation.classes[k] for k in y[:5]])

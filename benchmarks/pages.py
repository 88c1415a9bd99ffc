"""The page of a run with very many clients, in a real browser: how large it is, when it paints, how fast it answers.

The runs are made up (`tests/report/fake_runs.py`): what is measured depends on how many clients and methods there are,
and not on what was learned.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .speed import grid

HELP = "the page of 10,000 and of 100,000 clients in a browser: its size, first paint, and answers to clicks"
REPEATS = 7
METHODS = ("local", "fed_avg", "ftfa", "ditto")
CHROMIUM = os.environ.get("APIECE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
# From the moment the mouse goes down until the card is filled and all that it changed is painted.
WATCH = """() => {
  window.answered = null;
  addEventListener("pointerdown", () => (window.asked = performance.now()), { capture: true, once: true });
  const ended = () => (window.answered = performance.now() - asked);
  new MutationObserver((_, observer) => {
    observer.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(ended));
  }).observe(document.getElementById("card-body"), { childList: true });
}"""
# Where some client's dot is on the screen.
PLACE = """([plot, x, y, share]) => {
  const inside = (view) => (view.child_views || []).map(find).find(Boolean);
  const find = (view) => view.model && view.model.name === plot ? view : inside(view);
  const view = Bokeh.index.roots.map(find).find(Boolean), data = page.named(`drawn-${plot}`).data;
  const there = [...data.at.keys()].filter((row) => Number.isFinite(data[x][row]) && Number.isFinite(data[y][row]));
  const row = there[Math.floor(share * there.length)], at = view.el.getBoundingClientRect();
  return [at.x + view.frame.x_scale.compute(data[x][row]), at.y + view.frame.y_scale.compute(data[y][row])];
}"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, nargs="+", default=[10_000, 100_000], help="(default: %(default)s)")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    if CHROMIUM is None:
        raise ValueError("no chromium: apt-get install chromium, or name one by APIECE_CHROMIUM")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise ValueError("Playwright drives the browser: pip install playwright") from None
    rows = []
    with tempfile.TemporaryDirectory() as place, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for clients in args.clients:
            say(f"{clients:,} clients")
            page, seconds = _written(Path(place) / str(clients), clients)
            rows.append({"system": "apiece", "clients": clients, "megabytes": page.stat().st_size / 1e6,
                         "written_seconds": seconds, **_looked_at(browser, page, args.repeats)})  # fmt: skip
            say(f"  {rows[-1]}")
        browser.close()
    return {"rows": rows}


def _written(folder: Path, clients: int) -> tuple[Path, float]:
    """(the page of a made-up run, processor seconds to write it)."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "report"))
    from fake_runs import fake_run  # type: ignore[import-not-found]

    from apiece.report import write_report

    fake_run(folder, clients=clients, seeds=1, methods=METHODS, profile=True)
    start = time.process_time()
    page = write_report(folder)
    return page, time.process_time() - start


def _looked_at(browser: Any, page: Path, repeats: int) -> dict[str, Any]:
    """First paint, all drawn, and answers to clicks in two pictures, in milliseconds; medians of several openings."""
    paints, drawn, clicks, worked, shown = [], [], [], [], 0
    for _ in range(repeats):
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(page.as_uri(), wait_until="commit", timeout=120_000)
        _wait(tab, "typeof page !== 'undefined' && page.ready === true")
        paints.append(tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        drawn.append(tab.evaluate("performance.now()"))
        shown = tab.evaluate("page.read('clients').ids.length")
        main = int(tab.locator("#controls").get_attribute("data-main"))
        for plot, x in (("sizes", "train"), ("gains", f"rank{main}")):
            tab.locator(f"#{plot}").evaluate("(plot) => plot.scrollIntoView({ block: 'center' })")
            tab.wait_for_timeout(500)
            for share in (0.2, 0.5, 0.8):
                tab.evaluate(WATCH)
                before = _worked(session)
                tab.mouse.click(*tab.evaluate(PLACE, [plot, x, f"gain{main}", share]))
                _wait(tab, "window.answered !== null")
                clicks.append(tab.evaluate("window.answered"))
                worked.append(_worked(session) - before)
                tab.wait_for_timeout(700)  # two clicks in quick succession are another gesture
        tab.close()
    return {"in_the_page": shown, "first_paint_ms": statistics.median(paints), "drawn_ms": statistics.median(drawn),
            "click_ms": statistics.median(clicks), "least_click_ms": min(clicks),
            "click_work_ms": statistics.median(worked)}  # fmt: skip


def _worked(session: Any) -> float:
    """Milliseconds that the page's own thread was at work, which other work of the machine does not lengthen."""
    found = session.send("Performance.getMetrics")["metrics"]
    return 1000 * next(one["value"] for one in found if one["name"] == "TaskDuration")


def _wait(tab: Any, what: str, seconds: int = 120) -> None:
    """Until it is true; asked from outside, as the page's own policy forbids it to evaluate texts."""
    for _ in range(50 * seconds):
        if tab.evaluate(what):
            return
        tab.wait_for_timeout(20)
    raise ValueError(f"not within {seconds} s: {what}")


def table(result: dict[str, Any], markdown: bool = False) -> str:
    whole, places = (lambda value: f"{value:,.0f}"), (lambda value: f"{value:.1f}")
    columns = [("clients", "clients", whole), ("in the page", "in_the_page", whole), ("file, MB", "megabytes", places),
               ("written, s", "written_seconds", places), ("first paint, ms", "first_paint_ms", whole),
               ("all drawn, ms", "drawn_ms", whole), ("a click, ms", "click_ms", whole),
               ("least click, ms", "least_click_ms", whole), ("of it at work, ms", "click_work_ms", whole)]  # fmt: skip
    return "\n".join(grid(columns, result["rows"], markdown))

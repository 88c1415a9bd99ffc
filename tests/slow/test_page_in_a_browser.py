"""The page in a real browser: a client chosen anywhere is chosen everywhere; no error, no network."""

import csv
import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from fake_runs import fake_run

from apiece.report import write_report, write_runs
from apiece.report.figure import Figure, Line, Panel
from apiece.report.figure_page import write_figure

CHROMIUM = os.environ.get("APIECE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(os.environ.get("APIECE_AXE", "node_modules/axe-core/axe.min.js"))  # npm install axe-core
EVIL = ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", *(f"ward {k}" for k in range(10))]
NINE = ("local", "fed_avg", "fed_prox", "ftfa", "rtfa", "ditto", "pfedme", "scaffold", "fed_clup")
CASES = {
    "demo": {"profile": True, "new": 3, "clients": 30},
    "sensors": {"profile": True, "clients": 23, "binary": True},
    "hospital": {"clients": 12, "ids": EVIL, "profile": True, "name": "heart <b>", "methods": ("local", "ditto")},
    "regression": {"task": "regression", "profile": True, "clients": 40},
    "10000": {"clients": 10_000, "seeds": 1, "profile": True},
    "100000": {"clients": 100_000, "seeds": 1, "profile": True},
    "nine": {"methods": NINE, "clients": 27, "profile": True},
}
# Where a client's dot is on the screen.
PLACE = """([plot, x, y, row]) => {
  const inside = (view) => (view.child_views || []).map(find).find(Boolean);
  const find = (view) => view.model && view.model.name === plot ? view : inside(view);
  const view = Bokeh.index.roots.map(find).find(Boolean), data = page.named(`drawn-${plot}`).data;
  const at = view.el.getBoundingClientRect();
  const { x_scale, y_scale } = view.frame;
  return [at.x + x_scale.compute(data[x][row]), at.y + y_scale.compute(data[y][row]), data.client[row]];
}"""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium, or APIECE_CHROMIUM")
    driver = pytest.importorskip("playwright.sync_api")
    with driver.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Every case's page, made once."""
    place = tmp_path_factory.mktemp("pages")
    made = {}

    def folder(case):
        if case not in made:
            fake_run(place / case, **CASES[case])
            made[case] = write_report(place / case)
        return made[case]

    return folder


def serious(tab):
    """What axe-core finds that keeps somebody from using the page; nothing where it is not there."""
    if not AXE.exists():
        return []
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    found = tab.evaluate("async () => (await axe.run()).violations.map((one) => [one.impact, one.id])")
    return [one for one in found if one[0] in ("serious", "critical")]


class Opened:
    """A page that is open, and all that it complained of."""

    def __init__(self, browser, path, width=1280, dark=False):
        scheme = "dark" if dark else "light"
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.tab, self.wrong = self.context.new_page(), []
        self.tab.set_default_timeout(120_000)  # a machine may be at work on other things, too
        self.tab.on("console", lambda said: said.type in ("error", "warning") and self.wrong.append(said.text))
        self.tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.tab.on("dialog", lambda dialog: (self.wrong.append("a dialog"), dialog.dismiss()))
        self.tab.on("request", lambda request: self._asked(request.url))
        self.tab.goto(path.as_uri())
        self.wait("page.ready === true", 120)

    def wait(self, what, seconds=20):
        """Until it is true; asked from outside, as the page's own policy forbids it to evaluate texts."""
        for _ in range(20 * seconds):
            if self.tab.evaluate(what):
                return
            self.tab.wait_for_timeout(50)
        raise AssertionError(f"not within {seconds} s: {what}")

    def _asked(self, url):
        if not url.startswith(("file:", "data:", "blob:")):
            self.wrong.append(url)

    def click_dot(self, plot, x, y, row):
        """Click a client's dot; its name."""
        self.tab.locator(f"#{plot}").evaluate("(plot) => plot.scrollIntoView({ block: 'center' })")
        self.tab.wait_for_timeout(300)
        left, top, client = self.tab.evaluate(PLACE, [plot, x, y, row])
        self.tab.mouse.move(left, top)
        self.tab.mouse.click(left, top)
        self.tab.wait_for_selector("#card:not([hidden])", timeout=20_000)
        return client

    def close(self):
        self.context.close()
        assert self.wrong == []


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("nine", "100000")])
def test_a_client_chosen_in_a_picture_is_chosen_in_the_table_and_has_its_card(case, browser, folders):
    opened = Opened(browser, folders(case))
    tab = opened.tab
    method = 0 if tab.evaluate("Number.isFinite(page.named('drawn-sizes').data.gain0[2])") else 1
    opened.click_dot("sizes", "train", f"gain{method}", 2)
    # Where dots lie upon each other the uppermost is chosen: the same everywhere.
    name = tab.locator("#card-name").text_content()
    chosen = tab.evaluate("page.named('clients').data.client[page.named('clients').selected.indices[0]]")
    marked = tab.evaluate("[...page.named('chosen').data.client]")
    assert chosen == name and marked == [name]
    assert tab.locator("#card-body tbody tr").count() == len(CASES[case].get("methods", ("local", "fed_avg", "ditto")))
    tab.locator("#table").scroll_into_view_if_needed()
    tab.wait_for_selector(".slick-cell.selected", timeout=20_000)
    assert name in tab.locator(".slick-cell.selected").all_text_contents()
    tab.keyboard.press("Escape")
    assert tab.locator("#card").is_hidden() and tab.evaluate("page.named('clients').selected.indices.length") == 0
    opened.close()


def test_a_row_a_label_and_a_pair_can_be_clicked_too(browser, folders):
    opened = Opened(browser, folders("demo"))
    tab = opened.tab
    tab.locator("#table .slick-row .slick-cell").first.click()
    first = tab.locator("#card-name").text_content()
    assert tab.evaluate("[...page.named('chosen').data.client]") == [first]
    tab.locator("#labels").scroll_into_view_if_needed()
    tab.locator("#card-close").click()
    for plot in ("labels", "similarity"):
        tab.locator(f"#{plot}").scroll_into_view_if_needed()
        tab.wait_for_timeout(300)
        box = tab.locator(f"#{plot}").bounding_box()
        tab.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 0.45 * box["height"])
        tab.wait_for_selector("#card:not([hidden])", timeout=20_000)
        tab.keyboard.press("Escape")
    opened.close()


def test_sort_search_filter_metric_reference_methods_and_export(browser, folders, tmp_path):
    opened = Opened(browser, folders("sensors"))
    tab = opened.tab
    tab.locator("#table .slick-header-column").nth(1).click()
    sizes = [int(text.replace(",", "")) for text in tab.locator("#table .slick-cell.l1").all_text_contents()]
    assert sizes == sorted(sizes) and len(set(sizes)) > 3
    tab.fill("#filter-name", "c1")
    opened.wait("page.named('clients').data.client.length === 11")  # c1 and c10 to c19
    assert "11 of 23 clients" in tab.locator("#shown").text_content()
    tab.keyboard.press("Enter")
    assert tab.locator("#card-name").text_content() == "c1"
    with tab.expect_download() as download:
        tab.click("#export")
    download.value.save_as(tmp_path / "clients.csv")
    rows = list(csv.reader((tmp_path / "clients.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert len(rows) == 12 and rows[0][0] == "client" and "c1" in {row[0] for row in rows}
    tab.click("summary:has-text('more filters')")
    tab.click("#clear")
    opened.wait("page.named('clients').data.client.length === 23")
    before = tab.evaluate("page.named('clients').data.score0[0]")
    cells = lambda: tab.locator("#table .slick-cell").all_text_contents()
    written = cells()
    tab.select_option("#metric", "1")
    assert tab.evaluate("page.named('clients').data.score0[0]") != before
    assert cells() != written, "and the table shows it"
    tab.select_option("#reference", "1")
    assert "shared" in tab.evaluate("page.named('gains').left[0].axis_label")
    shown = "page.models.filter((one) => one.glyph && one.glyph.tags[0] === 'method' && one.visible === false).length"
    assert tab.evaluate(shown) == 0
    tab.locator("fieldset input").first.uncheck()
    assert tab.evaluate(shown) > 3
    hidden = tab.evaluate("page.read('clients').methods[0].name")
    assert hidden not in tab.evaluate("page.named('bins').data.method"), "nor has it a strip in the histogram"
    tab.select_option("#curve-against", "gradients")
    assert "gradients" in tab.evaluate("page.named('curves').below[0].axis_label")
    opened.close()


def test_clients_are_filtered_by_size_gain_and_group_and_all_pictures_follow(browser, folders):
    opened = Opened(browser, folders("sensors"))
    tab = opened.tab
    tab.click("summary:has-text('more filters')")
    column = lambda name: tab.evaluate(f"[...page.named('drawn-sizes').data.{name}]")
    every, main = column("train"), tab.locator("#controls").get_attribute("data-main")
    middle = sorted(every)[len(every) // 2]
    tab.fill("#filter-least", str(int(middle)))
    opened.wait(f"page.named('drawn-sizes').data.train.length === {sum(size >= middle for size in every)}")
    assert min(column("train")) >= middle
    tab.fill("#filter-most", str(int(middle)))
    opened.wait(f"page.named('drawn-sizes').data.train.length === {every.count(middle)}")
    tab.click("#clear")
    opened.wait("page.named('drawn-sizes').data.train.length === 23")
    gains = column(f"gain{main}")
    tab.fill("#filter-low", "0")
    opened.wait(f"page.named('drawn-sizes').data.train.length === {sum(gain >= 0 for gain in gains)}")
    tab.click("#clear")
    opened.wait("page.named('drawn-sizes').data.train.length === 23")
    members = sum(group == 2 for group in column("group"))
    tab.select_option("#filter-group", index=2)  # all, the first, the second
    opened.wait(f"page.named('drawn-map').data.group.length === {members}")
    assert set(tab.evaluate("[...page.named('clients').data.group]")) == {2}, "and the table"
    assert tab.evaluate("new Set(page.named('cells').data.client).size") == members, "and the labels"
    opened.close()


def test_nine_methods_have_colours_and_strips_of_their_own_and_no_dot_is_moved(browser, folders):
    opened = Opened(browser, folders("nine"))
    tab = opened.tab
    colours = tab.evaluate("page.read('clients').methods.map((one) => one.colour)")
    assert len(set(colours)) == 9
    bins = tab.evaluate(
        "(({ method, bottom, top, count }) => ({ method, bottom, top, count }))(page.named('bins').data)"
    )
    rows = {name: {row for other, row in zip(bins["method"], bins["bottom"], strict=True) if other == name}
            for name in bins["method"]}  # fmt: skip
    assert len(rows) == 8 and all(len(row) == 1 for row in rows.values()), "all but local, each in one strip"
    assert len(set.union(*rows.values())) == 8, "and none in another's"
    assert all(top <= row + 1 for row, top in zip(bins["bottom"], bins["top"], strict=True))
    for name in rows:
        counted = sum(n for other, n in zip(bins["method"], bins["count"], strict=True) if other == name)
        assert counted == 27, "every client is in one bar"
    labels = tab.evaluate("[...page.named('histogram').left[0].major_label_overrides.values()]")
    assert sorted(labels) == sorted(rows)
    glyphs = tab.evaluate("""page.models.filter((one) => one.glyph && one.data_source.name === "drawn-scores")
      .map((one) => one.glyph.x.field)""")
    assert set(glyphs) == {"train"}
    truly, drawn = (
        tab.evaluate(what) for what in ("page.read('clients').train", "[...page.named('drawn-scores').data.train]")
    )
    assert drawn == truly
    opened.close()


def test_bold_is_the_number_that_is_spoken_of_and_the_choice_has_a_mark(browser, folders):
    opened = Opened(browser, folders("nine"))
    weights = opened.tab.evaluate("""[...document.querySelectorAll("table:not(.narrow) tr.strong")].map((row) =>
      [...row.children].map((cell) => Number(getComputedStyle(cell).fontWeight)))""")
    assert weights and all(row[1] == 700 and set(row[:1] + row[2:]) == {400} for row in weights)
    assert opened.tab.locator(".badge").count() == 1
    opened.close()


COVERED = """(plot) => {
  const [one, other] = ["card", plot].map((id) => document.getElementById(id).getBoundingClientRect());
  return one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
}"""


def test_the_card_covers_no_picture_where_there_is_room_and_never_the_dot_that_was_clicked(browser, folders):
    opened = Opened(browser, folders("demo"))
    for plot in ("gains", "histogram", "sizes", "scores", "table", "labels", "map"):
        opened.tab.fill("#filter-name", "c2")
        opened.tab.keyboard.press("Enter")
        opened.tab.locator(f"#{plot}").evaluate("(plot) => plot.scrollIntoView({ block: 'center' })")
        assert not opened.tab.evaluate(COVERED, plot), plot
    opened.close()
    opened = Opened(browser, folders("demo"), 390)
    tab = opened.tab
    tab.locator("#scores").evaluate("(plot) => plot.scrollIntoView({ block: 'end' })")  # where the card will lie
    tab.wait_for_timeout(300)
    left, top, _ = tab.evaluate(PLACE, ["scores", "train", "score0", 3])
    before = tab.evaluate("scrollY")
    tab.mouse.click(left, top)
    tab.wait_for_selector("#card:not([hidden])", timeout=20_000)
    tab.wait_for_timeout(300)
    assert top - (tab.evaluate("scrollY") - before) < tab.evaluate(
        "document.getElementById('card').getBoundingClientRect().top"
    )
    opened.close()


def test_on_a_phone_the_table_of_clients_fits(browser, folders):
    opened = Opened(browser, folders("nine"), 390)
    heads = opened.tab.locator("#table .slick-header-column").all_text_contents()
    main = opened.tab.evaluate(
        "page.read('clients').methods[Number(document.getElementById('controls').dataset.main)].name"
    )
    assert heads == ["client", "examples", f"gain {main}", f"score {main}"]
    box = opened.tab.locator("#table").bounding_box()
    ends = opened.tab.locator("#table .slick-header-column").last.bounding_box()
    assert ends["x"] + ends["width"] <= box["x"] + box["width"] + 1
    opened.close()


def test_of_many_clients_groups_are_compared_and_a_click_shows_one(browser, folders):
    opened = Opened(browser, folders("10000"))
    tab = opened.tab
    tab.locator("#similarity").evaluate("(plot) => plot.scrollIntoView({ block: 'center' })")
    tab.wait_for_timeout(300)
    box = tab.locator("#similarity").bounding_box()
    tab.mouse.click(box["x"] + 0.55 * box["width"], box["y"] + 0.5 * box["height"])
    opened.wait("document.getElementById('filter-group').value === '1'")
    opened.wait("new Set(page.named('clients').data.group).size === 1")
    opened.close()


def test_it_prints_and_nothing_is_wider_than_the_paper(browser, folders):
    opened = Opened(browser, folders("demo"))
    tab = opened.tab
    tab.emulate_media(media="print")
    tab.set_viewport_size({"width": 720, "height": 1000})  # A4 between its margins
    opened.wait("document.documentElement.scrollWidth <= 720")
    assert tab.locator("#controls").is_hidden() and tab.locator("#side").is_hidden()
    assert tab.locator("#gains canvas").first.bounding_box()["width"] <= 720
    assert len(tab.pdf(format="A4")) > 50_000
    opened.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_runs_side_by_side_wear_the_same_dress(width, browser, folders, tmp_path):
    path = write_runs([folders("demo").parent, folders("sensors").parent], tmp_path / "both.html")
    opened = Opened(browser, path, width)
    tab = opened.tab
    assert tab.locator("section.answer").count() == 2 and tab.locator("canvas").count() > 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.locator("input[data-line='0']").first.uncheck()
    hidden = "page.models.filter((one) => one.visible === false && one.data_source).length"
    assert tab.evaluate(hidden) > 0
    assert serious(tab) == []
    opened.close()


def test_pointing_at_a_dot_names_the_client(browser, folders):
    opened = Opened(browser, folders("demo"))
    tab = opened.tab
    tab.locator("#gains").evaluate("(plot) => plot.scrollIntoView({ block: 'center' })")
    tab.wait_for_timeout(500)
    left, top, client = tab.evaluate(PLACE, ["gains", "rank0", "gain0", 4])
    tab.mouse.move(left, top, steps=4)
    tab.wait_for_timeout(1000)
    said = tab.locator(".bk-Tooltip").evaluate_all(
        "(all) => all.map((one) => (one.shadowRoot || one).textContent).join()"
    )
    assert client in said
    opened.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 768, 390])
def test_it_fits_every_width_in_light_and_dark_and_can_be_read_aloud(width, dark, browser, folders):
    opened = Opened(browser, folders("demo"), width, dark)
    tab = opened.tab
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(21, 24, 28)" if dark else "rgb(255, 255, 255)"
    )
    tab.fill("#filter-name", "c2")
    tab.keyboard.press("Enter")
    assert serious(tab) == []
    opened.close()


# When the card was filled and all that it changed painted, from the moment the mouse went down.
ANSWERED = """() => {
  window.answered = null;
  addEventListener("pointerdown", () => (window.asked = performance.now()), { capture: true, once: true });
  const ended = () => (window.answered = performance.now() - asked);
  const painted = () => requestAnimationFrame(() => requestAnimationFrame(ended));
  new MutationObserver((_, observer) => { observer.disconnect(); painted(); })
    .observe(document.getElementById("card-body"), { childList: true });
}"""


def test_with_10000_clients_the_page_paints_in_two_seconds_and_answers_in_a_fifth_of_one(browser, folders):
    opened = Opened(browser, folders("10000"))
    tab, took = opened.tab, []
    assert folders("10000").stat().st_size < 8_000_000
    assert tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") < 2000
    shown = int(
        tab.locator("#controls").get_attribute("data-main")
    )  # others are hidden where there are so many clients
    for row in (2, 5, 9, 700, 30, 41, 50, 63, 77, 80, 92, 101, 115, 120, 133):
        if took and min(took) < 200:
            break
        tab.evaluate(ANSWERED)
        opened.click_dot("sizes", "train", f"gain{shown}", row)
        opened.wait("window.answered !== null")
        took.append(tab.evaluate("window.answered"))
    assert min(took) < 200, f"milliseconds: {took}"  # the least: a machine may be at work on other things, too
    opened.close()


def test_100000_clients_are_summarized_and_all_are_in_parquet(browser, folders):
    page = folders("100000")
    assert page.stat().st_size < 8_000_000
    opened = Opened(browser, page)
    tab = opened.tab
    said = tab.locator("#shown").text_content()
    assert "20,000 clients (of 100,000; all are in clients.parquet)" in said
    assert "100,000 clients" in tab.locator("header").text_content()
    proved = tab.locator("button[data-client]").all_text_contents()
    assert set(proved) <= set(tab.evaluate("page.read('clients').ids")), "who is hurt is never left out"
    main = int(tab.locator("#controls").get_attribute("data-main"))
    opened.click_dot("sizes", "train", f"gain{main}", 40)
    assert tab.locator("#card-name").text_content().startswith("c")
    opened.close()


def test_a_figure_of_theory_answers_too(browser, tmp_path):
    lines = [Line("theory", [1, 2, 3], [1, 4, 9]), Line("<b>measured</b>", [1, 2, 3], [1, 5, 8], kind="dots")]
    path, *_ = write_figure(Figure("Risk", "Made up.", [Panel("Risk", "n", "risk", lines)]), tmp_path)
    opened = Opened(browser, path)
    opened.tab.locator("input[data-line='0']").uncheck()
    hidden = "page.models.filter((one) => one.visible === false && one.data_source).map((one) => one.data_source.name)"
    assert set(opened.tab.evaluate(hidden)) == {"panel0-0"}, "the line, and not the other"
    assert serious(opened.tab) == []
    opened.close()

// What every page with plots does: show them, follow light and dark, hide and show lines.
"use strict";
const page = {};

page.read = (id) => JSON.parse(document.getElementById(`data-${id}`).textContent);

page.show_plots = async () => {
  const { doc, roots } = page.read("plots");
  const places = {};
  for (const [element, id] of Object.entries(roots)) places[id] = element;
  Bokeh.set_log_level("error");
  await Bokeh.embed.embed_items({ page: doc }, [{ docid: "page", roots: places, root_ids: Object.values(roots) }]);
  page.document = Bokeh.documents[Bokeh.documents.length - 1];
  page.models = [...page.document._all_models.values()];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  page.paint();
  dark.addEventListener("change", page.paint);
  addEventListener("beforeprint", () => page.paint({ print: true }));
  addEventListener("afterprint", () => page.paint());
  for (const element of Object.keys(roots)) document.getElementById(element).classList.add("drawn");
};

page.shortened = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

page.named = (name) => page.models.find((model) => model.name === name);

// Axes, grids and marks in the colours of the page's style sheet, which knows light from dark.
page.paint = (how) => {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => (how && how.print ? { "--ink": "#1a1a1a", "--soft": "#595959", "--line": "#d5d5d5" }[name] : style.getPropertyValue(name).trim());
  const [ink, soft, line] = ["--ink", "--soft", "--line"].map(colour);
  for (const model of page.models) {
    if (/Axis$/.test(model.type)) {
      Object.assign(model, { axis_label_text_color: soft, major_label_text_color: soft, axis_line_color: soft, major_tick_line_color: model.major_tick_line_color === null ? null : soft });
    } else if (model.type === "Grid" && model.grid_line_color !== null) model.grid_line_color = line;
    else if (model.type === "Span" && model.name === "zero") model.line_color = soft; // others lie on light cells, in the dark too
    else if (model.type === "GlyphRenderer") {
      if (model.name === "mark") model.glyph.line_color = ink;
    }
  }
};

// A method is shown or hidden in every plot. What is drawn has its tags on the glyph, and is hidden by its renderer.
page.show_method = (style, visible) => {
  for (const model of page.models) {
    const tags = model.glyph ? model.glyph.tags : model.type === "Whisker" ? model.tags : null;
    if (tags && tags[0] === "method" && tags[1] === style) model.visible = visible;
  }
};

// Commands can be copied.
for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "selected";
    }
    setTimeout(() => (button.textContent = "copy"), 2000);
  });
}

// The page of a run: one choice of metric and reference, one filter, one chosen client, for every picture and the table.
"use strict";
(async () => {
  const all = page.read("clients"), { make } = page;
  const get = (id) => document.getElementById(id);
  const view = all ? page.clients_of(all) : null, state = view ? view.state : null;
  const FILTERS = ["filter-name", "filter-least", "filter-most", "filter-low", "filter-high", "filter-group"];
  let source = null, drawn = []; // of the table, and of the pictures
  let data = {}, fill_card = null, busy = false;
  // Clients in a picture: a click paints them all again, for each method, and is to be answered at once.
  const DRAWN = all ? Math.max(500, Math.min(2000, Math.floor(6000 / all.methods.length))) : 0;
  const narrow = matchMedia("(max-width: 620px)");

  const asked = () => {
    const number = (id) => (get(id) && get(id).value !== "" ? Number(get(id).value) : null);
    const [least, most, low, high] = ["filter-least", "filter-most", "filter-low", "filter-high"].map(number);
    return { name: get("filter-name").value.toLowerCase(), group: get("filter-group") ? get("filter-group").value : "", least, most, low, high };
  };

  const name_axes = () => {
    const metric = view.metric(), reference = view.reference();
    const unit = metric.gain_unit === "points" ? "points" : metric.label;
    const over = reference ? `gain over ${reference.label}, ${unit}` : "gain";
    const label = (name, text, side) => page.named(name) && (page.named(name)[side][0].axis_label = text);
    label("gains", over, "left");
    label("sizes", over, "left");
    label("histogram", over, "below");
    label("scores", `test ${metric.label}${metric.unit ? ", " + metric.unit : ""}`, "left");
    for (const element of document.querySelectorAll("[data-metric]")) element.textContent = metric.label;
  };

  // Of very many clients some are drawn, evenly in the order of the main method's gains.
  const some = () => {
    const places = view.rows.map((_, row) => row);
    if (places.length <= DRAWN) return places;
    const mine = data[`gain${state.main}`];
    places.sort((a, b) => (mine[a] || 0) - (mine[b] || 0));
    return Array.from({ length: DRAWN }, (_, k) => places[Math.round((k * (places.length - 1)) / (DRAWN - 1))]);
  };
  const picked = (places) => {
    const found = {};
    for (const [name, values] of Object.entries(data)) found[name] = Array.isArray(values) ? places.map((row) => values[row]) : values.constructor.from(places, (row) => values[row]);
    return found;
  };

  // The columns of the table: of the methods that are shown; where there is little room, of the main one alone.
  const fit_table = () => {
    const table = Object.values(Bokeh.index).find((one) => one.model && one.model.type === "DataTable");
    if (!table) return;
    for (const one of table.model.columns) {
      const [, what, k] = /^(gain|score)(\d+)$/.exec(one.field) || [];
      if (what === "gain") one.formatter.format = `+0.${"0".repeat(view.places_of_gain())}`;
      const here = what ? !state.hidden.has(all.methods[k].style) || Number(k) === state.main : true;
      const fits = !narrow.matches || (what ? Number(k) === state.main : ["client", "train"].includes(one.field));
      if (one.visible !== (here && fits)) one.visible = here && fits;
      const width = narrow.matches ? { client: 106, train: 78 }[one.field] || 84 : Number(one.tags[0]);
      if (one.width !== width) one.width = width;
    }
    table.updateGrid(); // with as many rows as before, it would show the old numbers until it is touched
  };

  const fill_histogram = () => {
    const held = page.named("bins");
    if (!held) return;
    const strips = view.strips(), plot = page.named("histogram"), axis = plot.left[0];
    held.data = view.bins(data);
    axis.ticker.ticks = strips.map((_, row) => row);
    axis.major_label_overrides = new Map(strips.map((k, row) => [row, page.shortened(all.methods[k].name, 14)]));
    plot.y_range.end = Math.max(1, strips.length);
  };

  const refresh = () => {
    busy = true;
    view.filter(asked());
    data = view.columns();
    source.selected.indices = [];
    source.data = data;
    fit_table();
    const places = some(), points = picked(places);
    for (const one of drawn) {
      one.selected.indices = [];
      one.data = points;
    }
    if (page.named("sorted")) page.named("sorted").data = view.sorted(points);
    fill_histogram();
    name_axes();
    fill_labels();
    const { rows, count } = view, written = (number) => number.toLocaleString("en");
    const said = rows.length === count ? `${written(count)} clients` : `${written(rows.length)} of ${written(count)} clients`;
    get("shown").textContent = said + (all.all > count ? ` (of ${written(all.all)}; all are in clients.parquet)` : "") + (rows.length > DRAWN ? `, ${written(DRAWN)} of them drawn` : "");
    busy = false;
    mark();
  };

  // The shares of labels, a row for each client; of very many the first of those that the filter shows.
  let label_rows = [];
  const fill_labels = () => {
    const cells = page.named("cells");
    if (!cells) return;
    label_rows = view.rows.slice(0, 300).sort((a, b) => (all.group ? all.group[a] - all.group[b] : 0) || view.value(all.train, b) - view.value(all.train, a));
    const data = { x: [], y: [], share: [], client: [], label: [], at: [] };
    label_rows.forEach((at, row) => {
      const total = all.labels[at].reduce((sum, one) => sum + one, 0) || 1;
      all.labels[at].forEach((one, k) => {
        data.x.push(String(k));
        data.y.push(row + 0.5);
        data.share.push(one / total);
        data.client.push(all.ids[at]);
        data.label.push(`${all.classes[k]}: ${one} of ${total}`);
        data.at.push(at);
      });
    });
    cells.data = data;
    const plot = page.named("labels");
    plot.y_range.start = label_rows.length || 1;
    plot.y_range.end = 0;
    get("labels-shown").textContent = label_rows.length < view.rows.length ? ` Drawn: the first 300 of ${view.rows.length.toLocaleString("en")}; a filter shows others.` : "";
  };

  // The chosen client, marked everywhere.
  const mark = () => {
    const at = state.chosen, row = view.rows.indexOf(at), chosen = picked(row < 0 ? [] : [row]);
    const strips = view.strips();
    all.methods.forEach((_, k) => (chosen[`strip${k}`] = row < 0 ? [] : [strips.includes(k) ? strips.indexOf(k) : NaN]));
    busy = true;
    source.selected.indices = row < 0 ? [] : [row];
    page.named("chosen").data = chosen;
    if (row < 0) for (const one of drawn) if (one.selected.indices.length) one.selected.indices = [];
    const around = page.named("row");
    if (around) {
      const y = label_rows.indexOf(at);
      around.data = y < 0 ? { left: [], right: [], top: [], bottom: [] } : { left: [["0", -0.5]], right: [[String(all.classes.length - 1), 0.5]], top: [y], bottom: [y + 1] };
    }
    if (page.named("similar")) {
      const place = at < 0 ? -1 : all.similarity_order ? all.similarity_order.indexOf(at) : all.group[at];
      for (const side of ["width", "height"]) page.named(`chosen-${side}`).location = place < 0 ? -1 : place + 0.5;
    }
    busy = false;
    fill_card(at);
  };

  const choose = (at) => {
    state.chosen = at;
    mark();
  };

  // Where the card lies over the foot of the page, what was clicked must not be beneath it.
  let touched = null;
  addEventListener("pointerdown", (event) => (touched = event.target.closest && event.target.closest(".plot") ? event.clientY : null), { capture: true });
  const uncover = () => {
    const card = get("card");
    if (card.hidden || touched === null || getComputedStyle(card).position !== "fixed") return;
    const hidden = touched + 40 - card.getBoundingClientRect().top;
    if (hidden > 0) scrollBy({ top: hidden, behavior: "instant" });
    touched = null;
  };
  const clicked = (at) => {
    choose(at);
    uncover();
  };

  const next = (step) => {
    const k = state.main, order = [...view.rows].sort((a, b) => (view.gain(k, a) || -Infinity) - (view.gain(k, b) || -Infinity));
    const place = order.indexOf(state.chosen);
    if (order.length) choose(order[(place + step + order.length) % order.length]);
  };

  // Learning curves by what they are drawn against.
  const show_curves = () => {
    const curves = page.read("curves"), plot = page.named("curves");
    if (!plot) return;
    const change = () => {
      const chosen = curves[`${get("curve-of").value}|${get("curve-against").value}`];
      chosen.lines.forEach((line, at) => {
        const held = page.named(`curves-${at}`);
        held.data = { ...line, name: line.x.map(() => chosen.names[at]) };
      });
      const [left, right, low, high] = chosen.ends;
      Object.assign(plot.x_range, { start: left, end: right });
      Object.assign(plot.y_range, { start: low, end: high });
      plot.below[0].axis_label = chosen.x_label;
      plot.left[0].axis_label = chosen.y_label;
    };
    for (const id of ["curve-of", "curve-against"]) get(id).addEventListener("change", change);
  };

  // A click in any picture or in the table.
  const listen = () => {
    source.selected.properties.indices.change.connect(() => {
      if (busy) return;
      const row = source.selected.indices[0];
      clicked(row === undefined ? -1 : view.rows[row]);
    });
    for (const one of drawn) {
      one.selected.properties.indices.change.connect(() => {
        if (!busy && one.selected.indices.length) clicked(one.data.at[one.selected.indices[0]]);
      });
    }
    const cells = page.named("cells"), similar = page.named("similar");
    if (cells) {
      cells.selected.properties.indices.change.connect(() => {
        const cell = cells.selected.indices[0];
        if (cell === undefined) return;
        const at = cells.data.at[cell];
        cells.selected.indices = [];
        clicked(at);
      });
    }
    if (similar) {
      similar.selected.properties.image_indices.change.connect(() => {
        const hit = similar.selected.image_indices[0];
        if (hit === undefined) return;
        if (all.similarity_order) return clicked(all.similarity_order[Math.min(all.similarity_order.length - 1, hit.j)]);
        get("filter-group").value = String(Math.min(all.group_names - 1, hit.j)); // groups, of very many clients
        refresh();
      });
    }
  };

  document.documentElement.classList.add("script");
  await page.show_plots();
  show_curves();
  for (const box of document.querySelectorAll("input[data-style]")) {
    const show = () => {
      page.show_method(Number(box.dataset.style), box.checked);
      if (state) state.hidden[box.checked ? "delete" : "add"](Number(box.dataset.style));
    };
    box.addEventListener("change", () => {
      show();
      if (!source) return;
      fill_histogram();
      fit_table();
      mark();
    });
    if (!box.checked) show();
  }
  if (!all) {
    page.ready = true;
    return;
  }
  page.csv = view.csv;
  source = page.named("clients");
  drawn = page.models.filter((model) => model.name && model.name.startsWith("drawn-"));
  state.main = Number(get("controls").dataset.main);
  fill_card = page.card_of(view, choose);
  listen();
  for (const [id, key] of [["metric", "metric"], ["reference", "reference"]]) {
    if (get(id)) get(id).addEventListener("change", () => { state[key] = Number(get(id).value); refresh(); });
  }
  let waiting = 0;
  for (const id of FILTERS) {
    if (!get(id)) continue;
    get(id).addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refresh, view.count > 2000 ? 150 : 0); });
  }
  get("filter-name").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    clearTimeout(waiting);
    refresh();
    const exact = view.rows.find((at) => all.ids[at].toLowerCase() === get("filter-name").value.toLowerCase());
    if (view.rows.length) choose(exact ?? view.rows[0]);
  });
  get("clear").addEventListener("click", () => {
    for (const id of FILTERS) if (get(id)) get(id).value = "";
    refresh();
  });
  get("card-close").addEventListener("click", () => choose(-1));
  get("card-before").addEventListener("click", () => next(-1));
  get("card-after").addEventListener("click", () => next(1));
  addEventListener("keydown", (event) => event.key === "Escape" && choose(-1));
  narrow.addEventListener("change", fit_table);
  get("export").addEventListener("click", () => {
    const link = make("a", "", { download: "clients.csv", href: URL.createObjectURL(new Blob(["\ufeff" + view.csv()], { type: "text/csv" })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
  for (const link of document.querySelectorAll("button[data-client]")) {
    link.addEventListener("click", () => choose(all.ids.indexOf(link.dataset.client)));
  }
  // The card stands below the bar of choices, however many lines that has.
  new ResizeObserver(([bar]) => document.documentElement.style.setProperty("--bar", `${Math.ceil(bar.target.offsetHeight)}px`)).observe(get("controls"));
  refresh();
  page.ready = true;
})();

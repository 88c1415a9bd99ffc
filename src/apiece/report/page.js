// The page of a run: one choice of metric and reference, one filter, one chosen client, for every picture and the table.
"use strict";
(async () => {
  const all = page.read("clients");
  const get = (id) => document.getElementById(id);
  const make = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    if (text !== undefined && text !== null) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const count = all ? all.ids.length : 0;
  const state = { metric: 0, reference: 0, chosen: -1, main: 0 };
  let rows = []; // the clients that the filter lets through, as places in the columns
  let source = null, drawn = []; // of the table, and of the pictures
  let data = {};
  // Clients in a picture: a click paints them all again, for each method, and is to be answered at once.
  const DRAWN = all ? Math.max(500, Math.min(2000, Math.floor(6000 / all.methods.length))) : 0;
  let busy = false;

  const value = (column, at) => (column === undefined || column[at] === null ? NaN : column[at]);
  const metric = () => all.metrics[state.metric];
  const reference = () => all.references[state.reference];
  const score = (k, at) => value(all.scores[metric().key][all.methods[k].name], at);
  const gain = (k, at) => {
    if (reference() && all.methods[k].name === reference().key) return NaN; // nobody gains over itself
    const over = reference() && all.scores[metric().key][reference().key];
    const difference = over ? score(k, at) - value(over, at) : NaN;
    return (metric().higher ? 1 : -1) * metric().points * difference;
  };
  const written = (number, places, sign) => {
    if (!Number.isFinite(number)) return "–";
    const text = places === null || places === undefined ? String(Number(number.toPrecision(4))) : number.toFixed(places);
    return (sign && number > 0 ? "+" : "") + text.replace("-", "−");
  };
  const places_of_gain = () => (metric().gain_unit === "points" ? 1 : 3);
  const kind = (at) => (all.attacks && all.attacks[at] ? "attacks" : all.new[at] ? "new" : "trains");

  // Which clients are shown.
  const filtered = () => {
    const number = (id) => (get(id) && get(id).value !== "" ? Number(get(id).value) : null);
    const name = get("filter-name").value.toLowerCase();
    const group = get("filter-group") ? get("filter-group").value : "";
    const [least, most, low, high] = ["filter-least", "filter-most", "filter-low", "filter-high"].map(number);
    const found = [];
    for (let at = 0; at < count; at++) {
      if (name && !all.ids[at].toLowerCase().includes(name)) continue;
      if (group !== "" && String(all.group[at]) !== group) continue;
      if ((least !== null && all.train[at] < least) || (most !== null && all.train[at] > most)) continue;
      if (low !== null || high !== null) {
        const mine = gain(state.main, at);
        if (!(mine >= (low ?? -Infinity) && mine <= (high ?? Infinity))) continue;
      }
      found.push(at);
    }
    return found;
  };

  const palette = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
  const column = (of) => Float64Array.from(rows, of);

  const columns = () => {
    const found = {
      at: Int32Array.from(rows),
      client: rows.map((at) => all.ids[at]),
      train: column((at) => value(all.train, at)),
      test: column((at) => value(all.test, at)),
      kind: rows.map(kind),
      group: column((at) => (all.group ? all.group[at] + 1 : NaN)),
      colour: rows.map((at) => palette[(all.group ? all.group[at] : 0) % palette.length]),
      map_x: column((at) => value(all.map_x, at)),
      map_y: column((at) => value(all.map_y, at)),
      zero: new Float64Array(rows.length),
    };
    all.methods.forEach((method, k) => {
      const mine = column((at) => gain(k, at));
      const order = [...mine.keys()].filter((row) => Number.isFinite(mine[row]) && !all.new[rows[row]]).sort((a, b) => mine[a] - mine[b]);
      const rank = new Float64Array(rows.length).fill(NaN);
      order.forEach((row, place) => (rank[row] = (100 * (place + 0.5)) / order.length));
      found[`gain${k}`] = mine;
      found[`rank${k}`] = rank;
      // A little aside, the same at every drawing, so that dots of one size and score can all be seen.
      const aside = (at) => 0.012 * (k - (all.methods.length - 1) / 2) + 0.01 * (((at * 0.618034) % 1) - 0.5);
      found[`size${k}`] = column((at) => value(all.train, at) * Math.exp(aside(at)));
      found[`score${k}`] = column((at) => Number((metric().factor * score(k, at)).toPrecision(4)));
      found[`degree${k}`] = column((at) => value(all.degree && all.degree[method.name], at));
    });
    return found;
  };

  // How many clients gain how much: thirty bins between the ends of all gains but the outermost hundredth.
  const bins = (data) => {
    const every = [];
    all.methods.forEach((_, k) => data[`gain${k}`].forEach((g) => Number.isFinite(g) && every.push(g)));
    every.sort((a, b) => a - b);
    const low = Math.min(0, every[Math.floor(0.005 * every.length)] ?? -1), high = Math.max(0, every[Math.ceil(0.995 * every.length) - 1] ?? 1);
    const width = (high - low || 1) / 30;
    const first = low - width;
    const found = { left: Float64Array.from({ length: 33 }, (_, bin) => first + bin * width) };
    all.methods.forEach((_, k) => {
      const counts = new Float64Array(33);
      data[`gain${k}`].forEach((g, row) => {
        if (Number.isFinite(g) && !all.new[rows[row]]) counts[Math.min(31, Math.max(0, Math.floor((g - first) / width)))]++;
      });
      found[`count${k}`] = counts;
    });
    return found;
  };

  const name_axes = () => {
    const unit = metric().gain_unit === "points" ? "points" : metric().label;
    const over = reference() ? `gain over ${reference().label}, ${unit}` : "gain";
    const label = (name, text, side) => page.named(name) && (page.named(name)[side][0].axis_label = text);
    label("gains", over, "left");
    label("sizes", over, "left");
    label("histogram", over, "below");
    label("scores", `test ${metric().label}${metric().unit ? ", " + metric().unit : ""}`, "left");
    for (const element of document.querySelectorAll("[data-over]")) element.textContent = over;
    for (const element of document.querySelectorAll("[data-metric]")) element.textContent = metric().label;
  };

  // Of very many clients some are drawn, evenly in the order of the main method's gains.
  const some = () => {
    const places = rows.map((_, row) => row);
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

  const refresh = () => {
    busy = true;
    rows = filtered();
    data = columns();
    source.selected.indices = [];
    source.data = data;
    // With as many rows as before, the table would show the old numbers until it is touched.
    const table = Object.values(Bokeh.index).find((view) => view.model && view.model.type === "DataTable");
    for (const one of table ? table.model.columns : []) if (one.field.startsWith("gain")) one.formatter.format = `+0.${"0".repeat(places_of_gain())}`;
    if (table) table.updateGrid();
    const places = some();
    for (const one of drawn) {
      one.selected.indices = [];
      one.data = picked(places);
    }
    const histogram = page.named("bins");
    if (histogram) histogram.data = bins(data);
    name_axes();
    fill_labels();
    const said = rows.length === count ? `${count.toLocaleString("en")} clients` : `${rows.length.toLocaleString("en")} of ${count.toLocaleString("en")} clients`;
    get("shown").textContent = said + (all.all > count ? ` (of ${all.all.toLocaleString("en")}; all are in clients.parquet)` : "") + (rows.length > DRAWN ? `, ${DRAWN.toLocaleString("en")} of them drawn` : "");
    busy = false;
    mark();
  };

  // The shares of labels, a row for each client; of very many the first of those that the filter shows.
  let label_rows = [];
  const fill_labels = () => {
    const cells = page.named("cells");
    if (!cells) return;
    label_rows = rows.slice(0, 300).sort((a, b) => (all.group ? all.group[a] - all.group[b] : 0) || value(all.train, b) - value(all.train, a));
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
    get("labels-shown").textContent = label_rows.length < rows.length ? ` Drawn: the first 300 of ${rows.length.toLocaleString("en")}; a filter shows others.` : "";
  };

  // The chosen client, marked everywhere.
  const mark = () => {
    const at = state.chosen;
    const row = rows.indexOf(at);
    busy = true;
    source.selected.indices = row < 0 ? [] : [row];
    page.named("chosen").data = picked(row < 0 ? [] : [row]);
    if (row < 0) for (const one of drawn) if (one.selected.indices.length) one.selected.indices = [];
    const around = page.named("row");
    if (around) {
      const y = label_rows.indexOf(at);
      around.data = y < 0 ? { left: [], right: [], top: [], bottom: [] } : { left: [["0", -0.5]], right: [[String(all.classes.length - 1), 0.5]], top: [y], bottom: [y + 1] };
    }
    if (all.similarity_order) {
      const place = all.similarity_order.indexOf(at);
      for (const side of ["width", "height"]) page.named(`chosen-${side}`).location = place < 0 ? -1 : place + 0.5;
    }
    busy = false;
    fill_card();
  };

  const choose = (at) => {
    state.chosen = at;
    mark();
  };

  const chance = (risk) => (risk < 0.005 ? "below 1 %" : written(100 * risk, 0) + " %");

  const verdict = (at) => {
    const method = all.methods[state.main];
    if (kind(at) === "attacks") return "It attacks in some seed: its own numbers count in no mean.";
    if (method.hurt.includes(all.ids[at])) return `${method.so_far ? "So far it looks" : "Proved"} hurt by ${method.name}.`;
    const risk = value(all.risk && all.risk[method.name], at), believed = value(all.believed && all.believed[method.name], at);
    if (!Number.isFinite(risk)) return "";
    return `With ${method.name}: not proved hurt. Believed gain ${written(believed, 1, true)} points; the chance that it is hurt is ${chance(risk)}.`;
  };

  const fill_card = () => {
    const at = state.chosen, card = get("card"), body = get("card-body");
    card.hidden = at < 0;
    if (at < 0) return;
    get("card-name").textContent = all.ids[at];
    const sizes = [`${written(value(all.train, at), 0)} training`, ...(all.validation ? [`${all.validation[at]} validation`] : []), `${written(value(all.test, at), 0)} test`];
    const what = { new: "A new client that never trained", trains: "Trains", attacks: "Attacks" }[kind(at)];
    const parts = [make("p", `${what}; ${sizes.join(", ")} examples${all.group && all.group_names > 1 ? `; group ${all.group[at] + 1}` : ""}.`)];
    const said = verdict(at);
    if (said) parts.push(make("p", said, { class: "verdict" }));
    const table = make("table"), head = make("tr");
    const unit = metric().unit ? `, ${metric().unit}` : "";
    const titles = ["method", metric().label + unit, ...(reference() ? [`gain over ${reference().key}`] : []), ...(all.risk ? ["chance of harm"] : []), ...(all.degree ? ["degree"] : [])];
    titles.forEach((title) => head.append(make("th", title, { scope: "col" })));
    table.append(make("thead"), make("tbody"));
    table.tHead.append(head);
    all.methods.forEach((method, k) => {
      const row = make("tr"), name = make("th", undefined, { scope: "row" });
      name.append(make("span", undefined, { class: "dot", style: `background:${method.colour}` }), method.name);
      row.append(name, make("td", written(metric().factor * score(k, at), metric().places)));
      if (reference()) row.append(make("td", written(gain(k, at), places_of_gain(), true)));
      if (all.risk) row.append(make("td", method.name in all.risk ? chance(value(all.risk[method.name], at)) : "–"));
      if (all.degree) row.append(make("td", written(value(all.degree[method.name], at), 2)));
      table.tBodies[0].append(row);
    });
    const wide = make("div", undefined, { class: "wide" });
    wide.append(table);
    parts.push(wide);
    if (all.labels) {
      const total = all.labels[at].reduce((sum, one) => sum + one, 0) || 1;
      const list = make("ul", undefined, { class: "bars", "aria-label": "labels of its training examples" });
      all.labels[at].forEach((one, k) => {
        if (!one && all.classes.length > 12) return;
        const item = make("li");
        const bar = make("span", undefined, { class: "bar" });
        bar.style.width = `${(100 * one) / total}%`;
        item.append(make("span", all.classes[k], { class: "bar-name" }), bar, make("span", String(one), { class: "bar-count" }));
        list.append(item);
      });
      parts.push(make("h3", "Labels it trains on"), list);
    }
    if (all.partners) {
      const list = make("p");
      all.partners[at].forEach((other, place) => {
        if (other < 0) return;
        const button = make("button", `${all.ids[other]} (${written(all.alike[at][place], 2)})`, { type: "button" });
        button.addEventListener("click", () => choose(other));
        list.append(button, " ");
      });
      parts.push(make("h3", "Most like it"), list);
    }
    body.replaceChildren(...parts);
  };

  const next = (step) => {
    const k = state.main, order = [...rows].sort((a, b) => (gain(k, a) || -Infinity) - (gain(k, b) || -Infinity));
    const place = order.indexOf(state.chosen);
    if (order.length) choose(order[(place + step + order.length) % order.length]);
  };

  // CSV of the clients shown, as a spreadsheet reads it; what begins like a formula is kept from being one.
  const csv = () => {
    const cell = (text) => {
      const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? "'" + text : text;
      return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const number = (x) => (Number.isFinite(x) ? String(Number(x.toPrecision(6))) : "");
    const over = reference() ? reference().key : null;
    const head = ["client", "kind", "train_examples", "test_examples", ...(all.group ? ["group"] : [])];
    all.methods.forEach((method) => head.push(`${metric().key} ${method.name}`, ...(over ? [`gain over ${over} ${method.name}`] : [])));
    const lines = [head.map(cell).join(",")];
    for (const at of rows) {
      const line = [cell(all.ids[at]), kind(at), number(value(all.train, at)), number(value(all.test, at)), ...(all.group ? [String(all.group[at] + 1)] : [])];
      all.methods.forEach((_, k) => line.push(number(score(k, at)), ...(over ? [number(gain(k, at))] : [])));
      lines.push(line.join(","));
    }
    return lines.join("\r\n") + "\r\n";
  };
  page.csv = csv;

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

  document.documentElement.classList.add("script");
  await page.show_plots();
  show_curves();
  for (const box of document.querySelectorAll("input[data-style]")) {
    const show = () => page.show_method(Number(box.dataset.style), box.checked);
    box.addEventListener("change", show);
    if (!box.checked) show();
  }
  if (!all) return;
  source = page.named("clients");
  drawn = page.models.filter((model) => model.name && model.name.startsWith("drawn-"));
  state.main = Number(get("controls").dataset.main);
  source.selected.properties.indices.change.connect(() => {
    if (busy) return;
    const row = source.selected.indices[0];
    choose(row === undefined ? -1 : rows[row]);
  });
  for (const one of drawn) {
    one.selected.properties.indices.change.connect(() => {
      if (!busy && one.selected.indices.length) choose(one.data.at[one.selected.indices[0]]);
    });
  }
  const cells = page.named("cells");
  if (cells) {
    cells.selected.properties.indices.change.connect(() => {
      const cell = cells.selected.indices[0];
      if (cell === undefined) return;
      const at = cells.data.at[cell];
      cells.selected.indices = [];
      choose(at);
    });
  }
  const similar = page.named("similar");
  if (similar) {
    similar.selected.properties.image_indices.change.connect(() => {
      const hit = similar.selected.image_indices[0];
      if (hit === undefined) return;
      const size = all.similarity_order.length;
      choose(all.similarity_order[Math.min(size - 1, hit.j)]);
    });
  }
  for (const [id, key] of [["metric", "metric"], ["reference", "reference"]]) {
    if (get(id)) get(id).addEventListener("change", () => { state[key] = Number(get(id).value); refresh(); });
  }
  let waiting = 0;
  for (const id of ["filter-name", "filter-least", "filter-most", "filter-low", "filter-high", "filter-group"]) {
    if (!get(id)) continue;
    get(id).addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refresh, count > 2000 ? 150 : 0); });
  }
  get("filter-name").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    clearTimeout(waiting);
    refresh();
    const exact = rows.find((at) => all.ids[at].toLowerCase() === get("filter-name").value.toLowerCase());
    if (rows.length) choose(exact ?? rows[0]);
  });
  get("clear").addEventListener("click", () => {
    for (const id of ["filter-name", "filter-least", "filter-most", "filter-low", "filter-high", "filter-group"]) if (get(id)) get(id).value = "";
    refresh();
  });
  get("card-close").addEventListener("click", () => choose(-1));
  get("card-before").addEventListener("click", () => next(-1));
  get("card-after").addEventListener("click", () => next(1));
  addEventListener("keydown", (event) => event.key === "Escape" && choose(-1));
  get("export").addEventListener("click", () => {
    const link = make("a", "", { download: "clients.csv", href: URL.createObjectURL(new Blob(["\ufeff" + csv()], { type: "text/csv" })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
  for (const link of document.querySelectorAll("button[data-client]")) {
    link.addEventListener("click", () => choose(all.ids.indexOf(link.dataset.client)));
  }
  refresh();
  page.ready = true;
})();

// What the page knows of clients, and how the choices above the pictures turn it into columns. Nothing is drawn here.
"use strict";
page.make = (tag, text, attributes = {}) => {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};

page.written = (number, places, sign) => {
  if (!Number.isFinite(number)) return "–";
  const text = places === null || places === undefined ? String(Number(number.toPrecision(4))) : number.toFixed(places);
  return (sign && number > 0 ? "+" : "") + text.replace("-", "−");
};

page.clients_of = (all) => {
  const count = all.ids.length;
  const state = { metric: 0, reference: 0, chosen: -1, main: 0, hidden: new Set() };
  const view = { all, count, state, rows: [] }; // rows: the clients that the filter lets through, as places in the columns

  const value = (view.value = (column, at) => (column === undefined || column[at] === null ? NaN : column[at]));
  const metric = (view.metric = () => all.metrics[state.metric]);
  const reference = (view.reference = () => all.references[state.reference]);
  const score = (view.score = (k, at) => value(all.scores[metric().key][all.methods[k].name], at));
  const gain = (view.gain = (k, at) => {
    if (reference() && all.methods[k].name === reference().key) return NaN; // nobody gains over itself
    const over = reference() && all.scores[metric().key][reference().key];
    const difference = over ? score(k, at) - value(over, at) : NaN;
    return (metric().higher ? 1 : -1) * metric().points * difference;
  });
  view.places_of_gain = () => (metric().gain_unit === "points" ? 1 : 3);
  const kind = (view.kind = (at) => (all.attacks && all.attacks[at] ? "attacks" : all.new[at] ? "new" : "trains"));

  // Which clients are shown, by {name, group, least, most, low, high}; what is not asked for is null or "".
  view.filter = (by) => {
    const found = [];
    for (let at = 0; at < count; at++) {
      if (by.name && !all.ids[at].toLowerCase().includes(by.name)) continue;
      if (by.group !== "" && String(all.group[at]) !== by.group) continue;
      if ((by.least !== null && all.train[at] < by.least) || (by.most !== null && all.train[at] > by.most)) continue;
      if (by.low !== null || by.high !== null) {
        const mine = gain(state.main, at);
        if (!(mine >= (by.low ?? -Infinity) && mine <= (by.high ?? Infinity))) continue;
      }
      found.push(at);
    }
    view.rows = found;
  };

  const column = (of) => Float64Array.from(view.rows, of);
  // Places from the least value to the largest, in percent; new clients, who never trained, have none.
  const ranked = (values) => {
    const order = [...values.keys()].filter((row) => Number.isFinite(values[row]) && !all.new[view.rows[row]]).sort((a, b) => values[a] - values[b]);
    const rank = new Float64Array(values.length).fill(NaN);
    order.forEach((row, place) => (rank[row] = (100 * (place + 0.5)) / order.length));
    return rank;
  };

  view.columns = () => {
    const { rows } = view;
    const found = {
      at: Int32Array.from(rows),
      client: rows.map((at) => all.ids[at]),
      train: column((at) => value(all.train, at)),
      test: column((at) => value(all.test, at)),
      kind: rows.map(kind),
      group: column((at) => (all.group ? all.group[at] + 1 : NaN)),
      colour: rows.map((at) => all.colours[(all.group ? all.group[at] : 0) % all.colours.length]),
      map_x: column((at) => value(all.map_x, at)),
      map_y: column((at) => value(all.map_y, at)),
    };
    all.methods.forEach((method, k) => {
      found[`gain${k}`] = column((at) => gain(k, at));
      found[`rank${k}`] = ranked(found[`gain${k}`]);
      found[`score${k}`] = column((at) => Number((metric().factor * score(k, at)).toPrecision(4)));
      found[`degree${k}`] = column((at) => value(all.degree && all.degree[method.name], at));
      if (!all.same_size) return;
      found[`score_rank${k}`] = ranked(found[`score${k}`]);
      found[`degree_rank${k}`] = ranked(found[`degree${k}`]);
    });
    return found;
  };

  // Methods that are shown and have gains, by their rows in the histogram, from below.
  view.strips = () => {
    const shown = all.methods.map((_, k) => k).filter((k) => !state.hidden.has(all.methods[k].style) && !(reference() && all.methods[k].name === reference().key));
    return shown.reverse();
  };

  // How many clients gain how much: a strip for each method, thirty bins between the ends of all gains but the outermost hundredth.
  view.bins = (data) => {
    const every = [], strips = view.strips();
    strips.forEach((k) => data[`gain${k}`].forEach((g) => Number.isFinite(g) && every.push(g)));
    every.sort((a, b) => a - b);
    const low = Math.min(0, every[Math.floor(0.005 * every.length)] ?? -1), high = Math.max(0, every[Math.ceil(0.995 * every.length) - 1] ?? 1);
    const width = (high - low || 1) / 30, first = low - width;
    const counts = strips.map((k) => {
      const mine = new Float64Array(32);
      data[`gain${k}`].forEach((g, row) => {
        if (Number.isFinite(g) && !all.new[view.rows[row]]) mine[Math.min(31, Math.max(0, Math.floor((g - first) / width)))]++;
      });
      return mine;
    });
    const most = Math.max(1, ...counts.map((mine) => Math.max(...mine)));
    const found = { left: [], right: [], bottom: [], top: [], colour: [], method: [], count: [] };
    counts.forEach((mine, row) =>
      mine.forEach((number, bin) => {
        if (!number) return;
        const method = all.methods[strips[row]];
        const bar = { left: first + bin * width, right: first + (bin + 1) * width, bottom: row, top: row + (0.88 * number) / most, colour: method.colour, method: method.name, count: number };
        for (const [name, one] of Object.entries(bar)) found[name].push(one);
      })
    );
    return found;
  };

  // The sorted curve of every method, each column in its own order.
  view.sorted = (data) => {
    const found = {};
    all.methods.forEach((_, k) => {
      const rank = data[`rank${k}`], order = [...rank.keys()].filter((row) => Number.isFinite(rank[row])).sort((a, b) => rank[a] - rank[b]);
      const fill = (values) => Float64Array.from(rank, (_, place) => (place < order.length ? values[order[place]] : NaN));
      found[`rank${k}`] = fill(rank);
      found[`gain${k}`] = fill(data[`gain${k}`]);
    });
    return found;
  };

  // CSV of the clients shown, as a spreadsheet reads it; what begins like a formula is kept from being one.
  view.csv = () => {
    const cell = (text) => {
      const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? "'" + text : text;
      return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const number = (x) => (Number.isFinite(x) ? String(Number(x.toPrecision(6))) : "");
    const over = reference() ? reference().key : null;
    const head = ["client", "kind", "train_examples", "test_examples", ...(all.group ? ["group"] : [])];
    all.methods.forEach((method) => head.push(`${metric().key} ${method.name}`, ...(over ? [`gain over ${over} ${method.name}`] : [])));
    const lines = [head.map(cell).join(",")];
    for (const at of view.rows) {
      const line = [cell(all.ids[at]), kind(at), number(value(all.train, at)), number(value(all.test, at)), ...(all.group ? [String(all.group[at] + 1)] : [])];
      all.methods.forEach((_, k) => line.push(number(score(k, at)), ...(over ? [number(gain(k, at))] : [])));
      lines.push(line.join(","));
    }
    return lines.join("\r\n") + "\r\n";
  };
  return view;
};

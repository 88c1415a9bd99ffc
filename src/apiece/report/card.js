// The card of the chosen client: its data, its labels, every method's numbers, what is believed of it, its partners.
"use strict";
page.card_of = (view, choose) => {
  const { all, state, value } = view, { make, written } = page;
  const get = (id) => document.getElementById(id);
  const chance = (risk) => (risk < 0.005 ? "below 1 %" : written(100 * risk, 0) + " %");

  const verdict = (at) => {
    const method = all.methods[state.main];
    if (view.kind(at) === "attacks") return "It attacks in some seed: its own numbers count in no mean.";
    if (method.hurt.includes(all.ids[at])) return `${method.so_far ? "So far it looks" : "Proved"} hurt by ${method.name}.`;
    const risk = value(all.risk && all.risk[method.name], at), believed = value(all.believed && all.believed[method.name], at);
    if (!Number.isFinite(risk)) return "";
    return `With ${method.name}: not proved hurt. Believed gain ${written(believed, 1, true)} points; the chance that it is hurt is ${chance(risk)}.`;
  };

  const numbers = (at) => {
    const metric = view.metric(), over = view.reference(), table = make("table"), head = make("tr");
    const unit = metric.unit ? `, ${metric.unit}` : "";
    const titles = ["method", metric.label + unit, ...(over ? [`gain over ${over.key}`] : []), ...(all.risk ? ["chance of harm"] : []), ...(all.degree ? ["degree"] : [])];
    titles.forEach((title) => head.append(make("th", title, { scope: "col" })));
    table.append(make("thead"), make("tbody"));
    table.tHead.append(head);
    all.methods.forEach((method, k) => {
      const row = make("tr", undefined, k === state.main ? { class: "main" } : {}), name = make("th", undefined, { scope: "row" });
      name.append(make("span", undefined, { class: "dot", style: `background:${method.colour}` }), method.name);
      row.append(name, make("td", written(metric.factor * view.score(k, at), metric.places)));
      if (over) row.append(make("td", written(view.gain(k, at), view.places_of_gain(), true)));
      if (all.risk) row.append(make("td", method.name in all.risk ? chance(value(all.risk[method.name], at)) : "–"));
      if (all.degree) row.append(make("td", written(value(all.degree[method.name], at), 2)));
      table.tBodies[0].append(row);
    });
    const wide = make("div", undefined, { class: "wide" });
    wide.append(table);
    return wide;
  };

  const labels = (at) => {
    const total = all.labels[at].reduce((sum, one) => sum + one, 0) || 1;
    const list = make("ul", undefined, { class: "bars", "aria-label": "labels of its training examples" });
    all.labels[at].forEach((one, k) => {
      if (!one && all.classes.length > 12) return;
      const item = make("li"), bar = make("span", undefined, { class: "bar" });
      bar.style.width = one ? `max(1px, ${(100 * one) / total}%)` : "0";
      item.append(make("span", all.classes[k], { class: "bar-name" }), bar, make("span", String(one), { class: "bar-count" }));
      list.append(item);
    });
    return list;
  };

  // Others by name, with a number each; a click goes there.
  const others = (places, numbers, write) => {
    const list = make("p");
    places.forEach((other, place) => {
      if (other < 0) return;
      const button = make("button", `${all.ids[other]} (${write(numbers[place])})`, { type: "button" });
      button.addEventListener("click", () => choose(other));
      list.append(button, " ");
    });
    return list;
  };

  return (at) => {
    const card = get("card");
    card.hidden = at < 0;
    document.documentElement.classList.toggle("with-card", at >= 0);
    if (at < 0) return;
    get("card-name").textContent = all.ids[at];
    const sizes = [`${written(value(all.train, at), 0)} training`, ...(all.validation ? [`${all.validation[at]} validation`] : []), `${written(value(all.test, at), 0)} test`];
    const what = { new: "A new client that never trained", trains: "Trains", attacks: "Attacks" }[view.kind(at)];
    const parts = [make("p", `${what}; ${sizes.join(", ")} examples${all.group && all.group_names > 1 ? `; group ${all.group[at] + 1}` : ""}.`)];
    const said = verdict(at);
    if (said) parts.push(make("p", said, { class: "verdict" }));
    parts.push(numbers(at));
    if (all.labels) parts.push(make("h3", "Labels it trains on"), labels(at));
    if (all.partners) parts.push(make("h3", "Most like it"), others(all.partners[at], all.alike[at], (one) => written(one, 2)));
    for (const [method, learned] of Object.entries(all.learns_from || {})) {
      const mine = learned.from[at];
      if (!mine) continue;
      const title = make("h3", `It learns from, with ${method}`);
      parts.push(title, mine.length ? others(mine, learned.weight[at], (one) => `${written(100 * one, 0)} %`) : make("p", "nobody but itself."));
    }
    get("card-body").replaceChildren(...parts);
  };
};

"use strict";
// Reads the values of every line at the place that is pointed at, and hides lines whose name is clicked.
const panels = JSON.parse(document.getElementById("numbers").textContent);
document.querySelectorAll(".script").forEach((hint) => { hint.style.display = "block"; });

const write = (v) => {
  if (v === null) return "–";
  const size = Math.abs(v);
  return size && (size < 1e-3 || size >= 1e6) ? v.toExponential(2) : String(+v.toPrecision(4));
};

document.querySelectorAll("figure[data-panel]").forEach((figure) => {
  const { x, label, lines } = panels[figure.dataset.panel];
  const svg = figure.querySelector("svg"), cursor = svg.querySelector("[data-cursor]");
  const box = figure.querySelector("output"), off = new Set();
  const scale = (v) => (x.log ? Math.log(v) : v);
  const pixel = (v) => x.start + ((scale(v) - scale(x.low)) / (scale(x.high) - scale(x.low))) * (x.end - x.start);
  const places = [...new Set(lines.flatMap((l) => l.x))].filter((v) => v !== null && (!x.log || v > 0));
  places.sort((a, b) => a - b);
  let now = -1;

  const nearest = (values, at) => {
    let best = -1;
    values.forEach((v, k) => {
      if (v !== null && (best < 0 || Math.abs(pixel(v) - at) < Math.abs(pixel(values[best]) - at))) best = k;
    });
    return best;
  };

  const show = (k) => {
    now = k;
    const value = places[k], at = pixel(value);
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    cursor.setAttribute("visibility", "visible");
    const rows = [`${label}: ${write(value)}`];
    lines.forEach((l, i) => {
      const j = nearest(l.x, at);
      // A line is read where it has a point; between its points, at the nearest one within a few pixels.
      if (off.has(i) || j < 0 || Math.abs(pixel(l.x[j]) - at) > 6) return;
      const range = l.low && l.high && l.low[j] !== null ? ` (${write(l.low[j])} to ${write(l.high[j])})` : "";
      rows.push(`${l.name}: ${write(l.y[j])}${range}`);
    });
    box.replaceChildren(...rows.flatMap((row) => [document.createTextNode(row), document.createElement("br")]));
    box.style.display = "block";
    const view = svg.viewBox.baseVal, shown = svg.getBoundingClientRect().width / view.width;
    const left = at * shown;
    box.style.left = `${left + box.offsetWidth + 12 > view.width * shown ? Math.max(0, left - box.offsetWidth - 8) : left + 8}px`;
    box.style.top = `${view.height * shown * 0.35}px`;
  };

  const hide = () => {
    now = -1;
    box.style.display = "none";
    cursor.setAttribute("visibility", "hidden");
  };

  svg.addEventListener("pointermove", (event) => {
    const shape = svg.getBoundingClientRect();
    const at = ((event.clientX - shape.left) / shape.width) * svg.viewBox.baseVal.width;
    if (places.length && at >= x.start - 4 && at <= x.end + 4) show(nearest(places, at)); else hide();
  });
  svg.addEventListener("pointerleave", hide);
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !places.length || event.target !== svg) return;
    event.preventDefault();
    show(Math.min(places.length - 1, Math.max(0, now < 0 && by < 0 ? places.length - 1 : now + by)));
  });

  svg.querySelectorAll("[data-name]").forEach((name) => {
    const i = Number(name.dataset.name);
    const flip = () => {
      if (off.has(i)) off.delete(i); else off.add(i);
      name.classList.toggle("off", off.has(i));
      name.setAttribute("aria-pressed", String(!off.has(i)));
      svg.querySelector(`[data-line="${i}"]`).classList.toggle("off", off.has(i));
      if (now >= 0) show(now);
    };
    name.setAttribute("tabindex", "0");
    name.setAttribute("role", "button");
    name.setAttribute("aria-pressed", "true");
    name.addEventListener("click", flip);
    name.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      flip();
    });
  });
});

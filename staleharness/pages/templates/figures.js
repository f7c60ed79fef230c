// Values under the pointer, and with the arrow keys, read from the places of marks in the picture and its axes; and a
// switch between light and dark.
(() => {
  const all = (query, root) => [...root.querySelectorAll(query)];
  const NEAR = 24;  // points: a pointer further from every mark shows nothing
  const panels = new WeakMap();
  const tip = document.body.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  ring.setAttribute("class", "ring");
  ring.setAttribute("r", 4);

  // What an axis {ends, log, unit, names} says at a place, a share of its length; as exact as the picture, no more.
  function text(axis, share, length) {
    const [a, b] = axis.ends;
    const v = axis.log ? a * (b / a) ** share : a + share * (b - a);
    if (axis.names) {
      const at = (v) => (axis.log ? Math.log(v / a) / Math.log(b / a) : (v - a) / (b - a));
      const distance = ([place]) => Math.abs(at(place) - share);
      return axis.names.reduce((best, name) => (distance(name) < distance(best) ? name : best), ["", ""])[1];
    }
    const step = axis.log ? Math.abs(v * Math.log(b / a)) / length / 10 : Math.abs(b - a) / length / 10;
    const scale = axis.unit === "%" ? 100 : 1;
    const digits = Math.ceil(Math.log10(step * scale || 1e-9));
    const rounded = Math.round(v * scale / 10 ** digits) * 10 ** digits;
    const options = { maximumFractionDigits: Math.max(0, Math.min(12, -digits)) };
    return (rounded + 0).toLocaleString("en", options).replace("-", "−") + (axis.unit || "");
  }

  function points(d) {
    const numbers = d.match(/-?[\d.]+(?:e-?\d+)?/g) || [];
    return numbers.flatMap((x, i) => (i % 2 ? [] : [[Number(x), Number(numbers[i + 1])]]));
  }

  // Marks of a panel: those whose points are values, by series, and the shapes around them (intervals and bands).
  function read(group) {
    if (panels.has(group)) return panels.get(group);
    const panel = { ...JSON.parse(group.dataset.axes), series: new Map(), around: new Map() };
    const rows = panel.y.names && !panel.x.names;
    const add = (map, key, more) => map.set(key, [...(map.get(key) || []), ...more]);
    for (const mark of all(":scope > g > path:is([clip-path], .mark), :scope > g > g[clip-path] > use", group)) {
      const key = mark.closest("[data-series]")?.dataset.series ?? "";
      const used = mark.tagName === "use" ? document.getElementById(mark.getAttribute("href").slice(1)) : null;
      const d = (used || mark).getAttribute("d") || "";
      const shift = [Number(mark.getAttribute("x") || 0), Number(mark.getAttribute("y") || 0)];
      let places = points(d).map(([x, y]) => [x + shift[0], y + shift[1]]);
      const closed = /z\s*$/i.test(d);
      const pale = /stroke-opacity/.test(mark.getAttribute("style") || "");
      const xs = places.map((p) => p[0]), ys = places.map((p) => p[1]);
      if (used && Math.max(...xs) - Math.min(...xs) < 20 && Math.max(...ys) - Math.min(...ys) < 20) {
        add(panel.series, key, [shift]);
      } else if (key === "" ? closed : !closed && !pale) {
        if (closed) places = [[(Math.min(...xs) + Math.max(...xs)) / 2, Math.min(...ys)]];
        else if (rows && places.length === 2) places = [[xs[0], (ys[0] + ys[1]) / 2]];
        add(panel.series, key, places);
      } else {
        add(panel.around, key, [places]);
      }
    }
    for (const [key, places] of panel.series) {
      const inside = places.filter(([x, y]) => x >= panel.box[0] - 1 && x <= panel.box[2] + 1 && y >= panel.box[1] - 1 && y <= panel.box[3] + 1);
      const isSame = (p) => (q) => Math.abs(p[0] - q[0]) < 0.2 && Math.abs(p[1] - q[1]) < 0.2;  // a line's and its marker's
      const once = inside.filter((p, i) => i === inside.findIndex(isSame(p)));
      panel.series.set(key, once.sort((p, q) => (rows ? p[1] - q[1] : p[0] - q[0])));
    }
    panel.rows = rows;
    panels.set(group, panel);
    return panel;
  }

  const shareX = (panel, x) => (x - panel.box[0]) / (panel.box[2] - panel.box[0]);
  const shareY = (panel, y) => (panel.box[3] - y) / (panel.box[3] - panel.box[1]);
  const along = (panel, name, place) => (name === "x"
    ? text(panel.x, shareX(panel, place), panel.box[2] - panel.box[0])
    : text(panel.y, shareY(panel, place), panel.box[3] - panel.box[1]));

  const valueAt = (panel, y) => panel.y.ends[0] + shareY(panel, y) * (panel.y.ends[1] - panel.y.ends[0]);

  // Ends of the interval or band around a point; empty where there is none.
  function interval(panel, key, [x, y]) {
    if (key === "") return "";
    const [across, other, here] = panel.rows ? [1, 0, x] : [0, 1, y];
    let ends = [];
    for (const shape of panel.around.get(key) || []) {
      const level = shape.map((p) => p[across]);
      const touching = panel.rows ? Math.min(...level) <= y && y <= Math.max(...level) : true;
      const near = touching ? shape.filter((p) => panel.rows || Math.abs(p[across] - x) < 0.3).map((p) => p[other]) : [];
      if (near.length > 1 && Math.min(...near) <= here + 0.3 && Math.max(...near) >= here - 0.3) ends.push(Math.min(...near), Math.max(...near));
    }
    if (!ends.length || Math.max(...ends) - Math.min(...ends) < 0.3) return "";
    ends = [Math.min(...ends), Math.max(...ends)].map((v) => along(panel, panel.rows ? "x" : "y", v));
    return ` [${(panel.rows ? ends : ends.reverse()).join(", ")}]`;
  }

  function name(svg, key) {
    const box = document.querySelector(`input[data-filter="series"][value="${key}"]`);
    return key === "" ? "" : all(`g[data-series="${key}"] text`, svg)[0]?.textContent || box?.parentElement.textContent || "";
  }

  function show(svg, group, key, point) {
    const panel = read(group);
    const [value, place] = panel.rows ? ["x", "y"] : ["y", "x"];
    const ends = interval(panel, key, point);
    const lines = [[name(svg, key) || panel.title || "", "b"]];
    const at = { x: point[0], y: point[1] };
    lines.push([`${panel[value].label || "value"}: ${along(panel, value, at[value])}${ends}`, "span"]);
    const where = along(panel, place, at[place]);
    const heads = panel.rows ? panel.y.names.filter(([row, words]) => words.startsWith("K = ") && row < valueAt(panel, at.y)) : [];
    if (heads.length) lines.push([heads[heads.length - 1][1], "span"]);
    if (where && where !== lines[0][0]) lines.push([`${panel[place].label || place}: ${where}`, "span"]);
    if (panel.title && lines[0][0] !== panel.title) lines.push([panel.title, "small"]);
    tip.replaceChildren(...lines.map(([words, tag]) => Object.assign(document.createElement(tag), { textContent: words })));
    tip.hidden = false;
    ring.setAttribute("cx", point[0]);
    ring.setAttribute("cy", point[1]);
    svg.append(ring);
    const screen = svg.getScreenCTM(), box = tip.getBoundingClientRect();
    const [left, top] = [screen.a * point[0] + screen.e, screen.d * point[1] + screen.f];
    tip.style.left = `${Math.max(4, Math.min(left + 14, innerWidth - box.width - 4))}px`;
    tip.style.top = `${top - box.height - 14 > 4 ? top - box.height - 14 : top + 14}px`;
  }

  function hide() { tip.hidden = true; ring.remove(); }

  function visible(group) {
    const out = (key) => document.querySelector(`input[data-filter="series"][value="${key}"]:not(:checked)`);
    return [...read(group).series].filter(([key, places]) => places.length && !(key !== "" && out(key)));
  }

  function nearest(svg, x, y) {
    let best = null;
    for (const group of all("[data-axes]", svg)) {
      const [left, top, right, bottom] = read(group).box;
      if (x < left - 6 || x > right + 6 || y < top - 6 || y > bottom + 6) continue;
      for (const [key, places] of visible(group)) for (const point of places) {
        const distance = Math.hypot(point[0] - x, point[1] - y);
        if (distance < NEAR && (!best || distance < best.distance)) best = { distance, group, key, point };
      }
    }
    return best;
  }

  for (const svg of all("svg:has([data-axes])", document)) {
    let at = null;  // panel, series and point of the keyboard
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("aria-description", "Arrow keys show values; Page Down: the next panel.");
    for (const event of ["pointermove", "pointerdown"]) svg.addEventListener(event, (e) => {
      const screen = svg.getScreenCTM();
      const found = nearest(svg, (e.clientX - screen.e) / screen.a, (e.clientY - screen.f) / screen.d);
      if (found) show(svg, found.group, found.key, found.point); else hide();
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (e) => {
      const move = { ArrowRight: [0, 0, 1], ArrowLeft: [0, 0, -1], ArrowDown: [0, 1, 0], ArrowUp: [0, -1, 0], PageDown: [1, 0, 0], PageUp: [-1, 0, 0] }[e.key];
      if (e.key === "Escape") hide();
      if (!move) return;
      const groups = all("[data-axes]", svg).filter((group) => visible(group).length);
      if (!groups.length) return;
      e.preventDefault();
      const wrap = (i, n) => (i + n) % n;
      const first = !at;
      at = at ? at.map((v, i) => v + move[i]) : [0, 0, 0];
      const series = visible(groups[at[0] = wrap(at[0], groups.length)]);
      at[1] = wrap(at[1], series.length);
      const end = series[at[1]][1].length;
      if (move[2] && !first && (at[2] < 0 || at[2] >= end)) {  // on to the next series
        at[1] = wrap(at[1] + move[2], series.length);
        at[2] = move[2] > 0 ? 0 : series[at[1]][1].length - 1;
      }
      const [key, places] = series[at[1]];
      at[2] = Math.max(0, Math.min(at[2], places.length - 1));
      show(svg, groups[at[0]], key, places[at[2]]);
    });
  }
  addEventListener("scroll", hide, { passive: true });

  // Light or dark: as the system, until the reader chooses.
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const memory = (...value) => { try { return value.length ? localStorage.setItem("theme", value[0]) : localStorage.getItem("theme"); } catch { return null; } };
  const button = Object.assign(document.createElement("button"), { type: "button", className: "theme" });
  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const label = () => { button.textContent = theme() === "dark" ? "☀ Light" : "☾ Dark"; };
  if (["light", "dark"].includes(memory())) root.dataset.theme = memory();
  button.addEventListener("click", () => { memory(root.dataset.theme = theme() === "dark" ? "light" : "dark"); label(); });
  dark.addEventListener("change", label);
  label();
  document.querySelector("header").prepend(button);
})();

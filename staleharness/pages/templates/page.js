"use strict";
// Sorting and filtering; what is chosen stands in the address (#hide=..&out=..&sort=..) and can be shared.
(() => {
  const all = (query, root = document) => [...root.querySelectorAll(query)];
  const state = new Map();

  function save() {
    const text = [...state].filter(([, v]) => v).map(([k, v]) => `${k}=${v}`).join("&");
    try { history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search); } catch { /* file:// */ }
  }

  function filter() {
    const off = { series: new Set(), panel: new Set(), track: new Set(), k: new Set() };
    for (const box of all("input[data-filter]")) if (!box.checked) off[box.dataset.filter].add(box.value);
    for (const e of all("[data-series], [data-panel]")) {
      const row = e.tagName.toLowerCase() === "tr";
      const out = off.panel.has(e.dataset.panel);
      e.classList.toggle("off", off.series.has(e.dataset.series) || (row && out));
      e.classList.toggle("dim", !row && out);
    }
    for (const kind of ["track", "k"]) {
      for (const e of all(`[data-${kind}]`)) e.classList.toggle("off", off[kind].has(e.dataset[kind]));
      state.set(kind, [...off[kind]].join(","));
    }
    state.set("hide", [...off.series].join(","));
    state.set("out", [...off.panel].join(","));
  }

  function sort(table, column, direction) {
    const value = (row) => row.cells[column].dataset.v;
    const numeric = (v) => v !== "" && !Number.isNaN(Number(v));
    const body = table.tBodies[0];
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === "");  // no number: last, either way
      const order = numeric(x) && numeric(y) ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true });
      return direction * order;
    });
    body.append(...rows);
    all("thead th", table).forEach((th, i) => {
      if (i === column) th.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else th.removeAttribute("aria-sort");
    });
    state.set(table.dataset.sortable, `${column}:${direction}`);
  }

  for (const table of all("table[data-sortable]")) {
    all("thead th", table).forEach((th, i) => th.firstElementChild.addEventListener("click", () => {
      const first = th.classList.contains("num") ? -1 : 1;
      const now = th.getAttribute("aria-sort");
      sort(table, i, now ? (now === "ascending" ? -1 : 1) : first);
      save();
    }));
  }
  for (const box of all("input[data-filter]")) box.addEventListener("change", () => { filter(); save(); });

  for (const button of all("button[data-all]")) button.addEventListener("click", () => {
    for (const box of all(`input[data-filter=${button.dataset.all}]`)) box.checked = button.dataset.check === "1";
    filter();
    save();
  });
  for (const row of all("main tr[data-series], #plot g[data-series]")) {
    const mark = (on) => all("#plot figure").forEach((figure) => {
      figure.classList.toggle("focus", on);
      for (const g of all(`g[data-series="${row.dataset.series}"]`, figure)) g.classList.toggle("on", on);
    });
    for (const [event, on] of [["mouseenter", true], ["mouseleave", false], ["focusin", true], ["focusout", false]]) {
      row.addEventListener(event, () => mark(on));
    }
  }
  function openCard() {  // a card, or what lies in closed ones
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const around = [];
    for (let card = target?.closest("details"); card; card = card.parentElement.closest("details")) around.push(card);
    for (const card of around) card.open = true;
    if (around.length) target.scrollIntoView({ block: "center" });
  }
  addEventListener("hashchange", openCard);

  for (const part of location.hash.slice(1).split("&")) {
    const [key, text = ""] = part.split("=");
    const kind = { hide: "series", out: "panel", track: "track", k: "k" }[key];
    if (kind) for (const box of all(`input[data-filter=${kind}]`)) box.checked = !text.split(",").includes(box.value);
    const table = all("table[data-sortable]").find((t) => t.dataset.sortable === key);
    const [column, direction] = text.split(":").map(Number);
    if (table && table.tHead.rows[0].cells[column]) sort(table, column, direction < 0 ? -1 : 1);
  }
  filter();
  openCard();
})();

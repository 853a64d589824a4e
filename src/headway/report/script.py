"""The page's JavaScript: draws the stacked chart and the heat map, reads values under the pointer or by arrow keys.

Text goes in by textContent only. Without JavaScript the page still has every table and every curve.
"""

from __future__ import annotations

from typing import Final

from headway.report.script_timeline import TIMELINE_JS

_JS: Final = r"""
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (query, from = document) => from.querySelector(query);
  const all = (query, from = document) => [...from.querySelectorAll(query)];
  const make = (name, text, className) => {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  };
  const exact = (ns) => Math.round(ns).toLocaleString("en-US") + " ns";
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
  const unitOf = (ns) => units.find(([size]) => ns >= size) || units[3];
  const time = (ns) => {
    const [size, unit] = unitOf(ns), v = ns / size;
    const digits = size === 1 || v >= 1000 ? 0 : v >= 100 ? 1 : v >= 10 ? 2 : 3;
    return v.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + " " + unit;
  };
  const steps = ([first, last]) => first === last ? `step ${first}` : `steps ${first} to ${last}`;

  // A plot that can be read: pointer or arrow keys choose one of `num()` places, `fill(place)` gives title and rows.
  const readable = (plot, num, fill, where) => {
    const cursor = make("div", undefined, "cursor"), tip = make("div", undefined, "tip");
    tip.setAttribute("role", "status");
    cursor.hidden = tip.hidden = true;
    plot.append(cursor, tip);
    let at = -1;
    const hide = () => { cursor.hidden = tip.hidden = true; at = -1; };
    const show = (place, y) => {
      const { title, rows, left, width } = fill(place, y);
      at = place;
      cursor.style.left = 100 * left + "%";
      cursor.style.width = 100 * width + "%";
      tip.replaceChildren(make("b", title));
      for (const [colour, name, value] of rows) {
        const row = make("div"), swatch = make("i");
        if (colour) swatch.style.background = colour;
        row.append(swatch, make("span", name.replace(/([._])/g, "$1\u200b")), make("span", value));
        tip.append(row);
      }
      cursor.hidden = tip.hidden = false;
      const room = plot.clientWidth, x = (left + width / 2) * room;
      const want = x + 14 + tip.offsetWidth <= room ? x + 14 : x - 14 - tip.offsetWidth;
      tip.style.left = Math.max(-40, Math.min(want, room - tip.offsetWidth)) + "px";
    };
    const point = (event) => {
      const box = plot.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
      if (x < 0 || x > 1 || !num()) return hide();
      show(where(x), Math.max(0, Math.min(0.9999, y)));
    };
    plot.addEventListener("pointermove", point);
    plot.addEventListener("pointerdown", point);
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
      if (event.key === "Escape") return hide();
      if (move === undefined || !num()) return;
      event.preventDefault();
      show(at < 0 && move > 0 && move < 1e9 ? 0 : Math.max(0, Math.min(num() - 1, (at < 0 ? num() : at) + move)));
    });
    return { hide, again: () => { if (at >= 0) show(at); } };
  };

  // ---- stacked chart: one partition of the steps of one view ----
  const chart = $("#stack");
  if (chart) {
    const svg = $("svg", chart), axis = $("#stack-x"), note = $("#stack-note"), pick = $("#view");
    const NS = svg.namespaceURI, W = 1000, H = 400;
    const kinds = Object.keys(data.time);
    let kind = kinds[0], part, view, top = 1;
    const path = (d, className, fill) => {
      const node = document.createElementNS(NS, "path");
      node.setAttribute("d", d);
      node.setAttribute("class", className);
      if (fill) node.setAttribute("fill", fill);
      svg.append(node);
      return node;
    };
    const ticks = (high) => {
      const rough = high / 4, power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
      return Array.from({ length: Math.ceil(high / step - 1e-9) + 1 }, (_, i) => i * step);
    };
    const draw = () => {
      const num = part.bins.length, means = view.wall.map((w, i) => view.count[i] ? w / view.count[i] : 0);
      const tops = means.map((m, i) => Math.max(m, view.max[i]));
      const sorted = tops.filter((t) => t > 0).sort((a, b) => a - b);
      const usual = sorted.length ? sorted[Math.floor(0.9 * (sorted.length - 1))] : 1, most = sorted.length ? sorted[sorted.length - 1] : 1;
      const marks = ticks((most > 3 * usual ? 1.5 * usual : most) || 1);
      top = marks[marks.length - 1];
      const [size, unit] = unitOf(top);
      svg.replaceChildren();
      all(".y", chart).forEach((node) => node.remove());
      for (const v of marks) {
        path(`M0 ${H - H * v / top}H${W}`, "grid");
        const label = make("span", v === 0 ? "0" : `${+(v / size).toPrecision(4)} ${unit}`, "y");
        label.style.bottom = 100 * v / top + "%";
        chart.append(label);
      }
      const width = W / num, gap = num <= 60 ? width * 0.12 : 0, base = new Array(num).fill(0);
      const x = (i) => [(i * width + gap / 2).toFixed(2), ((i + 1) * width - gap / 2).toFixed(2)];
      const y = (v) => (H - H * Math.min(1, v / top)).toFixed(2);
      view.cells.forEach((cells, k) => {
        let d = "";
        for (let i = 0; i < num; i++) {
          if (!cells[i]) continue;
          const low = base[i], high = base[i] += cells[i] / view.count[i];
          if (low < top) d += `M${x(i)[0]} ${y(low)}V${y(high)}H${x(i)[1]}V${y(low)}Z`;
        }
        if (d) path(d, num <= 80 ? "series bar-gap" : "series", part.colours[k]).dataset.k = k;
      });
      let worst = "", cut = "", numCut = 0;
      for (let i = 0; i < num; i++) {
        if (view.count[i] > 1 && view.max[i] <= top) worst += `M${x(i)[0]} ${y(view.max[i])}H${x(i)[1]}`;
        if (tops[i] > top) { numCut++; cut += `M${x(i)[0]} 6H${x(i)[1]}V0H${x(i)[0]}Z`; }
      }
      if (worst && part.bins.some(([a, b]) => a !== b)) path(worst, "worst");
      if (cut) path(cut, "cut");
      axis.replaceChildren();
      const every = Math.max(1, Math.ceil(num / Math.max(2, Math.floor(chart.clientWidth / 70))));
      for (let i = 0; i < num; i += every) {
        const label = make("span", part.bins[i][0]);
        label.style.left = 100 * (i + 0.5) / num + "%";
        if ((i + 0.5) / num < 0.93) axis.append(label);
      }
      axis.append(make("span", "step", "unit"));
      note.textContent = part.note + (numCut ? ` ${numCut} bar${numCut > 1 ? "s reach" : " reaches"} beyond the frame (dark cap).` : "");
    };
    const select = () => {
      part = data.time[kind];
      const label = pick ? pick.value : "";
      view = part.views.find((v) => v.label === label) || part.views[0];
      if (pick) {
        pick.replaceChildren(...part.views.map((v) => { const o = make("option", v.label); o.value = v.label; return o; }));
        pick.value = view.label;
      }
      all("[data-table]").forEach((node) => { node.hidden = node.dataset.table !== kind; });
      draw();
    };
    const { hide } = readable(chart, () => part.bins.length, (i) => {
      const n = view.count[i];
      const rows = view.cells.map((cells, k) => [part.colours[k], part.names[k], cells[i]]).filter((r) => r[2] > 0);
      rows.sort((a, b) => b[2] - a[2]);
      const shown = rows.slice(0, 12), rest = rows.slice(12).reduce((sum, r) => sum + r[2], 0);
      const text = shown.map(([colour, name, ns]) => [colour, name, exact(ns / n)]);
      if (rest) text.push(["", `${rows.length - 12} more`, exact(rest / n)]);
      const [first, last] = part.bins[i], one = first === last;  // n steps of one rank, n ranks of one step, or both
      const of = one ? "ranks" : view.label === "all ranks" ? "steps of all ranks" : "steps";
      const what = n === 1 ? "step time" : `mean of ${n} ${of}`;
      if (n) text.push(["", what, exact(view.wall[i] / n)]);
      if (n > 1) text.push(["", "slowest", exact(view.max[i])]);
      const title = steps(part.bins[i]) + (n ? ": " + time(view.wall[i] / n) : ": not in this view");
      return { title, rows: text, left: i / part.bins.length, width: 1 / part.bins.length };
    }, (x) => Math.min(part.bins.length - 1, Math.floor(x * part.bins.length)));
    all("input[name=kind]").forEach((node) => node.addEventListener("change", () => { hide(); kind = node.value; select(); }));
    if (pick) pick.addEventListener("change", () => { hide(); select(); });
    all("tr[data-k]").forEach((row) => {
      const ks = row.dataset.k.split(" ");
      const dim = (on) => all(".series", svg).forEach((node) => node.classList.toggle("dim", on && !ks.includes(node.dataset.k)));
      row.addEventListener("pointerenter", () => dim(true));
      row.addEventListener("pointerleave", () => dim(false));
    });
    const reveal = () => {  // a link to a row of a table that is switched away
      const row = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
      const table = row && row.closest("[data-table]");
      if (!table || !table.hidden) return;
      const input = all("input[name=kind]").find((node) => node.value === table.dataset.table);
      if (input) { input.checked = true; kind = input.value; select(); row.scrollIntoView(); }
    };
    addEventListener("hashchange", reveal);
    new ResizeObserver(() => draw()).observe(chart);
    select();
    reveal();
  }

@TIMELINE@
  // ---- heat map: ranks x steps ----
  const map = $("#heat");
  if (map) {
    const canvas = $("canvas", map), heat = data.heat, pick = $("#metric");
    const ramp = heat.ramp.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
    const colour = (t) => {
      const x = Math.max(0, Math.min(1, t)) * (ramp.length - 1), i = Math.min(ramp.length - 2, Math.floor(x));
      return ramp[i].map((c, k) => Math.round(c + (ramp[i + 1][k] - c) * (x - i)));
    };
    let grid;
    const paint = () => {
      grid = heat.metrics[pick.value];
      const known = grid.flat().filter((v) => v !== null).sort((a, b) => a - b);
      const low = known[Math.floor(0.02 * (known.length - 1))], high = known[Math.ceil(0.98 * (known.length - 1))];
      canvas.width = heat.bins.length;
      canvas.height = heat.rows.length;
      const pen = canvas.getContext("2d"), image = pen.createImageData(canvas.width, canvas.height);
      grid.flat().forEach((v, i) => {
        if (v === null) return;
        image.data.set([...colour(high > low ? (v - low) / (high - low) : 0.5), 255], 4 * i);
      });
      pen.putImageData(image, 0, 0);
      $("#heat-low").textContent = time(low);
      $("#heat-high").textContent = time(high) + " and more";
    };
    pick.addEventListener("change", () => { paint(); again(); });
    let row = 0;
    const { again } = readable(map, () => heat.bins.length, (i, y) => {
      if (y !== undefined) row = Math.floor(y * heat.rows.length);
      const v = grid[row][i];
      const rows = [["", pick.value, v === null ? "no such step" : exact(v)]];
      return { title: `${heat.rows[row]}, ${steps(heat.bins[i])}`, rows, left: i / heat.bins.length, width: 1 / heat.bins.length };
    }, (x) => Math.min(heat.bins.length - 1, Math.floor(x * heat.bins.length)));
    map.addEventListener("keydown", (event) => {
      const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!move) return;
      event.preventDefault();
      row = Math.max(0, Math.min(heat.rows.length - 1, row + move));
      again();
    });
    paint();
  }

  // ---- curves: drawn already, made readable ----
  const formats = {
    "share": (v) => (100 * v).toFixed(2) + " %",
    "bytes": (v) => (v / 2 ** 30).toFixed(3) + " GiB",
    "samples/s": (v) => v.toLocaleString("en-US", { maximumFractionDigits: 1 }) + " /s",
    "number": (v) => String(+v.toPrecision(5)),
  };
  all("[data-curve]").forEach((plot) => {
    const curve = data.curves[plot.dataset.curve], at = curve.samples;
    const nearest = (x) => {
      const want = x * curve.x1;
      let low = 0, high = at.length - 1;
      while (low < high) { const mid = (low + high) >> 1; if (at[mid] < want) low = mid + 1; else high = mid; }
      return low > 0 && want - at[low - 1] < at[low] - want ? low - 1 : low;
    };
    readable(plot, () => at.length, (i) => ({
      title: at[i].toLocaleString("en-US") + " samples",
      rows: curve.lines.map((l) => [l.colour, l.name, l.mean[i] === null ? "no value" : formats[curve.unit](l.mean[i])]),
      left: curve.x1 ? at[i] / curve.x1 : 0, width: 0,
    }), nearest);
  });
})();
"""

JS: Final = _JS.replace("@TIMELINE@", TIMELINE_JS)

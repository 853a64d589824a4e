"""JavaScript of the timeline: paints lanes on a canvas, zooms by wheel, buttons and keys, moves by dragging, reads pieces."""

from __future__ import annotations

from typing import Final

TIMELINE_JS: Final = r"""
  // ---- timeline: lanes of pieces ----
  const frame = $("#timeline");
  if (frame) {
    const line = data.timeline, canvas = $("canvas", frame), where = $("#timeline-where");
    for (const lane of line.lanes) {
      let at = 0;
      lane.start = Float64Array.from(lane.at, (d) => at += d);
    }
    const HEAD = 22, ROW = 46, BAR = 24, TOP = 16;
    let from = 0, to = line.span, hot = null;
    const tip = make("div", undefined, "tip");
    tip.setAttribute("role", "status");
    tip.hidden = true;
    frame.append(tip);
    all(".lane", frame).forEach((node, i) => { node.style.top = HEAD + ROW * i - 4 + "px"; });
    const after = (lane, t) => {  // the first piece that ends after t
      let low = 0, high = lane.start.length;
      while (low < high) { const mid = (low + high) >> 1; if (lane.start[mid] + lane.length[mid] <= t) low = mid + 1; else high = mid; }
      return low;
    };
    const paint = () => {
      const wide = frame.clientWidth, tall = frame.clientHeight, ratio = devicePixelRatio || 1;
      canvas.width = Math.round(wide * ratio);
      canvas.height = Math.round(tall * ratio);
      const pen = canvas.getContext("2d"), style = getComputedStyle(document.body);
      const ink = style.color, soft = getComputedStyle(where).color, px = wide / (to - from);
      pen.scale(ratio, ratio);
      pen.clearRect(0, 0, wide, tall);
      pen.font = "11.5px system-ui, sans-serif";
      pen.textBaseline = "top";
      const rough = (to - from) / Math.max(2, wide / 110), power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
      pen.fillStyle = soft;
      for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
        const x = (t - from) * px;
        pen.globalAlpha = 0.25;
        pen.fillRect(x, 14, 1, tall - 14);
        pen.globalAlpha = 1;
        const text = t === 0 ? "0" : time(t);
        if (x + pen.measureText(text).width + 4 < wide) pen.fillText(text, x + 3, 0);
      }
      line.lanes.forEach((lane, row) => {
        const y = HEAD + ROW * row + TOP;
        let drawn = -1;
        for (let i = after(lane, from); i < lane.start.length && lane.start[i] < to; i++) {
          const a = Math.max(0, (lane.start[i] - from) * px), b = Math.min(wide, (lane.start[i] + lane.length[i] - from) * px);
          if (b - a < 0.3 && Math.floor(b * 2) === drawn) continue;  // at most two slivers a pixel
          drawn = Math.floor(b * 2);
          pen.fillStyle = line.colours[lane.bucket[i]];
          pen.globalAlpha = line.names[lane.bucket[i]].startsWith("idle") ? 0.35 : 1;
          pen.fillRect(a, y, Math.max(b - a, 0.5), BAR);
        }
        pen.globalAlpha = 1;
        pen.fillStyle = ink;
        for (const [number, begin, end] of lane.steps) {
          for (const edge of [begin, end]) if (edge >= from && edge <= to) pen.fillRect((edge - from) * px - 0.5, y - 4, 1, BAR + 8);
          const a = Math.max(0, (begin - from) * px), b = Math.min(wide, (end - from) * px), text = `step ${number}`;
          if (b - a > pen.measureText(text).width + 90) pen.fillText(text, b - pen.measureText(text).width - 4, y - 15);
        }
        if (hot && hot.row === row) {
          const a = (lane.start[hot.i] - from) * px, b = (lane.start[hot.i] + lane.length[hot.i] - from) * px;
          pen.strokeStyle = ink;
          pen.lineWidth = 1.5;
          pen.strokeRect(Math.max(1, a), y, Math.min(wide - 1, b) - Math.max(1, a), BAR);
        }
      });
      where.textContent = `${time(from)} to ${time(to)}`;
    };
    const view = (a, b) => {
      const least = Math.max(100, line.span / 1e7), size = Math.min(line.span, Math.max(least, b - a));
      from = Math.max(0, Math.min(line.span - size, a + (b - a - size) / 2));
      to = from + size;
      paint();
    };
    const zoom = (factor, at = 0.5) => { const t = from + at * (to - from); view(t - (t - from) * factor, t + (to - t) * factor); };
    const move = (share) => view(from + share * (to - from), to + share * (to - from));
    const acts = { in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.4), right: () => move(0.4), all: () => view(0, line.span) };
    all("[data-zoom]").forEach((node) => node.addEventListener("click", () => acts[node.dataset.zoom]()));
    const read = (x, y) => {
      const box = frame.getBoundingClientRect(), t = from + (x - box.left) / box.width * (to - from);
      const row = Math.floor((y - box.top - HEAD) / ROW), lane = line.lanes[row];
      const i = lane ? after(lane, t) : -1;
      hot = lane && i < lane.start.length && lane.start[i] <= t ? { row, i } : null;
      tip.hidden = !hot;
      if (hot) {
        const rows = [["", "begins at", time(lane.start[i])], ["", "takes", exact(lane.length[i])]];
        if (lane.kernel[i] >= 0) rows.push(["", line.labels[lane.kernel[i]], ""]);
        tip.replaceChildren(make("b", line.names[lane.bucket[i]]));
        for (const [colour, name, value] of rows) {
          const node = make("div");
          node.append(make("i"), make("span", name), make("span", value));
          tip.append(node);
        }
        const want = x - box.left + 14;
        tip.style.left = Math.max(0, want + tip.offsetWidth <= box.width ? want : x - box.left - 14 - tip.offsetWidth) + "px";
        tip.style.top = HEAD + ROW * row + TOP + BAR + 6 + "px";
      }
      paint();
    };
    let drag = null;
    frame.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, from, to }; frame.setPointerCapture(event.pointerId); });
    frame.addEventListener("pointerup", () => { drag = null; });
    frame.addEventListener("pointermove", (event) => {
      if (!drag) return read(event.clientX, event.clientY);
      const shift = (drag.x - event.clientX) / frame.clientWidth * (drag.to - drag.from);
      tip.hidden = true;
      view(drag.from + shift, drag.to + shift);
    });
    frame.addEventListener("pointerleave", () => { hot = null; tip.hidden = true; paint(); });
    frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== frame) return;  // else the page scrolls
      event.preventDefault();
      const box = frame.getBoundingClientRect();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - box.left) / box.width);
    }, { passive: false });
    frame.addEventListener("dblclick", (event) => {
      const box = frame.getBoundingClientRect();
      zoom(0.4, (event.clientX - box.left) / box.width);
    });
    frame.addEventListener("keydown", (event) => {
      const act = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", Home: "all" }[event.key];
      if (!act) return;
      event.preventDefault();
      acts[act]();
    });
    new ResizeObserver(paint).observe(frame);
    paint();
  }
"""

/* How a reader looks at the plots: smoothing, another x axis, a log scale, a cursor through all panels, files to keep.
   `steadyrunView.shown` turns a figure as it was recorded into the one that is drawn; nothing recorded is changed. */
window.steadyrunView = (function () {
  "use strict";

  const chosen = { smoothing: 0, axis: null, logs: new Map() };
  const MOST_READ = 3; /* values beside a cursor */
  const FEWEST = 20; /* points of a line that is smoothed */

  function isLine(trace) {
    return !trace.meta && String(trace.mode || "").includes("lines") && (trace.opacity === undefined || trace.opacity === 1);
  }

  /* Position of `value` among sorted numbers: the index of the last one that is not above it. */
  function below(sorted, value) {
    let low = 0, high = sorted.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (sorted[middle] <= value) low = middle; else high = middle - 1;
    }
    return low;
  }

  function interpolated(from, to, value) {
    const last = from.length - 1, i = Math.min(below(from, value), last - 1);
    const width = from[i + 1] - from[i];
    return width > 0 ? to[i] + ((to[i + 1] - to[i]) * (value - from[i])) / width : to[i];
  }

  function toAxis(step) { return chosen.axis ? interpolated(chosen.axis.steps, chosen.axis.values, step) : step; }
  function toStep(x) { return chosen.axis ? interpolated(chosen.axis.values, chosen.axis.steps, x) : x; }

  /* An exponential mean with weight `smoothing` on the past, without the pull of its start; gaps stay gaps. */
  function averaged(values) {
    const result = new Float64Array(values.length);
    let sum = 0, weight = 0;
    values.forEach((value, i) => {
      if (!Number.isFinite(value)) { result[i] = NaN; return; }
      sum = chosen.smoothing * sum + (1 - chosen.smoothing) * value;
      weight = chosen.smoothing * weight + (1 - chosen.smoothing);
      result[i] = sum / weight;
    });
    return result;
  }

  function traces(figure) {
    const all = figure.data.map((trace) => Object.assign({}, trace, chosen.axis ? { x: Float64Array.from(trace.x, toAxis) } : {}));
    if (chosen.axis) for (const trace of all) {
      if (trace.hovertemplate) trace.hovertemplate = trace.hovertemplate.replace("step %{x:,}", `${chosen.axis.name} %{x:.4~g}${chosen.axis.unit}`);
    }
    if (!chosen.smoothing) return all;
    const added = [];
    for (const trace of all.filter((each) => isLine(each) && each.x.length >= FEWEST && (each.line || {}).shape !== "hv")) {
      added.push(Object.assign({}, trace, { y: averaged(trace.y), mode: "lines", meta: "smoothed", showlegend: false, line: Object.assign({}, trace.line, { width: 2 }) }));
      Object.assign(trace, { opacity: 0.25 });
    }
    return all.concat(added);
  }

  function layoutOf(figure, log) {
    const layout = structuredClone(figure.layout);
    if (chosen.axis) {
      for (const shape of layout.shapes || []) if (shape.xref === "x") { shape.x0 = toAxis(shape.x0); shape.x1 = toAxis(shape.x1); }
      for (const note of layout.annotations || []) if (note.xref === "x") note.x = toAxis(note.x);
      layout.xaxis.range = axisRange(layout.xaxis.range);
      layout.xaxis.tickformat = "~s";
      layout.xaxis.ticksuffix = chosen.axis.unit;
    }
    if (log !== undefined && log !== (layout.yaxis.type === "log")) {
      const { title, gridcolor, zeroline, nticks, exponentformat } = layout.yaxis;
      layout.yaxis = { title, gridcolor, zeroline, nticks, exponentformat, automargin: false, type: log ? "log" : "linear", autorange: true };
      for (const shape of layout.shapes || []) if (shape.yref === "y" && log) shape.visible = shape.y0 > 0;
    }
    return layout;
  }

  function axisRange([first, last]) {
    const low = toAxis(first), high = toAxis(last), room = 0.015 * (high - low);
    return [low - room, high + room];
  }

  function shown(figure, panel) {
    return { data: traces(figure), layout: layoutOf(figure, chosen.logs.get(panel)) };
  }

  /* A line through every plot at the same step, with the values there. */
  function cursor(plots, x) {
    for (const place of plots) {
      const { xaxis, margin } = place._fullLayout ? { xaxis: place._fullLayout.xaxis, margin: place._fullLayout._size } : {};
      if (!xaxis || x === null || x < xaxis.range[0] || x > xaxis.range[1]) { clear(place); continue; }
      const line = part(place, "cursor"), words = part(place, "readout");
      line.style.left = `${margin.l + xaxis.l2p(x)}px`;
      line.style.top = `${margin.t}px`;
      line.style.height = `${margin.h}px`;
      words.textContent = read(place, x);
    }
  }

  function part(place, name) {
    let element = place.querySelector(`:scope > .${name}`);
    if (!element) {
      element = document.createElement("div");
      element.className = name;
      place.append(element);
    }
    return element;
  }

  function clear(place) {
    for (const element of place.querySelectorAll(":scope > .cursor, :scope > .readout")) element.remove();
  }

  function read(place, x) {
    const smooth = chosen.smoothing > 0; /* then the mean is read, not the faint line behind it */
    const lines = (place.data || []).filter((trace) => trace.visible !== "legendonly" && (trace.meta === "smoothed" || (isLine(trace) && !(smooth && trace.opacity < 1))));
    return lines.slice(0, MOST_READ).map((trace) => {
      const value = trace.y[below(trace.x, x)];
      return Number.isFinite(value) ? `${trace.name} ${Number(value).toPrecision(3)}` : "";
    }).filter(Boolean).join(" · ");
  }

  function save(name, blob) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function quoted(text) { return `"${String(text).replaceAll('"', '""')}"`; }

  function csv(figure, name) {
    const rows = ["series,step,value"];
    for (const trace of figure.data.filter((each) => !each.meta)) {
      trace.x.forEach((step, i) => { if (!Number.isNaN(trace.y[i])) rows.push(`${quoted(trace.name)},${step},${trace.y[i]}`); });
    }
    save(`${name}.csv`, new Blob([rows.join("\n"), "\n"], { type: "text/csv" }));
  }

  async function png(place, name, background) {
    const layout = Object.assign({}, place.layout, { paper_bgcolor: background, autosize: false });
    const image = await window.Plotly.toImage({ data: place.data, layout }, { format: "png", scale: 2, width: place.clientWidth, height: place.clientHeight });
    const bytes = Uint8Array.from(atob(image.slice(image.indexOf(",") + 1)), (char) => char.charCodeAt(0));
    save(`${name}.png`, new Blob([bytes], { type: "image/png" }));
  }

  return { chosen, shown, toAxis, toStep, axisRange, cursor, csv, png };
})();

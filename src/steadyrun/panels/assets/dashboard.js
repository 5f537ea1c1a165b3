/* Draws the panels from the JSON block `#data`, links their x axes, and zooms to the steps of a finding.
   Everything shown comes from plotly figures made in Python; nothing here builds HTML from strings. */
(function () {
  "use strict";

  const ARRAYS = {
    f8: Float64Array, f4: Float32Array, i4: Int32Array, u4: Uint32Array,
    i2: Int16Array, u2: Uint16Array, i1: Int8Array, u1: Uint8Array,
  };
  const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false };
  const view = window.steadyrunView;
  const state = { span: [0, 1], plots: new Map(), busy: false, window: null, axes: [] };

  /* numpy arrays arrive as base64; plotly works with typed arrays. */
  function decoded(value) {
    if (!value || typeof value.bdata !== "string") return value;
    const bytes = Uint8Array.from(atob(value.bdata), (char) => char.charCodeAt(0));
    return new ARRAYS[value.dtype](bytes.buffer);
  }

  function decode(figure) {
    for (const trace of figure.data) {
      for (const key of ["x", "y"]) trace[key] = decoded(trace[key]);
      if (trace.marker) trace.marker.size = decoded(trace.marker.size);
    }
    return figure;
  }

  function dark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function inks() {
    const style = getComputedStyle(document.documentElement);
    return { text: style.getPropertyValue("--dim").trim(), card: style.getPropertyValue("--card").trim() };
  }

  function themed(layout) {
    const ink = inks();
    layout.font = Object.assign({}, layout.font, { color: ink.text });
    layout.hoverlabel = Object.assign({}, layout.hoverlabel, { bgcolor: ink.card, font: { color: ink.text } });
    /* On a phone a finger on a plot must still scroll the page. */
    layout.dragmode = window.matchMedia("(pointer: coarse)").matches ? false : "zoom";
    return layout;
  }

  function draw(data) {
    state.span = data.span;
    if (data.axes) offerAxes(data.axes);
    for (const panel of data.panels) {
      const place = document.querySelector(`#panel-${Number(panel.number)} .plot`);
      if (place) drawOne(place, decode(panel.figure));
    }
  }

  function drawOne(place, recorded) {
    const known = state.plots.has(place);
    for (const old of state.plots.keys()) if (!old.isConnected) state.plots.delete(old);
    const number = Number(place.closest(".panel").dataset.number);
    const figure = recorded.layout.xaxis.fixedrange ? recorded : view.shown(recorded, number);
    const hidden = new Set((place.data || []).filter((trace) => trace.visible === "legendonly").map((trace) => trace.legendgroup));
    for (const trace of figure.data) if (hidden.has(trace.legendgroup)) trace.visible = "legendonly";
    const { xaxis, yaxis } = figure.layout;
    /* Small plots that share their axes do not zoom. */
    const still = Boolean(xaxis.fixedrange);
    state.plots.set(place, { x: xaxis.range.slice(), log: yaxis.type === "log", dtick: yaxis.dtick || null, still, recorded });
    if (known && state.window && !still) keepAxes(place.layout, figure.layout);
    window.Plotly.react(place, figure.data, themed(figure.layout), CONFIG);
    if (known || still) return;
    place.on("plotly_relayout", (change) => followZoom(place, change));
    place.on("plotly_doubleclick", reset);
    place.on("plotly_hover", (event) => view.cursor(moving(), event.points[0].x));
    place.on("plotly_unhover", () => view.cursor(moving(), null));
  }

  /* The plots over the steps of the run. */
  function moving() {
    return [...state.plots].filter(([, plot]) => !plot.still).map(([place]) => place);
  }

  /* Draws what is there again, as the reader now wants to see it; the steps that are looked at stay. */
  function redraw(only) {
    const steps = state.window && state.window.map(view.toStep);
    for (const place of only ? [only] : moving()) drawOne(place, state.plots.get(place).recorded);
    if (steps) zoom(...steps.map(view.toAxis), null);
  }

  function offerAxes(axes) {
    const select = document.getElementById("x-axis"), names = ["step", ...axes.map((axis) => axis.name)];
    state.axes = axes;
    if (view.chosen.axis) view.chosen.axis = axes.find((axis) => axis.name === view.chosen.axis.name) || null;
    if (!select || [...select.options].map((option) => option.textContent).join() === names.join()) return;
    select.replaceChildren(...names.map((name, i) => new Option(name, i ? name : "", false, Boolean(view.chosen.axis) && view.chosen.axis.name === name)));
  }

  function chooseAxis(name) {
    const steps = state.window && state.window.map(view.toStep);
    view.chosen.axis = state.axes.find((axis) => axis.name === name) || null;
    state.window = steps && steps.map(view.toAxis);
    redraw();
  }

  /* The tools of one panel. */
  function use(button) {
    const panel = button.closest(".panel"), place = panel.querySelector(".plot"), number = Number(panel.dataset.number);
    const name = `${document.getElementById("run-name").textContent}-${panel.querySelector("h2, h3").firstChild.textContent.trim() || number}`.replace(/[^\w.-]+/g, "-");
    if (button.dataset.do === "csv") view.csv(state.plots.get(place).recorded, name);
    else if (button.dataset.do === "png") view.png(place, name, inks().card);
    else {
      const log = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(log));
      view.chosen.logs.set(number, log);
      redraw(place);
    }
  }

  function keepAxes(shown, layout) {
    for (const key of ["xaxis", "yaxis", "yaxis3"]) {
      if (!layout[key] || !shown[key]) continue;
      Object.assign(layout[key], { range: shown[key].range.slice(), autorange: false, dtick: shown[key].dtick });
    }
  }

  function followZoom(origin, change) {
    if (state.busy || change["xaxis.range[0]"] === undefined) return;
    zoom(change["xaxis.range[0]"], change["xaxis.range[1]"], origin);
  }

  /* All panels show the steps from `first` to `last`; their y axes fit the visible lines. */
  function zoom(first, last, origin) {
    state.busy = true;
    state.window = [first, last];
    const done = [];
    for (const [place, plot] of state.plots) {
      if (place === origin || plot.still) continue;
      done.push(window.Plotly.relayout(place, Object.assign({ "xaxis.range": [first, last] }, fitted(place, plot, first, last))));
    }
    document.getElementById("reset").disabled = false;
    Promise.all(done).finally(() => { state.busy = false; });
    tell();
  }

  function fitted(place, plot, first, last) {
    const change = {};
    for (const [axis, key] of [["y", "yaxis"], ["y3", "yaxis3"]]) {
      const top = ((place.layout[key] || {}).autorangeoptions || {}).include;
      const range = seen(place.data, axis, first, last, axis === "y" && plot.log, top);
      if (range) change[`${key}.range`] = range;
      if (range && axis === "y" && plot.log) change["yaxis.dtick"] = logTicks(range[1] - range[0]);
    }
    return change;
  }

  /* As `log_ticks` in plotly_figure.py. */
  function logTicks(decades) {
    if (decades > 2.2) return Math.ceil(decades / 5);
    return decades > 0.5 ? "D2" : null;
  }

  function seen(traces, axis, first, last, log, top) {
    let low = Infinity, high = -Infinity;
    for (const trace of traces) {
      if (trace.meta || (trace.yaxis || "y") !== axis || trace.visible === "legendonly") continue;
      for (let i = 0; i < trace.x.length; i += 1) {
        const value = trace.y[i];
        const inside = trace.x[i] >= first && trace.x[i] <= last;
        const justBefore = trace.x[i] < first && trace.x[i + 1] >= first;
        const justAfter = trace.x[i] > last && trace.x[i - 1] <= last;
        if (!(inside || justBefore || justAfter) || !Number.isFinite(value)) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    if (low > high) return null;
    if (log) {
      low = Math.log10(low);
      high = Math.log10(high);
      const room = Math.max((high - low) * 0.08, 0.02);
      return [low - room, high + room];
    }
    return [Math.min(0, low), Math.max(high, top || 0) * 1.06 || 1];
  }

  function reset() {
    state.busy = true;
    state.window = null;
    const done = [];
    for (const [place, plot] of state.plots) {
      if (plot.still) continue;
      const change = { "xaxis.range": plot.x.slice(), "yaxis.autorange": true, "yaxis.dtick": plot.dtick };
      if (place.layout.yaxis3) change["yaxis3.autorange"] = true;
      done.push(window.Plotly.relayout(place, change));
    }
    press(null);
    document.getElementById("reset").disabled = true;
    Promise.all(done).finally(() => { state.busy = false; });
    tell();
  }

  /* A served page has finer data for the visible steps: null means all steps. */
  function tell() {
    document.dispatchEvent(new CustomEvent("steadyrun:window", { detail: state.window && state.window.map(view.toStep) }));
  }

  function press(button) {
    for (const other of document.querySelectorAll("button.show")) other.setAttribute("aria-pressed", String(other === button));
    for (const panel of document.querySelectorAll(".panel.shown")) panel.classList.remove("shown");
  }

  function show(button) {
    if (button.getAttribute("aria-pressed") === "true") { reset(); return; }
    const [from, to] = state.span;
    const room = Math.max(20, 0.05 * (to - from));
    const first = Math.max(from - 1, Number(button.dataset.first) - room);
    const last = Math.min(to + 1, Number(button.dataset.last) + room);
    press(button);
    zoom(view.toAxis(first), view.toAxis(last), null);
    const panel = document.getElementById(`panel-${button.dataset.panel}`);
    if (!panel) return;
    panel.classList.add("shown");
    if (window.matchMedia("(max-width: 860px)").matches) panel.scrollIntoView({ behavior: "smooth", block: "start" });
  }

  /* A legend entry shows or hides the traces of its group. */
  function toggle(button) {
    const place = button.closest(".panel").querySelector(".plot");
    const visible = button.getAttribute("aria-pressed") !== "true";
    const traces = place.data.flatMap((trace, i) => (trace.legendgroup === button.dataset.group ? [i] : []));
    button.setAttribute("aria-pressed", String(visible));
    window.Plotly.restyle(place, { visible: visible ? true : "legendonly" }, traces);
  }

  function repaint() {
    for (const place of state.plots.keys()) {
      const ink = inks();
      window.Plotly.relayout(place, { "font.color": ink.text, "hoverlabel.bgcolor": ink.card, "hoverlabel.font.color": ink.text });
    }
  }

  /* Paper is narrower than the window, and its width is unknown before printing: sizes that fit A4 and letter. */
  function forPaper() {
    const alone = state.plots.size === 1;
    for (const place of state.plots.keys()) {
      const wide = alone || place.closest("#panel-1");
      window.Plotly.relayout(place, { autosize: false, width: wide ? 660 : 310, height: 200 });
    }
  }

  function forScreen() {
    for (const place of state.plots.keys()) {
      window.Plotly.relayout(place, { autosize: true, width: null, height: null });
      window.Plotly.Plots.resize(place);
    }
  }

  function start() {
    document.getElementById("reset").addEventListener("click", reset);
    document.getElementById("theme").addEventListener("click", () => {
      document.documentElement.dataset.theme = dark() ? "light" : "dark";
      repaint();
    });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    window.addEventListener("beforeprint", forPaper);
    window.addEventListener("afterprint", forScreen);
    document.addEventListener("click", (event) => {
      const button = event.target.closest("button.show, button.entry, .panel-tools button");
      if (!button) return;
      if (button.matches(".show")) show(button);
      else if (button.matches(".entry")) toggle(button);
      else use(button);
    });
    const smoothing = document.getElementById("smoothing"), axis = document.getElementById("x-axis");
    if (smoothing) smoothing.addEventListener("input", () => { view.chosen.smoothing = Number(smoothing.value); redraw(); });
    if (axis) axis.addEventListener("change", () => chooseAxis(axis.value));
    if (window.matchMedia("(max-width: 860px)").matches) {
      for (const part of document.querySelectorAll("details.fold")) part.open = false;
    }
    performance.mark("begin");
    const block = document.getElementById("data");
    if (block) draw(JSON.parse(block.textContent));
    performance.mark("drawn");
    document.documentElement.dataset.drawn = "yes";
  }

  /* A served page draws again with new data: steadyrun.draw(payload). Zoom and hidden lines stay. */
  window.steadyrun = { draw, zoom, reset, decode, window: () => state.window };
  start();
})();

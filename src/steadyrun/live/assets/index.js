/* The list of runs. Names and messages are always set as text. */
(function () {
  "use strict";

  const SVG = "http://www.w3.org/2000/svg";
  const SYMBOLS = { healthy: "✓", fault: "✗", suspect: "▲", "cannot-tell": "?", unreadable: "✗" };
  const { runs: runsAddress, events: eventsAddress } = document.body.dataset;
  const table = document.getElementById("runs"), body = table.tBodies[0];
  const filter = document.getElementById("filter"), compare = document.getElementById("compare");
  const link = document.getElementById("link"), empty = document.getElementById("empty");
  const rows = new Map(); /* by key: { row, element } */
  const chosen = new Set();
  let id = "", source = null;

  function say(text, kind) {
    link.textContent = text;
    link.className = `link ${kind || ""}`;
  }

  function cell(kind, text) {
    const element = document.createElement("td");
    element.className = kind;
    element.textContent = text;
    return element;
  }

  function smallLine(row) {
    const element = cell("loss", "");
    if (!row.line && !row.ends_badly) return element;
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "-2 -2 126 28");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", "training loss");
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("points", row.line);
    svg.append(line);
    if (row.ends_badly) {
      const mark = document.createElementNS(SVG, "path");
      mark.setAttribute("d", "M117 1 l6 6 m0 -6 l-6 6");
      svg.append(mark);
    }
    element.append(svg);
    return element;
  }

  function box(row) {
    const element = cell("choose", "");
    const input = document.createElement("input");
    input.type = "checkbox";
    input.checked = chosen.has(row.key);
    input.setAttribute("aria-label", `compare ${row.name}`);
    input.addEventListener("change", () => {
      if (input.checked) chosen.add(row.key); else chosen.delete(row.key);
      offer();
    });
    element.append(input);
    return element;
  }

  function name(row) {
    const element = document.createElement("th");
    element.scope = "row";
    const anchor = document.createElement("a");
    anchor.href = `/run/${row.key}`;
    anchor.textContent = row.name;
    element.append(anchor);
    return element;
  }

  function verdict(row) {
    if (!row.verdict) return cell("verdict", row.state === "unreadable" ? "" : "…");
    const words = `${SYMBOLS[row.verdict] || "?"} ${row.verdict.replace("-", " ")}${row.leaf ? ` ${row.leaf}` : ""}`;
    return cell(`verdict ${row.verdict}`, words);
  }

  function since(row) {
    const element = cell("started dim", "");
    if (!row.started) return element;
    const when = new Date(row.started * 1000);
    element.title = when.toLocaleString();
    const today = when.toDateString() === new Date().toDateString();
    element.textContent = today ? when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : when.toLocaleDateString();
    return element;
  }

  function made(row) {
    const element = document.createElement("tr");
    const bad = row.ends_badly ? " bad" : "";
    element.append(
      box(row), name(row), cell(`state ${row.state}`, row.state), cell("number step", row.step === null ? "" : row.step.toLocaleString("en")),
      cell(`number last${bad}`, row.loss), smallLine(row), verdict(row), since(row),
    );
    return element;
  }

  function put(row) {
    const known = rows.get(row.key), element = made(row);
    if (known && known.row.started === row.started) known.element.replaceWith(element);
    else {
      if (known) known.element.remove();
      const later = [...rows.values()].filter((each) => each.row.key !== row.key && each.row.started < row.started);
      const after = later.length ? later.reduce((best, each) => (each.row.started > best.row.started ? each : best)) : null;
      body.insertBefore(element, after && after.element.parentNode === body ? after.element : null);
    }
    rows.set(row.key, { row, element });
    show(row, element);
  }

  function show(row, element) {
    const text = `${row.name} ${row.state} ${row.verdict} ${row.leaf}`.toLowerCase();
    element.hidden = !filter.value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  }

  function take(data) {
    for (const row of data.rows) put(row);
    for (const key of data.gone || []) {
      if (rows.has(key)) rows.get(key).element.remove();
      rows.delete(key);
      chosen.delete(key);
    }
    const running = [...rows.values()].filter((each) => each.row.state === "running").length;
    document.getElementById("count").textContent = rows.size ? `${rows.size} run${rows.size === 1 ? "" : "s"}${running ? `, ${running} running` : ""}` : "";
    table.hidden = rows.size === 0;
    empty.hidden = rows.size !== 0;
    offer();
  }

  function offer() {
    const enough = chosen.size >= 2;
    compare.textContent = chosen.size ? `Compare (${chosen.size})` : "Compare";
    compare.setAttribute("aria-disabled", String(!enough));
    compare.title = enough ? "" : "Choose two or more runs";
    if (enough) compare.href = `/compare?${[...chosen].map((key) => `run=${key}`).join("&")}`;
    else compare.removeAttribute("href");
  }

  async function begin() {
    try {
      const answer = await fetch(runsAddress, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(await answer.text());
      const data = await answer.json();
      id = data.id;
      const now = new Set(data.rows.map((row) => row.key));
      body.replaceChildren();
      rows.clear();
      for (const key of chosen) if (!now.has(key)) chosen.delete(key);
      take(data);
      follow();
    } catch (problem) {
      say(`✗ ${problem.message}`, "bad");
      setTimeout(begin, 3000);
    }
  }

  function follow() {
    if (source) source.close();
    source = new EventSource(`${eventsAddress}?since=${encodeURIComponent(id)}`);
    source.onopen = () => say("● live", "good");
    source.onerror = () => {
      say("✗ not connected, retrying", "bad");
      if (source.readyState === EventSource.CLOSED) setTimeout(begin, 3000);
    };
    source.addEventListener("rows", (event) => {
      id = event.lastEventId;
      take(JSON.parse(event.data));
    });
    source.addEventListener("refresh", () => {
      source.close();
      begin();
    });
  }

  filter.addEventListener("input", () => {
    for (const { row, element } of rows.values()) show(row, element);
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && source) source.close();
    else if (!document.hidden && rows.size) follow();
  });
  window.addEventListener("pagehide", () => { if (source) source.close(); });
  begin();
})();

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
  const seeds = document.getElementById("seeds"), column = document.getElementById("column");
  const COLUMNS = [
    { key: "name", title: "run" }, { key: "verdict", title: "verdict" }, { key: "state", title: "state" },
    { key: "step", title: "last step", number: true }, { key: "loss", title: "loss", number: true },
    { key: "line", title: "", fixed: true }, { key: "val_loss", title: "validation", number: true },
    { key: "duration", title: "duration", number: true },
  ];
  const extra = []; /* names of settings that have a column */
  const order = { key: "started", down: true };
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
    const what = row.finding ? `: ${row.finding}` : row.leaf ? ` ${row.leaf}` : "";
    const element = cell(`verdict ${row.verdict}`, `${SYMBOLS[row.verdict] || "?"} ${row.verdict.replace("-", " ")}${what}`);
    if (row.leaf) element.title = row.leaf;
    return element;
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

  function lasted(seconds) {
    if (seconds === null) return "";
    const units = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
    const unit = units.find(([size]) => seconds >= size);
    if (!unit) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
    const [size, word, small, smallWord] = unit;
    return `${Math.floor(seconds / size)} ${word} ${Math.floor((seconds % size) / small)} ${smallWord}`;
  }

  function setting(row, name) {
    const found = row.settings.find(([key]) => key === name);
    return found ? found[1] : "";
  }

  function made(row) {
    const element = document.createElement("tr");
    const bad = row.ends_badly ? " bad" : "";
    element.append(
      box(row), name(row), verdict(row), cell(`state ${row.state}`, row.ranks > 1 ? `${row.state}, ${row.ranks} ranks` : row.state), cell("number step", row.step === null ? "" : row.step.toLocaleString("en")),
      cell(`number last${bad}`, row.loss), smallLine(row), cell("number val", row.val_loss), cell("number lasted", lasted(row.duration)),
      ...extra.map((each) => cell("setting", setting(row, each))), since(row),
    );
    return element;
  }

  function put(row) {
    const known = rows.get(row.key), element = made(row);
    if (known) known.element.replaceWith(element);
    rows.set(row.key, { row, element });
    show(row, element);
  }

  /* What a column sorts by: numbers as numbers; what is missing comes last. */
  function rank(row) {
    const value = extra.includes(order.key) ? setting(row, order.key) : row[order.key];
    const number = typeof value === "number" ? value : Number(String(value ?? "").replaceAll(",", ""));
    if (value === null || value === "" || value === undefined) return { missing: true };
    return Number.isFinite(number) ? { number } : { text: String(value) };
  }

  function compared(a, b) {
    const [one, two] = [rank(a), rank(b)];
    if (one.missing || two.missing) return Number(Boolean(one.missing)) - Number(Boolean(two.missing));
    const way = order.down ? -1 : 1;
    if (one.number !== undefined && two.number !== undefined) return way * (one.number - two.number);
    return way * String(one.text ?? one.number).localeCompare(String(two.text ?? two.number), "en", { numeric: true });
  }

  /* Runs that differ in their seed alone. */
  function family(row) {
    return JSON.stringify(row.settings.filter(([key]) => key !== "seed").sort());
  }

  function summary(group) {
    const numbers = (key) => group.map((row) => Number(String(row[key]).replaceAll(",", ""))).filter((value) => Number.isFinite(value));
    const spread = (key) => {
      const values = numbers(key).filter((_, i) => group[i][key] !== "");
      if (!values.length) return "";
      const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
      const sigma = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / Math.max(1, values.length - 1));
      return `${mean.toPrecision(3)} ± ${sigma.toPrecision(1)}`;
    };
    const element = document.createElement("tr");
    element.className = "seeds";
    const head = document.createElement("th");
    head.scope = "rowgroup";
    const anchor = document.createElement("a");
    anchor.href = `/compare?${group.slice(0, 7).map((row) => `run=${row.key}`).join("&")}`;
    anchor.textContent = `${group.length} seeds: mean and band`;
    head.append(anchor);
    const verdicts = [...new Set(group.map((row) => row.verdict).filter(Boolean))].map((each) => `${group.filter((row) => row.verdict === each).length} ${each.replace("-", " ")}`);
    element.append(cell("", ""), head, cell("", verdicts.join(", ")), cell("", ""), cell("", ""), cell("number", spread("loss")), cell("", ""), cell("number", spread("val_loss")), cell("", ""), ...extra.map((each) => cell("setting", setting(group[0], each))), cell("", ""));
    return element;
  }

  function arrange() {
    const sorted = [...rows.values()].map((each) => each.row).sort(compared);
    if (!seeds.checked) { body.replaceChildren(...sorted.map((row) => rows.get(row.key).element)); return; }
    const groups = new Map();
    for (const row of sorted) groups.set(family(row), [...(groups.get(family(row)) || []), row]);
    body.replaceChildren(...[...groups.values()].flatMap((group) => [...(group.length > 1 ? [summary(group)] : []), ...group.map((row) => rows.get(row.key).element)]));
  }

  function headings() {
    const line = table.tHead.rows[0];
    const titles = [...COLUMNS, ...extra.map((each) => ({ key: each, title: each })), { key: "started", title: "started" }];
    line.replaceChildren(line.cells[0], ...titles.map((each) => {
      const element = document.createElement("th");
      if (each.number) element.className = "number";
      if (each.fixed) { element.className = "loss"; return element; }
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = each.title;
      element.setAttribute("aria-sort", order.key === each.key ? (order.down ? "descending" : "ascending") : "none");
      button.addEventListener("click", () => {
        order.down = order.key === each.key ? !order.down : false;
        order.key = each.key;
        headings();
        arrange();
      });
      element.append(button);
      return element;
    }));
  }

  function offerColumns() {
    const names = [...new Set([...rows.values()].flatMap((each) => each.row.settings.map(([key]) => key)))].sort();
    if (column.options.length === names.length + 1) return;
    column.replaceChildren(new Option("config …", ""), ...names.map((each) => new Option(each, each)));
  }

  column.addEventListener("change", () => {
    const at = extra.indexOf(column.value);
    if (at >= 0) extra.splice(at, 1); else if (column.value) extra.push(column.value);
    column.value = "";
    headings();
    for (const { row } of [...rows.values()]) put(row);
    arrange();
  });
  seeds.addEventListener("change", arrange);

  function show(row, element) {
    const text = `${row.name} ${row.state} ${row.verdict} ${row.leaf} ${row.finding}`.toLowerCase();
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
    offerColumns();
    arrange();
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
  headings();
  begin();
})();

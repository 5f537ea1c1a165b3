/* Keeps a page up to date: points are added, parts of its text replaced, and a zoomed window refined from all data.
   The HTML that arrives was made by the same escaping templates as the page itself. */
(function () {
  "use strict";

  const { data: dataAddress, events: eventsAddress, panel: panelAddress, poll, query } = document.body.dataset;
  const { draw, decode } = window.steadyrun;
  const link = document.getElementById("link");
  const figures = new Map(); /* by panel: the figure over all steps */
  const parts = new Map(); /* by name: the elements as they last arrived */
  const dirty = new Set(); /* panels that are not drawn as they are */
  let span = [0, 1], coarse = new Set(), id = "", source = null, refining = 0, behind = false;

  function say(text, kind) {
    link.textContent = text;
    link.className = `link ${kind || ""}`;
  }

  /* Plotly modifies its arguments. */
  function copied(figure) {
    return { data: figure.data.map((trace) => Object.assign({}, trace)), layout: structuredClone(figure.layout) };
  }

  function paint() {
    if (document.hidden || window.steadyrun.window()) return;
    const panels = [...dirty].filter((number) => figures.has(number)).map((number) => ({ number, figure: copied(figures.get(number)) }));
    dirty.clear();
    draw({ span, panels });
  }

  function joined(old, added) {
    const all = new old.constructor(old.length + added.length);
    all.set(old);
    all.set(added, old.length);
    return all;
  }

  function changed(figure, change) {
    for (const [place, each] of Object.entries(change.traces)) {
      const trace = decode({ data: [each.add || each.trace] }).data[0];
      const old = figure.data[Number(place)];
      figure.data[Number(place)] = each.trace ? trace : Object.assign({}, old, { x: joined(old.x, trace.x), y: joined(old.y, trace.y) });
    }
    if (change.layout) figure.layout = change.layout;
  }

  function take(data) {
    span = data.span;
    coarse = new Set(data.coarse);
    for (const panel of data.panels) {
      if (panel.figure) figures.set(panel.number, decode(panel.figure));
      else changed(figures.get(panel.number), panel);
      dirty.add(panel.number);
    }
    if (data.axes) draw({ span, panels: [], axes: data.axes });
    for (const [name, html] of Object.entries(data.parts)) replacePart(name, html);
    const standing = document.getElementById("standing");
    if (data.state) standing.textContent = data.state;
    if (source && source.readyState === EventSource.OPEN) connected();
    paint();
  }

  /* Replace only the changed elements of a part: plots, focus and open elements stay. */
  function replacePart(name, html) {
    const place = name === "reading" ? document.querySelector(".reading") : document.getElementById(name);
    const parsed = new DOMParser().parseFromString(html, "text/html").body;
    const inner = name.startsWith("panel-") || name === "reading";
    const now = inner ? parsed.firstElementChild : parsed;
    if (!place || !now) return;
    for (const plot of ["trial", "charts", "rank-table"].includes(name) ? now.querySelectorAll(".panel") : []) dirty.add(Number(plot.dataset.number));
    for (const anchor of now.querySelectorAll("a.postmortem")) anchor.href = dataAddress.replace(/data$/, `postmortem/${anchor.dataset.step}`);
    if (inner) place.className = now.className + (place.classList.contains("shown") ? " shown" : "");
    const before = parts.get(name);
    parts.set(name, now.cloneNode(true));
    const alike = before && before.children.length === now.children.length && place.children.length === now.children.length;
    if (alike) {
      [...now.children].forEach((child, i) => {
        if (!child.isEqualNode(before.children[i]) && !child.classList.contains("plot")) swap(place.children[i], child);
      });
    } else replaceAll(place, now);
  }

  function swap(old, now) {
    keepChoices(old, now);
    old.replaceWith(now);
  }

  function replaceAll(place, now) {
    keepChoices(place, now);
    const plot = place.querySelector(":scope > .plot"), hole = now.querySelector(":scope > .plot");
    if (plot && hole) hole.replaceWith(plot);
    else if (hole) dirty.add(Number(place.dataset.number));
    place.replaceChildren(...now.childNodes);
  }

  /* Restore what the reader opened, pressed or switched off. */
  function keepChoices(old, now) {
    const both = (selector, key) => {
      const known = new Map([...within(old, selector)].map((element) => [key(element), element]));
      return [...within(now, selector)].map((element) => [known.get(key(element)), element]).filter(([was]) => was);
    };
    for (const [was, is] of both("details", (element) => element.id || element.textContent.slice(0, 20))) is.open = was.open;
    const pressed = (element) => `${element.dataset.group || ""} ${element.dataset.first || ""} ${element.dataset.panel || ""}`;
    for (const [was, is] of both("button[aria-pressed], button.show", pressed)) {
      if (was.hasAttribute("aria-pressed")) is.setAttribute("aria-pressed", was.getAttribute("aria-pressed"));
    }
  }

  function within(element, selector) {
    return element.matches(selector) ? [element] : element.querySelectorAll(selector);
  }

  async function json(address) {
    const answer = await fetch(address, { credentials: "same-origin" });
    if (!answer.ok) throw new Error((await answer.text()).slice(0, 300) || String(answer.status));
    return answer.json();
  }

  async function load() {
    const data = await json(dataAddress);
    id = data.id || "";
    for (const number of figures.keys()) dirty.add(number);
    take(data);
    document.documentElement.dataset.live = "yes";
    return data;
  }

  async function begin() {
    try {
      const data = await load();
      if (poll) again(data);
      else follow();
    } catch (problem) {
      say(`✗ ${problem.message}`, "bad");
      setTimeout(begin, 3000);
    }
  }

  function again(data) {
    say(data.ended ? "" : "● live", "good");
    setTimeout(() => (document.hidden ? again(data) : begin()), data.ended ? 10 * poll : poll);
  }

  function follow() {
    if (source) source.close();
    source = new EventSource(`${eventsAddress}?since=${encodeURIComponent(id)}`);
    source.onopen = connected;
    source.onerror = () => {
      say("✗ not connected, retrying", "bad");
      if (source.readyState === EventSource.CLOSED) setTimeout(begin, 3000);
    };
    source.addEventListener("patch", (event) => {
      id = event.lastEventId;
      try { take(JSON.parse(event.data)); } catch (problem) { restart(); }
    });
    source.addEventListener("refresh", restart);
    source.addEventListener("problem", (event) => say(`✗ ${JSON.parse(event.data).message}`, "bad"));
  }

  function connected() {
    say(document.getElementById("standing").textContent.startsWith("running") ? "● live" : "", "good");
  }

  function restart() {
    if (source) source.close();
    source = null;
    begin();
  }

  /* A browser opens only six connections to one server: a page that nobody sees gives its own back. */
  function rest() {
    if (poll) return;
    if (document.hidden) {
      if (source) source.close();
      source = null;
      behind = true;
    } else if (behind) {
      behind = false;
      paint();
      follow();
    }
  }

  function refine(event) {
    const chosen = event.detail;
    refining += 1;
    if (!chosen) {
      for (const number of figures.keys()) dirty.add(number);
      setTimeout(paint, 0);
      return;
    }
    const turn = refining;
    setTimeout(() => { if (turn === refining) fetchFiner(chosen, turn); }, 200);
  }

  async function fetchFiner([first, last], turn) {
    const range = `from=${encodeURIComponent(first)}&to=${encodeURIComponent(last)}${query ? `&${query}` : ""}`;
    const wanted = [...coarse].map((number) => json(`${panelAddress}${number}?${range}`));
    for (const answer of wanted) {
      try {
        const panel = await answer;
        if (turn === refining) draw({ span, panels: [panel] });
      } catch (problem) {
        say(`✗ ${problem.message}`, "bad");
      }
    }
    document.documentElement.dataset.refined = String(turn);
  }

  document.addEventListener("steadyrun:window", refine);
  document.addEventListener("visibilitychange", rest);
  window.addEventListener("pagehide", () => { if (source) source.close(); });
  begin();
})();

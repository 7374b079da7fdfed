"use strict";

// The graph as a picture. What is seen stands in the address: an entity, steps, a day. A click adds
// an entity to it; picture and table then show the same relations.

(() => {
  const DAY = 86400000;
  const TONES = 8; // colours
  const SHAPES = [circle, square, triangle, diamond];

  const frame = document.getElementById("graph");
  const table = document.getElementById("relations");
  if (!frame || !table) return;
  const canvas = frame.querySelector(".canvas");
  const slider = frame.querySelector("input[type=range]");
  const output = frame.querySelector("output");
  const panel = frame.querySelector(".fact");
  const texts = frame.dataset;

  let asked = new URLSearchParams(location.search);
  let waiting = null;
  let timer = 0;
  let picture = null;
  let hovered = null;

  let colours = {};
  const dayOf = (text) => Math.floor(Date.parse(text) / DAY);
  const toText = (day) => new Date(day * DAY).toISOString().slice(0, 10);

  // The library writes its rules into <style>, which the page's policy forbids; a sheet made by a
  // script is allowed. It asks for `styleSheet` before it writes, as old browsers had it.
  function loadLibrary() {
    const create = Document.prototype.createElement;
    document.createElement = function (name, ...rest) {
      if (String(name).toLowerCase() !== "style") return create.call(document, name, ...rest);
      const stand = create.call(document, "template");
      stand.styleSheet = {
        set cssText(rules) {
          const sheet = new CSSStyleSheet();
          sheet.replaceSync(rules);
          document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
        },
      };
      return stand;
    };
    const restore = () => { delete document.createElement; };
    return new Promise((resolve, reject) => {
      const script = create.call(document, "script");
      script.src = texts.library;
      script.onload = () => { restore(); resolve(); };
      script.onerror = () => { restore(); reject(new Error(texts.failed)); };
      document.head.append(script);
    });
  }

  function readColours() {
    const names = ["ink", "muted", "accent", "page", ...Array.from({ length: TONES }, (_, n) => `tone-${n}`)];
    colours = Object.fromEntries(names.map((name) => [name, colour(`--${name}`)]));
  }

  function element(name, text) {
    const made = document.createElement(name);
    made.textContent = text; // never markup: names and notes are what people said
    return made;
  }

  function say(...parts) {
    panel.replaceChildren(...parts);
  }

  function showNode(node) {
    say(element("strong", `${node.id} · ${node.label}`), element("p", texts.entity.replace("{n}", node.degree)));
  }

  function showLink(link) {
    const span = [texts.from.replace("{day}", link.valid_from.slice(0, 10))];
    if (link.valid_until) span.push(texts.until.replace("{day}", link.valid_until.slice(0, 10)));
    const list = document.createElement("ul");
    for (const note of link.notes) {
      const anchor = element("a", note.text);
      anchor.href = note.address;
      const item = document.createElement("li");
      item.append(anchor);
      list.append(item);
    }
    const more = link.count - link.notes.length;
    if (more > 0) list.append(element("li", texts.more.replace("{n}", more)));
    const fact = `${link.source.id} — ${link.label} → ${link.target.id}`;
    say(element("strong", fact), element("span", span.join(" ")), list);
  }

  // Types differ by colour and by shape, so that nobody needs to see the colours apart. The legend
  // has the same marks.

  function circle(pen, x, y, r) { pen.arc(x, y, r, 0, 2 * Math.PI); }
  function square(pen, x, y, r) { pen.rect(x - r * 0.88, y - r * 0.88, r * 1.76, r * 1.76); }
  function triangle(pen, x, y, r) { polygon(pen, [x, y - r * 1.2], [x + r * 1.15, y + r * 0.85], [x - r * 1.15, y + r * 0.85]); }
  function diamond(pen, x, y, r) { polygon(pen, [x, y - r * 1.25], [x + r * 1.25, y], [x, y + r * 1.25], [x - r * 1.25, y]); }
  function polygon(pen, ...points) {
    points.forEach((point, at) => (at ? pen.lineTo(...point) : pen.moveTo(...point)));
    pen.closePath();
  }

  function paintNode(node, pen, scale) {
    pen.beginPath();
    SHAPES[(node.tone + Math.floor(node.tone / TONES)) % SHAPES.length](pen, node.x, node.y, node.radius);
    pen.fillStyle = colours[`tone-${node.tone % TONES}`];
    pen.fill();
    if (asked.getAll("around").includes(node.id)) {
      pen.lineWidth = 2 / scale;
      pen.strokeStyle = colours.ink;
      pen.stroke();
    }
  }

  // Names, the most connected first, each where it covers no entity and no other name: below, above
  // or beside. One that finds no place is shown when it is pointed at, or from nearer by.

  function paintNames(pen, scale) {
    const area = (x, y, width, height, node) => ({ left: x - width / 2, right: x + width / 2, top: y - height / 2, bottom: y + height / 2, x, y, node });
    const meet = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
    const nodes = [...picture.graphData().nodes].sort((one, other) => one.rank - other.rank);
    const taken = nodes.map((node) => area(node.x, node.y, 2.2 * node.radius, 2.2 * node.radius, node));
    const height = 15 / scale;
    pen.font = `${12 / scale}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    for (const node of nodes) {
      const name = node.id.length > 24 ? `${node.id.slice(0, 23)}…` : node.id;
      const width = pen.measureText(name).width + 4 / scale;
      const below = 1.2 * node.radius + height / 2;
      const beside = 1.2 * node.radius + width / 2;
      const places = [[0, below], [0, -below], [beside, 0], [-beside, 0]].map(([x, y]) => area(node.x + x, node.y + y, width, height, node));
      const free = places.find((place) => !taken.some((it) => it.node !== node && meet(place, it)));
      if (!free && node !== hovered) continue;
      const at = free ?? places[0];
      taken.push(at);
      pen.lineWidth = 3 / scale;
      pen.strokeStyle = colours.page; // keeps lines away from the letters
      pen.strokeText(name, at.x, at.y);
      pen.fillStyle = colours.ink;
      pen.fillText(name, at.x, at.y);
    }
  }

  function paintArea(node, shade, pen) {
    pen.beginPath();
    pen.arc(node.x, node.y, node.radius + 3, 0, 2 * Math.PI);
    pen.fillStyle = shade;
    pen.fill();
  }

  function paintLink(link, pen, scale) {
    if (link !== hovered && scale < 2.2) return;
    pen.font = `${10 / scale}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillStyle = colours.muted;
    pen.fillText(link.label, (link.source.x + link.target.x) / 2, (link.source.y + link.target.y) / 2);
  }

  function build() {
    readColours();
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    picture = new ForceGraph(canvas)
      .nodeLabel(() => "").linkLabel(() => "") // the library would show them as markup
      .nodeCanvasObject(paintNode).nodePointerAreaPaint(paintArea)
      .linkCanvasObjectMode(() => "after").linkCanvasObject(paintLink)
      .onRenderFramePost(paintNames)
      .linkColor((link) => (link === hovered ? colours.accent : colours.muted))
      .linkWidth((link) => (link === hovered ? 2.5 : 0.6))
      .linkDirectionalArrowLength(4).linkDirectionalArrowRelPos(1)
      .linkCurvature("bend")
      .warmupTicks(calm ? 150 : 20).cooldownTicks(calm ? 0 : 150)
      .onNodeHover((node) => { hovered = node; if (node) showNode(node); })
      .onLinkHover((link) => { hovered = link; if (link) showLink(link); })
      .onLinkClick(showLink)
      .onNodeClick(expand)
      .onEngineStop(() => picture.zoomToFit(calm ? 0 : 300, 48));
    picture.d3Force("charge").strength(-110).distanceMax(260);
    picture.d3Force("link").distance(58);
    picture.d3Force("gravity", gravity);
    fit();
    new ResizeObserver(fit).observe(canvas);
    new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  }

  // Keeps what is not connected from drifting out of sight.
  function gravity(alpha) {
    for (const node of picture.graphData().nodes) {
      node.vx -= node.x * 0.08 * alpha;
      node.vy -= node.y * 0.08 * alpha;
    }
  }

  function repaint() {
    readColours();
    picture.linkColor(picture.linkColor()); // setting anything paints again
  }

  function fit() {
    picture.width(canvas.clientWidth).height(canvas.clientHeight);
  }

  function draw(found) {
    const places = new Map(picture.graphData().nodes.map((node) => [node.id, node]));
    const ranked = [...found.nodes].sort((one, other) => other.degree - one.degree);
    ranked.forEach((node, rank) => { node.rank = rank; node.radius = 3.5 + Math.sqrt(node.degree); });
    const nodes = found.nodes.map((node) => {
      const old = places.get(node.id); // what was there stays where it was
      return old ? Object.assign(old, node, { x: old.x, y: old.y }) : node;
    });
    const pairs = new Map();
    for (const link of found.links) {
      const ends = [link.source.id ?? link.source, link.target.id ?? link.target].sort().join("\u0000");
      const before = pairs.get(ends) ?? 0;
      pairs.set(ends, before + 1);
      link.bend = ends.split("\u0000")[0] === ends.split("\u0000")[1] ? 0.4 + before * 0.2 : before * 0.2;
    }
    picture.graphData({ nodes, links: found.links });
  }

  function expand(node) {
    hovered = node; // a finger points at nothing before it taps
    showNode(node);
    const names = asked.getAll("around").filter((name) => name !== node.id);
    asked.delete("around");
    for (const name of [...names.slice(-11), node.id]) asked.append("around", name);
    load();
  }

  async function load() {
    if (waiting) waiting.abort();
    const control = waiting = new AbortController();
    const kind = { signal: control.signal, credentials: "same-origin" };
    try {
      const [data, rows] = await Promise.all([
        fetch(`${texts.data}?${asked}`, kind),
        fetch(`${texts.address}?${asked}`, { ...kind, headers: { "HX-Request": "true" } }),
      ]);
      if (!data.ok || !rows.ok) throw new Error(texts.failed);
      const found = await data.json();
      table.innerHTML = await rows.text(); // a part of this very page, escaped by the server
      history.replaceState(null, "", `${texts.address}?${asked}`);
      draw(found);
    } catch (error) {
      if (error.name !== "AbortError") say(element("p", texts.failed));
    }
  }

  function follow() {
    const first = dayOf(texts.first);
    const last = dayOf(texts.last);
    slider.max = String(Math.max(0, last - first));
    slider.value = String(asked.get("as_of") ? dayOf(asked.get("as_of")) - first : last - first);
    const named = () => toText(first + Number(slider.value));
    const isNow = () => slider.value === slider.max;
    output.value = named();
    slider.addEventListener("input", () => { output.value = named(); });
    slider.addEventListener("change", () => {
      if (isNow()) asked.delete("as_of"); else asked.set("as_of", named());
      document.querySelector("#graph-form [name=as_of]").value = asked.get("as_of") ?? "";
      clearTimeout(timer); // an arrow key that is held changes it many times
      timer = setTimeout(load, 200);
    });
  }

  document.addEventListener("DOMContentLoaded", async () => {
    asked.delete("language");
    asked.delete("theme");
    frame.hidden = false;
    try {
      await loadLibrary();
    } catch {
      say(element("p", texts.failed));
      return;
    }
    build();
    follow();
    await load();
  });
})();

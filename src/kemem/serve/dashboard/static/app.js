"use strict";

// Charts: a div with the attribute data-chart becomes a uPlot that follows its width and the theme.

const drawn = new Map();

function colour(name) {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`;  // a canvas knows no variables
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function compact(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "ms" && Math.abs(value) >= 1000) return compact(value / 1000, "s");
  const text = Math.abs(value) >= 1000
    ? Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value)
    : String(Math.round(value * 100) / 100);
  return unit ? `${text} ${unit}` : text;
}

// Times are shown in the zone of the server, as in the tables: a date with its hours on the clock.

function inZone(at) {
  const offset = Number(document.documentElement.dataset.offset) + new Date(at * 1000).getTimezoneOffset();
  return new Date(at * 1000 + offset * 60000);
}

function moments(step) {
  const chosen = step >= 86400
    ? { month: "short", day: "numeric" }
    : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return Intl.DateTimeFormat(document.documentElement.lang, chosen);
}

function moment(at) {
  const { lang, dataset } = document.documentElement;
  const chosen = { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" };
  return at ? `${Intl.DateTimeFormat(lang, chosen).format(inZone(at))} ${dataset.zone}` : "–";
}

function options(spec, width) {
  const bars = spec.kind === "bars" ? uPlot.paths.bars({ size: [0.7, 40] }) : undefined;
  const axis = {
    stroke: colour("--muted"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
    font: "11px system-ui, sans-serif",
  };
  const series = spec.series.map((one, index) => ({
    label: one.label,
    stroke: colour(`--chart-${(index % 6) + 1}`),
    fill: bars || spec.series.length === 1 ? colour(`--chart-${(index % 6) + 1}-soft`) : undefined,
    width: 1.6,
    paths: bars,
    points: { show: one.values.filter((it) => it !== null).length < 40 },
    spanGaps: true,
    value: (_, value) => compact(value, spec.unit),
  }));
  return {
    width,
    height: spec.height || 190,
    legend: { live: true },
    tzDate: inZone,
    cursor: { points: { size: 6 }, y: false },
    scales: {
      x: { range: (_, first, last) => (spec.x.length === 1 ? [first - 43200, first + 43200] : [first, last]) },
      y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high || 1) * 1.08] },
    },
    axes: [{
      ...axis,
      space: 72,  // a Chinese date is wide
      values: (_, ticks, __, ___, step) => ticks.map((at) => moments(step).format(inZone(at))),
    }, { ...axis, size: 56, values: (_, ticks) => ticks.map((it) => compact(it, spec.unit)) }],
    series: [{ label: spec.x_label || (document.documentElement.lang.startsWith("zh") ? "时间" : "Time"), value: (_, at) => moment(at) }, ...series],
  };
}

function draw(element) {
  erase(element);
  const spec = JSON.parse(element.dataset.chart);
  const width = Math.max(120, element.clientWidth);
  const chart = new uPlot(options(spec, width), [spec.x, ...spec.series.map((it) => it.values)], element);
  const watch = new ResizeObserver(() => {
    const now = Math.max(120, element.clientWidth);
    if (now !== chart.width) chart.setSize({ width: now, height: chart.height });
  });
  watch.observe(element);
  drawn.set(element, { chart, watch });
}

function erase(element) {
  const old = drawn.get(element);
  if (!old) return;
  old.watch.disconnect();
  old.chart.destroy();
  drawn.delete(element);
}

function drawAll(root) {
  if (!window.uPlot) return;
  for (const element of [...drawn.keys()]) if (!element.isConnected) erase(element);
  for (const element of root.querySelectorAll("[data-chart]")) draw(element);
}

// The theme changes at once; the link keeps it for the next page.

function chooseTheme(event) {
  const link = event.target.closest("[data-theme-choice]");
  if (!link) return;
  event.preventDefault();
  document.documentElement.dataset.theme = link.dataset.themeChoice;
  for (const other of document.querySelectorAll("[data-theme-choice]")) {
    other.toggleAttribute("aria-current", other === link);
  }
  fetch(link.href, { credentials: "same-origin" });
  drawAll(document);
}

// On a phone the menu, and settings above results, are closed until they are asked for.

function closeDetails() {
  if (window.matchMedia("(max-width: 860px)").matches) {
    for (const it of document.querySelectorAll("[data-closed-on-phone]")) it.removeAttribute("open");
  }
}

// A message among others is scrolled to; an address that names it does so without this script.

function showChosen() {
  document.querySelector(".said-chosen")?.scrollIntoView({ block: "center" });
}

// A part of a page that follows the server is loaded again whenever an event says it has changed.

function follow() {
  const part = document.querySelector("[data-events]");
  if (!part || !window.htmx) return;
  const source = new EventSource(part.dataset.events);
  const load = () => htmx.trigger(`#${part.id}`, "changed");
  source.addEventListener("following", load);  // also after it has connected again
  source.addEventListener("changed", load);
  window.addEventListener("pagehide", () => source.close(), { once: true });
}

window.addEventListener("pageshow", (event) => { if (event.persisted) follow(); });
document.addEventListener("DOMContentLoaded", () => {
  follow();
  closeDetails();
  showChosen();
  drawAll(document);
});
document.addEventListener("click", chooseTheme);
document.addEventListener("change", (event) => {
  const input = event.target.closest("[data-submit-on-change]");
  if (input) input.form.requestSubmit();
});
document.addEventListener("submit", (event) => {
  const asked = event.target.dataset.confirm;
  if (asked && !window.confirm(asked)) event.preventDefault();
}, true);
document.addEventListener("htmx:afterSettle", (event) => drawAll(event.target.parentElement || document));
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.status === 401) location.reload();  // the session has ended: to the sign-in
  if (event.detail.xhr.status >= 400) {  // what went wrong is shown, and the page stays
    event.detail.shouldSwap = true;
    event.detail.target = document.getElementById("flash");
    event.detail.swapOverride = "innerHTML";
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(document));

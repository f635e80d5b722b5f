// Charts by uPlot: axes and series in the colours of the page; those over the time of a step zoom together.

const charts = [];  // all that are on the page, to be drawn anew when theme or width change
const inTime = [];  // those whose x is the time of a step
const MOVED_PIXELS = 4;  // less is a click, not a drag

function forget(element) {
  for (const list of [charts, inTime]) {
    for (let k = list.length - 1; k >= 0; k--) if (element.contains(list[k].root)) list.splice(k, 1);
  }
  element.replaceChildren();
}

function axis(values, more = {}) {
  const line = { stroke: colour("grid"), width: 1 };
  return { stroke: colour("faint"), grid: line, ticks: line, font: "11px system-ui", values, ...more };
}

// A chart in `element`; `label` is what a screen reader says of it.
function chart(element, label, options, data) {
  const width = Math.max(element.clientWidth || 600, 240);
  const plot = new uPlot({ width, ...options }, data, element);
  plot.root.setAttribute("role", "img");
  plot.root.setAttribute("aria-label", label);
  charts.push(plot);
  return plot;
}

// Ticks of time, with as many digits as tell neighbours apart.
function timeTicks(plot, splits) {
  const unit = [["s", 1], ["ms", 1e-3], ["µs", 1e-6]].find(([, size]) => Math.max(...splits) >= size) || ["µs", 1e-6];
  const step = splits.length > 1 ? splits[1] - splits[0] : unit[1];
  const places = Math.min(Math.max(Math.ceil(-Math.log10(step / unit[1]) - 1e-9), 0), 6);
  return splits.map(x => x ? `${(x / unit[1]).toFixed(places)} ${unit[0]}` : "0");
}

// A chart over the time of a step: dragging zooms all of them, a double click shows the whole step.
function timeChart(element, label, options, data) {
  const plot = chart(element, label, {
    ...options,
    cursor: { sync: { key: "step" }, drag: { x: true, y: false, setScale: false }, ...(options.cursor || {}) },
    scales: { x: { time: false, range: () => page.range || [0, longest()] }, ...(options.scales || {}) },
    hooks: { ...(options.hooks || {}), setSelect: [zoomToSelection] },
  }, data);
  inTime.push(plot);
  plot.over.addEventListener("dblclick", () => setRange(null));
  return plot;
}

// What was dragged over becomes the range of all charts over time.
function zoomToSelection(plot) {
  const { left, width } = plot.select;
  if (width < MOVED_PIXELS) return;
  const range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  setRange(range);
}

// Zoom to some seconds of the step; null: the whole.
function setRange(range) {
  const span = longest();
  if (range) {
    const width = Math.min(Math.max(range[1] - range[0], span * 1e-5), span);
    const low = Math.min(Math.max(range[0], 0), span - width);
    range = width >= span * 0.9999 ? null : [low, low + width];
  }
  page.range = range;
  const [min, max] = range || [0, span];
  for (const plot of inTime) plot.setScale("x", { min, max });
  emit("range");
}

// The time that charts span: that of the longer step where two are shown.
function longest() {
  return Math.max(shownStep().seconds, page.beside >= 0 ? STEPS[page.beside].seconds : 0);
}

function middles(count, span) { return Array.from({ length: count }, (_, k) => (k + 0.5) * span / count); }

// How many devices compute and communicate when.
function renderUsage() {
  const element = byId("usage-chart"), step = shownStep(), count = DATA.machine.host.length;
  forget(element);
  const share = list => list.map(x => Math.min(100 * x / count, 100));
  const filled = (name, label) => ({ label, stroke: colour(name), fill: colour(name) + "33", width: 1.5, points: { show: false },
    value: (u, x) => x === null ? "" : `${x.toFixed(0)} %` });
  timeChart(element, `Share of the devices that compute and that communicate over the step, ${step.name}`, {
    height: 120,
    padding: [8, LANES_RIGHT, 0, 0],
    scales: { y: { range: [0, 100] } },
    axes: [axis(timeTicks), axis((u, splits) => splits.map(x => `${x} %`), { size: LANES_LEFT - 14, label: "devices", labelSize: 14, labelFont: "11px system-ui" })],
    series: [{ label: "at", value: (u, x) => x === null ? "" : seconds(x) }, filled("forward", "computing"), filled("communication", "communicating")],
  }, [middles(DATA.columns, step.seconds), share(step.usage.computing), share(step.usage.communicating)]);
}

let resizing = 0;
new ResizeObserver(() => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    for (const plot of charts) {
      const width = Math.max(plot.root.parentElement.clientWidth, 240);
      if (Math.abs(width - plot.width) > 1) plot.setSize({ width, height: plot.height });
    }
  }, 60);
}).observe(document.querySelector("main"));

// The strategy on the model graph, and the same as a table: what each operator takes, here and under another plan.

const WIDE = 196, TALL = 40, LAYER = 62, BESIDE = 212;
const SOAP = { S: "Sample", A: "Attribute", P: "Parameter" };

// The colour of the axes that are split; devices that have no part do not change it.
function soapKey(letters) {
  const axes = letters.replace("O", "");
  return axes.length > 1 ? "mixed" : axes || (letters ? "O" : "none");
}
const soapWords = letters => [...letters].filter(each => each !== "O").map(each => SOAP[each]).join(" and ") || "whole";
let onlyDifferences = false;

function placeVertices() {
  const { layers } = DATA.model, widest = Math.max(...layers.map(layer => layer.length), 1), at = new Map();
  layers.forEach((layer, row) => layer.forEach((vertex, k) => {
    at.set(vertex, { x: (widest - layer.length) * BESIDE / 2 + k * BESIDE + 6, y: row * LAYER + 6 });
  }));
  return { at, width: widest * BESIDE + 48, height: layers.length * LAYER + 6 };
}

function edgePath(a, b, isBack, width) {
  const x0 = a.x + WIDE / 2, y0 = a.y + TALL, x1 = b.x + WIDE / 2, y1 = b.y;
  if (!isBack && y1 - y0 < LAYER) return `M${x0} ${y0}C${x0} ${y0 + 12} ${x1} ${y1 - 12} ${x1} ${y1}`;
  const side = isBack ? width - 14 : Math.max(a.x, b.x) + WIDE + 10;  // beside what lies between
  return `M${a.x + WIDE} ${a.y + TALL / 2}C${side} ${a.y + TALL / 2} ${side} ${a.y + TALL / 2} ${side} ${(a.y + b.y + TALL) / 2}S${side} ${b.y + TALL / 2} ${b.x + WIDE} ${b.y + TALL / 2}`;
}

function renderModel() {
  const { vertices, edges } = DATA.model, { at, width, height } = placeVertices();
  const most = Math.max(...vertices.map(v => v.compute_seconds + v.communication_seconds), 1e-12);
  const lines = edges.map(([from, to, size]) => {
    const a = at.get(from), b = at.get(to);
    const words = `${vertices[from].name} → ${vertices[to].name}: ${bytes(size)}`;
    return draw("path", { class: from > to ? "edge back" : "edge", d: edgePath(a, b, from > to, width) }, draw("title", {}, words));
  });
  const boxes = vertices.map((vertex, k) => {
    const { x, y } = at.get(k), press = () => selectGroup(vertex.name);
    const bar = (from, value, name) => draw("rect", { x: x + 6 + from, y: y + TALL - 7, width: Math.max(value, 0), height: 3.5, fill: `var(--${name})` });
    const unit = (WIDE - 12) / most, compute = vertex.compute_seconds * unit;
    return draw("g", { class: "vertex", tabindex: 0, role: "button", "aria-pressed": "false", "data-name": vertex.name, onclick: press,
      onkeydown: event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); press(); } },
      "aria-label": `${vertex.name}: ${vertex.words}; computes ${seconds(vertex.compute_seconds)}` },
    draw("rect", { class: "box", x, y, width: WIDE, height: TALL, rx: 7, fill: `var(--${soapKey(vertex.soap)})` }),
    draw("text", { x: x + 8, y: y + 14, style: "font-weight:600" }, clip(vertex.name, vertex.count > 1 ? 21 : 27)),
    vertex.count > 1 ? draw("text", { x: x + WIDE - 8, y: y + 14, "text-anchor": "end", class: "faint" }, `×${vertex.count}`) : null,
    draw("text", { x: x + 8, y: y + 28, class: "faint" }, clip(vertex.split, 30)),
    bar(0, compute, "forward"), bar(compute, vertex.communication_seconds * unit, "communication"),
    draw("title", {}, `${vertex.name}\n${vertex.pattern}\n${vertex.words}\ncomputes ${seconds(vertex.compute_seconds)}, communicates ${seconds(vertex.communication_seconds)}, moves ${bytes(vertex.bytes_moved)}`));
  });
  byId("model-graph").replaceChildren(draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `The model with its strategy, ${vertices.length} operators` }, lines, boxes));
  const used = [...new Set(vertices.map(v => v.soap))].sort();
  byId("strategy-legend").replaceChildren(...used.map(soap => key(soapKey(soap), `${soapWords(soap)}${soap.includes("O") ? ", on some devices" : ""}`)), key("forward", "computes"), key("communication", "communicates"));
}

function clip(text, most) { return text.length > most ? `${text.slice(0, most - 1)}…` : text; }

function isDifferent(vertex) { return vertex.compared_split !== undefined && vertex.compared_split !== vertex.split; }

// The table of operators; where a plan is compared, both sides.
function renderOperators() {
  const { vertices } = DATA.model, compared = comparedStep(), element = byId("operators");
  const difference = v => v.compute_seconds + v.communication_seconds - v.compared_compute_seconds - v.compared_communication_seconds;
  const columns = [
    { name: "operator", of: v => v.count > 1 ? `${v.name} ×${v.count}` : v.name },
    { name: "split", of: v => isDifferent(v) ? [v.split, make("div", { class: "hint" }, `not ${v.compared_split || "an entry of its own"}`)] : v.split },
    { name: "computes", of: v => seconds(v.compute_seconds), by: v => v.compute_seconds, isNumber: true },
    { name: "communicates", of: v => seconds(v.communication_seconds), by: v => v.communication_seconds, isNumber: true },
    { name: "moves", of: v => bytes(v.bytes_moved), by: v => v.bytes_moved, isNumber: true },
    compared && { name: "than there", of: v => differenceWords(difference(v)), by: difference, isNumber: true },
  ].filter(Boolean);
  const rows = onlyDifferences ? vertices.filter(isDifferent) : vertices;
  const row = v => ({ class: page.group === v.name ? "selectable selected" : "selectable", "data-name": v.name, onclick: () => selectGroup(v.name) });
  const found = table(compared ? `Seconds and bytes of each operator on the device that spends most; "than there": against ${compared.name}` : "Seconds and bytes of each operator, on the device that spends most",
    columns, rows, { sorted: 2, row });
  const press = event => { onlyDifferences = event.target.checked; renderOperators(); };
  const filter = compared && make("label", {}, make("input", { type: "checkbox", id: "only-differences", checked: onlyDifferences, onchange: press }),
    ` only operators that ${compared.name} splits otherwise (${vertices.filter(isDifferent).length} of ${vertices.length})`);
  element.replaceChildren(...[filter, compared && planDifference(compared), make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Operators" }, found)].filter(Boolean));
}

function differenceWords(value) {
  if (!value) return "the same";
  return make("span", { class: value < 0 ? "good" : "bad" }, `${value < 0 ? "−" : "+"}${seconds(Math.abs(value))}`);
}

function planDifference(compared) {
  const step = STEPS[0], figures = [["a step", s => s.seconds, seconds], ["moved", s => s.bytes_moved, bytes], ["memory, fullest device", s => Math.max(...s.peak_bytes), memory]];
  return make("p", { id: "plan-difference" }, `${step.name} against ${compared.name}: `,
    figures.map(([name, of, words], k) => [k ? "; " : "", `${name} ${words(of(step))} instead of ${words(of(compared))} (`,
      make("b", { class: of(step) <= of(compared) ? "good" : "bad" }, change(of(compared), of(step))), ")"]).flat());
}

on("select", () => {
  for (const each of document.querySelectorAll(".vertex")) each.setAttribute("aria-pressed", String(each.dataset.name === page.group));
  for (const each of document.querySelectorAll("#operators tr.selectable")) each.classList.toggle("selected", each.dataset.name === page.group);
});

// What all scripts of the page share: the data, its columns, words for numbers, elements, and the state of the page.

const DATA = JSON.parse(document.getElementById("data").textContent);

// -- state: what is shown and selected; `emit` tells those who asked by `on` -------------------------------------------

const page = { step: 0, beside: -1, range: null, group: null, task: -1, sort: "sort", flows: true, path: true };
const listeners = {};
function on(event, act) { (listeners[event] ||= []).push(act); }
function emit(event, ...values) { for (const act of listeners[event] || []) act(...values); }

// -- columns ------------------------------------------------------------------------------------------------------------

function sums(differences) {
  const found = new Int32Array(differences.length);
  let total = 0;
  for (let k = 0; k < differences.length; k++) found[k] = total += differences[k];
  return found;
}

// A step with its columns unpacked: typed arrays, seconds instead of ticks, lanes with their tasks.
function unpack(step) {
  const tick = step.seconds / DATA.ticks, tasks = step.tasks, count = tasks.start.length;
  const start = Float64Array.from(sums(tasks.start), x => x * tick);
  const end = Float64Array.from(start, (x, k) => x + tasks.length[k] * tick);
  const lanes = step.lanes.device.map((device, k) => ({ device, stream: step.lanes.stream[k], tasks: sums(step.lanes.tasks[k]) }));
  const firstLane = new Int32Array(count).fill(-1);
  lanes.forEach((lane, k) => { for (const task of lane.tasks) if (firstLane[task] < 0) firstLane[task] = k; });
  const isCritical = new Uint8Array(count);
  for (const task of step.path) isCritical[task] = 1;
  const groups = step.groups, names = step.names;
  return { ...step, count, start, end, lanes, firstLane, isCritical,
    nameOf: task => names.text[tasks.name[task]],
    sortOf: task => names.sort[tasks.name[task]],
    groupOf: task => groups[names.group[tasks.name[task]]],
    partOf: task => tasks.part[task] || 0,
    sourceOf: task => (tasks.source[task] || 0) - 1,
    awaited: task => tasks.after[task] ? task - tasks.after[task] : -1 };
}
const STEPS = DATA.steps.map(unpack);
const shownStep = () => STEPS[page.step];
const comparedStep = () => STEPS.find(step => step.role === "compared");

// -- words ----------------------------------------------------------------------------------------------------------------

function digits(value) { return Math.abs(value) < 9.995 ? value.toFixed(2) : Math.abs(value) < 99.95 ? value.toFixed(1) : value.toFixed(0); }
function scaled(value, units, by) {
  let unit = 0;
  while (Math.abs(value) >= by * 0.9995 && unit + 1 < units.length) { value /= by; unit++; }
  return `${digits(value)} ${units[unit]}`;
}
function seconds(value) { return value ? scaled(value * 1e6, ["µs", "ms", "s"], 1000) : "0"; }
function bytes(value) { return !value ? "0" : Math.abs(value) < 1000 ? `${value} B` : scaled(value / 1e3, ["kB", "MB", "GB", "TB"], 1000); }
function memory(value) { return value ? scaled(value / 1024, ["KiB", "MiB", "GiB", "TiB"], 1024) : "0"; }
function percent(share) { return `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)} %`; }
function change(old, value) {
  if (!old) return value ? "new" : "the same";
  const by = (value / old - 1) * 100;
  return Math.abs(by) < 0.05 ? "the same" : `${by > 0 ? "+" : "−"}${digits(Math.abs(by))} %`;
}
function numbers(list) {  // 0-3, or 0, 2, 4, ... (12)
  const isRun = list.length > 2 && list.every((x, k) => !k || x === list[k - 1] + 1);
  if (isRun) return `${list[0]}–${list[list.length - 1]}`;
  return list.length <= 8 ? list.join(", ") : `${list.slice(0, 7).join(", ")}, … (${list.length} in all)`;
}

// -- elements ---------------------------------------------------------------------------------------------------------------

const byId = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return element;
}
function make(tag, attributes, ...children) { return fill(document.createElement(tag), attributes, children); }
function draw(tag, attributes, ...children) { return fill(document.createElementNS(SVG, tag), attributes, children); }
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); }
function key(name, text) { return make("span", { class: "key" }, make("i", { style: `background:var(--${name})`, "aria-hidden": "true" }), text); }

function compare(a, b) { return a < b ? -1 : a > b ? 1 : 0; }

// A table. A column is { name, of: row -> text or element, by?: row -> number to sort by, isNumber? }.
function table(caption, columns, rows, options = {}) {
  let sorted = options.sorted ?? -1, isDown = true;
  const body = make("tbody"), head = make("tr");
  const show = () => {
    const column = columns[sorted];
    const list = column ? [...rows].sort((a, b) => (isDown ? -1 : 1) * compare(column.by(a), column.by(b))) : rows;
    body.replaceChildren(...list.map(row => {
      const cells = columns.map(c => make("td", { class: c.isNumber ? "number" : null }, [c.of(row)].flat()));
      const attributes = options.row ? options.row(row) : {};
      return make("tr", attributes, cells);
    }));
    head.replaceChildren(...columns.map((c, k) => {
      const order = k === sorted ? (isDown ? "descending" : "ascending") : null;
      const press = () => { isDown = k === sorted ? !isDown : true; sorted = k; show(); };
      const mark = k === sorted ? (isDown ? " ↓" : " ↑") : "";
      const name = c.by ? make("button", { type: "button", onclick: press }, c.name + mark) : c.name;
      return make("th", { scope: "col", class: c.isNumber ? "number" : null, "aria-sort": order }, name);
    }));
  };
  show();
  const found = make("table", {}, make("caption", { class: "hint" }, caption), make("thead", {}, head), body);
  found.refresh = show;
  return found;
}

const tip = byId("tip");
function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = `${Math.min(x + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18}px`;
}
function hideTip() { tip.hidden = true; }

function selectGroup(name) {
  page.group = page.group === name ? null : name;
  page.task = -1;
  emit("select");
}

// The section of the timeline: two steps one over the other, what is selected, zoom by keyboard, the critical path.

let shownLanes = [];

function describeTask(step, task) {
  const { tasks } = step, source = step.sourceOf(task), lines = [step.nameOf(task)];
  const where = source >= 0 ? `device ${source} → ${tasks.device[task]}` : `device ${tasks.device[task]}`;
  lines.push(`${DATA.sorts[step.sortOf(task)]}, ${where}${step.partOf(task) > 0 ? `, micro-batch ${step.partOf(task)}` : ""}`);
  lines.push(`${seconds(step.end[task] - step.start[task])} from ${seconds(step.start[task])}`);
  if (tasks.bytes[task]) lines.push(`${bytes(tasks.bytes[task])} moved`);
  if (step.isCritical[task]) lines.push("on the critical path");
  const before = step.awaited(task);
  if (before >= 0) lines.push(`waited for ${step.nameOf(before)}`);
  return lines.join("\n");
}

function selectTask(index, task) {
  if (index !== page.step) { page.step = index; page.beside = -1; emit("step"); }
  page.task = task;
  page.group = shownStep().groupOf(task) || null;
  emit("select");
}

function zoom(factor, around) {
  const span = longest(), [low, high] = page.range || [0, span], middle = around ?? (low + high) / 2;
  setRange([middle - (middle - low) * factor, middle + (high - middle) * factor]);
}

function move(share) {
  const [low, high] = page.range || [0, longest()], by = (high - low) * share;
  if (page.range) setRange([low + by, high + by]);
}

// Show a task that lies outside of what is zoomed to.
function bringIntoView(task) {
  const step = shownStep();
  if (!page.range || (step.start[task] >= page.range[0] && step.end[task] <= page.range[1])) return;
  const width = Math.max(page.range[1] - page.range[0], step.end[task] - step.start[task]);
  const middle = (step.start[task] + step.end[task]) / 2;
  setRange([middle - width / 2, middle + width / 2]);
}

function stepAlongPath(by) {
  const { path } = shownStep(), at = path.indexOf(page.task);
  if (!path.length) return;
  const task = path[at < 0 ? (by > 0 ? 0 : path.length - 1) : Math.min(Math.max(at + by, 0), path.length - 1)];
  selectTask(page.step, task);
  bringIntoView(task);
}

// The task of the next lane above or below that runs at the time of the selected one.
function stepAcrossLanes(by) {
  const step = shownStep(), at = page.task < 0 ? (page.range || [0])[0] : step.start[page.task];
  let lane = page.task < 0 ? (by > 0 ? -1 : step.lanes.length) : step.firstLane[page.task];
  for (lane += by; lane >= 0 && lane < step.lanes.length; lane += by) {
    const { tasks } = step.lanes[lane], found = tasks[Math.min(shownLanes[0].search(tasks, at), tasks.length - 1)];
    if (found !== page.task && step.firstLane[found] === lane) return selectTask(page.step, found);
  }
}

const KEYS = {
  ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
  0: () => setRange(null), Home: () => setRange(null), n: () => stepAlongPath(1), p: () => stepAlongPath(-1),
  ArrowDown: () => stepAcrossLanes(1), ArrowUp: () => stepAcrossLanes(-1),
  Escape: () => { page.group = null; page.task = -1; emit("select"); },
};

function pressKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
}

function toggle(id, text, name) {
  const press = event => {
    page[name] = !page[name];
    event.target.setAttribute("aria-pressed", page[name]);
    repaint();
  };
  return make("button", { id, type: "button", "aria-pressed": String(page[name]), onclick: press }, text);
}

function renderControls() {
  const legend = DATA.sorts.map(name => key(name, { weight: "gradients of parameters", backward: "gradients of activations" }[name] || name));
  const keys = make("span", { class: "row", id: "colours" });
  const showKeys = () => keys.replaceChildren(...(page.sort === "sort" ? legend : [make("span", { class: "hint" }, "a hue for each operator")]));
  const choose = make("select", { id: "colour-by", onchange: event => { page.sort = event.target.value; showKeys(); repaint(); } },
    make("option", { value: "sort" }, "what it is"), make("option", { value: "operator" }, "operator"));
  choose.value = page.sort;
  const button = (id, text, act) => make("button", { id, type: "button", onclick: act }, text);
  byId("timeline-controls").replaceChildren(
    toggle("toggle-path", "Critical path", "path"), toggle("toggle-flows", "Flows", "flows"),
    button("zoom-in", "Zoom in", () => zoom(0.5)), button("zoom-out", "Zoom out", () => zoom(2)), button("zoom-all", "Whole step", () => setRange(null)),
    make("label", {}, "Colour by ", choose), make("span", { id: "range", class: "hint", role: "status" }), keys);
  showKeys();
}

function renderTimeline() {
  readColours();
  for (const id of ["lanes", "beside-lanes"]) forget(byId(id));
  renderUsage();
  const indices = page.beside >= 0 ? [page.step, page.beside] : [page.step];
  shownLanes = indices.map((index, k) => {
    const element = byId(k ? "beside-lanes" : "lanes"), step = STEPS[index];
    const few = step.shown_devices.length < step.peak_bytes.length;
    const which = few ? `; shown are devices ${numbers(step.shown_devices)} of ${step.peak_bytes.length}` : "";
    element.append(make("h3", {}, `${step.name}, ${step.role === "measured" ? "measured" : "predicted"}: ${seconds(step.seconds)}, ${step.rows} tasks${which}`));
    const lanes = new Lanes(element, step, index);
    lanes.box.addEventListener("keydown", pressKey);
    return lanes;
  });
  renderPath();
  showRange();
}

function repaint() { for (const lanes of shownLanes) lanes.plot.redraw(false, false); }

function showRange() {
  const text = page.range ? `${seconds(page.range[0])} to ${seconds(page.range[1])}` : `all of ${seconds(longest())}`;
  if (byId("range")) byId("range").textContent = text;
}

function renderSelected() {
  const element = byId("selected"), step = shownStep();
  if (page.task >= 0) {
    const [name, ...rest] = describeTask(step, page.task).split("\n");
    element.replaceChildren(make("b", {}, name), make("div", {}, rest.join(" · ")), groupLine(page.group));
  } else {
    element.replaceChildren(page.group === null ? "Nothing is selected: click a task, or an operator of the strategy." : groupLine(page.group));
  }
}

function groupLine(name) {
  const vertex = DATA.model.vertices.find(each => each.name === name);
  if (!vertex) return name ? `operator ${name}` : "";
  const times = `computes ${seconds(vertex.compute_seconds)}, communicates ${seconds(vertex.communication_seconds)}, moves ${bytes(vertex.bytes_moved)}`;
  return make("div", {}, make("b", {}, `operator ${vertex.name}`), ` (${vertex.words}): ${times}`);
}

// The critical path: tasks of one name that follow each other are a row.
function renderPath() {
  const step = shownStep(), rows = [];
  for (const task of step.path) {
    const last = rows[rows.length - 1], name = step.nameOf(task), lasts = step.end[task] - step.start[task];
    if (last && last.name === name) { last.seconds += lasts; last.tasks++; } else rows.push({ name, task, seconds: lasts, tasks: 1, sort: DATA.sorts[step.sortOf(task)] });
  }
  rows.sort((a, b) => b.seconds - a.seconds);
  const shares = Object.entries(step.path_seconds).map(([name, x]) => `${name} ${seconds(x)}`).join(", ");
  byId("path-table").replaceChildren(table(`Of ${seconds(step.seconds)} the path has ${shares}. The longest parts first.`, [
    { name: "task", of: row => row.name },
    { name: "what", of: row => row.sort },
    { name: "tasks", of: row => row.tasks, isNumber: true },
    { name: "seconds", of: row => seconds(row.seconds), by: row => row.seconds, isNumber: true },
    { name: "share", of: row => percent(row.seconds / step.seconds), isNumber: true },
  ], rows.slice(0, 60), { row: row => ({ class: "selectable", onclick: () => selectTask(page.step, row.task) }) }));
}

on("range", showRange);
on("select", () => {
  renderSelected();
  if (page.task >= 0) shownLanes[0].reveal(page.task);
  repaint();
});

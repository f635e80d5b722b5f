// Memory over time of one device and what is alive at its peak; what share of the step devices compute and idle.

const CLASS_COLOURS = { parameter: "forward", state: "update", activation: "communication", input: "feed",
  "gradient of an activation": "backward", "gradient of a parameter": "weight", "value of an update": "faint" };
let memoryDevice = -1;

// The place of the chosen device in the columns of a step, which may have the fullest devices only; -1: it is not there.
const memoryPlace = step => step.memory.devices.indexOf(memoryDevice);

function fullest(step) {
  const { devices, peak_in_use_bytes: most } = step.memory;
  return devices[most.indexOf(Math.max(...most))];
}

function renderMemory() {
  const step = shownStep();
  if (memoryPlace(step) < 0) memoryDevice = fullest(step);
  const choose = make("select", { id: "memory-device", onchange: event => { memoryDevice = +event.target.value; renderMemory(); } },
    step.memory.devices.map(device => make("option", { value: device }, `device ${device} (${memory(step.peak_bytes[device])})`)));
  choose.value = memoryDevice;
  byId("memory-controls").replaceChildren(make("label", {}, "Device ", choose), memoryWords(step));
  renderMemoryChart(step);
  renderAlive(step);
}

function memoryWords(step) {
  const has = step.memory_bytes[memoryDevice], needs = step.peak_bytes[memoryDevice];
  const text = `its arena takes ${memory(needs)} of ${memory(has)} (${percent(needs / has)}), of which up to ${memory(step.memory.peak_in_use_bytes[memoryPlace(step)])} are in use at once`;
  return make("span", { class: needs > has ? "bad" : "hint" }, needs > has ? `does not fit: ${text}` : text);
}

function renderMemoryChart(step) {
  const element = byId("memory-chart"), others = comparedStep(), gib = 2 ** 20;
  forget(element);
  const x = middles(DATA.columns, step.seconds), used = step.memory.in_use_kib[memoryPlace(step)].map(size => size / gib);
  const arena = x.map(() => step.peak_bytes[memoryDevice] / 2 ** 30);
  const value = (u, v) => v === null || v === undefined ? "" : memory(v * 2 ** 30);
  const series = [{ label: "at", value: (u, v) => v === null ? "" : seconds(v) },
    { label: "in use", stroke: colour("accent"), fill: colour("accent") + "2e", width: 1.8, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value },
    { label: "arena", stroke: colour("critical"), dash: [5, 4], width: 1.2, points: { show: false }, value }];
  const data = [x, used, arena];
  if (others && others !== step && memoryPlace(others) >= 0) {
    const sizes = others.memory.in_use_kib[memoryPlace(others)], part = time => Math.floor(time / others.seconds * DATA.columns);
    data.push(x.map(time => part(time) < sizes.length ? sizes[part(time)] / gib : null));
  }
  if (data.length > 3) series.push({ label: others.name, stroke: colour("faint"), width: 1.2, points: { show: false }, value });
  timeChart(element, `Memory of device ${memoryDevice} over the step: up to ${memory(step.memory.peak_in_use_bytes[memoryPlace(step)])} in use`, {
    height: 300,
    scales: { y: { range: (u, low, high) => [0, high * 1.06 || 1] } },
    axes: [axis(timeTicks), axis((u, splits) => splits.map(v => memory(v * 2 ** 30)), { size: 74 })],
    series,
    hooks: { draw: [u => markPeak(u, step)] },
  }, data);
}

function markPeak(u, step) {
  const x = u.valToPos(step.memory.peak_seconds[memoryPlace(step)], "x", true), { ctx, bbox } = u;
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  ctx.save();
  ctx.strokeStyle = colour("critical"); ctx.lineWidth = 1.2 * devicePixelRatio; ctx.setLineDash([2, 3]);
  ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
  ctx.restore();
}

function renderAlive(step) {
  const alive = step.memory.alive[memoryPlace(step)], total = step.memory.peak_in_use_bytes[memoryPlace(step)] || 1;
  const classes = Object.entries(alive.by_class).sort((a, b) => b[1] - a[1]);
  const rows = alive.name.map((name, k) => ({ name, sort: alive.class[k], size: alive.bytes[k] }));
  if (alive.others > 0) rows.push({ name: `${alive.others} others`, sort: "", size: alive.others_bytes });
  byId("memory-alive").replaceChildren(
    make("h3", {}, `Alive at the peak, ${seconds(step.memory.peak_seconds[memoryPlace(step)])} into the step`),
    make("div", { class: "stack", role: "img", "aria-label": classes.map(([name, size]) => `${name} ${percent(size / total)}`).join(", ") },
      classes.map(([name, size]) => make("i", { style: `width:${100 * size / total}%;background:var(--${CLASS_COLOURS[name]})` }))),
    make("div", { class: "row" }, classes.map(([name, size]) => key(CLASS_COLOURS[name], `${name} ${memory(size)}`))),
    make("div", { class: "scroll", style: "max-height:250px", tabindex: 0, role: "region", "aria-label": "Regions alive at the peak" },
      table(`Regions on device ${memoryDevice}`, [
        { name: "region", of: row => row.name }, { name: "what", of: row => row.sort },
        { name: "bytes", of: row => memory(row.size), isNumber: true }, { name: "share", of: row => percent(row.size / total), isNumber: true },
      ], rows)));
}

// -- devices ----------------------------------------------------------------------------------------------------------------

function shareOf(step, device) {
  const compute = step.usage.compute_seconds[device] / step.seconds, moving = step.usage.communication_seconds[device] / step.seconds;
  return { compute, moving, idle: Math.max(1 - compute - moving, 0) };
}

function renderDevices() {
  const step = shownStep(), shares = step.peak_bytes.map((_, device) => shareOf(step, device));
  const idle = shares.flatMap((share, device) => share.compute === 0 ? [device] : []);
  const mean = name => shares.reduce((sum, share) => sum + share[name], 0) / shares.length;
  const words = idle.length ? `${idle.length} of ${shares.length} devices compute nothing: ${numbers(idle)}.` : `All ${shares.length} devices compute.`;
  byId("devices-text").replaceChildren(
    make("span", { class: idle.length ? "bad" : "" }, words),
    ` On average a device computes for ${percent(mean("compute"))} of the step, only communicates for ${percent(mean("moving"))} and idles for ${percent(mean("idle"))}.`);
  const legend = make("div", { class: "row controls" }, key("forward", "computes"), key("communication", "only communicates"), key("idle", "idles"));
  const bar = (share, device) => make("div", { title: `device ${device}: computes ${percent(share.compute)}, only communicates ${percent(share.moving)}, idles ${percent(share.idle)}` },
    make("span", {}, `${device}`), make("span", { class: "stack", "aria-hidden": "true" },
      make("i", { style: `width:${share.compute * 100}%;background:var(--forward)` }), make("i", { style: `width:${share.moving * 100}%;background:var(--communication)` })),
    make("span", {}, percent(share.compute)));
  byId("devices-bars").replaceChildren(legend, make("div", { class: "device-grid", tabindex: 0, role: "region", "aria-label": "Share of the step that each device computes" }, shares.map(bar)));
}

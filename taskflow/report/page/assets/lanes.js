// Lanes: the tasks of a step, a lane for each stream of each device, on the canvas of a chart.

const LANES_LEFT = 96, LANES_RIGHT = 30, AXIS = 30;  // pixels beside and above the lanes
const HEIGHTS = { compute: 3, sending: 1.3, receiving: 1.3, "host copies": 0.8, "moves within": 1 };  // relative

class Lanes {
  constructor(element, step, index) {
    Object.assign(this, { element, step, index });
    this.place();
    const help = { tabindex: 0, role: "group", "aria-describedby": "timeline-help", "aria-label": this.label() };
    this.box = make("div", { class: "lanes-box", ...help });
    this.element.append(this.box);
    this.plot = timeChart(this.box, this.label(), this.options(), [[0, step.seconds], [0, 0]]);
    this.plot.over.addEventListener("mousemove", event => this.hover(event));
    this.plot.over.addEventListener("mouseleave", hideTip);
    this.plot.over.addEventListener("mousedown", event => { this.pressedAt = event.clientX; });
    this.plot.over.addEventListener("click", event => this.click(event));
    this.plot.over.addEventListener("wheel", event => this.wheel(event), { passive: false });
  }

  label() {
    const step = this.step;
    return `${step.name}: ${step.count} tasks in ${step.lanes.length} lanes of ${step.shown_devices.length} devices, ${seconds(step.seconds)} a step`;
  }

  // Where the lanes lie: `top` and `height` of each in pixels, and the middle of each device for its name.
  place() {
    const lanes = this.step.lanes, devices = new Set(lanes.map(lane => lane.device)).size;
    const parts = lanes.reduce((sum, lane) => sum + HEIGHTS[lane.stream], 0), gap = devices > 32 ? 2 : 5;
    const each = Math.min(Math.max((560 - gap * devices) / parts, 1.9), devices > 4 ? 12 : 20);
    this.middles = new Map();
    let y = 4, last = null, first = 4;
    this.top = []; this.height = [];
    lanes.forEach((lane, k) => {
      if (last !== null && lane.device !== last) { this.middles.set(last, (first + y) / 2); y += gap; first = y; }
      last = lane.device;
      this.top[k] = y; this.height[k] = Math.max(HEIGHTS[lane.stream] * each, 2);
      y += this.height[k];
    });
    if (last !== null) this.middles.set(last, (first + y) / 2);
    this.total = y + 4;
  }

  options() {
    const every = Math.max(1, Math.ceil(this.middles.size * 13 / this.total));
    const named = [...this.middles].filter((_, k) => k % every === 0);
    return {
      height: Math.ceil(this.total) + AXIS + 8,
      padding: [8, LANES_RIGHT, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: false } },
      scales: { y: { range: [0, this.total], dir: -1 } },
      axes: [axis(timeTicks, { side: 0, size: AXIS }),
        axis(() => named.map(([device]) => `device ${device}`), { splits: () => named.map(([, y]) => y), size: LANES_LEFT, grid: { show: false } })],
      series: [{}, { show: true, paths: () => null, points: { show: false } }],
      hooks: { draw: [u => this.paint(u)] },
    };
  }

  // Position of the first task of a lane that ends after `time`.
  search(tasks, time) {
    let low = 0, high = tasks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.step.end[tasks[middle]] < time) low = middle + 1; else high = middle;
    }
    return low;
  }

  paint(u) {
    const { ctx, bbox } = u, ratio = devicePixelRatio, { min, max } = u.scales.x;
    const scale = bbox.width / (max - min), palette = this.palette();
    this.at = time => bbox.left + (time - min) * scale;
    this.y = lane => bbox.top + this.top[lane] * ratio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    this.visible = 0;
    for (let k = 0; k < this.step.lanes.length; k++) this.paintLane(ctx, k, ratio, min, max, scale, palette);
    ctx.globalAlpha = 1;
    if (page.flows) this.paintFlows(ctx, ratio, min, max);
    if (this.index === page.step && page.task >= 0) this.paintSelected(ctx, ratio);
    ctx.restore();
  }

  palette() {
    if (page.sort === "sort") return DATA.sorts.map(name => colour(name));
    return null;
  }

  paintLane(ctx, k, ratio, min, max, scale, palette) {
    const { step } = this, { tasks } = step.lanes[k], y = this.y(k), height = this.height[k] * ratio;
    const thin = Math.max(height - (height > 8 ? 2 : height > 4 ? 1 : 0), 1), strip = Math.max(Math.min(height * 0.28, 4 * ratio), 1.5);
    let lastX = -1, lastName = -1;
    for (let i = this.search(tasks, min); i < tasks.length; i++) {
      const task = tasks[i];
      if (step.start[task] > max) break;
      const x = this.at(step.start[task]), width = Math.max((step.end[task] - step.start[task]) * scale, 0.6 * ratio);
      const name = step.tasks.name[task], isCritical = page.path && step.isCritical[task];
      if (!isCritical && width < ratio && x - lastX < 0.5 * ratio && name === lastName) continue;
      lastX = x; lastName = name; this.visible++;
      const isFaint = page.group !== null && step.groupOf(task) !== page.group;
      ctx.globalAlpha = isFaint ? 0.13 : 1;
      ctx.fillStyle = palette ? palette[step.sortOf(task)] : operatorColour(step.groupOf(task));
      ctx.fillRect(x, y, width > 4 * ratio ? width - 0.7 * ratio : width, thin);
      if (isCritical) {
        ctx.globalAlpha = isFaint ? 0.3 : 1;
        ctx.fillStyle = colours.critical;
        ctx.fillRect(x, y + thin - strip, width, strip);
      }
      if (height > 11 * ratio && width > 46 * ratio) this.write(ctx, step.nameOf(task), x, y, width, thin, ratio);
    }
  }

  write(ctx, text, x, y, width, height, ratio) {
    const most = Math.floor((width - 6 * ratio) / (6.1 * ratio));
    ctx.fillStyle = "#fff";
    ctx.font = `${11 * ratio}px system-ui`;
    ctx.textBaseline = "middle";
    ctx.fillText(text.length > most ? text.slice(0, Math.max(most - 1, 1)) + "…" : text, Math.max(x, this.at(this.plot.scales.x.min)) + 3 * ratio, y + height / 2 - ratio);
  }

  // Flows: from the task that each waited for last; of the critical path always, of all where few are in view.
  paintFlows(ctx, ratio, min, max) {
    const { step } = this, inView = task => step.end[task] >= min && step.start[task] <= max;
    ctx.lineWidth = 1.3 * ratio;
    if (page.path) {
      ctx.strokeStyle = colours.critical; ctx.globalAlpha = 0.55;
      for (const task of step.path) if (inView(task)) this.flow(ctx, step.awaited(task), task, ratio);
    }
    if (this.visible > 400) return;
    ctx.strokeStyle = colours.faint; ctx.globalAlpha = 0.6;
    const seen = new Set();
    for (const lane of step.lanes) {
      for (let i = this.search(lane.tasks, min); i < lane.tasks.length && step.start[lane.tasks[i]] <= max; i++) {
        const task = lane.tasks[i];
        if (!seen.has(task) && (page.group === null || step.groupOf(task) === page.group)) this.flow(ctx, step.awaited(task), task, ratio);
        seen.add(task);
      }
    }
  }

  // A curve from the end of one task to the start of another in another lane.
  flow(ctx, from, to, ratio) {
    const { step } = this, a = from < 0 ? -1 : step.firstLane[from], b = step.firstLane[to];
    if (a < 0 || b < 0 || a === b) return;
    const x0 = this.at(step.end[from]), x1 = this.at(step.start[to]), bend = Math.max(Math.abs(x1 - x0) * 0.4, 5 * ratio);
    const y0 = this.y(a) + this.height[a] * ratio / 2, y1 = this.y(b) + this.height[b] * ratio / 2;
    ctx.beginPath();
    ctx.moveTo(x0, y0);
    ctx.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    ctx.stroke();
    ctx.fillStyle = ctx.strokeStyle;
    ctx.beginPath();
    ctx.moveTo(x1, y1); ctx.lineTo(x1 - 4 * ratio, y1 - 2.4 * ratio); ctx.lineTo(x1 - 4 * ratio, y1 + 2.4 * ratio);
    ctx.fill();
  }

  // Scroll to the lane of a task.
  reveal(task) {
    const top = this.top[this.step.firstLane[task]] + AXIS, { scrollTop, clientHeight } = this.box;
    if (top < scrollTop || top > scrollTop + clientHeight - 30) this.box.scrollTop = top - clientHeight / 2;
  }

  paintSelected(ctx, ratio) {
    const { step } = this, task = page.task;
    ctx.strokeStyle = colours.ink; ctx.lineWidth = 1.6 * ratio; ctx.globalAlpha = 1;
    step.lanes.forEach((lane, k) => {
      if (!lane.tasks.includes(task)) return;
      const width = Math.max(this.at(step.end[task]) - this.at(step.start[task]), 2 * ratio);
      ctx.strokeRect(this.at(step.start[task]), this.y(k), width, this.height[k] * ratio);
    });
    for (let to = task, hops = 0; step.awaited(to) >= 0 && hops < 12; to = step.awaited(to), hops++) this.flow(ctx, step.awaited(to), to, ratio);
  }

  // The task under the pointer, or -1.
  under(event) {
    const box = this.plot.over.getBoundingClientRect(), y = event.clientY - box.top;
    const time = this.plot.posToVal(event.clientX - box.left, "x"), near = this.plot.posToVal(3, "x") - this.plot.posToVal(0, "x");
    const lane = this.top.findIndex((top, k) => y >= top && y < top + this.height[k]);
    if (lane < 0) return -1;
    const { tasks } = this.step.lanes[lane];
    for (let i = this.search(tasks, time - near); i < tasks.length && this.step.start[tasks[i]] <= time + near; i++) {
      if (this.step.end[tasks[i]] >= time || this.step.end[tasks[i]] - this.step.start[tasks[i]] < near) return tasks[i];
    }
    return -1;
  }

  hover(event) {
    const task = this.under(event);
    if (task < 0) hideTip(); else showTip(describeTask(this.step, task), event.clientX, event.clientY);
  }

  click(event) {
    if (Math.abs(event.clientX - this.pressedAt) >= MOVED_PIXELS) return;  // the end of a drag
    const task = this.under(event);
    if (task >= 0) selectTask(this.index, task);
    else if (page.group !== null || page.task >= 0) { page.group = null; page.task = -1; emit("select"); }
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const box = this.plot.over.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, this.plot.posToVal(event.clientX - box.left, "x"));
  }
}

// Colours that are read once for each theme, since a canvas asks for them often.
const colours = {};
function readColours() { for (const name of ["critical", "faint", "ink"]) colours[name] = colour(name); }

// A hue for each operator, the same on every opening.
function operatorColour(group) {
  if (!group) return "#8a8f98";
  let hash = 7;
  for (let k = 0; k < group.length; k++) hash = (hash * 31 + group.charCodeAt(k)) >>> 0;
  return `hsl(${hash % 360} 48% ${44 + (hash >> 9) % 14}%)`;
}

// The picture of the machine: hosts, devices, switches and links; the wider and darker a link, the more bytes it carries.

const MOST_LINES = 600, BOX = 24, PITCH = 30, HOST_PAD = 9;

// Both directions of a connection, added up.
function connections(step) {
  const { ends, bandwidth, is_between: between } = DATA.machine, found = new Map();
  ends.forEach(([a, b], k) => {
    const name = [a, b].map(String).sort().join("|");
    const pair = found.get(name) || { ends: [a, b], bytes: 0, bandwidth: 0, isBetween: between[k] === 1, share: 0 };
    pair.bytes += step.links.bytes[k];
    pair.bandwidth = Math.max(pair.bandwidth, bandwidth[k]);
    pair.share = Math.max(pair.share, step.links.bytes[k] / bandwidth[k] / step.seconds);
    found.set(name, pair);
  });
  return [...found.values()].sort((a, b) => b.bytes - a.bytes);
}

// Switches by the only host whose devices they join; those of several hosts are the network.
function switches(pairs) {
  const { host } = DATA.machine, hosts = new Map();
  for (const { ends } of pairs) {
    for (const [place, other] of [ends, [...ends].reverse()]) {
      if (typeof place === "number") continue;
      if (!hosts.has(place)) hosts.set(place, new Set());
      if (typeof other === "number") hosts.get(place).add(host[other]);
    }
  }
  return new Map([...hosts].map(([name, found]) => [name, found.size === 1 ? [...found][0] : -1]));
}

function layOut(width, pairs) {
  const { host } = DATA.machine, places = switches(pairs), hosts = [...new Set(host)].sort((a, b) => a - b);
  const network = [...places].filter(([, owner]) => owner < 0).map(([name]) => name);
  const members = new Map(hosts.map(h => [h, host.flatMap((x, device) => x === h ? [device] : [])]));
  const across = Math.max(...[...members.values()].map(list => Math.min(list.length, 8)));
  const inner = Math.max(...hosts.map(h => [...places.values()].filter(owner => owner === h).length), 0);
  const hostWidth = across * PITCH + 2 * HOST_PAD, perRow = Math.max(1, Math.floor(width / (hostWidth + 12)));
  const deep = Math.max(...[...members.values()].map(list => Math.ceil(list.length / 8)));
  const hostHeight = 18 + deep * (PITCH + 4) + inner * 34 + HOST_PAD, barsHeight = network.length ? 26 * network.length + 22 : 6;
  const at = new Map(), boxes = [], bars = [];
  hosts.forEach((h, k) => {
    const row = Math.floor(k / perRow), x = (k % perRow) * (hostWidth + 12) + 2, y = row * (hostHeight + barsHeight + 14) + barsHeight;
    boxes.push({ host: h, x, y, width: hostWidth, height: hostHeight });
    members.get(h).forEach((device, n) => at.set(device, { x: x + HOST_PAD + (n % 8) * PITCH + PITCH / 2, y: y + 20 + Math.floor(n / 8) * (PITCH + 4) + BOX / 2, row }));
    [...places].filter(([, owner]) => owner === h).forEach(([name], n) => {
      const bar = { name, x: x + HOST_PAD, width: hostWidth - 2 * HOST_PAD, y: y + 30 + deep * (PITCH + 4) + n * 34, row };
      bars.push(bar);
      at.set(name, bar);
    });
  });
  const rows = Math.ceil(hosts.length / perRow), span = Math.min(hosts.length, perRow) * (hostWidth + 12) - 12;
  for (const [n, name] of network.entries()) {
    const own = Array.from({ length: rows }, (_, row) => ({ name, x: 2, width: span, y: row * (hostHeight + barsHeight + 14) + 6 + n * 26, row }));
    bars.push(...own);
    at.set(name, { rows: own });
  }
  return { at, boxes, bars, width: Math.max(span + 4, 200), height: rows * (hostHeight + barsHeight + 14) };
}

function shortName(name) { return name.length > 26 ? `${name.slice(0, 25)}…` : name; }

function lineBetween(plan, ends, k) {
  let [a, b] = ends.map(end => plan.at.get(end));
  const row = a.row ?? b.row ?? 0;
  if (a.rows) a = a.rows[Math.min(row, a.rows.length - 1)];
  if (b.rows) b = b.rows[Math.min(row, b.rows.length - 1)];
  const isBar = place => place.width !== undefined;
  if (!isBar(a) && !isBar(b)) {  // from device to device: a bow
    const lift = Math.min(Math.abs(a.x - b.x) * 0.22 + Math.abs(a.y - b.y) * 0.1 + 12, 90);
    return `M${a.x} ${a.y}Q${(a.x + b.x) / 2} ${(a.y + b.y) / 2 + lift} ${b.x} ${b.y}`;
  }
  if (isBar(a) && isBar(b)) {
    const x = Math.min(a.x + a.width, b.x + b.width) - 14 - (k % 7) * 5;
    return `M${x} ${a.y + 6}L${x} ${b.y + 6}`;
  }
  const [device, bar] = isBar(a) ? [b, a] : [a, b];
  const x = Math.min(Math.max(device.x, bar.x + 3), bar.x + bar.width - 3);
  return `M${device.x} ${device.y}L${x} ${bar.y < device.y ? bar.y + 13 : bar.y}`;
}

function renderMachine() {
  const step = shownStep(), pairs = connections(step), element = byId("machine-picture");
  const plan = layOut(Math.max(element.clientWidth || 900, 320), pairs), most = Math.max(...pairs.map(pair => pair.bytes), 1);
  const shown = pairs.slice(0, MOST_LINES);
  const lines = shown.map((pair, k) => {
    const share = pair.bytes / most, stroke = !pair.bytes ? "var(--line)" : pair.isBetween ? "var(--backward)" : "var(--forward)";
    const name = `${pair.ends[0]} – ${pair.ends[1]}: ${bytes(pair.bytes)}, full for ${percent(Math.min(pair.share, 1))} of the step at ${bytes(pair.bandwidth)}/s`;
    return draw("path", { class: "link", d: lineBetween(plan, pair.ends, k), stroke, "stroke-width": (0.8 + 5.2 * Math.sqrt(share)).toFixed(2), "stroke-opacity": pair.bytes ? (0.3 + 0.6 * share).toFixed(2) : 0.6 },
      draw("title", {}, name));
  });
  const boxes = plan.boxes.map(box => draw("g", {},
    draw("rect", { x: box.x, y: box.y, width: box.width, height: box.height, rx: 7, fill: "var(--ground)", stroke: "var(--line)" }),
    draw("text", { x: box.x + HOST_PAD, y: box.y + 13, class: "faint" }, `host ${box.host}`)));
  const bars = plan.bars.map(bar => draw("g", {},
    draw("rect", { x: bar.x, y: bar.y, width: bar.width, height: 13, rx: 4, fill: "var(--idle)", stroke: "var(--line)" }),
    draw("text", { x: bar.x + 6, y: bar.y + 10.5, style: "font-size:10px" }, shortName(String(bar.name)))));
  const devices = DATA.machine.host.map((_, device) => {
    const { x, y } = plan.at.get(device), share = shareOf(step, device);
    return draw("g", {}, draw("rect", { x: x - BOX / 2, y: y - BOX / 2, width: BOX, height: BOX, rx: 5, fill: "var(--panel)", stroke: "var(--line)" }),
      draw("rect", { x: x - BOX / 2, y: y + BOX / 2 - BOX * share.compute, width: BOX, height: BOX * share.compute, rx: 3, fill: "var(--update)", "fill-opacity": 0.45 }),
      draw("text", { x, y: y + 4, "text-anchor": "middle", style: "font-size:10px" }, String(device)),
      draw("title", {}, `device ${device}: computes ${percent(share.compute)} of the step, arena ${memory(step.peak_bytes[device])}`));
  });
  const words = `${DATA.machine.name}: ${step.links.classes.map(c => `${c.name} ${bytes(c.bytes)}`).join(", ")}`;
  element.replaceChildren(
    make("div", { class: "row controls" }, key("forward", "links within hosts"), key("backward", "links between hosts"), key("update", "share of the step that a device computes"),
      pairs.length > shown.length ? make("span", { class: "hint" }, `the ${shown.length} busiest of ${pairs.length} connections`) : null),
    draw("svg", { width: plan.width, height: plan.height, viewBox: `0 0 ${plan.width} ${plan.height}`, role: "img", "aria-label": `Bytes on the links of ${words}` }, boxes, bars, lines, devices));
  renderLinkTable(step);
}

function renderLinkTable(step) {
  const compared = comparedStep(), other = compared && compared !== step ? compared : null;
  const columns = [
    { name: "class of link", of: row => row.name },
    { name: "bandwidth", of: row => `${bytes(row.bandwidth)}/s`, isNumber: true },
    { name: "links", of: row => row.links, isNumber: true },
    { name: "bytes", of: row => bytes(row.bytes), isNumber: true },
    { name: "busiest link", of: row => bytes(row.busiest_bytes), isNumber: true },
    { name: "it is full for", of: row => `${percent(Math.min(row.busiest_share, 1))} of the step`, isNumber: true },
  ];
  if (other) columns.push({ name: `bytes, ${other.name}`, of: (row => bytes(other.links.classes[step.links.classes.indexOf(row)].bytes)), isNumber: true });
  const crossing = Object.entries(step.class_bytes).map(([name, size]) => `${bytes(size)} ${name}`).join(", ");
  byId("links-table").replaceChildren(table(`Between devices go ${crossing}; a transfer counts on every link of its way.`, columns, step.links.classes));
}

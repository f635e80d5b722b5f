// What else there is: baselines and what none of them beats, the course of a search, and other machines.

function renderPlans() {
  const { plans } = DATA.choices, fitting = plans.filter(plan => plan.seconds), most = Math.max(...fitting.map(plan => plan.seconds), 1e-12);
  const own = STEPS[0].name, mark = plan => plan.name === own ? "this plan" : plan.is_best ? "best of its kind" : "";
  byId("plans-table").replaceChildren(table("Predicted; a plan is best of its kind if no other is better in time, bytes and memory at once.", [
    { name: "plan", of: plan => plan.name },
    { name: "", of: plan => plan.seconds ? make("span", { class: "bar", style: `width:${Math.max(plan.seconds / most * 160, 1)}px` }) : "" },
    { name: "a step", of: plan => plan.seconds ? seconds(plan.seconds) : "does not fit", by: plan => plan.seconds || Infinity, isNumber: true },
    { name: "moved", of: plan => plan.bytes_moved === undefined ? "" : bytes(plan.bytes_moved), by: plan => plan.bytes_moved ?? -1, isNumber: true },
    { name: "memory, fullest device", of: plan => plan.peak_bytes === undefined ? "" : memory(plan.peak_bytes), by: plan => plan.peak_bytes ?? -1, isNumber: true },
    { name: "", of: mark },
  ], plans.toSorted((a, b) => compare(a.seconds || Infinity, b.seconds || Infinity)), { row: plan => ({ class: plan.name === own ? "selected" : null }) }));
  renderPareto(fitting.filter(plan => plan.bytes_moved !== undefined), own);
  renderSearch();
}

// Seconds over bytes moved, a point for each plan.
function renderPareto(plans, own) {
  const element = byId("pareto"), rows = plans.toSorted((a, b) => a.bytes_moved - b.bytes_moved);
  forget(element);
  element.append(make("h3", {}, "Time and traffic of plans"));
  const only = choose => rows.map(plan => choose(plan) ? plan.seconds : null);
  const points = (label, name, size, isFull) => ({ label, stroke: colour(name), paths: () => null, value: (u, v) => v ? seconds(v) : "",
    points: { show: true, size, fill: isFull ? colour(name) : colour("panel"), stroke: colour(name), width: 1.8 } });
  const plot = chart(element, `Seconds and bytes moved of ${rows.length} plans`, {
    height: 280,
    scales: { x: { time: false, range: (u, low, high) => [-(high * 0.03), high * 1.05 || 1] }, y: { distr: 3, range: (u, low, high) => [low * 0.8, high * 1.3] } },
    axes: [axis((u, splits) => splits.map(v => v < 0 ? "" : bytes(v)), { label: "bytes moved", labelSize: 16, labelFont: "11px system-ui" }),
      axis((u, splits) => splits.map(v => v === null ? "" : seconds(v)), { size: 66 })],
    series: [{ label: "moved", value: (u, v) => v === null || v === undefined ? "" : bytes(v) }, points("others", "faint", 7, false), points("best of their kind", "update", 9, true), points(own, "critical", 12, true)],
    cursor: { drag: { x: false, y: false } },
  }, [rows.map(plan => plan.bytes_moved), only(p => !p.is_best && p.name !== own), only(p => p.is_best && p.name !== own), only(p => p.name === own)]);
  plot.over.addEventListener("mousemove", event => {
    const plan = rows[plot.cursor.idx];
    if (plan) showTip(`${plan.name}\n${seconds(plan.seconds)} a step, ${bytes(plan.bytes_moved)} moved, ${memory(plan.peak_bytes)}`, event.clientX, event.clientY);
  });
  plot.over.addEventListener("mouseleave", hideTip);
}

function renderSearch() {
  const element = byId("search-course"), { search } = DATA.choices;
  forget(element);
  element.append(make("h3", {}, "Search"));
  if (!search) { element.append(make("p", { class: "hint" }, "The plan was given, not searched: `taskflow report --search N` searches, and shows here how it went.")); return; }
  element.append(make("p", {}, search.text));
  if (!search.history.length) return;
  const x = search.history.map(([k]) => k), y = search.history.map(([, s]) => s);
  if (x[x.length - 1] < search.proposals) { x.push(search.proposals); y.push(y[y.length - 1]); }
  const level = value => x.map(() => value || null), value = (u, v) => v ? seconds(v) : "";
  chart(element, `Seconds of the best plan over ${search.proposals} proposals`, {
    height: 240,
    scales: { x: { time: false }, y: { range: (u, low, high) => [low - (high - low) * 0.1 || low * 0.9, high + (high - low) * 0.1 || high * 1.1] } },
    axes: [axis((u, splits) => splits.map(v => String(v))), axis((u, splits) => splits.map(v => seconds(v)), { size: 66 })],
    series: [{ label: "proposal" },
      { label: "best", stroke: colour("accent"), width: 2, paths: uPlot.paths.stepped({ align: 1 }), value },
      { label: `best start (${search.best_start})`, stroke: colour("communication"), dash: [6, 4], points: { show: false }, value },
      { label: "lower bound", stroke: colour("update"), dash: [2, 3], points: { show: false }, value }],
  }, [x, y, level(search.best_start_seconds), level(search.lower_bound_seconds)]);
}

// -- what if ------------------------------------------------------------------------------------------------------------------

const asked = { network: 1, flops: 1 };

function secondsAt(plan, network, flops) {
  const point = plan.points.find(([n, f]) => n === network && f === flops);
  return point ? point[2] : undefined;
}

function slider(name, label, factors) {
  const place = factors.indexOf(asked[name]), output = make("output", { for: `what-if-${name}` }, `${asked[name]} ×`);
  const move = event => { asked[name] = factors[+event.target.value]; output.textContent = `${asked[name]} ×`; event.target.setAttribute("aria-valuetext", `${asked[name]} times`); showWhatIf(); };
  return make("p", {}, make("label", { for: `what-if-${name}` }, label, " "), make("b", {}, output),
    make("input", { id: `what-if-${name}`, type: "range", min: 0, max: factors.length - 1, step: 1, value: place, "aria-valuetext": `${asked[name]} times`, oninput: move, disabled: factors.length < 2 }));
}

function renderWhatIf() {
  const found = DATA.what_if, controls = byId("what-if-controls");
  if (!found) { controls.replaceChildren(make("p", { class: "hint" }, "Other machines were not simulated for this report.")); return; }
  const links = found.of_network === "links" ? "Links within hosts" : "Network between hosts";
  const rates = Object.entries(found.sensitivities).toSorted((a, b) => Math.abs(b[1]) - Math.abs(a[1])), most = Math.max(...rates.map(([, x]) => Math.abs(x)), 0.01);
  controls.replaceChildren(
    found.of_network ? slider("network", `${links}, bandwidth`, found.network) : "", slider("flops", "Devices, flop/s", found.flops),
    make("div", { id: "what-if-answer", role: "status", "aria-live": "polite" }),
    table("How much longer a step takes, in %, for 1 % more of each rate", [
      { name: "rate", of: ([name]) => name.replaceAll("_", " ") },
      { name: "", of: ([, x]) => make("span", { class: "bar", style: `width:${Math.abs(x) / most * 140}px;background:var(--${x < 0 ? "good" : "bad"})` }) },
      { name: "%", of: ([, x]) => x.toFixed(2), isNumber: true },
    ], rates),
    table(`How much longer a step takes, in %, where one device is ${found.slower} × as slow; devices that do the same are one`, [
      { name: "device", of: x => x.device, isNumber: true },
      { name: "%", of: x => (100 * x.longer).toFixed(2), isNumber: true },
      { name: "at least, by the critical path", of: x => (100 * x.by_path).toFixed(2), isNumber: true },
    ], found.stragglers));
  renderWhatIfChart(found);
  showWhatIf();
}

function renderWhatIfChart(found) {
  const element = byId("what-if-chart");
  forget(element);
  if (!found.of_network) return;
  const hues = ["accent", "critical", "update", "communication", "backward"];
  const lines = [...found.flops.map(f => [found.plans[0], f]), ...found.plans.slice(1).map(plan => [plan, 1])];
  const line = ([plan, f], k) => ({ label: `${plan.name}${f === 1 ? "" : `, flop/s × ${f}`}`, stroke: colour(hues[k % hues.length]), width: 2,
    dash: plan === found.plans[0] ? undefined : [6, 4], value: (u, v) => v ? seconds(v) : "", points: { show: true, size: 6 } });
  const plot = chart(element, "Seconds of a step over the bandwidth of the network", {
    height: 330,
    scales: { x: { time: false, distr: 3, log: 2, range: (u, low, high) => [low * 0.85, high * 1.15] }, y: { range: (u, low, high) => [0, high * 1.08] } },
    axes: [axis((u, splits) => splits.map(v => v === null ? "" : `${v} ×`), { splits: () => found.network, filter: (u, splits) => splits, label: "bandwidth of the network", labelSize: 16, labelFont: "11px system-ui" }),
      axis((u, splits) => splits.map(v => seconds(v)), { size: 66 })],
    series: [{ label: "network", value: (u, v) => v ? `${v} ×` : "" }, ...lines.map(line)],
    cursor: { drag: { x: false, y: false } },
    hooks: { draw: [u => { const s = secondsAt(found.plans[0], asked.network, asked.flops); if (s) ring(u, asked.network, s); }] },
  }, [found.network, ...lines.map(([plan, f]) => found.network.map(n => secondsAt(plan, n, f) ?? null))]);
  renderWhatIfChart.plot = plot;
}

function ring(u, x, y) {
  const { ctx } = u, ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = colour("ink"); ctx.lineWidth = 2 * ratio;
  ctx.beginPath(); ctx.arc(u.valToPos(x, "x", true), u.valToPos(y, "y", true), 8 * ratio, 0, 7); ctx.stroke();
  ctx.restore();
}

function showWhatIf() {
  const found = DATA.what_if, base = secondsAt(found.plans[0], 1, 1), now = secondsAt(found.plans[0], asked.network, asked.flops);
  const answer = byId("what-if-answer");
  if (!now) { answer.replaceChildren(make("span", { class: "bad" }, "does not fit into memory")); return; }
  const others = found.plans.slice(1).flatMap(plan => {
    const s = asked.flops === 1 ? secondsAt(plan, asked.network, 1) : undefined;
    return s ? [make("div", {}, `${plan.name}: ${seconds(s)} (this plan is ${digits(s / now)} × as fast)`)] : [];
  });
  answer.replaceChildren(make("span", { class: "big" }, seconds(now)), ` a step, `, make("b", { class: now <= base ? "good" : "bad" }, change(base, now)), ...others);
  if (renderWhatIfChart.plot) renderWhatIfChart.plot.redraw(false, false);
}

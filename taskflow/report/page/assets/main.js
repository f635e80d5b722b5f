// The page: head, key figures, sections, theme; everything is drawn once, and anew where step, theme or width change.

const SECTIONS = [["timeline", "Timeline"], ["memory", "Memory"], ["devices", "Devices"], ["links", "Links"], ["strategy", "Strategy"], ["plans", "Plans"], ["what-if", "What if"]];

function renderHead() {
  byId("title").textContent = DATA.title;
  const { machine } = DATA, hosts = new Set(machine.host).size;
  byId("subtitle").textContent = [`machine ${machine.name}: ${machine.host.length} × ${machine.kind} on ${hosts} host${hosts > 1 ? "s" : ""}`, `plan: ${STEPS[0].name}`, DATA.plan].filter(Boolean).join(" · ");
  document.querySelector("nav").replaceChildren(make("ul", {}, SECTIONS.map(([id, name]) => make("li", {}, make("a", { href: `#${id}` }, name)))));
  const names = STEPS.map((step, k) => make("option", { value: k }, `${step.name} (${step.role === "measured" ? "measured" : "predicted"})`));
  byId("step").replaceChildren(...names);
  byId("beside").replaceChildren(make("option", { value: -1 }, "nothing"), ...names.map(name => name.cloneNode(true)));
  byId("step").onchange = event => { page.step = +event.target.value; page.task = -1; emit("step"); };
  byId("beside").onchange = event => { page.beside = +event.target.value; emit("step"); };
  if (DATA.diagram) { byId("diagram-details").hidden = false; byId("diagram").textContent = DATA.diagram; }
}

function renderSummary() {
  const step = shownStep(), compared = comparedStep(), measured = STEPS.find(each => each.role === "measured"), count = step.peak_bytes.length;
  const mean = step.usage.compute_seconds.reduce((a, b) => a + b, 0) / count / step.seconds;
  const cards = [[seconds(step.seconds), step.role === "measured" ? "a step, measured" : "a step, predicted"]];
  if (measured) cards.push([`${digits(measured.seconds / STEPS[0].seconds)} ×`, "measured over predicted"]);
  if (compared) cards.push([`${digits(compared.seconds / step.seconds)} ×`, `as fast as ${compared.name}`]);
  cards.push([percent(mean), "of the step a device computes, on average"], [percent((step.path_seconds.communication || 0) / step.seconds), "of the critical path is communication"],
    [bytes(step.bytes_moved), "moved between devices"], [memory(Math.max(...step.peak_bytes)), "memory of the fullest device"]);
  byId("summary").replaceChildren(...cards.map(([value, name]) => make("div", { class: "card" }, make("b", {}, value), make("span", {}, name))));
}

function renderStep() {
  byId("step").value = page.step;
  byId("beside").value = page.beside;
  renderSummary();
  renderTimeline();
  renderSelected();
  renderMemory();
  renderDevices();
  renderMachine();
}

function renderAll() {
  renderControls();
  renderStep();
  renderModel();
  renderOperators();
  renderPlans();
  renderWhatIf();
  emit("select");
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = name === "dark" ? "Light" : "Dark";
}

byId("theme").addEventListener("click", () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  renderAll();
});

// Where the reader is, in the navigation.
const watcher = new IntersectionObserver(entries => {
  for (const entry of entries.filter(each => each.isIntersecting)) {
    for (const link of document.querySelectorAll("nav a")) {
      if (link.hash === `#${entry.target.id}`) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }
  }
}, { rootMargin: "-20% 0px -70% 0px" });

on("step", renderStep);
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const measuredAt = STEPS.findIndex(step => step.role === "measured");
if (measuredAt > 0) page.beside = measuredAt;
renderHead();
renderAll();
for (const [id] of SECTIONS) watcher.observe(byId(id));
document.documentElement.dataset.ready = "true";

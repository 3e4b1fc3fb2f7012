// The page as a whole: read the data, show the run, and keep list, branches and text together.

let run = null; // what `page_data` of the Python side returned
let view = null;

class View {
  constructor() {
    this.trees = run.rollouts.flatMap((rollout) => rollout.trees.map((summary) => ({ rollout, summary })));
    const seen = new Map();
    this.trees.forEach((tree, place) => {
      tree.place = place;
      const key = `${run.rollouts.indexOf(tree.rollout)}:${tree.rollout.nodes[tree.summary.root].row}`;
      tree.copy = seen.get(key) ?? 0; // a row may be played several times
      seen.set(key, tree.copy + 1);
    });
    this.list = new RolloutList(this.trees, (tree, options) => this.open(tree, options));
    this.branches = new BranchTree(byId("tree"), (node, joint, options) => this.select(node, joint, options));
    this.reading = new Reading(byId("reading"), this);
    this.list.onQuery = () => this.searched();
  }

  start() {
    if (!this.trees.length) {
      byId("loading").textContent = "No rollouts were saved yet.";
      return;
    }
    byId("loading").hidden = true;
    byId("browser").hidden = false;
    this.list.show();
    this.open(this.trees[0]);
  }

  open(tree, { focusList = false, focus = false } = {}) {
    this.tree = tree;
    this.list.select(tree, { focus: focusList || focus });
    this.branches.open(tree, this.list.found);
    this.select(...this.firstOf(tree));
  }

  // Where reading begins: at the first joint action that has what is searched for, or at the first.
  firstOf(tree) {
    const { found } = this.list;
    const wait = found ? [tree.summary.root] : [];
    while (wait.length) {
      const index = wait.shift();
      const node = tree.rollout.nodes[index];
      const joint = node.joint.findIndex((_, i) => jointTexts(node, i).some((place) => found.has(place)));
      if (joint >= 0) return [index, joint];
      wait.push(...node.next.filter((next) => next >= 0));
    }
    return [tree.summary.root, 0];
  }

  select(node, joint, options = {}) {
    this.at = [node, joint];
    this.branches.show(node, joint, options);
    this.reading.show(this.tree, node, joint);
  }

  step(direction) {
    if (this.tree) this.branches.step(direction);
  }

  searched() {
    const next = this.list.shown.includes(this.tree) ? this.tree : this.list.shown[0];
    if (next) this.open(next);
  }

  focusTree() {
    this.branches.current?.focus();
  }

  nextAxis() {
    const inputs = [...document.querySelectorAll("#axis input:not(:disabled)")];
    const at = inputs.findIndex((input) => input.checked);
    if (inputs.length > 1) inputs[(at + 1) % inputs.length].click();
  }

  nextTheme() {
    const order = ["system", "light", "dark"];
    const next = order[(order.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % 3];
    kept("theme", next);
    applyTheme(next);
  }

  openHelp() {
    if (!byId("help").open) byId("help").showModal();
  }
}

function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
}

// A time as a reader's clock has it; what is no time stays as it is.
function readableTime(text) {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return text;
  return time.toLocaleString("en", { dateStyle: "long", timeStyle: "short" });
}

function showRun() {
  const facts = new Map(run.facts);
  const task = facts.get("Task") ?? run.name;
  document.title = `${task} – Motet`;
  byId("run-title").replaceChildren();
  addText(byId("run-title"), task);
  const when = run.written ? readableTime(run.written) : null;
  const seconds = run.metrics.columns["time/elapsed_seconds"]?.findLast((value) => value !== null);
  const parts = [
    run.name !== task ? run.name : null,
    when ? `last written ${when}` : null,
    seconds ? `after ${duration(seconds)}` : null,
  ];
  addText(byId("run-when"), parts.filter(Boolean).join(" · "));
  for (const [name, value] of facts) {
    if (name === "Task") continue;
    const told = make("dd", {});
    addText(told, name === "Started" ? readableTime(value) : value);
    byId("facts").append(make("div", {}, make("dt", {}, name), told));
  }
  if (run.notices.length) {
    byId("notices").append(make("ul", { class: "notices" }, run.notices.map((notice) => {
      const item = make("li", {});
      addText(item, notice);
      return item;
    })));
  }
  if (run.settings) {
    byId("settings").hidden = false;
    addText(byId("settings").querySelector("pre"), run.settings);
  }
}

function showCurves() {
  const { metrics } = run;
  const { groups, names } = presets(metrics);
  if (!names.length) return;
  byId("curves").hidden = false;
  const choices = [...Object.keys(groups).map((name) => `group:${name}`), ...names.map((name) => `one:${name}`)];
  const charts = choices.slice(0, 2).map((choice) => new Chart(metrics, choice));
  byId("charts").append(...charts.map((chart) => chart.element));
  for (const input of document.querySelectorAll("#axis input")) input.disabled = !hasAxis(metrics, input.value);
  const smooth = byId("smooth");
  smooth.checked = metrics.step.length >= 60;
  const update = () => {
    const axis = document.querySelector("#axis input:checked").value;
    for (const chart of charts) chart.update(axis, smooth.checked);
  };
  byId("axis").addEventListener("change", update);
  smooth.addEventListener("change", update);
  update();
}

async function main() {
  applyTheme(kept("theme") ?? "system");
  const data = byId("data");
  run = await unpack(data.textContent);
  data.remove();
  showRun();
  view = new View();
  byId("theme").addEventListener("click", () => view.nextTheme());
  byId("help-open").addEventListener("click", () => view.openHelp());
  listenToKeys(view);
  showCurves();
  view.start();
  document.documentElement.dataset.ready = "true";
}

main().catch((error) => {
  byId("loading").hidden = false;
  byId("loading").textContent = `This page could not be read: ${error.message}`;
  throw error;
});

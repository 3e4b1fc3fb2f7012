// The list of all trees: search, filter, sort, and open one.

const PAGE_OF_LIST = 200;

class RolloutList {
  constructor(trees, open) {
    this.trees = trees;
    this.shown = [];
    this.open = open;
    this.query = "";
    this.kind = "all";
    this.sort = "number";
    this.descending = false;
    this.current = null;
    this.list = byId("list");
    this.more = make("button", { type: "button", class: "more", hidden: true, click: () => this.grow() });
    this.list.after(this.more);
    this.low = trees.reduce((least, tree) => Math.min(least, tree.summary.low ?? 0), 0);
    this.high = trees.reduce((most, tree) => Math.max(most, tree.summary.high ?? 0), 0);
    this.listen();
  }

  listen() {
    let timer = 0;
    byId("search").addEventListener("input", (event) => {
      clearTimeout(timer);
      timer = setTimeout(() => this.set({ query: event.target.value.trim() }), 120);
    });
    byId("kind").addEventListener("change", (event) => this.set({ kind: event.target.value }));
    byId("sort").addEventListener("change", (event) => {
      const sort = event.target.value;
      this.set({ sort, descending: sort !== "number" }); // the best first, and the earliest
    });
    byId("direction").addEventListener("click", () => this.set({ descending: !this.descending }));
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    this.list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.open(this.trees[Number(option.dataset.place)], { focus: true });
    });
  }

  set(changes) {
    Object.assign(this, changes);
    const direction = byId("direction");
    direction.textContent = this.descending ? "descending" : "ascending";
    direction.setAttribute("aria-pressed", String(this.descending));
    if ("query" in changes) searchHits.begin(this.query);
    this.show();
    if ("query" in changes) this.onQuery?.();
  }

  // Places of the texts that hold what is searched for; null where nothing is.
  hits() {
    if (!this.query) return null;
    const query = this.query.toLowerCase();
    run.lowered ??= run.texts.map((text) => text.toLowerCase());
    const found = new Set();
    run.lowered.forEach((text, place) => text.includes(query) && found.add(place));
    return found;
  }

  show() {
    this.found = this.hits();
    const key = (tree) => (this.sort === "number" ? tree.place : tree.summary[this.sort] ?? -Infinity);
    this.shown = this.trees.filter(
      (tree) =>
        (this.kind === "all" || tree.rollout.kind === this.kind) &&
        (!this.found || treeTexts(tree).some((place) => this.found.has(place))),
    );
    const sign = this.descending ? -1 : 1;
    this.shown.sort((a, b) => sign * (key(a) - key(b)) || a.place - b.place);
    this.list.replaceChildren();
    this.grow();
    const all = this.shown.length === this.trees.length;
    byId("count").textContent = all
      ? plural(this.trees.length, "tree")
      : `${this.shown.length.toLocaleString("en")} of ${plural(this.trees.length, "tree")}`;
  }

  grow() {
    const from = this.list.childElementCount;
    const part = this.shown.slice(from, from + PAGE_OF_LIST);
    this.list.append(...part.map((tree, i) => this.option(tree, from + i)));
    const left = this.shown.length - from - part.length;
    this.more.hidden = left === 0;
    this.more.textContent = `Show ${Math.min(left, PAGE_OF_LIST)} more of ${left.toLocaleString("en")}`;
    this.mark();
  }

  option(tree, index) {
    const { summary } = tree;
    const first = tree.rollout.nodes[summary.root];
    const bar = make("span", { class: "range", "aria-hidden": "true" }, make("span", { class: "reach" }), make("span", { class: "middle" }));
    const place = (value) => `${(100 * ((value ?? 0) - this.low)) / (this.high - this.low || 1)}%`;
    bar.style.setProperty("--low", place(summary.low));
    bar.style.setProperty("--high", place(summary.high));
    bar.style.setProperty("--mean", place(summary.reward));
    return make("div", {
      role: "option",
      class: "option",
      "data-place": tree.place,
      "aria-selected": "false",
      "aria-posinset": index + 1,
      "aria-setsize": this.shown.length,
      tabindex: "-1",
    },
    make("span", { class: "option-name" }, treeName(tree)),
    make("span", { class: "number option-reward" }, fixed(summary.reward)),
    make("span", { class: "option-text muted small" }, excerpt(run.texts[first?.prompts[0]] ?? "", 90)),
    bar,
    make("span", { class: "option-more muted small number" },
      `spread ${fixed(summary.spread)} · length ${Math.round(summary.length)} · ${plural(summary.actions, "joint action")}`));
  }

  mark() {
    let focusable = null;
    for (const option of this.list.children) {
      const isCurrent = Number(option.dataset.place) === this.current?.place;
      option.setAttribute("aria-selected", String(isCurrent));
      option.tabIndex = -1;
      if (isCurrent) focusable = option;
    }
    focusable ??= this.list.firstElementChild;
    if (focusable) focusable.tabIndex = 0;
    return focusable;
  }

  select(tree, { focus = false } = {}) {
    this.current = tree;
    const index = this.shown.indexOf(tree);
    while (index >= this.list.childElementCount) this.grow();
    const option = this.mark();
    if (index >= 0 && option) {
      reveal(this.list.parentElement, option);
      if (focus) option.focus({ preventScroll: true });
    }
  }

  move(step, options = {}) {
    const now = this.shown.indexOf(this.current);
    const to = Math.min(this.shown.length - 1, Math.max(0, now < 0 ? 0 : now + step));
    if (this.shown[to]) this.open(this.shown[to], options);
  }

  onKey(event) {
    const last = this.shown.length - 1;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -last, End: last };
    if (event.key in steps) this.move(steps[event.key], { focusList: true });
    else if (event.key === "Enter" || event.key === " ") view.focusTree();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

function treeName(tree) {
  const { kind, number, nodes } = tree.rollout;
  const name = kind === "training" ? `Rollout ${number}` : number ? `Evaluation after ${number}` : "Evaluation at the start";
  const row = nodes[tree.summary.root]?.row;
  return row === undefined ? name : `${name}, row ${row}${tree.copy ? ` (${tree.copy + 1})` : ""}`;
}

// Places of all texts of a tree, each once.
function treeTexts(tree) {
  if (!tree.texts) {
    const places = new Set();
    const visit = [tree.summary.root];
    while (visit.length) {
      const node = tree.rollout.nodes[visit.pop()];
      nodeTexts(node).forEach((place) => places.add(place));
      visit.push(...node.next.filter((next) => next >= 0));
    }
    tree.texts = [...places];
  }
  return tree.texts;
}

function nodeTexts(node) {
  const drafts = Object.values(node.drafts ?? {}).flat();
  const places = [...node.prompts, ...[...node.said.flat(), ...drafts].map((one) => one.text)];
  return node.state === undefined ? places : [...places, node.state];
}

// Scroll a container, and nothing around it, until one of its elements is seen.
function reveal(container, element) {
  const box = container.getBoundingClientRect();
  const own = element.getBoundingClientRect();
  if (own.top < box.top) container.scrollTop -= box.top - own.top + 4;
  else if (own.bottom > box.bottom) container.scrollTop += own.bottom - box.bottom + 4;
}

// The branches of one tree: every joint action an item, and what it led to below it.

const PAGE_OF_BRANCHES = 64;
const UNFOLD_LIMIT = 1500; // items; more are opened one by one

const FATES = [
  { mark: "", word: "goes on" },
  { mark: "■", word: "ended at the last turn" },
  { mark: "■", word: "ended" },
  { mark: "◆", word: "ended early" },
  { mark: "◆", word: "ended early" },
  { mark: "×", word: "not followed" },
  { mark: "?", word: "its next turn is missing" },
];

class BranchTree {
  constructor(host, select) {
    this.host = host;
    this.select = select;
    host.addEventListener("keydown", (event) => this.onKey(event));
    host.addEventListener("click", (event) => this.onClick(event));
    byId("unfold").addEventListener("click", () => this.unfoldAll());
    byId("fold").addEventListener("click", () => this.foldAll());
  }

  open(tree, found) {
    this.tree = tree;
    this.found = found;
    this.nodes = tree.rollout.nodes;
    this.items = new Map();
    this.hitNodes = found ? nodesWithHits(this.nodes, found) : new Set();
    const { low, high } = tree.summary;
    this.low = Math.min(0, low ?? 0);
    this.high = Math.max(0, high ?? 0);
    this.root = make("ul", { role: "tree", "aria-label": `Branches of ${treeName(tree)}` });
    this.host.replaceChildren(this.root);
    this.fill(this.root, tree.summary.root, 1);
  }

  fill(list, nodeIndex, level) {
    const node = this.nodes[nodeIndex];
    list.append(make("li", { role: "none", "aria-hidden": "true", class: "turn-name small muted" }, `turn ${node.turn}`));
    list.dataset.node = nodeIndex;
    this.growGroup(list, level);
  }

  growGroup(list, level, until = 0) {
    const nodeIndex = Number(list.dataset.node);
    const node = this.nodes[nodeIndex];
    list.querySelector(":scope > .more-branches")?.remove();
    const from = list.querySelectorAll(":scope > .branch").length;
    const to = Math.min(node.joint.length, Math.max(from + PAGE_OF_BRANCHES, until));
    for (let joint = from; joint < to; joint += 1) list.append(this.item(nodeIndex, joint, level));
    const left = node.joint.length - to;
    if (left > 0) {
      list.append(make("li", { role: "treeitem", class: "more-branches small", tabindex: "-1", "aria-level": level },
        `${plural(left, "more joint action")}`));
    }
  }

  item(nodeIndex, joint, level) {
    const node = this.nodes[nodeIndex];
    const fate = FATES[node.end[joint]];
    const goesOn = node.next[joint] >= 0;
    const reward = teamValue(node.paid, joint);
    const name = jointName(node, joint);
    const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("span", {}));
    const width = this.high - this.low || 1;
    bar.style.setProperty("--from", `${(100 * (Math.min(0, reward) - this.low)) / width}%`);
    bar.style.setProperty("--width", `${(100 * Math.abs(reward)) / width}%`);
    const isHit = this.found && jointTexts(node, joint).some((place) => this.found.has(place));
    const below = this.hitNodes.has(node.next[joint]);
    const element = make("li", {
      role: "treeitem",
      class: `branch${isHit ? " is-hit" : ""}${below ? " has-hit-below" : ""}`,
      "data-node": nodeIndex,
      "data-joint": joint,
      "aria-level": level,
      "aria-posinset": joint + 1,
      "aria-setsize": node.joint.length,
      "aria-selected": "false",
      "aria-expanded": goesOn ? "false" : null,
      "aria-label": `turn ${node.turn}, completions ${name}, reward ${shown(reward)}, ${fate.word}${isHit ? ", has what was searched for" : ""}${below ? ", leads to what was searched for" : ""}`,
      tabindex: "-1",
    },
    make("div", { class: "branch-row" },
      make("span", { class: "twist", "aria-hidden": "true" }, goesOn ? "▸" : ""),
      make("span", { class: "branch-name number" }, name),
      bar,
      make("span", { class: "number branch-reward" }, fixed(reward)),
      make("span", { class: "fate muted", title: fate.word, "aria-hidden": "true" }, fate.mark)));
    this.items.set(`${nodeIndex}:${joint}`, element);
    return element;
  }

  unfold(item) {
    if (item.getAttribute("aria-expanded") !== "false") return;
    item.setAttribute("aria-expanded", "true");
    if (!item.querySelector(":scope > ul")) {
      const list = make("ul", { role: "group" });
      item.append(list);
      const { node, joint } = item.dataset;
      this.fill(list, this.nodes[Number(node)].next[Number(joint)], Number(item.getAttribute("aria-level")) + 1);
    }
  }

  foldItem(item) {
    if (item.getAttribute("aria-expanded") === "true") item.setAttribute("aria-expanded", "false");
  }

  unfoldAll() {
    const wait = [...this.root.querySelectorAll(":scope > .branch")];
    let count = wait.length;
    for (let item = wait.shift(); item && count < UNFOLD_LIMIT; item = wait.shift()) {
      this.unfold(item);
      const below = [...item.querySelectorAll(":scope > ul > .branch")];
      count += below.length;
      wait.push(...below);
    }
  }

  foldAll() {
    for (const item of this.root.querySelectorAll(".branch")) this.foldItem(item);
    if (this.current?.offsetParent === null) this.selectItem(this.visible()[0]);
  }

  // Mark a joint action, with all that it is below unfolded.
  show(nodeIndex, joint, { focus = false } = {}) {
    for (const [parent, choice] of pathTo(this.tree.rollout, nodeIndex)) this.unfold(this.itemOf(parent, choice));
    const item = this.itemOf(nodeIndex, joint);
    for (const old of this.root.querySelectorAll('[aria-selected="true"]')) old.setAttribute("aria-selected", "false");
    for (const old of this.root.querySelectorAll('[tabindex="0"]')) old.tabIndex = -1;
    item.setAttribute("aria-selected", "true");
    item.tabIndex = 0;
    this.current = item;
    reveal(this.host, item.querySelector(".branch-row"));
    if (focus) item.focus({ preventScroll: true });
  }

  itemOf(nodeIndex, joint) {
    const key = `${nodeIndex}:${joint}`;
    if (!this.items.has(key)) {
      const list = this.root.matches(`[data-node="${nodeIndex}"]`) ? this.root : this.root.querySelector(`ul[data-node="${nodeIndex}"]`);
      this.growGroup(list, Number(list.querySelector(".branch").getAttribute("aria-level")), joint + 1);
    }
    return this.items.get(key);
  }

  visible() {
    return [...this.root.querySelectorAll('[role="treeitem"]')].filter((item) => item.offsetParent !== null);
  }

  selectItem(item, options = {}) {
    if (!item) return;
    if (item.classList.contains("more-branches")) {
      const list = item.parentElement;
      const before = list.querySelectorAll(":scope > .branch").length;
      this.growGroup(list, Number(item.getAttribute("aria-level")));
      this.selectItem(list.querySelectorAll(":scope > .branch")[before], options);
    } else {
      this.select(Number(item.dataset.node), Number(item.dataset.joint), options);
    }
  }

  onClick(event) {
    const item = event.target.closest('[role="treeitem"]');
    if (!item) return;
    if (event.target.closest(".twist") && item.hasAttribute("aria-expanded")) {
      if (item.getAttribute("aria-expanded") === "true") this.foldItem(item);
      else this.unfold(item);
      return;
    }
    this.selectItem(item, { focus: true });
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const item = event.target.closest('[role="treeitem"]');
    if (!item) return;
    const seen = this.visible();
    const at = seen.indexOf(item);
    const go = (to) => this.selectItem(seen[Math.min(seen.length - 1, Math.max(0, to))], { focus: true });
    const actions = {
      ArrowDown: () => go(at + 1),
      ArrowUp: () => go(at - 1),
      Home: () => go(0),
      End: () => go(seen.length - 1),
      ArrowRight: () => (item.getAttribute("aria-expanded") === "false" ? this.unfold(item) : this.toChild(item)),
      ArrowLeft: () => (item.getAttribute("aria-expanded") === "true" ? this.foldItem(item) : this.toParent(item)),
      "*": () => [...item.parentElement.querySelectorAll(":scope > .branch")].forEach((each) => this.unfold(each)),
      Enter: () => byId("reading").focus(),
      " ": () => this.selectItem(item, { focus: true }),
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }

  toChild(item, options = { focus: true }) {
    this.unfold(item);
    this.selectItem(item.querySelector(":scope > ul > .branch"), options);
  }

  toParent(item, options = { focus: true }) {
    this.selectItem(item.parentElement.closest(".branch"), options);
  }

  // From the keys that work everywhere: to a sibling, up or down.
  step(direction) {
    const options = { focus: this.host.contains(document.activeElement) };
    const siblings = [...this.current.parentElement.querySelectorAll(':scope > [role="treeitem"]')];
    if (direction === "child") this.toChild(this.current, options);
    else if (direction === "parent") this.toParent(this.current, options);
    else this.selectItem(siblings[siblings.indexOf(this.current) + (direction === "next" ? 1 : -1)], options);
  }
}

// Which completions a joint action is of, counted from 1 as in the cards.
function jointName(node, joint) {
  const picks = node.joint[joint];
  return picks.length ? picks.map((pick) => `#${pick + 1}`).join(" + ") : "nobody acts";
}

function jointTexts(node, joint) {
  return [...node.prompts, ...node.joint[joint].map((pick, place) => node.said[place][pick].text)];
}

// Places of the nodes that have what was searched for, or lead to such: children come after parents.
function nodesWithHits(nodes, found) {
  const hits = new Set();
  for (let place = nodes.length - 1; place >= 0; place -= 1) {
    const node = nodes[place];
    if (node.next.some((next) => hits.has(next)) || nodeTexts(node).some((text) => found.has(text))) hits.add(place);
  }
  return hits;
}

// A joint action's reward or return: the mean over agents.
function teamValue(values, joint) {
  if (!values) return null;
  return mean(Object.values(values).map((own) => own[joint]));
}

// The joint actions that lead to a node, from the first turn on.
function pathTo(rollout, nodeIndex) {
  if (!rollout.parents) {
    rollout.parents = new Map();
    rollout.nodes.forEach((node, index) => {
      node.next.forEach((next, joint) => next >= 0 && rollout.parents.set(next, [index, joint]));
    });
  }
  const path = [];
  for (let at = rollout.parents.get(nodeIndex); at; at = rollout.parents.get(at[0])) path.unshift(at);
  return path;
}

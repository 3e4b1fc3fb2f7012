// Keys that work wherever the focus is, apart from fields that are written in.

function keysOf(view) {
  return [
    ["/", "search", () => byId("search").focus()],
    ["n", "next tree", () => view.list.move(1)],
    ["p", "previous tree", () => view.list.move(-1)],
    ["j", "next joint action", () => view.step("next")],
    ["k", "previous joint action", () => view.step("previous")],
    ["l", "to the child: what a joint action led to", () => view.step("child")],
    ["h", "to the parent", () => view.step("parent")],
    ["g", "the whole group, or only this joint action", () => byId("whole-group")?.click()],
    ["b", "to the branches", () => view.focusTree()],
    ["r", "to the text", () => byId("reading").focus()],
    ["x", "next horizontal axis", () => view.nextAxis()],
    ["t", "light, dark, or as the system has it", () => view.nextTheme()],
    ["?", "this table", () => view.openHelp()],
  ];
}

const OTHER_KEYS = [
  ["↑ ↓ Home End", "in the list and among the branches: go to another"],
  ["→ ←", "among the branches: unfold and go in, fold and go out"],
  ["*", "among the branches: unfold all of the group"],
  ["Enter", "from the list to the branches, from there to the text"],
  ["← →", "in a chart or a completion: from value to value, from token to token"],
  ["Esc", "leave the search, close this table"],
];

function listenToKeys(view) {
  const keys = keysOf(view);
  const box = byId("single-keys");
  box.checked = kept("single-keys") !== "off";
  box.addEventListener("change", () => kept("single-keys", box.checked ? "on" : "off"));
  byId("keys").append(make("tbody", {}, [...keys, ...OTHER_KEYS].map(([key, text]) =>
    make("tr", {}, make("th", { scope: "row" }, key.split(" ").map((each) => make("kbd", {}, each))), make("td", {}, text)))));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && event.target === byId("search")) byId("list").querySelector('[tabindex="0"]')?.focus();
    const isWriting = event.target.matches?.("input:not([type=radio], [type=checkbox]), select, textarea");
    if (isWriting || !box.checked || event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    const found = keys.find(([key]) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found[2]();
  });
}

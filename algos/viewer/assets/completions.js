// One completion as a card: its text with its advantages as colours, token by token.

const STEPS = 5;

// Five strengths of blue above 0 and of orange below it: told apart by colour-blind people, too.
function tintOf(value, scale) {
  if (typeof value !== "number" || value === 0 || !scale) return "";
  const step = Math.min(STEPS, Math.max(1, Math.ceil((Math.abs(value) / scale) * STEPS - 1e-9)));
  return `${value > 0 ? "pos" : "neg"}-${step}`;
}

// The size at which colours are darkest, in all trees of a rollout: nearly the largest there is, so
// that a few far ones among thousands of tokens do not leave all the others pale.
function advantageScale(rollout) {
  if (rollout.scale === undefined) {
    const sizes = [];
    for (const node of rollout.nodes) {
      for (const completion of node.said.flat()) {
        for (const value of [completion.advantage ?? 0].flat()) {
          if (value) sizes.push(Math.abs(value));
        }
      }
    }
    sizes.sort((a, b) => a - b);
    rollout.scale = sizes[Math.ceil(sizes.length * 0.99) - 1] ?? 0;
    rollout.isScaleExceeded = rollout.scale < sizes.at(-1);
  }
  return rollout.scale;
}

function hasAdvantages(rollout) {
  return rollout.nodes.some((node) => node.said.flat().some((one) => "advantage" in one));
}

function meanAdvantage(completion) {
  const { advantage } = completion;
  return Array.isArray(advantage) ? (advantage.length ? mean(advantage) : 0) : advantage;
}

// What a pill or a card says of a completion's advantage, in few characters.
function advantageText(completion) {
  if (!("advantage" in completion)) return "";
  if (completion.advantage === null) return "not trained";
  const value = signed(meanAdvantage(completion));
  return Array.isArray(completion.advantage) ? `mean ${value}` : value;
}

function finishText(completion) {
  return completion.is_cut ? "cut by the token limit" : "ended by itself";
}

function completionCard(completion, agent, title, scale) {
  const text = run.texts[completion.text];
  const readout = make("p", { class: "readout small muted", role: "status" });
  const block = completionText(completion, text, `${agent}, ${title}`, scale, readout);
  const amount = completion.length
    ? plural(completion.length, "token")
    : plural(text.length, "character");
  const card = make(
    "section",
    { class: "card", "aria-label": `${agent}, ${title}` },
    make(
      "header",
      { class: "card-head small" },
      make("span", { class: "card-title" }, title),
      advantageChip(completion, scale),
      make("span", { class: "muted" }, amount),
      make("span", { class: completion.is_cut ? "end is-cut" : "end muted" }, finishText(completion)),
    ),
    block,
  );
  if (completion.tokens || Array.isArray(completion.advantage)) card.append(readout);
  return card;
}

function advantageChip(completion, scale) {
  if (!("advantage" in completion)) return null;
  if (completion.advantage === null) {
    return make("span", { class: "chip untrained", title: "No gradient came from it: its group had no spread." }, "not trained");
  }
  const tint = tintOf(meanAdvantage(completion), scale);
  return make("span", { class: `chip number ${tint}`, title: "advantage" },
    make("span", { class: "visually-hidden" }, "advantage "), advantageText(completion));
}

function completionText(completion, text, label, scale, readout) {
  const { tokens, advantage } = completion;
  const perToken = Array.isArray(advantage);
  if (!tokens) {
    const tint = perToken ? "" : tintOf(advantage, scale);
    const block = textBlock(text, label, { draw: wholeDraw(text, tint) });
    if (perToken) block.append(strip(advantage, scale, readout));
    return block;
  }
  const ends = [];
  tokens.reduce((sum, length) => (ends.push(sum + length), sum + length), 0);
  const draw = tokenDraw(text, ends, (i) => tintOf(perToken ? advantage[i] : advantage, scale));
  const block = textBlock(text, label, { draw });
  const body = block.querySelector(".prose");
  if (!body.querySelector(".token")) {
    readout.hidden = true;
    return block;
  }
  const say = (i) => {
    const value = perToken ? advantage[i] : advantage;
    const start = i ? ends[i - 1] : 0;
    sayToken(readout, { number: i + 1, count: ends.length, text: text.slice(start, ends[i]), value, perToken });
  };
  walkTokens(body, readout, say);
  return block;
}

function wholeDraw(text, tint) {
  return (from, to, body, pieces) => {
    const span = tint ? make("span", { class: `token ${tint}` }) : body;
    if (tint) body.append(span);
    addText(span, text, pieces, from, to);
  };
}

// Draw the tokens of a part of a text, each in an element of its own.
function tokenDraw(text, ends, tint) {
  return (from, to, body, pieces) => {
    let low = 0; // the first token that ends after `from`
    let high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] < from || (ends[middle] === from && from > 0)) low = middle + 1;
      else high = middle;
    }
    for (let i = low; i < ends.length; i += 1) {
      const start = Math.max(i ? ends[i - 1] : 0, from);
      if (start >= to && !(start === to && ends[i] === start)) break;
      const span = make("span", { class: `token ${tint(i)}`, "data-i": i });
      if (ends[i] === (i ? ends[i - 1] : 0)) {
        span.classList.add("silent"); // an end token, or the first bytes of a character
        span.append(make("span", { class: "symbol" }, i === ends.length - 1 ? "end" : "·"));
      } else {
        addText(span, text, pieces, start, Math.min(ends[i], to));
      }
      body.append(span);
    }
    const rest = ends.at(-1) ?? 0;
    if (to > rest) addText(body, text, pieces, Math.max(rest, from), to);
  };
}

function sayToken(readout, { number, count, text, value, perToken }) {
  const quoted = make("bdi", {}, "“");
  addText(quoted, text.replaceAll("\n", "⏎"));
  quoted.append("”");
  const told = value === undefined ? "" : value === null ? " · not trained" : ` · advantage ${signed(value)}`;
  const shared = value === undefined || value === null || perToken ? "" : ", as all tokens here";
  readout.replaceChildren(`token ${number} of ${count} `, quoted, `${told}${shared}`);
}

// By mouse the token under the pointer, by keyboard left and right: say its number.
function walkTokens(body, readout, say) {
  let place = -1;
  const idle = () => readout.replaceChildren("Point at a token, or go through them with ← and →.");
  const go = (i) => {
    body.querySelector(".token.is-current")?.classList.remove("is-current");
    place = i;
    const token = body.querySelector(`.token[data-i="${i}"]`);
    if (!token) return;
    token.classList.add("is-current");
    token.scrollIntoView?.({ block: "nearest" });
    say(i);
  };
  body.tabIndex = 0;
  idle();
  body.addEventListener("pointerover", (event) => {
    const token = event.target.closest?.(".token");
    if (token && body.contains(token) && event.pointerType !== "touch") say(Number(token.dataset.i));
  });
  body.addEventListener("click", (event) => {
    const token = event.target.closest?.(".token");
    if (token && body.contains(token)) go(Number(token.dataset.i));
  });
  body.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const last = Number([...body.querySelectorAll(".token")].at(-1)?.dataset.i ?? -1);
    go(Math.min(last, Math.max(0, place + step)));
  });
  body.addEventListener("blur", () => {
    body.querySelector(".token.is-current")?.classList.remove("is-current");
    place = -1;
    idle();
  });
}

// Where nobody recorded where tokens end, their advantages are a row of squares below the text.
function strip(values, scale, readout) {
  const body = make("div", { class: "strip prose", role: "group", "aria-label": "advantages by token" });
  values.slice(0, 4096).forEach((value, i) => {
    body.append(make("span", { class: `token square ${tintOf(value, scale)}`, "data-i": i }));
  });
  walkTokens(body, readout, (i) => {
    readout.replaceChildren(`token ${i + 1} of ${values.length} · advantage ${signed(values[i])}`);
  });
  return body;
}

// The colours and what they stand for.
function advantageLegend({ scale, isScaleExceeded }) {
  const [most, least] = isScaleExceeded ? ["≥ ", "≤ "] : ["", ""];
  const squares = [];
  for (let step = STEPS; step >= 1; step -= 1) squares.push(make("span", { class: `square neg-${step}` }));
  squares.push(make("span", { class: "square" }));
  for (let step = 1; step <= STEPS; step += 1) squares.push(make("span", { class: `square pos-${step}` }));
  return make(
    "p",
    { class: "legend small muted" },
    "Advantage ",
    make("span", { class: "number" }, least + signed(-scale)),
    make("span", { class: "squares", "aria-hidden": "true" }, squares),
    make("span", { class: "number" }, most + signed(scale)),
  );
}

// Show texts that nobody can trust: what would be invisible, or would turn other text around, is
// shown as a symbol; the rest is text and nothing else.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|\p{Surrogate}/gu;

const NAMES = {
  0x00ad: "SHY", 0x061c: "ALM", 0x200b: "ZWSP", 0x200e: "LRM", 0x200f: "RLM", 0x2028: "LSEP",
  0x2029: "PSEP", 0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO",
  0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM",
};

const SHORT_TEXT = 3000; // characters of a long text that are shown at first
const CHUNK = 4000; // characters that are added in one frame of the screen

function symbolOf(letter) {
  const code = letter.codePointAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "␡";
  return NAMES[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

// Add a part of a text to an element; `pieces` gets where each of its nodes came from.
function addText(parent, text, pieces = null, start = 0, end = text.length) {
  const part = text.slice(start, end);
  let place = 0;
  const add = (node, from, to) => {
    parent.append(node);
    pieces?.push({ node, start: start + from, end: start + to });
  };
  for (const match of part.matchAll(HIDDEN)) {
    if (match.index > place) {
      add(document.createTextNode(part.slice(place, match.index)), place, match.index);
    }
    place = match.index + match[0].length;
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    const symbol = make("span", { class: "symbol", title: `U+${code}` }, symbolOf(match[0]));
    add(symbol, match.index, place);
  }
  if (place < part.length) {
    add(document.createTextNode(part.slice(place)), place, part.length);
  }
}

// A short form for lists: one line, isolated from the text around it.
function excerpt(text, length = 120) {
  const line = text.slice(0, length * 2).replace(/\s+/g, " ").trim();
  const letters = [...line];
  const element = make("bdi", { class: "excerpt" });
  addText(element, letters.slice(0, length).join("") + (letters.length > length ? "…" : ""));
  return element;
}

// Where a text may be cut without cutting a character's surrogate pair in two.
function cutAt(text, place) {
  const code = text.charCodeAt(place - 1);
  return place < text.length && code >= 0xd800 && code <= 0xdbff ? place + 1 : place;
}

// Draw something long in frames of the screen, so that the page answers meanwhile.
function inFrames(draw, from, to, finished) {
  let place = from;
  const next = () => {
    place = draw(place);
    if (place < to) requestAnimationFrame(next);
    else finished?.();
  };
  next();
}

// A text as a block with its own direction. Long ones show their beginning, and all when asked.
function textBlock(text, label, options = {}) {
  const pieces = [];
  const body = make("div", { class: "prose", role: "group", "aria-label": label });
  const block = make("div", { class: "text-block" }, body);
  if (text === "") {
    body.append(make("span", { class: "empty" }, "empty"));
    return block;
  }
  if (!/\S/.test(text)) {
    body.append(make("span", { class: "empty" }, `${plural(text.length, "character")} of white space`));
    return block;
  }
  const draw = options.draw ?? ((from, to) => addText(body, text, pieces, from, to));
  const first = text.length > SHORT_TEXT * 1.5 ? cutAt(text, SHORT_TEXT) : text.length;
  draw(0, first, body, pieces);
  if (first < text.length) {
    block.append(showAll(text, first, draw, body, pieces));
  }
  searchHits.watch(body, text, pieces);
  return block;
}

function showAll(text, first, draw, body, pieces) {
  const rest = make("span", { class: "muted", "aria-hidden": "true" }, " …");
  body.append(rest);
  const button = make("button", {
    type: "button",
    class: "more",
    click: () => {
      button.disabled = true;
      rest.remove();
      body.classList.add("scrolls");
      body.tabIndex = 0;
      inFrames(
        (place) => {
          const end = Math.min(text.length, cutAt(text, place + CHUNK));
          draw(place, end, body, pieces);
          return end;
        },
        first,
        text.length,
        () => {
          button.remove();
          searchHits.watch(body, text, pieces);
          body.dataset.whole = "true";
          body.focus();
        },
      );
    },
  }, `Show all ${text.length.toLocaleString("en")} characters`);
  return button;
}

// Marks what was searched for, without touching the elements it is in.
const searchHits = {
  query: "",
  watched: [],

  begin(query) {
    this.query = query.toLowerCase();
    this.watched = [];
    if (this.isSupported()) CSS.highlights.delete("hits");
  },

  isSupported() {
    return "highlights" in CSS && "Highlight" in globalThis;
  },

  watch(body, text, pieces) {
    if (!this.query || !this.isSupported()) return;
    const found = text.toLowerCase();
    if (found.length !== text.length) return; // a letter whose small form is longer: places differ
    const highlight = CSS.highlights.get("hits") ?? new Highlight();
    let count = 0;
    for (let at = found.indexOf(this.query); at >= 0 && count < 500; count += 1) {
      const range = rangeOf(pieces, at, at + this.query.length);
      if (range) highlight.add(range);
      at = found.indexOf(this.query, at + this.query.length);
    }
    CSS.highlights.set("hits", highlight);
  },
};

function rangeOf(pieces, start, end) {
  const first = pieces.find((piece) => piece.end > start);
  const last = pieces.find((piece) => piece.end >= end);
  if (!first || !last || first.start > start) return null;
  const range = document.createRange();
  if (first.node.nodeType === Node.TEXT_NODE) range.setStart(first.node, start - first.start);
  else range.setStartBefore(first.node);
  if (last.node.nodeType === Node.TEXT_NODE) range.setEnd(last.node, end - last.start);
  else range.setEndAfter(last.node);
  return range;
}

// Make elements. Texts become text nodes here and nowhere does one become markup.

function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function makeSvg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

// Numbers as they are read: three decimals for rewards, fewer digits the larger it is.
function shown(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0"; // of -0, too
  const size = Math.abs(value);
  if (size < 0.0005 || size >= 1e9) return value.toExponential(2).replace("-", "−");
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  const text = value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: 0 });
  return text.replace("-", "−");
}

function fixed(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  const text = value.toFixed(digits);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

function signed(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 3;
  if (size !== 0 && size < 0.0005) return `${value > 0 ? "+" : "−"}${size.toExponential(1)}`;
  return `${value > 0 ? "+" : value < 0 ? "−" : ""}${size.toFixed(digits)}`;
}

function plural(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

// What a reader chose is kept where the browser allows it; a file or a sandboxed frame may not.
function kept(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(`motet-${name}`);
    localStorage.setItem(`motet-${name}`, value);
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
  }
  return null;
}

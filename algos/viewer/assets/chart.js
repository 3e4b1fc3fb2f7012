// A chart with a chooser above and, below, the values at the cursor in place of a legend.

const MARGIN = { left: 52, right: 14, top: 10, bottom: 34 };
const HEIGHT = 260;

class Chart {
  constructor(metrics, selected) {
    this.metrics = metrics;
    this.axis = "step";
    this.smooth = false;
    this.hidden = new Set();
    const { groups, names } = presets(metrics);
    this.groups = groups;
    this.select = this.makeSelect(groups, names, selected);
    this.plot = make("div", {
      class: "plot",
      tabindex: "0",
      role: "slider",
      "aria-valuemin": "0",
      keydown: (event) => this.onKey(event),
      pointermove: (event) => this.onPointer(event),
      pointerdown: (event) => this.onPointer(event),
      pointerleave: () => this.moveTo(null),
    });
    this.legend = make("div", { class: "chart-legend" });
    this.element = make("figure", { class: "chart" }, make("label", { class: "chooser" },
      make("span", { class: "visually-hidden" }, "What the chart shows"), this.select), this.plot, this.legend);
    this.cursor = null;
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  makeSelect(groups, names, selected) {
    const option = (value, text) => make("option", { value, selected: value === selected }, text);
    const select = make("select", { change: () => this.choose() });
    select.append(...Object.keys(groups).map((name) => option(`group:${name}`, name)));
    select.append(make("optgroup", { label: "One metric" }, names.map((name) => option(`one:${name}`, name))));
    return select;
  }

  choose() {
    this.hidden.clear();
    this.cursor = null;
    this.draw();
  }

  update(axis, smooth) {
    Object.assign(this, { axis, smooth, cursor: null });
    this.draw();
  }

  get names() {
    const [kind, name] = [this.select.value.split(":", 1)[0], this.select.value.replace(/^\w+:/, "")];
    return kind === "group" ? this.groups[name] : [name];
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width) return;
    this.series = seriesOf(this.metrics, this.names, this.axis);
    this.seen = this.series.filter((each) => !this.hidden.has(each.name));
    this.stops = [...new Set(this.seen.flatMap((each) => each.points.map((point) => point.x)))].sort((a, b) => a - b);
    this.scales = this.makeScales(width);
    const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, "aria-hidden": "true" });
    svg.append(this.grid(width), ...this.seen.map((each) => this.line(each)));
    this.pointer = makeSvg("g", { class: "cursor" });
    svg.append(this.pointer);
    this.plot.replaceChildren(svg);
    this.plot.setAttribute("aria-valuemax", String(Math.max(0, this.stops.length - 1)));
    this.plot.setAttribute("aria-label", `${this.select.selectedOptions[0].text} by ${AXES[this.axis].label}`);
    this.moveTo(this.cursor);
  }

  makeScales(width) {
    const xs = this.stops.length ? [this.stops[0], this.stops.at(-1)] : [0, 1];
    const ys = this.seen.flatMap((each) => each.points.flatMap((p) => [p.y, p.low ?? p.y, p.high ?? p.y]));
    let low = ys.reduce((a, b) => Math.min(a, b), Infinity);
    let high = ys.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!ys.length) [low, high] = [0, 1];
    if (low >= 0 && low < high / 2) low = 0; // near enough to 0 that the axis should show it
    if (high === low) [low, high] = [low - Math.max(Math.abs(low) * 0.1, 0.5), high + Math.max(Math.abs(high) * 0.1, 0.5)];
    const room = (high - low) * 0.04;
    [low, high] = [low === 0 ? 0 : low - room, high + room];
    if (xs[0] === xs[1]) xs.splice(0, 2, xs[0] - 0.5, xs[1] + 0.5);
    const right = width - MARGIN.right;
    const bottom = HEIGHT - MARGIN.bottom;
    return {
      xs,
      low,
      high,
      x: (value) => MARGIN.left + ((value - xs[0]) / (xs[1] - xs[0])) * (right - MARGIN.left),
      y: (value) => bottom - ((value - low) / (high - low)) * (bottom - MARGIN.top),
    };
  }

  grid(width) {
    const { xs, low, high, x, y } = this.scales;
    const group = makeSvg("g", { class: "grid" });
    for (const value of ticks(low, high, 5)) {
      group.append(
        makeSvg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }),
        makeSvg("text", { x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end" }, shown(value)),
      );
    }
    const count = Math.max(2, Math.floor(width / 130));
    const places = this.axis === "time" ? timeTicks(...xs, count) : ticks(...xs, count);
    for (const value of places) {
      group.append(makeSvg("text", { x: x(value), y: HEIGHT - MARGIN.bottom + 18, "text-anchor": "middle" },
        axisText(this.axis, value)));
    }
    group.append(makeSvg("text", { class: "axis-name", x: width - MARGIN.right, y: HEIGHT - 2, "text-anchor": "end" },
      AXES[this.axis].label));
    return group;
  }

  line(series) {
    const { x, y } = this.scales;
    const path = (points) => thinned(points).map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)},${y(p.y).toFixed(1)}`).join("");
    const group = makeSvg("g", { class: `series ${series.kind}` });
    const bounds = series.points.filter((point) => point.low !== null && point.high !== null);
    for (const point of thinned(bounds, 400)) {
      group.append(makeSvg("line", { class: "interval", x1: x(point.x), x2: x(point.x), y1: y(point.low), y2: y(point.high) }));
    }
    const smooth = this.smooth && !series.isEval && series.points.length >= 40;
    if (smooth) group.append(makeSvg("path", { class: "raw", d: path(series.points) }));
    group.append(makeSvg("path", { class: "curve", d: path(smooth ? smoothed(series.points) : series.points) }));
    if (series.isEval || series.points.length < 40) {
      for (const point of series.points) group.append(makeSvg("circle", { cx: x(point.x), cy: y(point.y), r: series.isEval ? 3.5 : 2.5 }));
    }
    return group;
  }

  onPointer(event) {
    if (!this.stops?.length) return;
    const { left } = this.plot.getBoundingClientRect();
    const at = event.clientX - left;
    let best = 0;
    this.stops.forEach((stop, i) => {
      if (Math.abs(this.scales.x(stop) - at) < Math.abs(this.scales.x(this.stops[best]) - at)) best = i;
    });
    this.moveTo(best);
  }

  onKey(event) {
    const last = this.stops.length - 1;
    const now = this.cursor ?? last;
    const to = {
      ArrowRight: now + 1, ArrowUp: now + 1, ArrowLeft: now - 1, ArrowDown: now - 1,
      PageUp: now + Math.ceil(last / 10), PageDown: now - Math.ceil(last / 10), Home: 0, End: last,
    }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    event.stopPropagation();
    this.moveTo(Math.min(last, Math.max(0, to)));
  }

  // Show the values at one of the stops; null shows the last ones and no line.
  moveTo(index) {
    this.cursor = index;
    const stop = this.stops[index ?? this.stops.length - 1];
    this.pointer?.replaceChildren();
    if (index !== null && stop !== undefined) {
      const x = this.scales.x(stop);
      this.pointer.append(makeSvg("line", { x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
    }
    this.plot.setAttribute("aria-valuenow", String(index ?? Math.max(0, this.stops.length - 1)));
    const values = this.showValues(stop);
    this.plot.setAttribute("aria-valuetext", values || "nothing to show");
  }

  showValues(stop) {
    const told = [];
    const rows = this.series.map((series) => {
      const point = stop === undefined ? undefined : lastUpTo(series.points, stop);
      const interval = point && point.low !== null && point.high !== null ? ` (${fixed(point.low)} to ${fixed(point.high)})` : "";
      const value = point ? `${shown(point.y)}${interval}` : "–";
      const isHidden = this.hidden.has(series.name);
      if (!isHidden) told.push(`${series.name} ${value}`);
      return this.legendButton(series, value, isHidden);
    });
    const at = stop === undefined ? "" : `${AXES[this.axis].label} ${axisText(this.axis, stop)}`;
    const focused = [...this.legend.children].indexOf(document.activeElement);
    this.legend.replaceChildren(...rows, make("span", { class: "at muted" }, `${this.cursor === null ? "last, " : ""}${at}`));
    if (focused >= 0) this.legend.children[focused]?.focus();
    return told.length ? `${at}: ${told.join(", ")}` : "";
  }

  legendButton(series, value, isHidden) {
    const sample = makeSvg("svg", { class: `sample series ${series.kind}`, width: 22, height: 10, "aria-hidden": "true" },
      makeSvg("path", { class: "curve", d: "M1,5L21,5" }));
    if (series.isEval) sample.append(makeSvg("circle", { cx: 11, cy: 5, r: 3 }));
    return make("button", {
      type: "button",
      "aria-pressed": String(!isHidden),
      title: isHidden ? "Show this line" : "Hide this line",
      click: () => {
        if (isHidden) this.hidden.delete(series.name);
        else this.hidden.add(series.name);
        this.draw();
      },
    }, sample, make("span", {}, series.name), make("span", { class: "number value" }, value));
  }
}

function lastUpTo(points, x) {
  let found;
  for (const point of points) {
    if (point.x > x) break;
    found = point;
  }
  return found;
}

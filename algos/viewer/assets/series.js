// From the columns of a log to the lines of a chart.

const AXES = {
  step: { column: null, label: "env steps" },
  optimizer: { column: "time/optimizer_steps", label: "optimizer steps" },
  time: { column: "time/elapsed_seconds", label: "wall time" },
};

// Where each entry lies on an axis. One that does not say so lies where the last did that does.
function axisValues(metrics, axis) {
  const { column } = AXES[axis];
  if (column === null) return metrics.step;
  let last = 0;
  return (metrics.columns[column] ?? []).map((value) => (last = value ?? last));
}

function hasAxis(metrics, axis) {
  const { column } = AXES[axis];
  return column === null || (metrics.columns[column] ?? []).some((value) => value !== null);
}

function isInterval(metrics, name) {
  const of = name.replace(/_(low|high)$/, "");
  return of !== name && of in metrics.columns;
}

// Groups of metrics that belong into one chart, those first that say most.
function presets(metrics) {
  const names = Object.keys(metrics.columns).filter((name) => !isInterval(metrics, name));
  const byTurn = (pattern) =>
    names.filter((name) => pattern.test(name)).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const has = (name) => names.filter((each) => each === name);
  const turns = byTurn(/^turn_\d+\/reward_mean$/);
  const groups = {
    Rewards: [...(turns.length ? turns : has("rollout/reward_mean")), ...has("eval/reward_mean")],
    "Expected returns": [...byTurn(/^turn_\d+\/expected_return$/), ...has("eval/return_mean")],
    "Held-out rewards": [...byTurn(/^eval\/turn_\d+\/reward_mean$/), ...has("eval/final_reward_mean")],
  };
  const filled = Object.entries(groups).filter(([, group]) => group.length);
  return { groups: Object.fromEntries(filled), names };
}

function seriesOf(metrics, names, axis) {
  const xs = axisValues(metrics, axis);
  return names.map((name, index) => {
    const ys = metrics.columns[name];
    const lows = metrics.columns[`${name}_low`];
    const highs = metrics.columns[`${name}_high`];
    const points = [];
    ys.forEach((y, i) => {
      if (y !== null) points.push({ x: xs[i], y, low: lows?.[i] ?? null, high: highs?.[i] ?? null });
    });
    const isEval = name.startsWith("eval/") && names.length > 1 && !names.every((n) => n.startsWith("eval/"));
    return { name, points, isEval, kind: isEval ? "ink" : `line-${index % 6}` };
  });
}

// The mean over neighbours, as many on either side, fewer at the ends.
function smoothed(points) {
  const reach = Math.floor(points.length / 20);
  if (reach < 1) return points;
  const sums = [0];
  for (const point of points) sums.push(sums.at(-1) + point.y);
  return points.map((point, i) => {
    const near = Math.min(reach, i, points.length - 1 - i);
    return { ...point, y: (sums[i + near + 1] - sums[i - near]) / (2 * near + 1) };
  });
}

// At most about `limit` points that draw the same picture: of each stretch the lowest and highest.
function thinned(points, limit = 1200) {
  if (points.length <= limit) return points;
  const size = Math.ceil(points.length / (limit / 2));
  const kept = [];
  for (let start = 0; start < points.length; start += size) {
    const part = points.slice(start, start + size);
    const low = part.reduce((a, b) => (b.y < a.y ? b : a));
    const high = part.reduce((a, b) => (b.y > a.y ? b : a));
    kept.push(...(low === high ? [low] : part.indexOf(low) < part.indexOf(high) ? [low, high] : [high, low]));
  }
  return kept;
}

// Round numbers that cover a range.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  const values = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) values.push(k * step);
  return values;
}

function timeTicks(low, high, count) {
  const steps = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400];
  const step = steps.find((each) => (high - low) / each <= count);
  if (!step || high - low < 3) return ticks(low, high, count);
  const values = [];
  for (let k = Math.ceil(low / step); k * step <= high; k += 1) values.push(k * step);
  return values;
}

function duration(seconds) {
  if (seconds < 60) return `${shown(Math.round(seconds * 10) / 10)} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = Math.round(seconds % 60);
  if (minutes < 60) return rest ? `${minutes} min ${rest} s` : `${minutes} min`;
  const left = minutes % 60;
  return left ? `${Math.floor(minutes / 60)} h ${left} min` : `${Math.floor(minutes / 60)} h`;
}

function axisText(axis, value) {
  return axis === "time" ? duration(value) : shown(Math.round(value));
}

// Charts as SVG, in the look of the report: drawn at the size of their place, so that text stays
// readable on a phone.

import { svg } from "./dom.js";

const LEFT = 44;
const RIGHT = 10;
const TOP = 24;
const BOTTOM = 36;
const HEIGHT = 220;
const NARROWEST = 240;

const number = (value) => String(Number(value.toPrecision(6))).replace("-", "\u2212");

const linear = (low, high, start, end) => (value) =>
  start + ((value - low) / (high - low)) * (end - start);

const ticks = (low, high, wanted = 5) => {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough - 1e-12);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => (first + index) * step);
};

const text = (x, y, content, anchor = "middle", extra = {}) =>
  svg("text", { x: x.toFixed(1), y: y.toFixed(1), "text-anchor": anchor, ...extra }, content);

const titled = (shape, title) => {
  shape.append(svg("title", {}, title));
  return shape;
};

export const widthOf = (place) => Math.max(NARROWEST, Math.floor(place.clientWidth));

const canvas = (place, height, label) => {
  const width = widthOf(place);
  const chart = svg("svg", {
    class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label,
  });
  place.replaceChildren(chart);
  return [chart, width];
};

const horizontalGrid = (chart, y, low, high, width, unit) => {
  for (const tick of ticks(low, high)) {
    chart.append(
      svg("path", { class: "grid", d: `M${LEFT} ${y(tick).toFixed(1)}H${width - RIGHT}` }),
      text(LEFT - 7, y(tick) + 4, number(tick), "end"),
    );
  }
  chart.append(text(2, 11, unit, "start", { class: "unit" }));
};

const countAxis = (chart, x, names, height, width, title) => {
  const every = Math.ceil(names.length / Math.max(2, Math.floor((width - LEFT - RIGHT) / 26)));
  names.forEach((name, index) => {
    if (index % every === 0) chart.append(text(x(index), height - BOTTOM + 16, name));
  });
  chart.append(text((LEFT + width - RIGHT) / 2, height - 3, title, "middle", { class: "unit" }));
};

// lines: [{points: [[x, y], ...], colour, dashed, faint, dots}], x counting from 0.
export const lineChart = (place, { lines, names, title, unit, label, levels = [], height = HEIGHT }) => {
  const [chart, width] = canvas(place, height, label);
  const values = lines.flatMap((line) => line.points.map(([, y]) => y));
  const tall = 1.08 * (Math.max(...values, ...levels.map((level) => level.value)) || 1);
  const x = linear(0, Math.max(1, names.length - 1), LEFT + 6, width - RIGHT - 6);
  const y = linear(0, tall, height - BOTTOM, TOP);
  horizontalGrid(chart, y, 0, tall, width, unit);
  countAxis(chart, x, names, height, width, title);
  for (const level of levels) {
    chart.append(
      svg("path", { class: "level", d: `M${LEFT} ${y(level.value).toFixed(1)}H${width - RIGHT}` }),
      text(LEFT + 6, y(level.value) - 5, level.label, "start", { class: "note" }),
    );
  }
  for (const line of lines) {
    const points = line.points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
    chart.append(svg("polyline", {
      class: line.faint ? "line faint" : "line", points: points.join(" "), colour: line.colour,
      "stroke-dasharray": line.dashed ? "5 4" : null,
    }));
    if (!line.dots) continue;
    for (const [at, value] of line.points) {
      chart.append(titled(
        svg("circle", { class: "dot", cx: x(at).toFixed(1), cy: y(value).toFixed(1), r: 3.2, colour: line.colour }),
        `${line.name ?? unit}, ${title} ${names[at]}: ${value.toFixed(3)}`,
      ));
    }
  }
};

// parts: [{name, label, colour}] from the bottom; rows: [{name: value}], one for each bar.
export const stackedBars = (place, { parts, rows, names, title, unit, label }) => {
  const [chart, width] = canvas(place, HEIGHT, label);
  const sums = rows.map((row) => parts.reduce((sum, part) => sum + (row[part.name] ?? 0), 0));
  const tall = 1.08 * (Math.max(...sums) || 1);
  const x = linear(-0.6, Math.max(rows.length, 4) - 0.4, LEFT, width - RIGHT);
  const y = linear(0, tall, HEIGHT - BOTTOM, TOP);
  const broad = Math.min(26, 0.7 * (x(1) - x(0)));
  horizontalGrid(chart, y, 0, tall, width, unit);
  countAxis(chart, x, names, HEIGHT, width, title);
  rows.forEach((row, index) => {
    let bottom = 0;
    for (const part of parts) {
      const value = row[part.name] ?? 0;
      const bar = svg("rect", {
        class: "bar", x: (x(index) - broad / 2).toFixed(1), y: y(bottom + value).toFixed(1),
        width: broad.toFixed(1), height: (y(bottom) - y(bottom + value)).toFixed(2), colour: part.colour,
      });
      chart.append(titled(bar, `${title} ${names[index]}: ${part.label} ${value.toFixed(0)} ${unit}`));
      bottom += value;
    }
  });
};

// lanes: [{name, bars: [{kind, start, end}]}]; kinds: {kind: {label, colour}}.
export const gantt = (place, { lanes, kinds, start, end, label }) => {
  const lane = 30;
  const gutter = 62;
  const height = 8 + lane * lanes.length + BOTTOM;
  const [chart, width] = canvas(place, height, label);
  const x = linear(start, end, gutter, width - RIGHT);
  const floor = height - BOTTOM;
  for (const tick of ticks(start, end, Math.max(3, Math.floor(width / 110)))) {
    chart.append(
      svg("path", { class: "grid", d: `M${x(tick).toFixed(1)} 4V${floor}` }),
      text(x(tick), floor + 16, number(tick)),
    );
  }
  chart.append(text((gutter + width - RIGHT) / 2, height - 3, "seconds since the goal began", "middle", { class: "unit" }));
  lanes.forEach(({ name, bars }, row) => {
    const top = 8 + lane * row;
    chart.append(text(gutter - 10, top + lane / 2 + 2, name, "end", { class: "lane" }));
    for (const bar of bars) {
      const kind = kinds[bar.kind];
      const shape = svg("rect", {
        class: `bar ${bar.kind}`, x: x(bar.start).toFixed(1), y: top + 4, rx: 3, height: lane - 10,
        width: Math.max(1.5, x(bar.end) - x(bar.start)).toFixed(1), colour: kind.colour,
      });
      chart.append(titled(shape, `${kind.label}: ${((bar.end - bar.start) * 1000).toFixed(0)} ms, from ${bar.start.toFixed(2)} s`));
    }
  });
};

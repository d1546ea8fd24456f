// The page: one stream of snapshots comes in, and every part of the page shows its share of it.

import { gantt, lineChart, stackedBars, widthOf } from "./charts.js";
import { byId, html, redrawAll, setText, whenChanged } from "./dom.js";
import { NONE, badge, empty, fixed, legend, plural, seconds } from "./format.js";
import { showCamera, showDrawing, showGoal, staleness } from "./pictures.js";

const SILENCE = 4000; // ms without a snapshot: the connection is taken for lost
const RETRY = 1500; // ms

// --- The head -----------------------------------------------------------------------------------

const DOTS = { pursuing: "pursuing", idle: "idle", reached: "reached", aborted: "bad", gone: "bad" };

const showHead = ({ node, domain, state }) => {
  setText("node", `${node} · ROS domain ${domain}`);
  setText("headline", state.headline);
  setText("detail", state.detail);
  byId("dot").className = DOTS[state.name] ?? (state.name === "waiting" ? "" : "warn");
  const title = `${state.headline} · ${node}`;
  if (document.title !== title) document.title = title;
};

const median = (values) => {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : null;
};

const showFigures = ({ state, goal, steps, latency_parts: parts }) => {
  const newest = steps.at(-1) ?? null;
  const subgoal = goal?.subgoals[goal.subgoal] ?? null;
  const energy = goal?.final_energy ?? newest?.energy ?? null;
  const total = (step) => parts.reduce((sum, part) => sum + (step.latency[part.name] ?? 0), 0);
  const figures = [
    ["energy now", fixed(energy, 3), subgoal ? `goal ${fixed(subgoal.threshold, 3)}` : ""],
    ["step", newest ? String(newest.step + 1) : NONE, subgoal ? `of ${subgoal.budget}` : ""],
    ["from frame to plan, median", fixed(median(steps.map(total)), 0), steps.length ? "ms" : ""],
    ["imagined motions a plan", newest ? String(newest.rollouts) : NONE, newest?.search ?? ""],
    ["arm", state.arm ?? NONE, ""],
    [goal?.ended ? "the goal took" : "the goal has taken", goal ? fixed(goal.elapsed, 1) : NONE, goal ? "s" : ""],
  ];
  whenChanged("figures", figures, () =>
    byId("figures").replaceChildren(
      ...figures.map(([name, value, unit]) =>
        html("div", {}, html("dt", {}, name), html("dd", {}, value, " ", html("small", {}, unit)))),
    ));
};

// --- Charts -------------------------------------------------------------------------------------

// Steps of several sub-goals follow one another.
const names = (steps) => steps.map((step) => String(step.step + 1));
const known = (points) => points.filter(([, value]) => value !== null);

const chart = (id, value, emptyText, draw) => {
  const place = byId(id);
  whenChanged(id, [value, widthOf(place)], () => (value === null ? empty(place, emptyText) : draw(place, value)));
};

const showEnergy = ({ steps, goal }) => {
  const final = goal?.final_energy ?? null;
  const threshold = goal?.subgoals[goal.subgoal]?.threshold ?? null;
  chart("energy", steps.length ? { steps: steps.map(({ energy, predicted }) => ({ energy, predicted })), names: names(steps), final, threshold } : null, "The first plan will be shown here.", (place, value) => {
    const measured = value.steps.map((step, index) => [index, step.energy]);
    const labels = [...value.names];
    if (value.final !== null) {
      measured.push([value.steps.length, value.final]);
      labels.push("end");
    }
    const horizon = Math.max(...value.steps.map((step) => step.predicted.length));
    while (value.final === null && labels.length < value.steps.length + horizon) labels.push("");
    const predicted = value.steps.map((step, index) => ({
      points: known([[index, step.energy], ...step.predicted.map((energy, ahead) => [index + 1 + ahead, energy])])
        .filter(([at]) => at < labels.length),
      colour: "energy", dashed: true,
    }));
    lineChart(place, {
      lines: [...predicted, { points: known(measured), colour: "energy", dots: true, name: "energy" }],
      names: labels, title: "step", unit: "energy", height: 186,
      levels: value.threshold ? [{ value: value.threshold, label: `reached at ${fixed(value.threshold, 3)}` }] : [],
      label: `Energy over ${plural(value.steps.length, "step")}; the newest is ${fixed(measured.at(-1)[1], 3)}`,
    });
  });
};

const EARLIER = 5;
const showRounds = ({ steps }) => {
  const searches = steps.filter((step) => step.best.length).slice(-1 - EARLIER);
  chart("rounds", searches.length ? searches.map(({ step, best, elites }) => ({ step, best, elites })) : null, "The first search will be shown here.", (place, value) => {
    const newest = value.at(-1);
    const points = (energies) => known(energies.map((energy, round) => [round, energy]));
    const rounds = Math.max(...value.map((search) => search.best.length));
    lineChart(place, {
      lines: [
        ...value.slice(0, -1).map((search) => ({ points: points(search.best), colour: "muted", faint: true })),
        { points: points(newest.elites), colour: "distance", dashed: true, dots: true, name: "mean of the elites" },
        { points: points(newest.best), colour: "plan", dots: true, name: "best candidate" },
      ],
      names: Array.from({ length: rounds }, (_, round) => String(round + 1)),
      title: "round", unit: "energy of the search",
      label: `Best energy in each of ${plural(newest.best.length, "round")} of the newest search: ${newest.best.map((energy) => fixed(energy, 3)).join(", ")}`,
    });
  });
};

const showLatency = ({ steps, latency_parts: parts }) => {
  const rows = steps.map((step) => step.latency);
  chart("latency", rows.length ? { rows, parts, names: names(steps) } : null, "The first plan will be shown here.", (place, value) => {
    legend("latency-legend", value.parts.map((part) => [part.label, part.colour]));
    stackedBars(place, {
      ...value, title: "step", unit: "ms",
      label: `Where the time of ${plural(value.rows.length, "plan")} went; of the newest: ${value.parts.map((part) => `${part.label} ${fixed(value.rows.at(-1)[part.name], 0)} ms`).join(", ")}`,
    });
  });
};

const KINDS = {
  encode: { label: "encodes the frame", colour: "encode" },
  plan: { label: "plans", colour: "plan" },
  move: { label: "moves", colour: "good" },
  hold: { label: "holds", colour: "capture" },
};
const showTimeline = ({ timeline }) =>
  chart("timeline", timeline, "Planning, moving and holding will be shown here, once a goal is pursued.", (place, value) =>
    gantt(place, { ...value, kinds: KINDS, label: "What planner and arm did since the goal began" }));

legend("timeline-legend", Object.values(KINDS).map((kind) => [kind.label, kind.colour]));
legend("energy-legend", [["as measured", "energy"], ["as each plan predicted", "energy", true]]);
legend("rounds-legend", [["best candidate", "plan"], ["mean of the elites", "distance", true], ["earlier plans", "muted", true]]);

// --- Health, arm, log, table --------------------------------------------------------------------

const MARKS = { ok: "✓", warning: "▲", error: "✕", stale: "✕" };

const showHealth = ({ diagnostics, replicas }) => {
  const { entries, age, stale } = diagnostics;
  const worst = entries.find((entry) => entry.level !== "ok" && entry.level !== "warning") ?? entries.find((entry) => entry.level !== "ok");
  if (age === null) badge("health-badge", "");
  else if (stale) badge("health-badge", `stale: ${seconds(age)} old`, "error");
  else if (worst) badge("health-badge", worst.level, worst.level === "warning" ? "warning" : "error");
  else badge("health-badge", "all is well", "ok");
  whenChanged("health", entries, () =>
    byId("health").replaceChildren(
      ...(entries.length ? entries.map((entry) =>
        html("li", {},
          html("span", { class: `mark ${entry.level}`, "aria-hidden": "true" }, MARKS[entry.level]),
          html("b", {}, entry.name), html("span", { class: "unseen" }, ` ${entry.level}:`), ` ${entry.message}`,
          html("p", {}, entry.values.filter(([key]) => key !== "shards").map(([key, value]) => `${key} ${value}`).join(" · "))))
        : [html("li", { class: "empty" }, "Nothing on /diagnostics yet.")]),
    ));
  whenChanged("replicas", replicas, () =>
    byId("replicas").replaceChildren(
      ...(replicas?.shards.length ? [html("ul", { class: "replicas", "aria-label": "Replicas of the world model, and what each did of the last plan" },
        ...replicas.shards.map(({ replica, shards }) => html("li", {}, `${replica}: ${plural(Number(shards), "shard")}`)))] : []),
    ));
};

const showArm = ({ arm }) => {
  staleness("arm-badge", arm, null);
  const { command } = arm;
  const facts = [["heard on", arm.topic || "nobody publishes joint_states yet"]];
  if (arm.problem) facts.push(["problem", arm.problem]);
  if (command) {
    facts.push(
      [command.dry_run ? "would go to" : "sent to", `${command.position.map((part) => part.toFixed(3)).join(", ")} m`],
      ["that was", `${seconds(command.age)} ago`],
      ["gripper", command.gripper === null ? NONE : `${(100 * command.gripper).toFixed(0)} % closed`],
      ["steps waiting", String(command.queue_length)],
    );
  }
  whenChanged("arm", facts, () =>
    byId("arm").replaceChildren(...facts.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)])));
};

const showLog = ({ log }) => {
  // Whole seconds, so that the list does not change four times a second.
  const lines = log.map(({ age, level, text }) => [age < 60 ? `${Math.floor(age)} s` : `${Math.floor(age / 60)} min`, level, text]);
  whenChanged("log", lines, () =>
    byId("log").replaceChildren(
      ...(lines.length ? lines.map(([age, level, text]) =>
        html("li", { class: level }, html("time", {}, `${age} ago`), html("span", {}, level === "info" ? text : `${level}: ${text}`)))
        : [html("li", { class: "empty" }, "Nothing yet.")]),
    ));
};

const showTable = ({ steps, latency_parts: parts }) =>
  whenChanged("steps", [steps, parts], () => {
    const cells = (tag, values) => html("tr", {}, ...values.map((value) => html(tag, {}, value)));
    byId("steps").replaceChildren(
      cells("th", ["step", "energy", "predicted", "action, mm", "rollouts", ...parts.map((part) => `${part.label}, ms`)]),
      ...steps.map((step) => cells("td", [
        String(step.step + 1), fixed(step.energy, 3), fixed(step.predicted[0], 3),
        step.action_mm.map((part) => String(part).replace("-", "\u2212")).join(", "), String(step.rollouts),
        ...parts.map((part) => fixed(step.latency[part.name], 0)),
      ])),
    );
  });

// --- The stream ---------------------------------------------------------------------------------

const PARTS = [
  showHead, showFigures, showCamera, showGoal, showEnergy, showTimeline, showLatency, showRounds,
  showHealth, showArm, showLog, showTable, showDrawing,
];

let newest = null;
let heardAt = performance.now();
let source = null;

const show = () => newest && PARTS.forEach((part) => part(newest));

const connect = () => {
  source?.close();
  source = new EventSource("events");
  source.onmessage = (event) => {
    heardAt = performance.now();
    newest = JSON.parse(event.data);
    document.body.classList.remove("lost-page");
    byId("connection").className = "";
    setText("connection", "connected");
    show();
  };
  // Browsers give up on some failures for good: begin anew, whatever it was.
  source.onerror = () => { source.close(); setTimeout(connect, RETRY); };
};

setInterval(() => {
  const silence = performance.now() - heardAt;
  if (silence < SILENCE) return;
  document.body.classList.add("lost-page");
  byId("connection").className = "lost";
  // Told in whole minutes after the first, for those who hear it.
  const since = silence < 60000 ? "" : ` for ${seconds(silence / 1000)}`;
  setText("connection", `the page’s server has been lost${since}; trying again`);
  if (newest === null) setText("headline", "The page’s server does not answer");
}, 500);

addEventListener("resize", () => { redrawAll(); show(); });
connect();

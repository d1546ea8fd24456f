// The pictures: camera with what is drawn over it, goal photograph, and the view node's.

import { badge, empty, legend, seconds } from "./format.js";
import { byId, setText, svg, whenChanged } from "./dom.js";

const RETRY = 1000; // ms

// The next picture is loaded once the present one has come: a slow network gets fewer.
const picture = (id, name, alt) => {
  const place = byId(id);
  let wanted = null;
  let loading = false;
  const load = () => {
    const number = wanted;
    const image = new Image();
    image.alt = alt;
    loading = true;
    image.onload = () => {
      loading = false;
      if (wanted === null) return;
      place.classList.remove("waiting");
      (place.querySelector("img") ?? place.querySelector(".empty"))?.replaceWith(image);
      if (wanted !== number) load();
    };
    // The server says in its answer what is wrong with the picture.
    image.onerror = async () => {
      const answer = await fetch(image.src).catch(() => null);
      if (answer !== null && !answer.ok) showText(await answer.text());
      setTimeout(() => (wanted === null ? (loading = false) : load()), RETRY);
    };
    image.src = `pictures/${name()}.jpg?${number}`;
  };
  const showText = (text) => {
    place.classList.add("waiting");
    empty(place, text);
  };
  return (number, emptyText) => {
    if (number === null || number === undefined) {
      wanted = null;
      whenChanged(`${id}-empty`, emptyText, () => showText(emptyText));
      return;
    }
    whenChanged(`${id}-empty`, null, () => {});
    if (number === wanted) return;
    wanted = number;
    if (!loading) load();
  };
};

let shownGoal = 0;
const showCameraPicture = picture("camera", () => "camera", "What the camera sees now");
const showGoalPicture = picture("goal", () => `goal-${shownGoal}`, "The photograph of the goal");
const showDrawingPicture = picture("drawing", () => "drawing", "The goal photograph beside the frame that was planned from, with the planned motion");

export const staleness = (id, topic, place) => {
  place?.classList.toggle("stale", topic.stale);
  if (topic.age === null) badge(id, "");
  else if (topic.stale) badge(id, `stale: ${seconds(topic.age)} old`, "error");
  else badge(id, topic.rate === null ? "live" : `live, ${topic.rate.toFixed(0)} Hz`, "ok");
};

export const showCamera = ({ pictures: { camera }, overlay }) => {
  showCameraPicture(camera.picture, camera.topic ? `No picture has come on ${camera.topic} yet.` : "Nobody publishes image_raw yet.");
  staleness("camera-badge", camera, byId("camera"));
  setText("camera-caption", camera.topic);
  whenChanged("overlay", overlay, () => {
    byId("camera").querySelector("svg")?.remove();
    byId("overlay-legend").hidden = overlay === null;
    if (overlay === null) return;
    const line = (kind, points) => svg("polyline", { class: kind, points: points.join(" ") });
    const dots = (kind, points, radius) =>
      points.map(([cx, cy]) => svg("circle", { class: kind, cx, cy, r: radius }));
    const unit = overlay.width / 256;
    const candidates = dots("candidate", overlay.candidates, 1.6 * unit);
    candidates.forEach((dot, index) => dot.style.setProperty("--rank", overlay.ranks[index]));
    byId("camera").append(svg(
      "svg", { viewBox: `0 0 ${overlay.width} ${overlay.height}`, "aria-hidden": "true" },
      // The best come first, and are drawn last.
      ...candidates.reverse(),
      ...(overlay.goal ? dots("goal", [overlay.goal], 6 * unit) : []),
      line("trail", overlay.way),
      line("planned", overlay.planned),
      ...dots("planned", overlay.planned.slice(1), 2.9 * unit),
    ));
    legend("overlay-legend", [
      ["way so far", "way"], ["planned", "planned"],
      ...(overlay.candidates.length ? [["imagined, best", "best"], ["imagined, worst", "worst"]] : []),
      ...(overlay.goal ? [["goal", "goal"]] : []),
    ]);
  });
};

export const showGoal = ({ pictures, goal }) => {
  shownGoal = goal?.subgoal ?? 0;
  showGoalPicture(pictures.goals[shownGoal], "No goal yet. Send one with jepa-planner reach PHOTO.png");
  if (goal === null) {
    badge("goal-badge", "");
    setText("goal-caption", "");
    return;
  }
  const count = goal.subgoals.length;
  badge("goal-badge", count > 1 ? `${shownGoal + 1} of ${count}` : "");
  const away = goal.distance_cm === null || goal.ended ? "" : `${goal.distance_cm.toFixed(1)} cm away`;
  setText("goal-caption", [away, goal.mode.replace("_", " "), goal.time_limit ? `time limit ${seconds(goal.time_limit)}` : ""].filter(Boolean).join(", "));
};

export const showDrawing = ({ pictures: { drawing } }) => {
  byId("drawing-section").hidden = drawing.picture === null;
  if (drawing.picture === null) return;
  showDrawingPicture(drawing.picture, "");
  // It comes with every plan, so its age tells nothing but that.
  badge("drawing-badge", `${seconds(drawing.age)} old`);
};

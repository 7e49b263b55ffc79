// Spheres of test images: one object of points a run, filtered by the classes that are on.

const UNIT = 32767;
const POINTS = 2;
const DISTANCE = 1.4;
const MOST_NAMES = 20;

function sphere(part, run) {
  const space = spaceOf(part, run);
  const points = unpack(run.spheres[space].points, Int16Array);
  const signatures = unpack(run.spheres[space].signatures, Int16Array);
  const on = classesOn(part);
  const places = [];
  labelsOf(part).forEach((label, place) => { if (on.has(label)) places.push(place); });
  const crosses = [...on].sort((a, b) => a - b);
  const size = places.length > 2000 ? 2.6 : places.length > 500 ? 3.4 : 4.6;
  return {
    places, crosses,
    data: [
      ball(), wires(),
      {
        type: "scatter3d", mode: "markers", hoverinfo: "none",
        ...spread(points, places, 1.01),
        marker: { size, color: places.map((place) => tone(part.colours[labelsOf(part)[place]])), line: { width: 0 } },
      },
      { ...strokes(signatures, crosses, 1.03), line: { color: "#e0002b", width: 9 } },
      { ...strokes(signatures, crosses, 1.04), line: { color: "#ffffff", width: 3.5 } },
      names(part, clusters(part, points, on)),
    ],
    layout: {
      ...frame({ margin: { l: 0, r: 0, t: 0, b: 0 } }), uirevision: space,
      scene: {
        xaxis: bare(), yaxis: bare(), zaxis: bare(), aspectmode: "cube", dragmode: "orbit",
        camera: cameraOf(part, run, space), uirevision: space,
      },
    },
  };
}

// As it was left, or with the picked class in front, or from where most is seen. Layouts of two
// spaces are turned independently.
function cameraOf(part, run, space) {
  return run.cameras?.[space] ?? seenFrom(frontOf(part, run, space) ?? run.spheres[space].eye, DISTANCE);
}

function frontOf(part, run, space) {
  if (part.front === undefined) return undefined;
  const points = unpack(run.spheres[space].points, Int16Array);
  return clusters(part, points, new Set([part.front]))[0]?.[1];
}

// At a pole, the way that is up would be lost.
function seenFrom([x, y, z], distance) {
  const rise = Math.max(-1.5, Math.min(1.5, Math.atan2(z, Math.hypot(x, y))));
  const [round, across] = [Math.atan2(y, x), distance * Math.cos(rise)];
  const eye = { x: across * Math.cos(round), y: across * Math.sin(round), z: distance * Math.sin(rise) };
  return { eye, up: { x: 0, y: 0, z: 1 } };
}

function bringToFront(part, label) {
  part.front = label;
  for (const run of part.runs) run.cameras = {};
  document.querySelectorAll(`.sphere[data-part="${part.id}"][data-drawn]`).forEach((element) => {
    const run = runOf.get(element.dataset.run);
    Plotly.relayout(element, { "scene.camera": cameraOf(part, run, spaceOf(part, run)) });
  });
}

function keepCamera(element) {
  if (!element.dataset.drawn) return;
  const run = runOf.get(element.dataset.run);
  (run.cameras ??= {})[element.layout.uirevision] = structuredClone(element.layout.scene.camera);
}

function spread(values, places, radius) {
  const axis = (offset) => places.map((place) => (radius * values[3 * place + offset]) / UNIT);
  return { x: axis(0), y: axis(1), z: axis(2) };
}

// Where the images of each class lie on average, as directions. Many names would hide the points.
function clusters(part, points, on) {
  const sums = new Map([...on].map((label) => [label, [0, 0, 0]]));
  labelsOf(part).forEach((label, place) => {
    sums.get(label)?.forEach((_, axis, sum) => { sum[axis] += points[3 * place + axis]; });
  });
  const found = [...sums].filter(([, sum]) => Math.hypot(...sum) > 0);
  return found.length > MOST_NAMES ? [] : found.map(([label, sum]) => [label, unit(sum)]);
}

function names(part, found) {
  const axis = (place) => found.map(([, direction]) => 1.09 * direction[place]);
  return {
    type: "scatter3d", mode: "text", hoverinfo: "skip", x: axis(0), y: axis(1), z: axis(2),
    text: found.map(([label]) => `<b>${plain(shorten(part.classes[label], 16))}</b>`),
    textfont: { size: 13, color: ink("ink") },
  };
}

function bare() {
  return { visible: false, range: [-1.1, 1.1], showspikes: false };
}

// Crosses as strokes on the sphere: the glyph that Plotly has for an X is in few fonts.
function strokes(values, places, radius) {
  const lines = { x: [], y: [], z: [] };
  const long = 0.055;
  for (const place of places) {
    const s = [0, 1, 2].map((axis) => values[3 * place + axis] / UNIT);
    const flat = Math.hypot(s[0], s[1]) || 1;
    const east = [-s[1] / flat, s[0] / flat, 0];
    const north = [-s[2] * east[1], s[2] * east[0], flat];
    for (const [a, b] of [[1, 1], [-1, 1]]) {
      for (const end of [-1, 1, null]) {
        ["x", "y", "z"].forEach((name, axis) => lines[name].push(end === null ? null
          : radius * s[axis] + end * long * (a * east[axis] + b * north[axis]) / Math.SQRT2));
      }
    }
  }
  return { type: "scatter3d", mode: "lines", hoverinfo: "none", ...lines };
}

function wires() {
  const lines = { x: [], y: [], z: [] };
  const add = (rise, turn) => {
    lines.x.push(Math.sin(rise) * Math.cos(turn));
    lines.y.push(Math.sin(rise) * Math.sin(turn));
    lines.z.push(Math.cos(rise));
  };
  const stop = () => { for (const name in lines) lines[name].push(null); };
  for (let part = 0; part < 12; part++) {
    for (let step = 0; step <= 36; step++) add((Math.PI * step) / 36, (Math.PI * part) / 6);
    stop();
  }
  for (let part = 1; part < 6; part++) {
    for (let step = 0; step <= 72; step++) add((Math.PI * part) / 6, (Math.PI * step) / 36);
    stop();
  }
  return { type: "scatter3d", mode: "lines", hoverinfo: "skip", ...lines, line: { color: ink("mesh"), width: 1 } };
}

// Opaque enough that what lies behind is pale, and not so much that it is gone.
function ball() {
  const [x, y, z, i, j, k] = [[], [], [], [], [], []];
  const [rows, columns] = [24, 48];
  for (let row = 0; row <= rows; row++) {
    for (let column = 0; column < columns; column++) {
      const [rise, turn] = [(Math.PI * row) / rows, (2 * Math.PI * column) / columns];
      x.push(0.99 * Math.sin(rise) * Math.cos(turn));
      y.push(0.99 * Math.sin(rise) * Math.sin(turn));
      z.push(0.99 * Math.cos(rise));
      if (row === rows) continue;
      const [here, next] = [row * columns + column, row * columns + ((column + 1) % columns)];
      i.push(here, next); j.push(here + columns, here + columns); k.push(next, next + columns);
    }
  }
  return {
    type: "mesh3d", x, y, z, i, j, k, color: ink("ball"), opacity: 0.42, hoverinfo: "skip",
    lighting: { ambient: 1, diffuse: 0, specular: 0, fresnel: 0 },
  };
}

function labelsOf(part) {
  part.labels ??= [...unpack(part.sample.labels, Uint16Array)];
  return part.labels;
}

function spaceOf(part, run) {
  const chosen = document.querySelector(`input[name="${part.id}-space"]:checked`);
  return chosen && chosen.value in run.spheres ? chosen.value : "raw";
}

function classesOn(part) {
  const chips = document.querySelectorAll(`#${part.id} .classes [data-class]`);
  return new Set([...chips].filter(pressed).map((chip) => Number(chip.dataset.class)));
}

function sayWhich(part, run) {
  const caption = document.querySelector(`[data-space-of="${run.id}"]`);
  if (!part.runs.some((each) => each.spheres.whitened)) return;
  if (spaceOf(part, run) === "whitened") caption.textContent = "After whitening";
  else if (run.spheres.whitened) caption.textContent = "Before whitening";
  else caption.textContent = "This head has no common whitened space";
}

// What is under the pointer: the image, its class and what it was taken for.
function sayPoint(part, run, figure, point) {
  // A cross has two strokes of two ends and a gap.
  if (point.curveNumber > POINTS) {
    return [`signature of ${part.classes[figure.crosses[Math.floor(point.pointNumber / 6)]]}`];
  }
  const place = figure.places[point.pointNumber];
  run.chosenClasses ??= unpack(run.predicted, Uint16Array);
  run.chances ??= unpack(run.confidence, Uint8Array);
  part.indices ??= unpack(part.sample.indices, Uint32Array);
  const [label, taken] = [labelsOf(part)[place], run.chosenClasses[place]];
  const verb = label === taken ? "recognised" : `taken for ${part.classes[taken]}`;
  return [`${part.classes[label]}\n${verb} at ${run.chances[place]}\u00a0%\ntest image ${part.indices[place]}`, place];
}

function turn(element, how) {
  if (!element.layout) return;
  if (how === "home") {
    const [part, run] = [partOf.get(element.dataset.part), runOf.get(element.dataset.run)];
    run.cameras = {};
    Plotly.relayout(element, { "scene.camera": cameraOf(part, run, spaceOf(part, run)) });
    return;
  }
  const eye = { ...element._fullLayout.scene.camera.eye };
  const flat = Math.hypot(eye.x, eye.y);
  const far = Math.hypot(flat, eye.z);
  let [round, rise, distance] = [Math.atan2(eye.y, eye.x), Math.atan2(eye.z, flat), far];
  const step = Math.PI / 18;
  if (how === "left") round -= step;
  if (how === "right") round += step;
  if (how === "up") rise = Math.min(rise + step, 1.5);
  if (how === "down") rise = Math.max(rise - step, -1.5);
  if (how === "in") distance = Math.max(0.7, distance / 1.15);
  if (how === "out") distance = Math.min(4, distance * 1.15);
  const towards = [Math.cos(rise) * Math.cos(round), Math.cos(rise) * Math.sin(round), Math.sin(rise)];
  const next = seenFrom(towards, distance);
  Plotly.relayout(element, { "scene.camera.eye": next.eye, "scene.camera.up": next.up });
}

const KEYS = {
  ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down",
  "+": "in", "=": "in", "-": "out", Home: "home", 0: "home",
};

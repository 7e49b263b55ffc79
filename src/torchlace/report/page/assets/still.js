// A sphere as a picture that stands still: for paper, where WebGL draws nothing.

function still(part, run) {
  const space = spaceOf(part, run);
  const [right, up, towards] = axes(cameraOf(part, run, space));
  const canvas = document.createElement("canvas");
  canvas.className = "still";
  const side = canvas.width = canvas.height = 900;
  const radius = 0.46 * side;
  const pen = canvas.getContext("2d");
  pen.fillStyle = ink("surface");
  pen.fillRect(0, 0, side, side);
  const place = (values, at) => {
    const p = [0, 1, 2].map((axis) => values[3 * at + axis] / UNIT);
    return [side / 2 + radius * dot(p, right), side / 2 - radius * dot(p, up), dot(p, towards)];
  };
  const on = classesOn(part);
  const points = unpack(run.spheres[space].points, Int16Array);
  const signatures = unpack(run.spheres[space].signatures, Int16Array);
  const dots = labelsOf(part).flatMap((label, at) => (on.has(label) ? [[...place(points, at), tone(part.colours[label])]] : []));
  const crosses = [...on].map((label) => place(signatures, label));
  const size = dots.length > 2000 ? 4 : dots.length > 500 ? 5.5 : 8;
  // What lies behind comes first, and the ball over it as a veil.
  for (const front of [false, true]) {
    pen.globalAlpha = front ? 0.7 : 1;
    disc(pen, side / 2, side / 2, radius, ink("ball"));
    pen.globalAlpha = 1;
    for (const [x, y, depth, colour] of dots) if (depth > 0 === front) disc(pen, x, y, size, colour);
    for (const [x, y, depth] of crosses) if (depth > 0 === front) cross(pen, x, y);
  }
  pen.font = "bold 30px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.lineWidth = 6;
  for (const [label, direction] of clusters(part, points, on)) {
    const [x, y, depth] = place(direction.map((value) => UNIT * value), 0);
    if (depth <= 0) continue;
    pen.strokeStyle = ink("surface");
    pen.strokeText(shorten(part.classes[label], 16), x, y);
    pen.fillStyle = ink("ink");
    pen.fillText(shorten(part.classes[label], 16), x, y);
  }
  return canvas;
}

function axes({ eye, up }) {
  const towards = unit([eye.x, eye.y, eye.z]);
  const right = unit(times([up.x, up.y, up.z], towards));
  return [right, times(towards, right), towards];
}

function dot(a, b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

function times(a, b) {
  return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
}

function unit(a) {
  return a.map((value) => value / Math.hypot(...a));
}

function disc(pen, x, y, radius, colour) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fill();
}

function cross(pen, x, y) {
  for (const [colour, width] of [["#e0002b", 10], ["#ffffff", 4]]) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.beginPath();
    for (const way of [-1, 1]) {
      pen.moveTo(x - 14, y - 14 * way);
      pen.lineTo(x + 14, y + 14 * way);
    }
    pen.stroke();
  }
}

// Draws what comes into view, and again what a switch, a chip or the theme changes.

const BUILDERS = { bars, curves, confusion, reliability, angles, spectrum, sphere };
const SAY = {
  sphere: sayPoint,
  confusion: (part, run, figure, point) => [sayCell(part, run, point.pointNumber)],
};
const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: "reset" };

function draw(element) {
  const part = partOf.get(element.dataset.part);
  const run = runOf.get(element.dataset.run);
  if (element.dataset.plot === "sphere") keepCamera(element);
  const figure = BUILDERS[element.dataset.plot](part, run);
  if (figure.height) element.style.height = `${figure.height}px`;
  const first = !element.dataset.drawn;
  element.ready = Plotly.react(element, figure.data, figure.layout, CONFIG);
  element.dataset.drawn = "true";
  element.figure = figure;
  if (element.dataset.plot === "sphere") sayWhich(part, run);
  if (!first || !(element.dataset.plot in SAY)) return;
  const say = ({ points: [point] }) => tell(part, ...SAY[element.dataset.plot](part, run, element.figure, point));
  element.on("plotly_hover", say);
  element.on("plotly_click", (event) => {
    if (element.dataset.plot === "confusion") showCell(part, run, event.points[0].pointNumber);
    else say(event);
  });
  element.on("plotly_unhover", untell);
}

function redraw(selector) {
  document.querySelectorAll(selector).forEach((element) => { if (element.dataset.drawn) draw(element); });
}

const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting && !target.dataset.drawn) draw(target);
    // Browsers keep few WebGL contexts: a sphere out of sight gives its own back.
    if (!isIntersecting && target.dataset.drawn && target.dataset.plot === "sphere") {
      keepCamera(target);
      delete target.dataset.drawn;
      // What is purged in the middle of being drawn fails.
      target.ready.then(() => { if (!target.dataset.drawn) Plotly.purge(target); });
    }
  }
}, { rootMargin: "300px 0px" });

// Text and tables come first: the library of the plots takes longer to start than all else.
function startPlotly() {
  if (typeof Plotly === "object") return;
  const library = document.createElement("script");
  library.textContent = document.getElementById("plotly")?.textContent ?? "";
  document.head.append(library);
}
addEventListener("load", () => requestAnimationFrame(() => setTimeout(() => {
  startPlotly();
  document.querySelectorAll(".plot").forEach((element) => watcher.observe(element));
})));

function pick(part, label) {
  document.querySelector(`[data-front="${part.id}"]`).value = label ?? "";
  bringToFront(part, label);
}

document.addEventListener("change", (event) => {
  const { front } = event.target.dataset;
  if (front) pick(partOf.get(front), event.target.value === "" ? undefined : Number(event.target.value));
  const group = event.target.closest(".switch");
  if (!group) return;
  const kind = event.target.name.endsWith("-space") ? "sphere" : "curves";
  redraw(`.${kind}[data-part="${group.dataset.part}"]`);
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const classes = button.closest(".classes");
  if (classes) {
    if (button.dataset.all) {
      classes.querySelectorAll("[data-class]").forEach((chip) => press(chip, button.dataset.all === "true"));
    } else press(button, !pressed(button));
    const part = partOf.get(classes.dataset.part);
    const [only, ...others] = classesOn(part);
    if (only !== undefined && !others.length) pick(part, only);
    redraw(`.sphere[data-part="${classes.dataset.part}"]`);
  } else if (button.matches(".runs .chip")) {
    press(button, !pressed(button));
    const part = button.closest(".part");
    part.querySelectorAll(`.card[data-run="${button.dataset.run}"]`).forEach((card) => { card.hidden = !pressed(button); });
    redraw(`#${part.id} :is(.curves, .spectrum)`);
  } else if (button.dataset.turn) {
    turn(button.closest("figure").querySelector(".sphere"), button.dataset.turn);
  } else if (button.id === "theme") {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  }
});

document.addEventListener("keydown", (event) => {
  if (!event.target.matches(".sphere") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!(event.key in KEYS)) return;
  event.preventDefault();
  turn(event.target, KEYS[event.key]);
});

function showTheme() {
  press(document.getElementById("theme"), isDark());
  redraw(".plot");
}
dark.addEventListener("change", showTheme);
showTheme();

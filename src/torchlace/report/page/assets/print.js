// Paper is light and narrow, and shows all figures, also those that were never in view.

let themeBefore;

addEventListener("beforeprint", () => {
  const page = document.documentElement;
  themeBefore = page.dataset.theme;
  page.dataset.theme = "light";
  page.classList.add("printing");
  startPlotly();
  document.querySelectorAll(".plot:not([hidden] *)").forEach((element) => {
    if (element.dataset.plot !== "sphere") return fit(element);
    const [part, run] = [partOf.get(element.dataset.part), runOf.get(element.dataset.run)];
    keepCamera(element);
    element.after(still(part, run));
    sayWhich(part, run);
  });
});

addEventListener("afterprint", () => {
  const page = document.documentElement;
  if (themeBefore === undefined) delete page.dataset.theme;
  else page.dataset.theme = themeBefore;
  page.classList.remove("printing");
  document.querySelectorAll(".still").forEach((picture) => picture.remove());
  document.querySelectorAll(".plot[data-drawn]").forEach(fit);
});

function fit(element) {
  draw(element);
  Plotly.relayout(element, { autosize: true });
}

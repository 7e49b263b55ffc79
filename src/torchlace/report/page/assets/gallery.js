// Galleries: the images of a cell of a confusion matrix, and those that only one of two runs gets right.

const MOST_SHOWN = 60;

function takenFor(run) {
  run.chosenClasses ??= unpack(run.predicted, Uint16Array);
  return run.chosenClasses;
}

function fillGallery(box, part, run, places, said) {
  const [caption, list] = [document.createElement("p"), document.createElement("ul")];
  caption.className = "muted";
  const more = places.length > MOST_SHOWN && part.sheet ? ` The ${MOST_SHOWN} it was surest of are shown.` : "";
  caption.textContent = said + more;
  list.className = "pictures fading";
  list.tabIndex = 0;
  list.ariaLabel = said;
  fade(list);
  run.chances ??= unpack(run.confidence, Uint8Array);
  places.sort((a, b) => run.chances[b] - run.chances[a]);
  for (const place of places.slice(0, part.sheet ? MOST_SHOWN : 0)) {
    const [label, taken] = [labelsOf(part)[place], takenFor(run)[place]];
    const verb = label === taken ? "right," : `→ ${part.classes[taken]},`;
    const [item, picture, text] = ["li", "span", "span"].map((tag) => document.createElement(tag));
    showImage(picture, part, place);
    text.className = "said";
    for (const [tag, line] of [["b", part.classes[label]], ["span", `${verb} ${run.chances[place]}\u00a0%`]]) {
      text.append(Object.assign(document.createElement(tag), { textContent: line }));
    }
    text.lastChild.classList.toggle("wrong", label !== taken);
    item.append(picture, text);
    list.append(item);
  }
  box.replaceChildren(caption, list);
  box.hidden = false;
}

function showCell(part, run, [i, j]) {
  const taken = takenFor(run);
  const places = [];
  labelsOf(part).forEach((label, place) => { if (label === i && taken[place] === j) places.push(place); });
  const count = countsOf(part, run)[i][j];
  const lost = count > places.length ? ` This page holds ${places.length || "none"} of them.` : "";
  const gone = count && !part.sheet ? " There are no pictures: the images could not be read." : lost;
  const box = document.querySelector(`[data-cell-of="${run.id}"]`);
  fillGallery(box, part, run, places, `${sayCell(part, run, [i, j]).replace("\n", ": ")}.${gone}`);
}

function showVersus(box) {
  const [right, wrong] = [...box.querySelectorAll("select")].map((chosen) => runOf.get(chosen.value));
  const part = partOf.get(box.dataset.versus);
  const [one, other] = [takenFor(right), takenFor(wrong)];
  const labels = labelsOf(part);
  const places = [...labels.keys()].filter((place) => one[place] === labels[place] && other[place] !== labels[place]);
  const held = labels.length.toLocaleString("en");
  const gone = part.sheet ? "" : " There are no pictures: the images could not be read.";
  const said = `${places.length} of the ${held} test images on this page: what ${wrong.name} took them for, and how sure it was.${gone}`;
  fillGallery(box.querySelector(".gallery"), part, wrong, places, said);
}

// By the keyboard too: what is most confused has a button for all of its images.
document.addEventListener("click", ({ target }) => {
  const cell = target.dataset.cell?.split(",").map(Number);
  if (!cell) return;
  const { run } = target.closest(".card").dataset;
  showCell(partOf.get(target.closest(".part").id), runOf.get(run), cell);
  document.querySelector(`[data-cell-of="${run}"]`).scrollIntoView({ block: "center" });
});

for (const box of document.querySelectorAll("[data-versus]")) {
  box.addEventListener("change", () => showVersus(box));
  showVersus(box);
}

// Tables are copied or saved as CSV, figures as SVG or PNG.

function offer(name, url) {
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  if (url.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function fileName(...words) {
  return words.join("-").replace(/[^\p{L}\p{N}.]+/gu, "-").replace(/^-|-$/g, "");
}

// Numbers in full, words and means ± deviations as they are read.
function rowsOf(table) {
  return [...table.rows].map((row) => [...row.cells].map((cell) => {
    if (cell.matches(".number[data-value]") && !cell.textContent.includes("±")) return cell.dataset.value;
    const copy = cell.cloneNode(true);
    copy.querySelectorAll(".unseen, .better").forEach((hidden) => hidden.remove());
    return copy.textContent.replace(/\s+/g, " ").trim();
  }));
}

function csv(rows) {
  const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return rows.map((row) => row.map(quote).join(",")).join("\r\n") + "\r\n";
}

function saveTable(table, id) {
  const name = fileName(document.title, document.getElementById(id).textContent);
  offer(`${name}.csv`, URL.createObjectURL(new Blob(["\ufeff", csv(rowsOf(table))], { type: "text/csv" })));
}

async function copyTable(table, button) {
  await navigator.clipboard.writeText(rowsOf(table).map((row) => row.join("\t")).join("\n"));
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

async function saveFigure(element, format) {
  const [part, run] = [partOf.get(element.dataset.part), runOf.get(element.dataset.run)];
  const name = `${fileName(document.title, run?.name ?? "", element.dataset.plot)}.${format}`;
  if (element.dataset.plot === "sphere") {
    keepCamera(element);
    offer(name, still(part, run).toDataURL());
    return;
  }
  const { data, layout } = element.figure;
  const { clientWidth: width, clientHeight: height } = element;
  const opaque = { ...layout, paper_bgcolor: ink("surface") };
  offer(name, await Plotly.toImage({ data, layout: opaque }, { format, width, height, scale: format === "png" ? 2 : 1 }));
}

document.addEventListener("click", ({ target }) => {
  const { copy, csv: saved, save } = target.closest("button")?.dataset ?? {};
  const table = document.querySelector(`table[aria-labelledby="${copy ?? saved}"]`);
  if (saved) saveTable(table, saved);
  else if (copy) copyTable(table, target);
  else if (save) saveFigure(target.closest("figure").querySelector(".plot"), save);
});

// Not every browser lets a page that was opened from a disk write to the clipboard.
if (!navigator.clipboard) document.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = true; });

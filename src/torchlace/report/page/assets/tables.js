// Tables that sort by a click on, or by Enter or Space in, the head of a column.

function sortBy(table, column, head) {
  const numbers = head.classList.contains("number");
  const before = head.getAttribute("aria-sort");
  // The best comes first, else the largest number; words begin with the first letter.
  const up = before ? before === "descending" : !numbers || head.dataset.better < 0;
  const body = table.tBodies[0];
  const keyed = [...body.rows].map((row) => [row.cells[column].dataset.value, row]);
  keyed.sort(([a], [b]) => {
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    const order = numbers ? a - b : a.localeCompare(b, undefined, { numeric: true });
    return up ? order : -order;
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  body.append(...keyed.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => sortBy(table, column, head));
  });
}

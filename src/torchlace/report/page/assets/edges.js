// What scrolls sideways or down fades at the edge beyond which there is more.

function showEdges(element) {
  const { scrollLeft, scrollTop, clientWidth, clientHeight, scrollWidth, scrollHeight } = element;
  element.classList.toggle("more-left", scrollLeft > 1);
  element.classList.toggle("more-right", scrollLeft + clientWidth < scrollWidth - 1);
  element.classList.toggle("more-below", scrollTop + clientHeight < scrollHeight - 1);
}

const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => showEdges(target)));
function fade(element) {
  sizes.observe(element);
  element.addEventListener("scroll", () => showEdges(element), { passive: true });
}
document.querySelectorAll(".fading").forEach(fade);

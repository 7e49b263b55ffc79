// A note beside the pointer: text, and for an image of a sphere its picture.

const hover = document.getElementById("hover");
let pointer = { x: 0, y: 0 };
addEventListener("pointermove", (event) => {
  pointer = { x: event.clientX, y: event.clientY };
}, { passive: true });

function tell(part, text, place) {
  hover.querySelector("p").textContent = text;
  const picture = hover.querySelector(".picture");
  picture.hidden = !part.sheet || place === undefined;
  if (!picture.hidden) {
    showImage(picture, part, place);
  }
  hover.hidden = false;
  const { width, height } = hover.getBoundingClientRect();
  hover.style.left = `${Math.max(8, Math.min(pointer.x + 16, innerWidth - width - 8))}px`;
  hover.style.top = `${Math.max(8, Math.min(pointer.y + 16, innerHeight - height - 8))}px`;
}

function showImage(picture, part, place) {
  const { columns, shown } = part.sheet;
  picture.className = `picture ${part.id}-sample`;
  picture.style.backgroundPosition = `-${(place % columns) * shown}px -${Math.floor(place / columns) * shown}px`;
}

function untell() {
  hover.hidden = true;
}

document.addEventListener("keydown", (event) => { if (event.key === "Escape") untell(); });
document.documentElement.addEventListener("pointerleave", untell);
addEventListener("scroll", untell, { passive: true });

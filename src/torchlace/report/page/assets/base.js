"use strict";
// What the other scripts share: the payload, packed numbers, colours of the theme.

const parts = JSON.parse(document.getElementById("payload").textContent);
const partOf = new Map(parts.map((part) => [part.id, part]));
const runOf = new Map(parts.flatMap((part) => part.runs.map((run) => [run.id, run])));
const dark = matchMedia("(prefers-color-scheme: dark)");
const coarse = matchMedia("(pointer: coarse)");

function unpack(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Kind(bytes.buffer);
}

// Plotly reads some tags and entities in names; names are text.
function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

// In the middle: long names often differ in their last letters.
function shorten(text, longest) {
  if (text.length <= longest) return text;
  const start = Math.ceil((longest - 1) / 2);
  return `${text.slice(0, start)}…${text.slice(1 + start - longest)}`;
}

function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function pressed(button) {
  return button.getAttribute("aria-pressed") === "true";
}

function press(button, on) {
  button.setAttribute("aria-pressed", String(on));
}

// A colour is a pair: for a light and for a dark page.
function tone(colour) {
  return colour[isDark() ? 1 : 0];
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : dark.matches;
}

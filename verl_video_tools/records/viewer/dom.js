"use strict";

// Elements are made of text nodes and attributes only: nothing recorded is ever read as markup.
function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

function svgElement(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// Each rollout and each video has a block of its own, read when it is first looked at.
const blocks = new Map();
function block(id) {
  if (!blocks.has(id)) {
    const node = document.getElementById(id);
    blocks.set(id, node === null ? null : JSON.parse(node.textContent));
  }
  return blocks.get(id);
}

const index = block("index");

function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? String(Number(value.toFixed(digits))) : String(value);
}

function clock(seconds, digits = 1) {
  const unit = 10 ** digits;
  const rounded = Math.round(seconds * unit) / unit;
  const minutes = Math.floor(rounded / 60);
  const rest = (rounded - 60 * minutes).toFixed(digits);
  return `${minutes}:${rest.padStart(digits ? 3 + digits : 2, "0")}`;
}

function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

// Methods label frames by number or by time, so a caption has both.
function placeOf(frame) {
  return `${frame.index}, ${clock(frame.timestamp_seconds)}`;
}

// The list of rollouts. Filters, order and choice stand in the address, so a view can be linked to:
// #method=longvt&stop=answer&step=3&min=0&max=1&text=goal&sort=score&descending=1&rollout=7

const ROWS_AT_ONCE = 500;
const COLUMNS = [
  ["step", "step", "number"], ["method", "method", ""], ["score", "reward", "number"], ["advantage", "advantage", "number"],
  ["calls", "calls", "number"], ["frames", "frames", "number"], ["stop", "stop reason", ""], ["answer", "answer", "answer"],
];
const filters = document.getElementById("filters");
const body = document.querySelector("#list tbody");
const more = document.getElementById("more");
let view = new URLSearchParams();
let listed = [];

// JSON knows no infinite numbers, so they come by name.
const INFINITE = new Map([["inf", Infinity], ["-inf", -Infinity]]);

// Numbers before texts, and what is missing last in either direction.
function compare(a, b, sign = 1) {
  const [first, second] = [a, b].map((value) => (INFINITE.has(value) ? INFINITE.get(value) : value));
  const kind = (value) => (typeof value === "number" ? 0 : value === null || value === "nan" ? 2 : 1);
  if (kind(first) !== kind(second)) return kind(first) - kind(second);
  if (first === second || kind(first) === 2) return 0;
  return first < second ? -sign : sign;
}

function matches(rollout) {
  const filter = (name) => view.get(name) || null;
  for (const name of ["method", "stop", "step"]) {
    if (filter(name) !== null && String(rollout[name]) !== filter(name)) return false;
  }
  const bound = (name) => (filter(name) === null || Number.isNaN(Number(filter(name))) ? null : Number(filter(name)));
  const [least, most] = [bound("min"), bound("max")];
  if (least !== null && !(typeof rollout.score === "number" && rollout.score >= least)) return false;
  if (most !== null && !(typeof rollout.score === "number" && rollout.score <= most)) return false;
  const text = filter("text");
  return text === null || `${rollout.question}\n${rollout.uid}`.toLowerCase().includes(text.toLowerCase());
}

function showList() {
  listed = [...index.rollouts.keys()].filter((id) => matches(index.rollouts[id]));
  const key = view.get("sort");
  if (COLUMNS.some(([name]) => name === key)) {
    const sign = view.get("descending") ? -1 : 1;
    listed.sort((a, b) => compare(index.rollouts[a][key], index.rollouts[b][key], sign)); // stays in order where equal
  }
  document.querySelector("#list thead tr").replaceChildren(...COLUMNS.map(([name, title, kind]) => {
    const button = element("button", { type: "button", "data-sort": name }, title);
    const order = name !== key ? "none" : view.get("descending") ? "descending" : "ascending";
    return element("th", { class: kind, "aria-sort": order }, button);
  }));
  body.replaceChildren();
  addRows();
  const scores = listed.map((id) => index.rollouts[id].score).filter((score) => typeof score === "number");
  const mean = scores.length ? `, mean reward ${number(scores.reduce((sum, score) => sum + score, 0) / scores.length)}` : "";
  const leftOut = index.num_left_out ? `; ${plural(index.num_left_out, "other rollout")} left out (--max-rollouts)` : "";
  document.getElementById("summary").textContent = `${listed.length} of ${plural(index.rollouts.length, "rollout")}${mean}${leftOut}`;
  document.body.dataset.shown = listed.length;
}

// A row for each rollout, and one before them for the question of those that follow each other.
function addRows() {
  const first = body.querySelectorAll("[data-rollout]").length;
  for (let position = first; position < Math.min(listed.length, first + ROWS_AT_ONCE); position += 1) {
    const rollout = index.rollouts[listed[position]];
    if (position === 0 || index.rollouts[listed[position - 1]].question !== rollout.question) body.append(questionRow(rollout));
    body.append(element("tr", { "data-rollout": listed[position] }, ...COLUMNS.map(([name, , kind]) => {
      const text = typeof rollout[name] === "number" || rollout[name] === null ? number(rollout[name]) : String(rollout[name]);
      return element("td", kind === "answer" ? { class: kind, title: text } : { class: kind }, text);
    })));
  }
  const left = listed.length - body.querySelectorAll("[data-rollout]").length;
  more.hidden = left === 0;
  more.textContent = `${left} more`;
  markChosen();
}

function questionRow({ question }) {
  return element("tr", { class: "question" }, element("td", { colspan: COLUMNS.length, title: question }, element("div", {}, question)));
}

function markChosen() {
  for (const row of body.children) {
    if (row.dataset.rollout === view.get("rollout")) {
      row.setAttribute("aria-current", "true");
      // Not scrollIntoView: that would move the page as well.
      const list = document.getElementById("list");
      const head = list.querySelector("thead").offsetHeight;
      if (row.offsetTop < list.scrollTop + head) list.scrollTop = row.offsetTop - head;
      else if (row.offsetTop + row.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = row.offsetTop + row.offsetHeight - list.clientHeight;
    } else row.removeAttribute("aria-current");
  }
}

function choose(id) {
  change({ rollout: String(id) });
  markChosen();
  showRollout(id);
}

// In the list, or in the table of a group.
function chooseClicked(event) {
  const row = event.target.closest("tr[data-rollout]");
  if (row !== null) choose(Number(row.dataset.rollout));
}

function change(values) {
  for (const [name, value] of Object.entries(values)) {
    if (value === "") view.delete(name);
    else view.set(name, value);
  }
  history.replaceState(null, "", `#${view}`);
}

function options(name) {
  const values = [...new Set(index.rollouts.map((rollout) => rollout[name]))].filter((value) => value !== null).sort(compare);
  filters.elements[name].replaceChildren(element("option", { value: "" }, "all"), ...values.map((value) => element("option", { value }, String(value))));
}

function readAddress() {
  view = new URLSearchParams(location.hash.slice(1));
  for (const control of filters.querySelectorAll("[name]")) control.value = view.get(control.name) || "";
  showList();
  showChosen();
}

function showChosen() {
  const id = view.has("rollout") ? Number(view.get("rollout")) : listed[0];
  if (index.rollouts[id] !== undefined) {
    view.set("rollout", String(id));
    markChosen();
    showRollout(id);
  } else {
    document.getElementById("rollout").replaceChildren(element("p", { class: "soft" }, "No rollout is chosen."));
  }
}

["method", "stop", "step"].forEach(options);
filters.addEventListener("submit", (event) => event.preventDefault());
filters.addEventListener("input", (event) => { change({ [event.target.name]: event.target.value }); showList(); });
filters.addEventListener("reset", (event) => {
  event.preventDefault();
  const names = [...filters.querySelectorAll("[name]")].map((control) => { control.value = ""; return [control.name, ""]; });
  change(Object.fromEntries(names));
  showList();
});
document.querySelector("#list thead").addEventListener("click", (event) => {
  const name = event.target.dataset.sort;
  if (name === undefined) return;
  change({ sort: name, descending: view.get("sort") === name && !view.get("descending") ? "1" : "" });
  showList();
});
body.addEventListener("click", chooseClicked);
more.addEventListener("click", () => addRows());
document.addEventListener("keydown", (event) => {
  const step = { j: 1, k: -1 }[event.key];
  if (step === undefined || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select")) return;
  const next = listed[listed.indexOf(Number(view.get("rollout"))) + step];
  if (next !== undefined) choose(next);
});
window.addEventListener("hashchange", readAddress);
readAddress();

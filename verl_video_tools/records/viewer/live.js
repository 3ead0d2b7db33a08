// A page of `vvt view --live`: rollouts come from the server that the page came from, which is asked again and again what is new.

const POLL_MILLISECONDS = 2000;
let version = 0;
const records = new Map();
const pictures = new Map();
const waiting = new Map(); // id of a rollout whose pictures were asked for, to those who wait for them

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (answer.ok) return answer.json();
  if (answer.status === 410) return { error: (await answer.json()).error };
  throw new Error(`status ${answer.status}`);
}

source.record = async (id, use, fail) => {
  if (!records.has(id)) {
    try {
      const answer = await ask(`rollout/${id}`);
      if (answer.error !== undefined) { fail(answer.error); return; }
      records.set(id, answer);
    } catch { fail("This rollout could not be fetched: vvt view does not answer."); return; }
  }
  use(records.get(id));
};

// Strips are drawn at once without pictures, and again when these have come.
source.pictures = async (id, use) => {
  use(pictures.get(id) || null);
  if (pictures.has(id)) return;
  if (waiting.has(id)) { waiting.get(id).push(use); return; }
  waiting.set(id, [use]);
  try {
    const { pictures: shown = {}, note = null } = await ask(`pictures/${id}`);
    pictures.set(id, shown);
    const { video } = index.rollouts[id] || { video: null };
    if (video !== null) index.videos[video].note = note;
  } catch { /* without pictures; asked again when the rollout is opened again */ }
  const waited = waiting.get(id);
  waiting.delete(id);
  if (pictures.has(id)) for (const each of waited) each(pictures.get(id));
};

function take(changes) {
  const isFirst = version === 0;
  version = changes.version;
  if (changes.order === undefined) return;
  const stays = new Set(changes.order);
  index.rollouts.forEach((rollout, id) => {
    rollout.isNew = false;
    if (!stays.has(id)) for (const each of [records, pictures]) each.delete(id);
    if (!stays.has(id)) delete index.rollouts[id];
  });
  for (const [number, path] of Object.entries(changes.videos)) if (index.videos[number] === undefined) index.videos[number] = { path, note: null };
  for (const rollout of changes.added) index.rollouts[rollout.id] = { ...rollout, isNew: !isFirst };
  Object.assign(index, { order: changes.order, components: changes.components, num_left_out: changes.num_left_out });
  notes = changes.notes;
  showChanges();
}

// The reader keeps what is open, the filters, and the place in the list.
function showChanges() {
  const list = document.getElementById("list");
  const topRow = [...body.children].find((row) => row.dataset.rollout !== undefined && row.offsetTop >= list.scrollTop);
  const above = topRow === undefined ? 0 : topRow.offsetTop - list.scrollTop;
  const isAtTop = list.scrollTop === 0;
  prepareList();
  for (const control of filters.querySelectorAll("select")) control.value = view.get(control.name) || "";
  showList();
  const again = topRow && body.querySelector(`[data-rollout="${topRow.dataset.rollout}"]`);
  list.scrollTop = isAtTop || !again ? 0 : again.offsetTop - above;
  const article = document.getElementById("rollout");
  if (article.dataset.rollout === undefined && shown.length) showChosen();
}

let notes = [];
function tell(connection, secondsSinceWritten) {
  const steps = inOrder().map((id) => index.rollouts[id].step).filter((step) => step !== null);
  const newest = steps.length ? `newest step ${Math.max(...steps)}, ` : "";
  const age = secondsSinceWritten === null ? (notes.length ? "" : "no step is recorded yet") : `${newest}written ${ageText(secondsSinceWritten)} ago`;
  const status = document.getElementById("status");
  status.hidden = false;
  status.replaceChildren(element("span", { class: connection === null ? "good" : "bad" }, connection === null ? "live" : connection), connection === null && age ? `: ${age}` : "",
    ...notes.map((note) => element("div", { class: "bad" }, note)));
}

function ageText(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

async function poll() {
  try {
    const changes = await ask(`changes/${version}`);
    take(changes);
    tell(null, changes.seconds_since_written);
  } catch {
    tell("vvt view does not answer; it may have ended. Trying again", null);
  }
  setTimeout(poll, POLL_MILLISECONDS);
}

addEventListener("DOMContentLoaded", () => { tell("asking vvt view", null); poll(); });

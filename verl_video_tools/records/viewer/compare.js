// Two rollouts of a group side by side.

const MOST_PAIRS = 250000; // of words that are compared, for texts of 500 words each

function drawComparison(article, ids, records) {
  const summaries = ids.map((id) => index.rollouts[id]);
  const trajectories = records.map((record) => record.trajectory);
  const names = summaries.map((summary) => `rollout ${summary.session}`);
  const [id, other] = ids;
  const alone = element("button", { type: "button" }, `${names[0]} alone`);
  alone.addEventListener("click", () => choose(id));
  const swapped = element("button", { type: "button" }, "swap");
  swapped.addEventListener("click", () => choose(other, id));
  article.replaceChildren();
  article.scrollTop = 0;
  article.append(element("h2", {}, `${names.join(" and ")} of one group`), element("p", {}, alone, " ", swapped),
    element("p", { class: "text" }, trajectories[0].question),
    element("div", { class: "wide" }, differencesTable(names, summaries, records)), ...commonTimeline(names, summaries, records));
  const numTurns = Math.max(...trajectories.map((trajectory) => trajectory.turns.length));
  const looks = ids.map((_, side) => frameStrip(trajectories[side].initial_frames, summaries[side], trajectories[side].video));
  const isSame = JSON.stringify(trajectories[0].initial_frames) === JSON.stringify(trajectories[1].initial_frames);
  article.append(element("h3", {}, isSame ? "First look of both" : "First look"), isSame ? looks[0] : pairOf(names, looks));
  for (let position = 0; position < numTurns; position += 1) {
    const turns = trajectories.map((trajectory) => trajectory.turns[position]);
    const none = { text: "", calls: [] }; // beside it everything differs
    article.append(element("h3", {}, `Turn ${position + 1}`), pairOf(names, turns.map((turn, side) => (turn === undefined
      ? element("p", { class: "soft" }, "It had ended.")
      : turnView(turn, position, summaries[side], trajectories[side].video, turns[1 - side] || none)))));
  }
}

function pairOf(names, nodes) {
  return element("div", { class: "sides" }, ...nodes.map((node, side) => element("div", {}, element("div", { class: "soft" }, names[side]), node)));
}

// Rewards by term, and what else a list tells of them; rows that differ are marked.
function differencesTable(names, summaries, records) {
  const terms = [...new Set(records.flatMap((record, side) => rewardNames(summaries[side], record)))];
  const rows = [
    ["answer", ...summaries.map(({ answer }) => answer)], ["stop reason", ...summaries.map(({ stop }) => stop)],
    ...terms.map((name) => [name, ...records.map(({ reward, not_scored: unknown }) => (unknown.includes(name) ? null : reward[name]))]),
    ["advantage", ...summaries.map(({ advantage }) => advantage)],
    ["turns", ...records.map(({ trajectory }) => trajectory.turns.length)],
    ["calls", ...summaries.map(({ calls }) => calls)], ["frames", ...summaries.map(({ frames }) => frames)],
    ["flags", ...records.map(({ trajectory }) => trajectory.flags.join(", "))],
    ["its own", ...summaries.map(({ own }) => ownOptions(own))],
  ].filter(([, ...values]) => values.some((value) => value !== ""));
  const body = rows.map(([name, one, two]) => {
    const differs = one !== two;
    const difference = differs && typeof one === "number" && typeof two === "number" ? `${two > one ? "+" : ""}${number(two - one, 4)}` : "";
    return element("tr", { class: differs ? "differs" : "soft" }, element("td", {}, name),
      ...[one, two].map((value) => element("td", { class: typeof value === "number" ? "number" : "" }, number(value, 4))), element("td", { class: "number" }, difference));
  });
  const head = ["", ...names, "difference"].map((name) => element("th", {}, name));
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}

// What both were shown, over the same time.
function commonTimeline(names, summaries, records) {
  const { trajectory } = records.find((record) => record.trajectory.video !== null) || records[0];
  if (trajectory.video === null) return [];
  const looks = records.flatMap((record, side) => looksOf(record.trajectory).map((look) => ({ ...look, label: `${names[side]}, ${look.label}` })));
  const evidence = records[0].evidence_seconds;
  return [element("h3", {}, "Video"), timeline(trajectory, looks, evidence, summaries[0].in_frames), timelineLegend(trajectory, evidence, summaries[0].in_frames)];
}

// The text in parts, with what the other one lacks marked. Without another one nothing is.
function markDifferences(text, other) {
  if (other === null || other === text) return [text];
  const [words, others] = [text, other].map((whole) => whole.split(/(\s+|[^\p{L}\p{N}_.]+)/u).filter((word) => word !== ""));
  const isCommon = commonWords(words, others);
  const parts = [];
  words.forEach((word, position) => {
    const last = parts.at(-1);
    if (last !== undefined && last.common === isCommon[position]) last.text += word;
    else parts.push({ common: isCommon[position], text: word });
  });
  return parts.map((part) => (part.common ? part.text : element("mark", {}, part.text)));
}

// Which of the words are in a longest common subsequence with the others. Of long texts only common beginning and end are
// compared.
function commonWords(words, others) {
  let [start, end] = [0, 0];
  const least = Math.min(words.length, others.length);
  while (start < least && words[start] === others[start]) start += 1;
  while (end < least - start && words.at(-1 - end) === others.at(-1 - end)) end += 1;
  const [one, two] = [words.slice(start, words.length - end), others.slice(start, others.length - end)];
  const isCommon = words.map((_, position) => position < start || position >= words.length - end);
  if (one.length * two.length > MOST_PAIRS) return isCommon;
  // lengths[i][j]: of the longest common subsequence of what follows i and j
  const lengths = Array.from({ length: one.length + 1 }, () => new Uint16Array(two.length + 1));
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = two.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = one[i] === two[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  for (let i = 0, j = 0; i < one.length && j < two.length;) {
    if (one[i] === two[j]) { isCommon[start + i] = true; i += 1; j += 1; }
    else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return isCommon;
}

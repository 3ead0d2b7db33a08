// One rollout.

function showRollout(id) {
  const article = document.getElementById("rollout");
  const record = block(`rollout-${id}`);
  const summary = index.rollouts[id];
  const trajectory = record.trajectory;
  // In the page before it is filled: the timeline asks for its width.
  const add = (...nodes) => article.append(...nodes.filter((node) => node !== null));
  article.replaceChildren();
  article.scrollTop = 0;

  add(heading(summary, trajectory), element("p", { class: "text" }, trajectory.question), answers(record));
  if (trajectory.error) add(element("p", { class: "bad" }, trajectory.error));
  add(...videoSection(summary, record));
  add(element("h3", {}, plural(trajectory.turns.length, "turn")), ...trajectory.turns.map((turn, number) => turnView(turn, number, summary, trajectory.video)));
  if (trajectory.verification) add(element("h3", {}, "Verification"), verificationView(trajectory.verification, summary, trajectory.video));
  add(element("h3", {}, "Reward"), rewardTable(summary, record));
  const group = groupTable(id);
  if (group !== null) add(element("h3", {}, "Group"), group);
  add(element("h3", {}, "Tokens"), tokensView(record));
  add(lazyDetails("Row and record", () => element("pre", { class: "text" }, JSON.stringify(record.row, null, 2))));
}

function heading(summary, trajectory) {
  const badges = [summary.method, summary.stop].map((text) => element("span", { class: "badge" }, text));
  badges.push(...trajectory.flags.map((flag) => element("span", { class: "badge bad" }, `flagged: ${flag}`)));
  const place = [summary.step === null ? null : `step ${summary.step}`, summary.uid === null ? null : `group ${summary.uid}`,
    summary.session === null ? null : `rollout ${summary.session}`].filter((part) => part !== null).join(", ");
  return element("div", {}, element("h2", {}, `Reward ${number(summary.score)}, advantage ${number(summary.advantage)}`), ...badges,
    element("div", { class: "soft" }, place),
    Object.keys(summary.settings).length ? element("div", { class: "soft" }, `differs from its group: ${settingsText(summary.settings)}`) : null,
    trajectory.prompt_digest ? element("div", { class: "soft" }, `system prompt from a file, digest ${trajectory.prompt_digest}`) : null);
}

// Fields of the method that differ within the group.
function settingsText(settings) {
  return Object.entries(settings).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : number(value, 4)}`).join(", ");
}

function answers(record) {
  const { answer } = record.trajectory;
  const right = record.reward.acc === undefined ? "" : record.reward.acc > 0 ? "good" : "bad";
  return element("p", {}, "Answer ", element("b", { class: right }, answer === null ? "none" : answer), ", truth ",
    element("b", {}, record.ground_truth === null ? "not recorded" : String(record.ground_truth)));
}

function videoSection(summary, record) {
  const { trajectory } = record;
  const nodes = [element("h3", {}, "Video")];
  const video = summary.video === null ? null : index.videos[summary.video];
  if (video !== null) nodes.push(element("div", { class: "soft text" }, video.path));
  if (trajectory.visuals) return [element("h3", {}, "Images"), element("p", { class: "soft" }, trajectory.visuals === "none" ? "None, and no video." : plural(trajectory.initial_frames.length, "image"))];
  if (trajectory.video === null) return [...nodes, element("p", { class: "bad" }, "The rollout could not read it.")];
  const { duration_seconds: seconds, num_frames: frames, average_fps: fps, width, height } = trajectory.video;
  nodes.push(element("div", { class: "soft" }, `${clock(seconds)}, ${frames} frames, ${number(fps, 2)} frames/s, ${width}×${height}`));
  if (trajectory.more_videos) nodes.push(element("div", { class: "soft" }, `and ${plural(trajectory.more_videos.length, "further video")}; times of frames are those of their own video`));
  if (video !== null && video.note !== null) nodes.push(element("p", { class: "bad" }, `No thumbnails: ${video.note}`));
  nodes.push(timeline(trajectory, record.evidence_seconds), timelineLegend(trajectory, record.evidence_seconds),
    element("h3", {}, "Initial frames"), frameStrip(trajectory.initial_frames, summary, trajectory.video));
  return nodes;
}

function frameStrip(frames, summary, video) {
  const pictures = summary.video === null ? null : block(`video-${summary.video}`);
  const strip = element("div", { class: "frames" });
  let numMissing = 0;
  for (const frame of frames) {
    const figure = pictures === null ? null : frameFigure(frame, pictures, video);
    if (figure === null) numMissing += 1; else strip.append(figure);
  }
  if (numMissing === 0) return strip;
  const places = frames.map(placeOf).join("; ");
  const text = numMissing === frames.length ? `${plural(frames.length, "frame")}: ${places}` : `${numMissing} more; all: ${places}`;
  return element("div", {}, strip, element("div", { class: "soft" }, text));
}

// A frame; where a part of it was shown, the whole with a box around the part, and the part. Null without a thumbnail.
function frameFigure(frame, pictures, video) {
  const jpeg = pictures[frame.index];
  if (jpeg === undefined) return null;
  const region = frame.region ? `part ${frame.region.join(", ")} of it (left, top, right, bottom), ` : "";
  const caption = element("figcaption", { title: `frame ${frame.index}, ${clock(frame.timestamp_seconds, 2)}, ${region}shown at ${frame.width}×${frame.height} pixels` }, placeOf(frame));
  const whole = element("div", { class: "whole" }, picture(jpeg, `frame ${frame.index}`));
  if (!frame.region) return element("figure", {}, whole, caption);
  whole.append(boxOver(frame.region, video));
  const part = pictures[[frame.index, ...frame.region].join(",")];
  const pair = element("div", { class: "pair" }, whole, part === undefined ? null : picture(part, `part of frame ${frame.index}`));
  return element("figure", {}, pair, caption);
}

function picture(data, name, kind = "jpeg") {
  return element("img", { src: `data:image/${kind};base64,${data}`, alt: name, loading: "lazy" });
}

function boxOver([left, top, right, bottom], video) {
  const frame = { viewBox: `0 0 ${video.width} ${video.height}`, preserveAspectRatio: "none", class: "marks" };
  return svgElement("svg", frame, svgElement("rect", { class: "box", x: left, y: top, width: right - left, height: bottom - top }));
}

function turnView(turn, position, summary, video) {
  const marks = [turn.truncated ? "cut by its token limit" : null, turn.well_formed ? "well-formed" : "not well-formed",
    turn.answer === null ? null : "answers",
    ...Object.entries(turn.rewards || {}).map(([name, value]) => `${name} ${number(value, 4)}`)].filter((mark) => mark !== null).join(", ");
  const body = element("div", { class: "body" });
  if (turn.reasoning) body.append(lazyDetails("Native reasoning", () => element("div", { class: "text soft" }, turn.reasoning)));
  body.append(element("div", { class: "text" }, turn.text));
  for (const call of turn.calls) {
    const outcome = call.ok ? `ok, ${plural(call.frames.length, "frame")}, ${number(call.latency_ms, 1)} ms` : call.error || "refused";
    body.append(element("div", { class: call.ok ? "call" : "call refused" },
      element("b", {}, call.name), " ", element("code", {}, JSON.stringify(call.arguments)), " ",
      element("span", { class: call.ok ? "good" : "bad" }, outcome),
      Object.keys(call.result).length ? element("div", { class: "soft" }, JSON.stringify(call.result)) : null,
      call.text && !(turn.observation || "").includes(call.text) ? element("div", { class: "text" }, call.text) : null,
      ...(call.model_calls || []).map((exchange) => modelCallView(exchange, summary, video)),
      call.pictures ? element("div", { class: "frames" }, ...call.pictures.map(madePicture)) : null,
      call.frames.length ? frameStrip(call.frames, summary, video) : null));
  }
  if (turn.observation !== null) body.append(element("div", { class: "observation text" }, turn.observation));
  return element("section", { class: "turn" }, element("div", { class: "bar" }, element("b", {}, `Turn ${position + 1} `), element("span", { class: "soft" }, marks)), body);
}

// A picture that the tool made, as it was shown.
function madePicture({ png, width, height, digest }) {
  const caption = element("figcaption", { title: `digest ${digest}, shown at ${width}×${height} pixels` }, "made by the tool");
  return element("figure", {}, picture(png, "picture made by the tool", "png"), caption);
}

// One request of a tool to its model: frames, question, reply.
function modelCallView(exchange, summary, video) {
  const tokens = exchange.prompt_tokens + exchange.completion_tokens;
  const title = `Asked ${exchange.model || "the model"}: ${exchange.error || `${number(exchange.latency_ms, 1)} ms${tokens ? `, ${tokens} tokens` : ""}`}`;
  return lazyDetails(title, () => element("div", {}, exchange.frames.length ? frameStrip(exchange.frames, summary, video) : null,
    element("div", { class: "text soft" }, exchange.request), element("div", { class: exchange.reply === null ? "bad" : "text" }, exchange.reply === null ? exchange.error : exchange.reply)));
}

// The policy's reply to a further request that held frames alone.
function verificationView({ frames, text, error }, summary, video) {
  return element("section", { class: "turn" }, element("div", { class: "bar soft" }, "a separate request that is not trained on"),
    element("div", { class: "body" }, frames.length ? frameStrip(frames, summary, video) : null,
      text === null ? null : element("div", { class: "text" }, text), error === null ? null : element("div", { class: "bad" }, error)));
}

// Components of the rollout's own method, as far as they were recorded.
function rewardNames(summary, record) {
  const components = index.components[summary.method] || Object.keys(record.reward);
  return ["score", "acc", ...components.filter((name) => name !== "score" && name !== "acc")].filter((name) => name in record.reward);
}

function rewardTable(summary, record) {
  const names = rewardNames(summary, record);
  if (!names.length) return element("p", { class: "soft" }, "None was recorded.");
  const value = (name) => record.not_scored.includes(name) ? element("td", { class: "soft" }, "not scored: needs its group")
    : element("td", { class: "number" }, number(record.reward[name], 4));
  const row = (name) => element("tr", {}, element("td", {}, name), value(name));
  const rest = Object.keys(record.reward).filter((name) => !names.includes(name));
  const table = (rows) => element("table", {}, element("tbody", {}, ...rows.map(row)));
  return element("div", {}, table(names), rest.length ? lazyDetails("Judge and other entries", () => table(rest)) : null);
}

function groupTable(id) {
  const { uid, step } = index.rollouts[id];
  if (uid === null) return null;
  const members = [];
  index.rollouts.forEach((other, position) => { if (other.uid === uid && other.step === step) members.push(position); });
  members.sort((a, b) => compare(index.rollouts[a].session, index.rollouts[b].session));
  const differ = members.some((member) => Object.keys(index.rollouts[member].settings).length);
  const cells = (member) => [["", `${member.session}`], ["number", number(member.score)], ["number", number(member.advantage)],
    ["number", `${member.calls}`], ["number", `${member.frames}`], ["", member.stop], ["", member.answer === null ? "–" : member.answer],
    ...(differ ? [["", settingsText(member.settings)]] : [])];
  const rows = members.map((position) => element("tr", { "data-rollout": position, ...(position === id ? { "aria-current": "true" } : {}) },
    ...cells(index.rollouts[position]).map(([name, text]) => element("td", { class: name }, text))));
  const head = ["rollout", "reward", "advantage", "calls", "frames", "stop reason", "answer", ...(differ ? ["differs in"] : [])].map((name) => element("th", {}, name));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  table.addEventListener("click", chooseClicked);
  return element("div", { class: "wide" }, table);
}

function tokensView(record) {
  if (record.sequences.length === 0) {
    return element("p", { class: "soft" }, "The record holds none; video_tools.trainer.record_tokens=true writes them.");
  }
  return element("div", {}, ...record.sequences.map((sequence, position) => {
    const count = (mask) => sequence.response.reduce((sum, run) => sum + (run[2] === mask ? run[1] : 0), 0);
    const numPrompt = sequence.prompt.reduce((sum, run) => sum + run[1], 0);
    const title = `Sequence ${position + 1} of ${record.sequences.length}: ${numPrompt} prompt, ${count(1)} trained, ${count(0)} masked tokens`;
    return lazyDetails(title, () => sequenceView(sequence, block("vocabulary") || {}));
  }));
}

// A token is [id, times it stands there, mask, log-probability in the rollout, and in training].
function sequenceView(sequence, vocabulary) {
  const span = (kind) => ([id, times, , rollout, training]) => {
    const token = vocabulary[id];
    const text = token === undefined || token === "" ? `${id} ` : token.replace(/\n/g, "⏎\n");
    const recorded = [[rollout, "in the rollout"], [training, "in training"]].filter(([value]) => value !== undefined && value !== null);
    const logProbs = recorded.length ? `, log-probability ${recorded.map(([value, where]) => `${number(value, 4)} ${where}`).join(", ")}` : "";
    return element("span", { class: kind, title: `${id}${logProbs}` }, times > 1 ? `${text.trim()}×${times} ` : text);
  };
  const tokens = element("div", { class: "text tokens" }, ...sequence.prompt.map(span("prompt")),
    ...sequence.response.map((run) => span(run[2] ? "trained" : "observed")(run)));
  const legend = element("div", { class: "legend" }, ...[["prompt", "prompt"], ["trained", "trained (mask 1)"], ["observed", "observation (mask 0)"]]
    .map(([kind, text]) => element("span", { class: kind }, text)));
  const advantage = sequence.advantage === null ? null : element("div", { class: "soft" }, `advantage ${number(sequence.advantage, 4)}`);
  return element("div", {}, legend, advantage, tokens);
}

function lazyDetails(title, make) {
  const details = element("details", {}, element("summary", {}, title));
  details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) details.append(make()); });
  return details;
}

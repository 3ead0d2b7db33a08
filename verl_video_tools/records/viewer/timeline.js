const AXIS_STEPS_SECONDS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200];
const ROW_HEIGHT = 34;
const AXIS_HEIGHT = 20;
const MARGIN = 8;

// One row for the initial frames, one for each call, and one for the verification; a tick is a frame, the band of a call is
// what it spans.
function rowsOf(trajectory) {
  const rows = [{ label: `initial frames: ${trajectory.initial_frames.length}`, frames: trajectory.initial_frames, kind: "first" }];
  trajectory.turns.forEach((turn, index) => {
    for (const call of turn.calls) {
      const outcome = call.ok ? plural(call.frames.length, "frame") : (call.error || "refused").split(":")[0];
      rows.push({ label: `turn ${index + 1}: ${call.name}: ${outcome}`, frames: call.frames, kind: "tool", refused: !call.ok });
    }
  });
  if (trajectory.verification) {
    const { frames, error } = trajectory.verification;
    rows.push({ label: `verification: ${plural(frames.length, "frame")}`, frames, kind: "verification", refused: error !== null });
  }
  return rows;
}

function timelineLegend(trajectory, evidenceSeconds) {
  const items = [["first", "initial frames"], ["tool", "shown by calls"]];
  if (trajectory.verification) items.push(["verification", "shown for the verification"]);
  if (evidenceSeconds) items.push(["evidence", segmentText(evidenceSeconds)]);
  const swatch = (kind) => element("span", { class: `swatch ${kind}` });
  return element("div", { class: "soft" }, ...items.flatMap(([kind, text]) => [swatch(kind), `${text}  `]));
}

function segmentText([start, end]) {
  return `annotated segment, ${clock(start)} to ${clock(end)}`;
}

function timeline(trajectory, evidenceSeconds) {
  const rows = rowsOf(trajectory);
  const holder = element("div", { class: "timeline" });
  const draw = () => holder.replaceChildren(timelineSvg(trajectory.video.duration_seconds, rows, evidenceSeconds, Math.max(240, holder.clientWidth)));
  new ResizeObserver(draw).observe(holder);
  draw();
  return holder;
}

function timelineSvg(duration, rows, evidenceSeconds, width) {
  const height = rows.length * ROW_HEIGHT + AXIS_HEIGHT;
  const x = (seconds) => MARGIN + (Math.min(Math.max(seconds, 0), duration) / duration) * (width - 2 * MARGIN);
  const svg = svgElement("svg", { height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Frames that were shown, over the time of the video" });
  rows.forEach((row, number) => {
    const top = number * ROW_HEIGHT + 16;
    const label = svgElement("text", { x: MARGIN, y: top - 4, ...(row.refused ? { class: "refused" } : {}) }, row.label);
    svg.append(label, svgElement("rect", { class: "track", x: MARGIN, y: top, width: width - 2 * MARGIN, height: 14, rx: 3 }));
    if (evidenceSeconds) {
      const [start, end] = evidenceSeconds;
      const title = svgElement("title", {}, segmentText(evidenceSeconds));
      svg.append(svgElement("rect", { class: "evidence", x: x(start), y: top, width: Math.max(2, x(end) - x(start)), height: 14 }, title));
    }
    const times = row.frames.map((frame) => frame.timestamp_seconds);
    if (row.kind === "tool" && times.length) {
      const [first, last] = [Math.min(...times), Math.max(...times)];
      svg.append(svgElement("rect", { class: "span", x: x(first) - 1, y: top, width: x(last) - x(first) + 2, height: 14 }));
    }
    for (const frame of row.frames) {
      const at = x(frame.timestamp_seconds);
      const title = svgElement("title", {}, `frame ${frame.index}, ${clock(frame.timestamp_seconds, 2)}`);
      svg.append(svgElement("line", { class: row.kind, x1: at, x2: at, y1: top + 1, y2: top + 13 }, title));
    }
  });
  const step = AXIS_STEPS_SECONDS.find((candidate) => (candidate / duration) * (width - 2 * MARGIN) >= 60) || duration;
  const axisTop = rows.length * ROW_HEIGHT;
  for (let count = 0; count * step <= duration; count += 1) {
    const at = x(count * step);
    svg.append(svgElement("line", { class: "axis", x1: at, x2: at, y1: axisTop - 2, y2: axisTop + 4 }));
    const anchor = count === 0 ? "start" : at > width - 24 ? "end" : "middle";
    const label = { x: count === 0 ? MARGIN : at, y: axisTop + 15, "text-anchor": anchor };
    svg.append(svgElement("text", label, clock(count * step, step < 1 ? 1 : 0)));
  }
  return svg;
}

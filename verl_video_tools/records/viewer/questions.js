const LEAST_SHARED_BY_ALL = 24; // characters
const LEAST_SHARED_BY_MANY = 40;
const LEAST_WORDS_LEFT = 3;

// A function that shortens a question to what tells it from the others: words that all questions begin or end with, and
// long beginnings and ends that many share, become "…".
function shortener(questions) {
  const texts = [...new Set(questions)];
  if (texts.length < 2) return (question) => question;
  const all = texts.map((text) => text.split(" "));
  const [fromStart, fromEnd] = [sharedWords(all), sharedWords(all.map((words) => words.toReversed()))];
  return (question) => {
    const words = question.split(" ");
    const most = words.length - LEAST_WORDS_LEFT;
    const start = Math.max(0, Math.min(fromStart(words), most));
    const end = Math.max(0, Math.min(fromEnd(words.toReversed()), most - start));
    return `${start ? "… " : ""}${words.slice(start, words.length - end).join(" ")}${end ? " …" : ""}`;
  };
}

// A function of a question's words: with how many of its first words enough of all questions begin.
function sharedWords(all) {
  const counts = new Map();
  for (const words of all) for (const [beginning] of beginnings(words)) counts.set(beginning, (counts.get(beginning) || 0) + 1);
  const many = Math.max(3, all.length / 4);
  return (words) => {
    let shared = 0;
    for (const [beginning, count] of beginnings(words)) {
      const times = counts.get(beginning) || 0;
      if ((times === all.length && beginning.length >= LEAST_SHARED_BY_ALL) || (times >= many && beginning.length >= LEAST_SHARED_BY_MANY)) shared = count;
    }
    return shared;
  };
}

function beginnings(words) {
  let text = "";
  return words.map((word, position) => { text = `${text} ${word}`; return [text, position + 1]; });
}

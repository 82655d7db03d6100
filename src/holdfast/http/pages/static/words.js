// The same words as the server's.
export function span(seconds) {
  seconds = Math.max(0, seconds);
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= size * 2) return `${Math.round(seconds / size)} ${unit}`;
  return `${Math.round(seconds)} s`;
}

export function ago(seconds) {
  if (seconds < 1) return "just now";
  return seconds < 10 ? `${Math.floor(seconds)} s ago` : `${span(seconds)} ago`;
}

const two = (number) => String(number).padStart(2, "0");

export function clock(text) {
  const at = new Date(text), today = new Date();
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (at.toDateString() === today.toDateString()) return time;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time.slice(0, 5)}`;
}

// The same words as the server's.
export function span(seconds) {
  seconds = Math.max(0, seconds);
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= size * 2) return `${Math.round(seconds / size)} ${unit}`;
  return `${Math.round(seconds)} s`;
}

// Nobody needs a tenth of a second of how long something has been so, and it would change too often.
export const whole = (seconds) => (seconds < 10 ? `${Math.max(1, Math.floor(seconds))} s` : span(seconds));
export const ago = (seconds) => (seconds < 1 ? "just now" : `${whole(seconds)} ago`);

const two = (number) => String(number).padStart(2, "0");

export function clock(text) {
  const at = new Date(text), today = new Date();
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (at.toDateString() === today.toDateString()) return time;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time.slice(0, 5)}`;
}

// Texts of numbers and times. They are the same as those of the commands (core/units.py, core/time_text.py); a test compares them.

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

// Python rounds a half to the even number; a number is exactly between two tenths only if it is an odd number of quarters.
function whole(number) {
  const up = Math.round(number);
  return number - Math.floor(number) === 0.5 && up % 2 !== 0 ? up - 1 : up;
}
const tenths = (number) => (number * 4) % 2 !== 0 && Number.isInteger(number * 4) ? (whole(number * 10) / 10).toFixed(1) : number.toFixed(1);
const two = (number) => String(number).padStart(2, "0");

/** A number with separators of thousands, without fraction. */
export const count = (number) => (number ?? null) === null ? "–" : whole(number).toLocaleString("en-US");

/** A share as a percentage. */
export const percent = (share) => (share ?? null) === null ? "–" : `${whole(share * 100)}%`;

/** A rate: `412 rows/s`. */
export const rate = (rows) => (rows ?? null) === null ? "–" : `${count(rows)} rows/s`;

/** A duration in seconds: `0.4s`, `12s`, `3m20s`, `2h05m`, `4d3h`. */
export function duration(seconds) {
  if ((seconds ?? null) === null) return "–";
  if (seconds < 10) return `${tenths(seconds)}s`;
  const all = whole(seconds);
  if (all < 60) return `${all}s`;
  if (all < 3600) return `${Math.floor(all / 60)}m${two(all % 60)}s`;
  if (all < 86400) return `${Math.floor(all / 3600)}h${two(Math.floor((all % 3600) / 60))}m`;
  return `${Math.floor(all / 86400)}d${Math.floor((all % 86400) / 3600)}h`;
}

/** A number of bytes: `3.4 MiB`. */
export function bytes(number) {
  if ((number ?? null) === null) return "–";
  let unit = 0, size = number;
  while (size >= 1024 && unit < SIZES.length - 1) { size /= 1024; unit += 1; }
  return unit === 0 ? `${whole(size)} B` : `${tenths(size)} ${SIZES[unit]}`;
}

/** The zone in which times are shown: "utc" or "local". */
export const zone = {name: localStorage.getItem("scribengin.zone") === "local" ? "local" : "utc"};

/** A time (ISO 8601, or seconds since 1970): `2026-11-26T17:46:14Z`, or with the offset of the browser's zone. */
export function moment(value) {
  if (value === "" || (value ?? null) === null) return "–";
  const at = typeof value === "number" ? new Date(value * 1000) : new Date(value);
  if (Number.isNaN(at.getTime())) return String(value);
  if (zone.name === "utc") return `${at.toISOString().slice(0, 19)}Z`;
  const minutes = -at.getTimezoneOffset();
  const local = new Date(at.getTime() + minutes * 60000).toISOString().slice(0, 19);
  const apart = Math.abs(minutes);
  return `${local}${minutes < 0 ? "-" : "+"}${two(Math.floor(apart / 60))}:${two(apart % 60)}`;
}

/** The time of day alone, for what happened a moment ago. */
export const clock = (value) => moment(value).slice(11, 19);

/** How long ago a time is, as a duration. */
export function ago(value, now = Date.now()) {
  const at = typeof value === "number" ? value * 1000 : Date.parse(value);
  return Number.isNaN(at) ? "–" : duration(Math.max(0, Math.round((now - at) / 1000)));
}

/** `team=shop, site=a` as an object; null if it is not valid. */
export function pairsOf(text) {
  const pairs = text.split(",").map((each) => each.trim()).filter(Boolean).map((each) => each.split("="));
  return pairs.every((pair) => pair.length === 2 && pair[0] && pair[1]) ? Object.fromEntries(pairs.map(([name, value]) => [name.trim(), value.trim()])) : null;
}

/** What `pairsOf` reads. */
export const pairsText = (pairs) => Object.entries(pairs).map(([name, value]) => `${name}=${value}`).join(", ");

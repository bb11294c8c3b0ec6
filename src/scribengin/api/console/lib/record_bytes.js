// The bytes of records as text: nothing in them is invisible or changes the direction of what is beside it.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

const escape = (character) => `\\u${character.codePointAt(0).toString(16).padStart(4, "0")}`;

/** The text with control characters, and those that change the direction of text, as `\u202e`. */
export const visible = (text) => text.replace(HIDDEN, escape);

/** The bytes of a base64 text. */
export const fromBase64 = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

/** The bytes as base64. */
export const toBase64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

const hex = (byte) => byte.toString(16).padStart(2, "0");
const printed = (byte) => byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".";

/** The bytes as lines of 16: place, hexadecimal digits, characters. */
export function hexdump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = Array.from(bytes.subarray(at, at + 16));
    lines.push(`${at.toString(16).padStart(6, "0")}  ${row.map(hex).join(" ").padEnd(47)}  ${row.map(printed).join("")}`);
  }
  return lines.join("\n");
}

const wide = (byte) => byte < 0x80 ? 1 : byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 0;

/** The bytes as UTF-8, with `\xff` for what is not UTF-8 and `\\` for a backslash. `unescaped` reads it back. */
export function escaped(bytes) {
  const strict = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true});
  let text = "";
  for (let at = 0; at < bytes.length;) {
    const size = wide(bytes[at]);
    let part = `\\x${hex(bytes[at])}`, step = 1;
    if (size && at + size <= bytes.length) {
      try {
        part = strict.decode(bytes.subarray(at, at + size)).replace("\\", "\\\\").replace("\r", "\\x0d");
        step = size;
      } catch { /* it stays a byte */ }
    }
    text += part;
    at += step;
  }
  return text;
}

/** The bytes that `escaped` shows as this text. */
export function unescaped(text) {
  const parts = text.split(/(\\x[0-9a-fA-F]{2}|\\\\)/).map((part, nth) => nth % 2 === 0 ? [...new TextEncoder().encode(part)] : part === "\\\\" ? [0x5c] : [parseInt(part.slice(2), 16)]);
  return Uint8Array.from(parts.flat());
}

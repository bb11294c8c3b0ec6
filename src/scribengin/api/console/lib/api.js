// Requests to the API of the master that served this page.

const REVISION = "Scribengin-Revision";
let revision = 0;

/** A problem as the API reports it: what is wrong, and what to do. */
class Problem extends Error {
  constructor({code, message, remedy = "", status = 0, problems = []}) {
    super(message);
    Object.assign(this, {code, remedy, status, problems});
  }
}

const listeners = new Set();

/** Call `listener` whenever a request is refused because the browser has no session. Returns what ends it. */
export function onSignedOut(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The URL of a path of the API, below the folder of this page. */
export const address = (path) => new URL(`v1/${path}`, document.baseURI.split("#")[0]).href;

/** A path from names: path`flows/${flow}/tasks`. */
export const path = (parts, ...names) => parts.reduce((made, part, nth) => made + encodeURIComponent(names[nth - 1]) + part);

/** The answer to a GET. `exact`: whole numbers above 2^53 are texts with all their digits. Throws Problem. */
export const get = (where, options = {}) => asked("GET", where, undefined, options);

/** The answer to a write. `key`: repeated with the same key, it is executed once. Throws Problem. */
export const send = (method, where, body, {key, ...options} = {}) =>
  asked(method, where, body, {...options, headers: {...options.headers, ...(key ? {"Idempotency-Key": key} : {})}});

/** A key for one write, however often it is sent. */
export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Whole numbers that a JavaScript number cannot hold stay as they are written. */
const exactly = (_, value, given) => typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(given?.source ?? "") ? given.source : value;

async function asked(method, where, body, {headers = {}, signal, exact} = {}) {
  const sent = {Accept: "application/json", ...headers, ...(revision ? {[REVISION]: String(revision)} : {})};
  if (body !== undefined && !(body instanceof Blob)) sent["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(address(where), {
      method, signal, headers: sent, credentials: "same-origin", cache: "no-store",
      body: body === undefined ? undefined : body instanceof Blob ? body : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({code: "unreachable", message: "the master does not answer", remedy: "the page tries again by itself"});
  }
  revision = Math.max(revision, Number(answer.headers.get(REVISION)) || 0);
  if (answer.ok) return answer.status === 204 ? null : exact ? JSON.parse(await answer.text(), exactly) : answer.json();
  const said = await answer.json().catch(() => ({}));
  const problem = new Problem({
    code: said.code || "http", message: said.detail || said.title || `the master answered ${answer.status}`, remedy: said.remedy,
    status: answer.status, problems: said.problems || [],
  });
  if (answer.status === 401) listeners.forEach((listener) => listener(problem));
  throw problem;
}

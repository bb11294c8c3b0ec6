// What changes by itself: answers that are asked for again, and the stream of changes of flows, which resumes where it was cut.
import {address, get} from "./api.js";
import {useEffect, useMemo, useRef, useState} from "./html.js";

/** A value that components follow. */
export class Store {
  #followers = new Set();
  constructor(value) { this.value = value; }
  set(value) {
    this.value = value;
    this.#followers.forEach((follower) => follower(value));
  }
  follow(follower) {
    this.#followers.add(follower);
    return () => this.#followers.delete(follower);
  }
}

/** The present value of a store. */
export function useStore(store) {
  const [value, set] = useState(store.value);
  useEffect(() => { set(store.value); return store.follow(set); }, [store]);
  return value;
}

/** Since when the master has not answered (milliseconds since 1970), null while it does. */
export const lost = new Store(null);
const answered = () => { if (lost.value !== null) lost.set(null); };
const failed = (error) => { if ((!error.status || error.status >= 502) && lost.value === null) lost.set(Date.now()); };

/**
 * The answer to a GET, asked for again every `every` seconds while the page is visible, when `stamp` changes, and after each failure. `exact`: see `get`.
 * Returns {data, error, at, again}: after a failure `data` stays, and `at` says how old it is.
 */
export function useAnswer(where, {every = 0, stamp = null, exact = false} = {}) {
  const [state, setState] = useState({data: null, error: null, at: null, where: null});
  const again = useRef(() => {}), asked = useRef(stamp);
  useEffect(() => {
    asked.current = stamp;
    if (where === null) return undefined;
    let timer = 0, over = false, tries = 0, busy = false, due = false;
    const abort = new AbortController();
    async function ask() {
      clearTimeout(timer);
      if (document.hidden && every) return;
      if (busy) {  // an answer that takes long is not cut off by the next question
        due = true;
        return;
      }
      busy = true;
      try {
        const data = await get(where, {signal: abort.signal, exact});
        if (over) return;
        tries = 0;
        answered();
        setState({data, error: null, at: Date.now(), where});
        if (every) timer = setTimeout(ask, every * 1000);
      } catch (error) {
        if (over || error.name === "AbortError") return;
        failed(error);
        setState((before) => ({...(before.where === where ? before : {data: null, at: null}), error, where}));
        const passing = !error.status || error.status >= 500 || error.status === 429;
        tries += 1;
        if (every || passing) timer = setTimeout(ask, Math.min(10, passing ? 2 ** Math.min(tries, 4) / 2 : Math.max(every, 2)) * 1000);
      }
      busy = false;
      if (due) {
        due = false;
        ask();
      }
    }
    const shown = () => { if (!document.hidden) ask(); };
    again.current = ask;
    document.addEventListener("visibilitychange", shown);
    ask();
    return () => {
      over = true;
      again.current = () => {};
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [where, every]);
  useEffect(() => {
    if (asked.current === stamp) return;
    asked.current = stamp;
    again.current();
  }, [stamp]);
  const mine = state.where === where;
  return {data: mine ? state.data : null, error: mine ? state.error : null, at: mine ? state.at : null, again: () => again.current()};
}

/** All flows by name, as the stream of events tells them; null before the first event. */
export const flows = new Store(null);

/** Flow → its figures, as in /v1/metrics; null before they are known. */
export const figures = new Store(null);

const STEADY_S = 10;  // what the stream does not tell, such as the age of a report, is not older than this
const SILENT_MS = 15_000;  // the master sends at least a beat every 5 s

/** Follow the stream of events, until the returned function is called. A stream that ends, or says nothing, is opened again. */
export function followFlows() {
  let close = openStream(reopen), timer = 0;
  function reopen() {
    close();
    clearTimeout(timer);
    timer = setTimeout(() => { close = openStream(reopen); }, 2000);
  }
  const offline = () => { failed({}); close(); }, online = () => { close(); close = openStream(reopen); };
  addEventListener("offline", offline);
  addEventListener("online", online);
  return () => {
    removeEventListener("offline", offline);
    removeEventListener("online", online);
    clearTimeout(timer);
    close();
  };
}

/** One stream; `onEnd` is called when it has ended or is silent. Browsers resume one that is cut themselves, with the number of the last event. */
function openStream(onEnd) {
  const stream = new EventSource(address("events?figures=true"));
  let known = new Map(flows.value), queued = null, fresh = true, poll = 0, watch = 0, over = false;
  const heard = () => {
    answered();
    clearTimeout(watch);
    watch = setTimeout(() => { failed({}); onEnd(); }, SILENT_MS);
  };
  const later = (handle) => (event) => {  // a new stream has an event for each flow: they are shown as one change
    heard();
    known = queued === null ? new Map(known) : known;
    handle(JSON.parse(event.data));
    queued ??= requestAnimationFrame(() => { queued = null; flows.set(known); });
  };
  async function ask() {  // a standby has no figures: it asks the leader
    try {
      if (!document.hidden) figures.set(new Map((await get("metrics")).map((row) => [row.flow, row])));
    } catch (error) {
      failed(error);
    }
    if (!over) poll = setTimeout(ask, 5000);
  }
  stream.onopen = () => { fresh = true; heard(); };
  stream.onerror = () => {
    failed({});
    if (stream.readyState === EventSource.CLOSED) onEnd();
  };
  stream.addEventListener("beat", heard);
  stream.addEventListener("flows", later((names) => {
    const there = new Set(names);
    known = new Map([...known].filter(([name]) => there.has(name)));
  }));
  stream.addEventListener("flow", later(({flow}) => known.set(flow.flow, flow)));
  stream.addEventListener("deleted", later(({flow}) => known.delete(flow.flow)));
  stream.addEventListener("figures", (event) => {
    heard();
    const rows = JSON.parse(event.data);
    clearTimeout(poll);
    if (rows === null) return void ask();
    figures.set(new Map([...(fresh ? [] : figures.value), ...rows.map((row) => [row.flow, row])]));
    fresh = false;
  });
  return () => {
    over = true;
    clearTimeout(poll);
    clearTimeout(watch);
    stream.close();
  };
}

/** The answer to a GET about a flow, asked for again when the stream says that the flow, or a figure of it, has changed. */
export function useFlowAnswer(flow, where) {
  const row = useStore(flows)?.get(flow), now = useStore(figures)?.get(flow);
  const stamp = useMemo(() => ({}), [row, now]);
  return useAnswer(where, {every: STEADY_S, stamp});
}

/** Seconds since a moment, counted on while it is shown. */
export function useAge(since) {
  const [, tick] = useState(0);
  useEffect(() => {
    if (since === null) return undefined;
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, [since]);
  return since === null ? null : (Date.now() - since) / 1000;
}

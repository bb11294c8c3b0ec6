// Answers that cost the master a process of its own: they are asked for when a count changes, and not more often than every ten seconds.
import {html, useEffect, useRef, useState} from "./html.js";
import {clock} from "./format.js";

const SECONDS = 10;

/** For the `stamp` of useAnswer: null, until the value is another than the first one that was known; then the value, changed at most every ten seconds. */
export function useSeldom(value) {
  const [shown, show] = useState(null);
  const first = useRef(null), at = useRef(Date.now());
  first.current ??= value;
  useEffect(() => {
    if (value === null || value === (shown ?? first.current)) return undefined;
    const timer = setTimeout(() => { at.current = Date.now(); show(value); }, Math.max(0, at.current + SECONDS * 1000 - Date.now()));
    return () => clearTimeout(timer);
  }, [value, shown]);
  return shown;
}

/** How old an answer is, and a button that asks again. */
export const Again = ({of}) => html`<span class="row quiet">${of.at !== null && `as of ${clock(of.at / 1000)}`}<button type="button" onClick=${of.again}>again</button></span>`;

/** The Batches that the workers of a flow have decided since this master leads, of all tiers together; null before the first answer. */
export const decided = (metrics) => metrics && metrics.tiers.reduce((sum, tier) => sum + tier.totals.batches, 0);

// Charts over time, drawn by uPlot in the colours of the page.
import uPlot from "../vendor/uplot.js";
import {html, useEffect, useLayoutEffect, useRef, useState} from "./html.js";
import {moment, zone} from "./format.js";

const HIGH = 190;  // pixels

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** A number that changes with the colours of the page. */
function useColours() {
  const [turn, redraw] = useState(0);
  useEffect(() => {
    const changed = () => redraw((nth) => nth + 1);
    const dark = matchMedia("(prefers-color-scheme: dark)"), seen = new MutationObserver(changed);
    dark.addEventListener("change", changed);
    seen.observe(document.documentElement, {attributeFilter: ["data-theme"]});
    return () => { dark.removeEventListener("change", changed); seen.disconnect(); };
  }, []);
  return turn;
}

function options({lines, says}, width) {
  const axis = {stroke: colour("quiet"), grid: {stroke: colour("line"), width: 1}, ticks: {stroke: colour("line"), width: 1}};
  const said = (value) => value === null || value === undefined ? "–" : says(value);
  return {
    width, height: HIGH, padding: [null, 32, null, null], cursor: {y: false},
    tzDate: (seconds) => zone.name === "utc" ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000),
    axes: [{...axis, space: 90, values: (_, times, __, ___, step) => times.map((time) => step >= 86400 ? moment(time).slice(5, 10) : step >= 3600 ? moment(time).slice(5, 16).replace("T", " ") : moment(time).slice(11, step >= 60 ? 16 : 19))}, {...axis, size: 78, values: (_, values) => values.map(said)}],
    scales: {y: {range: (_, low, high) => [0, Math.max(1, high ?? 1) * 1.05]}},
    series: [{label: "time", value: (_, time) => moment(time)}, ...lines.map((line) => ({label: line.name, stroke: colour(line.colour), width: 1.6, dash: line.dash, value: (_, value) => said(value)}))],
  };
}

/**
 * A chart. chart: {title, says: number => text, lines: [{name, colour: a colour of style.css, dash, of: sample => number or null}]};
 * samples: in order, each with `at` in seconds since 1970.
 */
export function Chart({chart, samples}) {
  const box = useRef(null), drawn = useRef(null);
  const colours = useColours();
  const data = [samples.map((each) => each.at), ...chart.lines.map((line) => samples.map(line.of))];
  useLayoutEffect(() => {
    const place = box.current, made = new uPlot(options(chart, place.clientWidth), data, place);
    const sized = new ResizeObserver(() => made.setSize({width: place.clientWidth, height: HIGH}));
    drawn.current = made;
    sized.observe(place);
    return () => { sized.disconnect(); made.destroy(); };
  }, [colours, chart.title]);
  useLayoutEffect(() => drawn.current.setData(data), [samples]);
  const last = samples.at(-1);
  const about = last ? chart.lines.map((line) => [line.name, line.of(last)]).filter(([, value]) => (value ?? null) !== null).map(([name, value]) => `${name} ${chart.says(value)}`).join(", ") : "no samples";
  return html`<figure class="chart"><figcaption>${chart.title}</figcaption><div ref=${box} role="img" aria-label=${`${chart.title}; last: ${about || "unknown"}`}></div></figure>`;
}

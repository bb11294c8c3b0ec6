// A table of many rows: only those in sight are drawn.
import {html, useEffect, useRef, useState} from "./html.js";

const ROW = 50;  // pixels; the same as the height in style.css

const look = (column) => [column.kind, column.wide && "wide"].filter(Boolean).join(" ");

/**
 * The table. `kind`: the class that says how wide its columns are. `columns`: [{name, of: row => cell, kind, wide: not on a narrow screen,
 * about: row => the title of the cell}]; `keyOf`: row => its identity.
 */
export function Window({label, kind, columns, rows, keyOf}) {
  const box = useRef(null);
  const [top, scroll] = useState(0);
  const [height, grow] = useState(800);
  useEffect(() => {
    const shown = box.current;
    const seen = new ResizeObserver(() => grow(shown.clientHeight));
    seen.observe(shown);
    return () => seen.disconnect();
  }, []);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW) + 5);
  const first = Math.min(last, Math.max(0, Math.floor(top / ROW) - 5));
  return html`<div class="window" ref=${box} tabindex="0" role="table" aria-label=${label} aria-rowcount=${rows.length + 1} onScroll=${(event) => scroll(event.target.scrollTop)}>
    <div role="rowgroup"><div class=${`window-row head ${kind}`} role="row" aria-rowindex="1">${columns.map((each) => html`<span role="columnheader" class=${look(each)}>${each.name}</span>`)}</div></div>
    <div role="rowgroup" style=${{paddingTop: `${first * ROW}px`, paddingBottom: `${(rows.length - last) * ROW}px`}}>
      ${rows.slice(first, last).map((row, nth) => html`<div class=${`window-row ${kind}`} role="row" key=${keyOf(row)} aria-rowindex=${first + nth + 2}>
        ${columns.map((each) => html`<span role="cell" class=${look(each)} title=${each.about?.(row)}>${each.of(row)}</span>`)}</div>`)}
    </div></div>`;
}

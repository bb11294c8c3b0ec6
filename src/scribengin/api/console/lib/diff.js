// The difference of two texts, line by line.

const MOST = 4_000_000;  // cells of the table of common lines

/** Pairs of lines: [left, right], of equal lines both; null where a text has no such line. Each line is {number, text}. */
export function diff(before, after) {
  const left = before.split("\n"), right = after.split("\n");
  let start = 0, end = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start += 1;
  while (end < left.length - start && end < right.length - start && left.at(-1 - end) === right.at(-1 - end)) end += 1;
  const line = (lines, nth) => ({number: nth + 1, text: lines[nth]});
  const pairs = left.slice(0, start).map((_, nth) => [line(left, nth), line(right, nth)]);
  pairs.push(...changed(left, right, start, left.length - end, right.length - end).map(([one, other]) => [one === null ? null : line(left, one), other === null ? null : line(right, other)]));
  for (let nth = end; nth > 0; nth -= 1) pairs.push([line(left, left.length - nth), line(right, right.length - nth)]);
  return pairs;
}

function changed(left, right, start, leftEnd, rightEnd) {
  const rows = leftEnd - start, columns = rightEnd - start, made = [];
  if (rows * columns > MOST) {
    for (let nth = 0; nth < Math.max(rows, columns); nth += 1) made.push([nth < rows ? start + nth : null, nth < columns ? start + nth : null]);
    return made;
  }
  const common = Array.from({length: rows + 1}, () => new Uint32Array(columns + 1));
  for (let one = rows - 1; one >= 0; one -= 1) {
    for (let other = columns - 1; other >= 0; other -= 1) {
      common[one][other] = left[start + one] === right[start + other] ? common[one + 1][other + 1] + 1 : Math.max(common[one + 1][other], common[one][other + 1]);
    }
  }
  let one = 0, other = 0;
  while (one < rows || other < columns) {
    if (one < rows && other < columns && left[start + one] === right[start + other]) {
      made.push([start + one, start + other]);
      one += 1;
      other += 1;
    } else if (one < rows && (other >= columns || common[one + 1][other] >= common[one][other + 1])) {
      made.push([start + one, null]);
      one += 1;
    } else {
      made.push([null, start + other]);
      other += 1;
    }
  }
  return made;
}

const MASK = "•••";  // the API's, for the value of a secret

/** `text`, with the secrets masked that `masked`, another text, has masked in the same lines. */
export function maskedAs(masked, text) {
  const lines = masked.split("\n").filter((line) => line.includes(MASK)).map((line) => [line, new RegExp(`^${line.split(MASK).map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".+")}$`)]);
  return text.split("\n").map((line) => lines.find(([, shape]) => shape.test(line))?.[0] ?? line).join("\n");
}

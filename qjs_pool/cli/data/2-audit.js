// Is the data sound? Collect what is not, and go on with the rest.
const problems = { 'sent twice': [], 'no price': [], 'negative quantity': [], 'shipped too early': [] };
const seen = new Set();
const clean = orders.filter((o) => {
  const found = [
    seen.has(o.id) && 'sent twice',
    Number.isNaN(o.price) && 'no price',
    o.quantity <= 0 && 'negative quantity',
    o.shipped !== '' && o.shipped < o.ordered && 'shipped too early',
  ].filter(Boolean);
  seen.add(o.id);
  found.forEach((name) => problems[name].push(o.id));
  return found.length === 0;
});
console.table(Object.entries(problems).map(([problem, ids]) =>
  ({ problem, rows: ids.length, first: ids[0] })));
`${clean.length} of ${orders.length} rows are sound`;

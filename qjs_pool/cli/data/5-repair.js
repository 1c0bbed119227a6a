// The error said where. The names are all still there, and may be declared again.
const best = ranking.find((row) => row.country === 'DE');
const share = best.revenue / ranking.reduce((sum, row) => sum + row.revenue, 0);

const months = Array.from({ length: 12 }, () => 0);
sold.forEach((o) => { months[Number(o.ordered.slice(5, 7)) - 1] += net(o); });
const top = Math.max(...months);
months.forEach((sum, i) => console.log(
  `2025-${String(i + 1).padStart(2, '0')} ${'#'.repeat(Math.round(40 * sum / top)).padEnd(40)} ${Math.round(sum)}`));
`DE has ${(share * 100).toFixed(1)} % of the revenue`;

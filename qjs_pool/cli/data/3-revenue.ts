// Revenue by country, without what was cancelled or sent back.
const net = (o: Order): number => o.quantity * o.price * (1 - o.discount / 100);
const sold = clean.filter((o) => o.status === 'delivered');

const byCountry = new Map<string, { orders: number; revenue: number }>();
for (const o of sold) {
  const sum = byCountry.get(o.country) ?? { orders: 0, revenue: 0 };
  byCountry.set(o.country, { orders: sum.orders + 1, revenue: sum.revenue + net(o) });
}
const ranking = [...byCountry]
  .map(([country, sum]) => ({ country, orders: sum.orders, revenue: Math.round(sum.revenue) }))
  .sort((a, b) => b.revenue - a.revenue);
console.table(ranking.slice(0, 5));
({ total: Math.round(sold.reduce((sum, o) => sum + net(o), 0)), countries: ranking.length });

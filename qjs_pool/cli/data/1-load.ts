// The file is in `orders_csv`. Read it properly: fields may be quoted, with commas inside.
interface Order {
  id: string; ordered: string; shipped: string; customer: string; country: string;
  category: string; product: string; quantity: number; price: number; discount: number;
  status: 'delivered' | 'returned' | 'cancelled'; note: string;
}

function parseCsv(text: string): string[][] {
  const rows: string[][] = [[]];
  const field = /("(?:[^"]|"")*"|[^,\n]*)(,|\n|$)/y;
  while (field.lastIndex < text.length) {
    const [, raw, end] = field.exec(text)!;
    rows[rows.length - 1].push(raw.startsWith('"') ? raw.slice(1, -1).replace(/""/g, '"') : raw);
    if (end === '\n') rows.push([]);
  }
  return rows.filter((row) => row.length > 1);
}

const [header, ...body] = parseCsv(orders_csv);
const orders: Order[] = body.map(([id, ordered, shipped, customer, country, category, product,
  quantity, price, discount, status, note]) => ({
  id, ordered, shipped, customer, country, category, product, quantity: Number(quantity),
  price: price === '' ? NaN : Number(price), discount: Number(discount),
  status: status as Order['status'], note,
}));
console.log(`${orders.length} orders, ${header.length} columns`);
orders.find((order) => order.note.includes('"'));

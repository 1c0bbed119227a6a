/** Place an order. Returns its lines. */
tools.placeOrder(input: {
  lines: {
    sku: string;
    /** How many. Default: 1 */
    qty?: number;
    ship_to: {
      /** Three letters */
      code: string;
      floor?: number | null;
    };
  }[];
  notes: Record<string, number>;
  color: "red" | "blue";
  /** Default: "slow" */
  speed?: "slow" | "fast";
}): Promise<{
  sku: string;
  /** How many. Default: 1 */
  qty: number;
  ship_to: {
    /** Three letters */
    code: string;
    floor: number | null;
  };
}[]>

/** The time. */
tools.getTime(): Promise<string>

/** Walk a tree *\/ '''js. */
tools.walk(input: {
  root: {
    name: string;
    /** Default: [] */
    children?: unknown /* Node */[];
  };
  /** Default: [1, "a"] */
  pair?: [number, string];
  anything?: unknown;
}): Promise<string | null>

/** Fetch a page. */
tools.fetch(input: { url: string }): Promise<Uint8Array>

/** Items of a server. */
tools.mcpListItems(input: {
  filter: string | { lo?: number } & { hi?: number };
  /** Default: 10 */
  "max-items"?: number | null;
  tags?: ("a" | "b" | 3)[];
  extra?: Record<string, string>;
}): Promise<unknown>

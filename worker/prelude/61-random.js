// One seeded generator for Math.random and crypto: reproducible, and reseeded at each fork.
//
// The algorithm is xoshiro128** 1.1 (David Blackman, Sebastiano Vigna, public domain), which
// passes the usual statistical batteries. It is NOT cryptographic: whoever knows the seed, or
// enough output, knows the rest. Only the guest could gain by that, about its own numbers.
const random = (() => {
  const { MathImul, StringPrototypeCharCodeAt } = primordials;

  // The state: four 32-bit words, not in an array because that is twice as slow.
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;

  // The finalizer of MurmurHash3: spreads every seed bit over a word.
  function mix(value) {
    let h = value | 0;
    h = MathImul(h ^ (h >>> 16), 0x85ebca6b);
    h = MathImul(h ^ (h >>> 13), 0xc2b2ae35);
    return h ^ (h >>> 16);
  }

  function reseed(seed) {
    a = 0x9e3779b9;
    b = 0x243f6a88;
    c = 0xb7e15162;
    d = seed.length;
    // Every character goes through all four words, so the seed may be of any length.
    for (let i = 0; i < seed.length; i++) {
      const stirred = mix(a ^ MathImul(StringPrototypeCharCodeAt(seed, i) + 1, 0x01000193));
      a = b;
      b = c;
      c = d ^ stirred;
      d = mix(stirred + i);
    }
    // The all-zero state is the one fixed point of the generator.
    if ((a | b | c | d) === 0) a = 1;
    for (let i = 0; i < 16; i++) word();
  }

  function word() {
    const product = MathImul(b, 5);
    const shifted = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= shifted;
    d = (d << 11) | (d >>> 21);
    return MathImul((product << 7) | (product >>> 25), 9) >>> 0;
  }

  reseed("");
  const methods = {
    // 53 random bits, as many as a double between 0 and 1 holds.
    random() {
      const high = word() >>> 5;
      const low = word() >>> 6;
      return (high * 67108864 + low) / 9007199254740992;
    },
  };
  web.hide(globalThis.Math, "random", methods.random);

  bridgeTable.reseed = (seed) => {
    reseed(seed);
    return 1;
  };
  onConfigure((options) => {
    if (typeof options.seed === "string") reseed(options.seed);
  });
  return { __proto__: null, word };
})();

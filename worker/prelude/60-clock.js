// The guest's clock: a Date that reads the time the host allows, and nothing else about dates.
//
// "off" is always 0, "frozen" is the wall time at which the eval started, "real" is the real one.
{
  const {
    Date: NativeDate, DateNow, DatePrototype, DatePrototypeToString, ObjectDefineProperty,
    ReflectConstruct,
  } = primordials;

  let mode = "off";
  let frozenMs = 0;

  function nowMs() {
    if (mode === "real") return DateNow();
    return mode === "frozen" ? frozenMs : 0;
  }

  // The arguments stay an array of our own: spreading it would run the guest's array iterator.
  function Date(...parts) {
    if (new.target === undefined) return DatePrototypeToString(new NativeDate(nowMs()));
    return ReflectConstruct(NativeDate, parts.length === 0 ? [nowMs()] : parts, new.target);
  }

  ObjectDefineProperty(Date, "length", { __proto__: null, value: 7 });
  ObjectDefineProperty(Date, "prototype", {
    __proto__: null, value: DatePrototype, writable: false,
  });
  web.hide(Date, "now", { now() { return nowMs(); } }.now);
  web.hide(Date, "parse", NativeDate.parse);
  web.hide(Date, "UTC", NativeDate.UTC);
  // Without this the real clock is one `new (new Date().constructor)()` away.
  web.hide(DatePrototype, "constructor", Date);
  defineGlobal("Date", Date);
  // Some builds of the classic engine bring a raw clock of their own.
  delete globalThis.__date_clock;

  onConfigure((options) => {
    const { clock } = options;
    if (clock === "off" || clock === "frozen" || clock === "real") mode = clock;
    if (mode === "frozen") frozenMs = DateNow();
  });
  // The host's time in the hooks is a monotonic one, for timers; the wall time is ours to read.
  onEvalStart(() => {
    if (mode === "frozen") frozenMs = DateNow();
  });
}

// `task`: a tool that is a global, where the host offers one. Elsewhere the name is the guest's.
//
// It is one function for good, whichever tool is behind it: a program may keep it under another
// name, and a snapshot refer to it.
const task = (() => {
  const { ObjectFreeze, Promise, TypeError } = primordials;

  const NAME = "task";
  let call; // undefined while there is no such tool

  const holder = {
    task(input) {
      if (call !== undefined) return call(input);
      return new Promise((_, reject) => reject(new TypeError("task() is not offered here")));
    },
  };
  ObjectFreeze(holder.task);

  onConfigure((options) => {
    const given = options.tools;
    if (given === undefined) return;
    call = undefined;
    for (let i = 0; given !== null && i < given.length; i++) {
      const { name, required, description, isGlobal } = given[i];
      if (isGlobal !== true || name !== NAME) continue;
      call = makeTool(NAME, required === undefined ? null : required, `${NAME}()`);
      showGlobalTool(NAME, holder.task, description);
    }
    if (call === undefined) withdrawReserved(NAME);
    else defineReserved(NAME, holder.task);
  });

  return holder.task;
})();

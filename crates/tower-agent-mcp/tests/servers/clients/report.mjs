// Uses a server, and prints what it has seen as JSON.
export async function report({ list, call, answer }) {
  const text = (result) => result.content.map((block) => block.text).join("");
  const tools = (await list()).tools.map((tool) => tool.name);

  const progress = [];
  const asked = await call("helper", { request: "Hello." }, (step) => progress.push(step.message));
  const failed = await call("fails", {});
  answer({ approved: true });
  const paid = await call("clerk", { request: "Pay." });
  answer(undefined);
  const declined = await call("clerk", { request: "Pay." });
  const many = await Promise.all(
    Array.from({ length: 50 }, (_, value) => call("same", { value })),
  );
  let unknown = false;
  await call("nothing", {}).then(
    (result) => (unknown = result.isError === true),
    () => (unknown = true),
  );
  console.log(
    JSON.stringify({
      tools,
      asked: text(asked),
      progress: progress.join(""),
      failed: [failed.isError, text(failed)],
      paid: text(paid),
      declined: text(declined),
      many: many.map(text),
      unknown,
    }),
  );
}
